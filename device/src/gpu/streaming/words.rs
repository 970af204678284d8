//! What is done from one side: words, and the beginning and the end of a launch that all ranks share.

use core::cell::Cell;
use core::mem::offset_of;

use super::blocks;
use super::held::{self, Seat, for_each_element, rows_held};
use super::role::Streaming;
use crate::abi::{FaultKind, MatrixArg, NONE};
use crate::element::Element;
use crate::gpu::area::Area;
use crate::gpu::cta::Config;
use crate::gpu::fault::{missed_word, word_fault};
use crate::layout::streaming::threads;
use crate::ordering::{Acquire, Ordering, Relaxed, Scope, Sys};
use crate::place::MatrixPlace;
use crate::ptx::*;
use crate::role::Role;
use crate::shape::TileShape;
use crate::together::{BagsPlace, BlockPlace, SymmetricPlace, Together, WordPlace};
use crate::word::{Change, Comparison, Summand, Word};

/// Where a word lies in shared memory on its way to all threads: behind what collective operations use.
const SHARED_WORD: u32 = 528;

/// Where it is counted how often words were looked at, and after how many times it is seen whether the launch is given up.
const LOOKS: u32 = 536;
const LOOKS_BETWEEN: u32 = 64;

impl<C: Config> Streaming<'_, '_, C> {
    /// For one thread that looks at a word, perhaps again and again until it changes, which may be never: ends it if the launch
    /// is given up.
    #[inline(always)]
    fn look(&self) {
        let at = self.all.cta.shared() + LOOKS;
        let looks = unsafe { load_shared(at) }.wrapping_add(1);
        unsafe { store_shared(at, looks) };
        if looks % LOOKS_BETWEEN == 0 {
            self.all.cta.end_if_aborted();
        }
    }

    /// Lets one thread do something after all that the CTA did before, and gives all threads what came of it.
    #[inline(always)]
    fn once<W: Word>(&self, act: impl FnOnce() -> W) -> W {
        let at = self.all.cta.shared() + SHARED_WORD;
        unsafe { sync_threads() };
        self.all.together(|| {
            let bits = act().to_bits();
            unsafe {
                store_shared(at, bits as u32);
                if const { W::SIZE == 8 } {
                    store_shared(at + 4, (bits >> 32) as u32);
                }
            }
        });
        let low = unsafe { load_shared(at) } as u64;
        W::from_bits(if const { W::SIZE == 8 } { low | (unsafe { load_shared(at + 4) } as u64) << 32 } else { low })
    }
}

impl<C: Config> Together for Streaming<'_, '_, C> {
    #[inline(always)]
    fn matrix_on(&self, place: &SymmetricPlace, rank: u32) -> MatrixArg {
        if rank >= self.head().world {
            self.out_of_range(&WordPlace {
                matrix: place.matrix,
                argument: place.argument,
                rank,
                row: NONE,
                column: NONE,
            });
        }
        if !self.all.signals.knows(rank) {
            self.all.together(|| self.all.signals.await_rank(place.argument, rank));
            self.all.signals.know(rank);
        }
        let theirs = place.matrix.ranks + rank as u64 * size_of::<MatrixArg>() as u64;
        let word = |offset: usize| unsafe { load_constant_u64(theirs + offset as u64) };
        let (data, pitch) = (word(offset_of!(MatrixArg, data)), word(offset_of!(MatrixArg, pitch)));
        let rows = word(offset_of!(MatrixArg, rows)) as u32;
        MatrixArg { data, pitch, rows, part_rows: rows, parts: 1, ..place.matrix }
    }

    #[inline(always)]
    fn out_of_range(&self, place: &WordPlace) -> ! {
        word_fault(FaultKind::OutOfRange, place.argument, [place.row, place.column], place.rank, [0, 0])
    }

    #[inline(always)]
    fn load_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace) -> W {
        self.once(|| {
            self.look();
            unsafe { W::load::<O, S>(place.address::<W>()) }
        })
    }

    #[inline(always)]
    fn store_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, value: W) {
        unsafe { sync_threads() };
        self.all.together(|| unsafe { W::store::<O, S>(place.address::<W>(), value) });
    }

    #[inline(always)]
    fn change_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, change: Change, operand: W) -> W {
        self.once(|| {
            if change == Change::Exchange {
                self.look();
            }
            unsafe { W::change::<O, S>(place.address::<W>(), change, operand) }
        })
    }

    #[inline(always)]
    fn compare_exchange<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, expected: W, new: W) -> W {
        self.once(|| {
            self.look();
            unsafe { W::compare_exchange::<O, S>(place.address::<W>(), expected, new) }
        })
    }

    #[inline(always)]
    fn wait_word<W: Word>(&self, place: &WordPlace, comparison: Comparison, value: W) -> W {
        self.once(|| {
            let seen = Cell::new(value);
            self.all.signals.poll_until(
                || {
                    seen.set(unsafe { W::load::<Acquire, Sys>(place.address::<W>()) });
                    comparison.holds(seen.get(), value)
                },
                || missed_word(place, comparison, [value.to_bits(), seen.get().to_bits()]),
            );
            seen.get()
        })
    }

    #[inline(always)]
    fn add_tile<E: Element + Summand, S: TileShape>(&self, tile: &E::Held<S>, to: &MatrixPlace) {
        let (area, seat) = (Area::matrix::<E>(to), Seat::this::<S>());
        for held in 0..rows_held::<S>() {
            let [(a, b), (c, d)] = held::get::<E, S>(tile, held);
            let values = [a, b, c, d];
            for_each_element::<E>(&area, seat.row + held as u32, seat.byte::<E>(), |address, element| {
                let operand = <E as Element>::from_f32(values[element]);
                unsafe { E::change::<Relaxed, Sys>(address, Change::Add, operand) };
            });
        }
    }

    #[inline(always)]
    fn copy_block<W: Word>(&self, from: &BlockPlace, to: &BlockPlace) {
        unsafe {
            // What other threads of the CTA stored or waited for before.
            sync_threads();
            blocks::copy::<W>(threads(C::ROWS), from, to);
        }
    }

    #[inline(always)]
    fn complete(&self) {
        fence_acq_rel_sys();
        unsafe { sync_threads() };
    }

    #[inline(always)]
    fn pool<E: Element, S: TileShape>(&self, table: &MatrixPlace, bags: &BagsPlace) -> S::Values {
        self.pooled::<E, S>(table, bags)
    }
}
