//! What is done from one side on simulated ranks, and bags.

use core::ptr;
use std::vec::Vec;

use super::protocol::Word as Place;
use super::whole::{Whole, on_rank};
use super::window::Window;
use crate::abi::{FaultKind, FaultRecord, MatrixArg};
use crate::element::Element;
use crate::memory::word;
use crate::ordering::{Order, Ordering, Reach, Scope};
use crate::place::MatrixPlace;
use crate::shape::TileShape;
use crate::together::{BagsPlace, BlockPlace, SymmetricPlace, Together, WordPlace};
use crate::word::{Change, Comparison, Summand, Word};

impl Whole {
    /// Accesses a word: `change` is given what it holds, and gives what it is to hold, if that is to change. What it held
    /// before.
    fn access<W: Word>(&self, place: &WordPlace, order: Order, reach: Reach, change: impl Fn(W) -> Option<W>) -> W {
        let address = place.address::<W>() as *mut W;
        let word = Place { address: address as u64, place: *place };
        self.cta.access(&word, order, reach, || {
            // SAFETY: the word lies in a symmetric matrix, and is accessed here alone, one access at a time.
            unsafe {
                let before = ptr::read_volatile(address);
                let after = change(before);
                if let Some(after) = after {
                    ptr::write_volatile(address, after);
                }
                (before, after.is_some())
            }
        })
    }
}

impl Together for Whole {
    fn matrix_on(&self, place: &SymmetricPlace, rank: u32) -> MatrixArg {
        self.cta.await_rank(place.argument, rank);
        MatrixArg { part_rows: place.matrix.part_rows, ..on_rank(&place.matrix, rank) }
    }

    fn out_of_range(&self, place: &WordPlace) -> ! {
        self.cta.give_up_at(FaultKind::OutOfRange, place)
    }

    fn load_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace) -> W {
        self.access(place, O::ORDER, S::REACH, |_| None)
    }

    fn store_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, value: W) {
        self.access(place, O::ORDER, S::REACH, |_| Some(value));
    }

    fn change_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, change: Change, operand: W) -> W {
        self.access(place, O::ORDER, S::REACH, |before: W| Some(before.changed(change, operand)))
    }

    fn compare_exchange<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, expected: W, new: W) -> W {
        self.access(place, O::ORDER, S::REACH, |found: W| (found.to_bits() == expected.to_bits()).then_some(new))
    }

    fn wait_word<W: Word>(&self, place: &WordPlace, comparison: Comparison, value: W) -> W {
        let address = place.address::<W>();
        self.cta.await_word(
            &Place { address, place: *place },
            comparison,
            value.to_bits(),
            // SAFETY: the word lies in a symmetric matrix; words are accessed one at a time.
            move || unsafe { ptr::read_volatile(address as *const W) }.to_bits(),
            move |seen| comparison.holds(W::from_bits(seen), value),
        );
        self.access(place, Order::Acquire, Reach::Sys, |_| None)
    }

    fn add_tile<E: Element + Summand, S: TileShape>(&self, tile: &Vec<E>, to: &MatrixPlace) {
        self.check_inside(to);
        let window = Window::<E>::matrix(to);
        self.cta.alone(|| {
            let sum = window.read(S::ROWS, 0, S::COLUMNS).into_iter().zip(tile);
            let sum: Vec<_> = sum.map(|(before, more)| before.changed(Change::Add, *more)).collect();
            window.write(&sum, S::COLUMNS);
        });
    }

    fn copy_block<W: Word>(&self, from: &BlockPlace, to: &BlockPlace) {
        for row in 0..from.rows as u64 {
            let (source, target) = (from.data + row * from.pitch, to.data + row * to.pitch);
            // SAFETY: both blocks lie in symmetric matrices.
            unsafe { ptr::copy(source as *const u8, target as *mut u8, from.bytes as usize) };
        }
    }

    fn complete(&self) {}

    fn pool<E: Element, S: TileShape>(&self, table: &MatrixPlace, bags: &BagsPlace) -> Vec<f32> {
        let rows = table.part_rows();
        let mut pooled = std::vec![0.0; S::ROWS * S::COLUMNS];
        for (row, sum) in (0..bags.count).zip(pooled.chunks_exact_mut(S::COLUMNS)) {
            let bag = bags.first + row;
            let [begin, end] = bags.range(bag);
            if !bags.holds([begin, end]) {
                let fault = self.cta.record(FaultKind::BadOffset);
                let (number, seen) = bags.wrong(bag, [begin, end]);
                let (word, expected) = ([bags.list, number], bags.indices.columns);
                self.cta.give_up(FaultRecord { word, expected, seen, ..fault });
            }
            for position in begin..end {
                let row = word(bags.indices.data + 4 * position as u64);
                if row >= rows {
                    let fault = self.cta.record(FaultKind::BadIndex);
                    let word = [bags.list, position];
                    self.cta.give_up(FaultRecord { word, expected: rows, seen: row, ..fault });
                }
                let elements = Window::<E>::matrix(&MatrixPlace { row, ..*table }).read(1, 0, S::COLUMNS);
                sum.iter_mut().zip(elements).for_each(|(sum, element)| *sum += element.to_f32());
            }
            if bags.mean && end > begin {
                sum.iter_mut().for_each(|sum| *sum /= (end - begin) as f32);
            }
        }
        pooled
    }
}
