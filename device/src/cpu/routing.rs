//! Routings on a simulated rank: its table, its arrangement, and the rows that go by it.

use std::vec::Vec;

use super::protocol::Cta;
use super::whole::on_rank;
use super::window::Window;
use crate::abi::{Head, MatrixArg};
use crate::element::Element;
use crate::layout::routing::*;
use crate::memory::word;
use crate::order::tiles;
use crate::place::{MatrixPlace, SlotPlace};
use crate::routing::{Entry, RoutingPlace, RoutingSize, Scattered};
use crate::shape::TileShape;

fn set(address: u64, value: u32) {
    // SAFETY: callers pass the addresses of words of tables and matrices, within their bounds.
    unsafe { (address as *mut u32).write(value) }
}

/// The words of a matrix's first `columns` columns, row after row.
fn words(matrix: &MatrixArg, columns: u32) -> impl Iterator<Item = u32> {
    let row = move |row: u32| matrix.data + row as u64 * matrix.pitch;
    (0..matrix.rows).flat_map(move |index| (0..columns).map(move |column| word(row(index) + 4 * column as u64)))
}

/// This rank's table: rows for each group, then its entries.
fn table(size: &RoutingSize, choices: &MatrixArg, weights: &MatrixArg) -> Vec<u32> {
    let entries = size.rows as usize * size.choices as usize;
    let first = counts(size.groups) as usize;
    let mut table = std::vec![NOWHERE; first + entries * ENTRY as usize];
    table[..first].fill(0);
    let chosen = words(choices, size.choices).zip(words(weights, size.choices));
    for (index, (group, weight)) in chosen.enumerate().filter(|(_, (group, _))| *group < size.groups) {
        let number = &mut table[group as usize];
        *number += 1;
        let what = Entry::packed(group, *number - 1);
        let entry = first + index * ENTRY as usize;
        table[entry..entry + 2].copy_from_slice(&[what, weight]);
    }
    table
}

/// This rank's arrangement, and the number of its blocks, which are left out if there are too many.
fn arrangement(cta: &Cta, size: &RoutingSize, count: impl Fn(u32, u32) -> u32) -> (Vec<u32>, u32) {
    let Head { rank, world, .. } = *cta.head();
    let each = groups_each(size.groups, world);
    let mut words = std::vec![0; starts(size.groups, world) as usize];
    let mut blocks = 0;
    for group in 0..each {
        let mut rows = 0;
        for source in (rank..world).chain(0..rank) {
            words[(HEADER + source * each + group) as usize] = blocks * size.block_rows + rows;
            rows += count(source, rank * each + group);
        }
        for block in 0..tiles(rows, size.block_rows) {
            words.extend([group, size.block_rows.min(rows - block * size.block_rows)]);
        }
        blocks += tiles(rows, size.block_rows);
    }
    words[0] = blocks;
    words[1] = cta.epoch();
    (words, blocks)
}

pub(super) fn arrange(cta: &Cta, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) {
    let (Head { rank, world, .. }, size) = (*cta.head(), &routing.size);
    let table = table(size, choices, weights);
    let write = |words: &[u32], data: u64| {
        for (index, value) in words.iter().enumerate() {
            set(data + 4 * index as u64, *value);
        }
    };
    cta.send(&routing.table(rank), |_, data| write(&table, data));
    let tables: Vec<_> = (0..world).map(|source| cta.receive(&routing.table(source))).collect();
    let count = |source: u32, group: u32| match group < size.groups {
        true => word(tables[source as usize] + 4 * group as u64),
        false => 0,
    };
    for group in 0..size.groups {
        set(loads.data + 4 * group as u64, (0..world).map(|source| count(source, group)).sum());
    }
    let (words, blocks) = arrangement(cta, size, count);
    let slot = routing.arrangement(cta.head());
    if blocks > size.blocks() {
        cta.overflow(&slot, blocks, size.blocks());
    }
    cta.send(&slot, |_, data| write(&words, data));
}

pub(super) fn scatter<E: Element>(cta: &Cta, routing: &RoutingPlace, rows: &Scattered) {
    let Scattered { source, first, count, from, to, gate } = *rows;
    let arranged = routing.arranged(cta.head());
    cta.await_lender(source);
    let (from, routed) = (on_rank(&from, source), arranged.rows_of(source));
    for row in first..(first + count).min(routing.size.rows) {
        for choice in 0..routing.size.choices {
            let Some(place) = routed.place(&routed.entry(row, choice)) else { continue };
            let at = |matrix: MatrixArg, row: u32| MatrixPlace { matrix, part: 0, row, column: 0 };
            let columns = from.columns as usize;
            let elements = Window::<E>::matrix(&at(from, row)).read(1, 0, columns);
            Window::<E>::matrix(&at(to, place)).write(&elements, columns);
            let block = place / routing.size.block_rows;
            cta.arrive(&SlotPlace { index: [block, 0, 0, 0], ..gate }, arranged.rows(block));
        }
    }
}

pub(super) fn weighted_sum<E: Element, S: TileShape>(
    cta: &Cta,
    routing: &RoutingPlace,
    source: u32,
    row: u32,
    from: &MatrixPlace,
) -> Vec<f32> {
    let routed = routing.arranged(cta.head()).rows_of(source);
    let mut sums = std::vec![0.0; S::ROWS * S::COLUMNS];
    for (row, sums) in (row..routing.size.rows).zip(sums.chunks_exact_mut(S::COLUMNS)) {
        for choice in 0..routing.size.choices {
            let entry = routed.entry(row, choice);
            let Some(place) = routed.place(&entry) else { continue };
            let part = Window::<E>::matrix(&MatrixPlace { row: place, ..*from }).read(1, 0, S::COLUMNS);
            for (sum, element) in sums.iter_mut().zip(part) {
                *sum += entry.weight() * element.to_f32();
            }
        }
    }
    sums
}
