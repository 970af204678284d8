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
use crate::routing::{Entry, Misfit, Placed, RoutingPlace, RoutingSize, Scattered};
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

/// This rank's table: rows for each group, and for those before it; then its entries, and the list.
fn table(size: &RoutingSize, choices: &MatrixArg, weights: &MatrixArg) -> Vec<u32> {
    let total = size.rows as usize * size.choices as usize;
    let (first_entry, first_listed) =
        (entries(size.groups) as usize, list(size.rows, size.choices, size.groups) as usize);
    let mut table = std::vec![NOWHERE; first_listed + total];
    let of_choices = words(choices, size.choices).zip(words(weights, size.choices)).enumerate();
    let chosen: Vec<_> = of_choices.filter(|(_, (group, _))| *group < size.groups).collect();
    let (counts, firsts) = table[..first_entry].split_at_mut(numbers(size.groups) as usize);
    counts.fill(0);
    chosen.iter().for_each(|(_, (group, _))| counts[*group as usize] += 1);
    let mut before = 0;
    for (first, count) in firsts.iter_mut().zip(counts) {
        *first = before;
        before += *count;
    }
    let mut next = firsts.to_vec();
    for (index, (group, weight)) in chosen {
        let position = next[group as usize];
        next[group as usize] += 1;
        let entry = first_entry + index * ENTRY as usize;
        table[entry..entry + 2].copy_from_slice(&[Entry::packed(group, position), weight]);
        table[first_listed + position as usize] = index as u32 / size.choices;
    }
    table
}

/// What the tables say of a rank's rows for a group: how many there are, and how many for the groups before.
#[derive(Clone, Copy)]
struct Listed {
    count: u32,
    before: u32,
}

/// This rank's arrangement, and the number of its blocks, which are left out if there are too many.
fn arrangement(cta: &Cta, size: &RoutingSize, listed: impl Fn(u32, u32) -> Listed) -> (Vec<u32>, u32) {
    let Head { rank, world, .. } = *cta.head();
    let each = groups_each(size.groups, world);
    let mut words = std::vec![0; blocks(size.groups, world) as usize];
    let mut all = 0;
    for group in 0..each {
        let mut row = all * size.block_rows;
        for source in (rank..world).chain(0..rank) {
            let Listed { count, before } = listed(source, rank * each + group);
            words[(starts(size.groups, world) + source * each + group) as usize] = row;
            words[(HEADER + source * each + group) as usize] = row.wrapping_sub(before);
            row += count;
        }
        let rows = row - all * size.block_rows;
        for block in 0..tiles(rows, size.block_rows) {
            words.extend([group, size.block_rows.min(rows - block * size.block_rows)]);
        }
        all += tiles(rows, size.block_rows);
    }
    words[0] = all;
    words[1] = cta.epoch();
    (words, all)
}

/// One CTA does it all.
pub(super) fn arrange(cta: &Cta, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) {
    if routing.member.index != 0 {
        return;
    }
    let (Head { rank, world, .. }, size) = (*cta.head(), &routing.size);
    let table = table(size, choices, weights);
    let write = |words: &[u32], data: u64| {
        for (index, value) in words.iter().enumerate() {
            set(data + 4 * index as u64, *value);
        }
    };
    cta.send(&routing.table(rank), |_, data| write(&table, data));
    let tables: Vec<_> = (0..world).map(|source| cta.receive(&routing.table(source))).collect();
    let listed = |source: u32, group: u32| {
        let number = |index: u32| word(tables[source as usize] + 4 * index as u64);
        match group < size.groups {
            true => Listed { count: number(group), before: number(numbers(size.groups) + group) },
            false => Listed { count: 0, before: 0 },
        }
    };
    for group in 0..size.groups {
        set(loads.data + 4 * group as u64, (0..world).map(|source| listed(source, group).count).sum());
    }
    let (words, blocks) = arrangement(cta, size, listed);
    let slot = routing.arrangement(cta.head());
    if blocks > size.blocks() {
        cta.overflow(&slot, blocks, size.blocks());
    }
    cta.send(&slot, |_, data| write(&words, data));
}

pub(super) fn scatter<E: Element>(cta: &Cta, routing: &RoutingPlace, rows: &Scattered) {
    let Scattered { first, count, block, from, to, gate } = *rows;
    let Head { rank, world, .. } = *cta.head();
    let arranged = routing.arranged(cta.head());
    if let Some(misfit) = routing.misfit_scattered(rows) {
        cta.misfit(routing, &misfit);
    }
    let group = arranged.group(block);
    let end = block * routing.size.block_rows + arranged.rows(block);
    for row in first..(first + count).min(end) {
        let mut sources = (rank..world).chain(0..rank);
        let source = sources.rfind(|source| arranged.start(*source, group) <= row);
        let source = source.expect("a group's rows start with those of some rank");
        cta.await_lender(source);
        let (of_rank, routed) = (on_rank(&from, source), arranged.rows_of(source));
        let chosen = routed.row_at(row, group);
        if chosen >= of_rank.rows {
            cta.misfit(routing, &Misfit { data: from.data, ..routing.misfit_row(&of_rank, chosen) });
        }
        let places = || (0..routing.size.choices).filter_map(|choice| routed.place(&routed.entry(chosen, choice)));
        if places().any(|place| place.row < row) {
            continue;
        }
        for Placed { row, .. } in places() {
            let at = |matrix: MatrixArg, row: u32| MatrixPlace { matrix, part: 0, row, column: 0 };
            let columns = from.columns as usize;
            let elements = Window::<E>::matrix(&at(of_rank, chosen)).read(1, 0, columns);
            Window::<E>::matrix(&at(to, row)).write(&elements, columns);
            let block = row / routing.size.block_rows;
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
    cta.check_source(source);
    if let Some(misfit) = routing.misfit_summed(&from.matrix) {
        cta.misfit(routing, &misfit);
    }
    let routed = routing.arranged(cta.head()).rows_of(source);
    let mut sums = std::vec![0.0; S::ROWS * S::COLUMNS];
    for (row, sums) in (row..routing.size.rows).zip(sums.chunks_exact_mut(S::COLUMNS)) {
        for choice in 0..routing.size.choices {
            let entry = routed.entry(row, choice);
            let Some(Placed { row, .. }) = routed.place(&entry) else { continue };
            let part = Window::<E>::matrix(&MatrixPlace { row, ..*from }).read(1, 0, S::COLUMNS);
            for (sum, element) in sums.iter_mut().zip(part) {
                *sum += entry.weight() * element.to_f32();
            }
        }
    }
    sums
}
