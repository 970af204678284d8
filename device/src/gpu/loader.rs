//! The loader: one thread that fills the ring ahead of the math warpgroups, and of the communication
//! thread where a tile only moves.

use core::cell::Cell;

use super::cta::{CHOICES, Config, Cta, Cursor};
use super::fault::LOADER;
use super::signals::Signals;
use super::{boxes, holds_nothing};
use crate::abi::{Head, MAX_AXES};
use crate::element::{Element, MatmulElement};
use crate::layout::ROW;
use crate::order::tiles;
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::shape::{Shape, TileShape};

/// The loading thread.
pub struct Loader<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    signals: Signals<'c, 'p, C>,
    ring: Cell<Cursor>,
    choice: Cell<Cursor>,
}

/// Where a panel's or a tile's boxes are loaded from.
#[derive(Clone, Copy)]
enum Source {
    /// A matrix: boxes by tensor map.
    Matrix { maps: u64, column: u32, row: u32, part: u32 },
    /// A slot: boxes one after the other, over the link with `limited` others.
    Slot { address: u64, limited: bool },
}

impl Source {
    #[inline(always)]
    fn matrix(place: &MatrixPlace) -> Source {
        Source::Matrix { maps: place.matrix.maps, column: place.column, row: place.row, part: place.part }
    }
}

impl<'c, 'p, C: Config> Loader<'c, 'p, C> {
    /// Starts the role.
    #[inline(always)]
    pub fn begin(cta: &'c Cta<'p, C>) -> Self {
        Loader {
            cta,
            signals: Signals::new(cta, false),
            ring: Cell::new(Cursor::START),
            choice: Cell::new(Cursor::START),
        }
    }

    /// Ends the role, all that it loaded read.
    #[inline(always)]
    pub fn finish(&self) {
        for _ in 0..C::RING_DEPTH {
            self.reserve();
        }
        unsafe { self.cta.leave() };
    }

    #[inline(always)]
    fn panel_source(&self, place: &PanelPlace) -> Source {
        match place {
            PanelPlace::Matrix(place) => Source::matrix(place),
            PanelPlace::Slot(slot) => self.slot_source(slot),
        }
    }

    #[inline(always)]
    fn slot_source(&self, slot: &SlotPlace) -> Source {
        Source::Slot { address: self.signals.receive(slot), limited: self.signals.limits_load(slot) }
    }

    /// Waits for the next ring slot to be free.
    #[inline(always)]
    fn reserve(&self) -> Cursor {
        let cursor = self.ring.get();
        self.cta.wait(self.cta.empty(cursor.slot), cursor.parity ^ 1);
        self.ring.set(cursor.next(C::RING_DEPTH));
        cursor
    }

    /// Loads the box at `index` of a row of boxes, `rows` tall, to `to`, completing on `barrier`. An empty
    /// matrix has no boxes; what is read of it is anything.
    #[inline(always)]
    fn load_box<E: Element>(&self, from: Source, index: u32, rows: usize, to: u32, barrier: u32) {
        unsafe {
            match from {
                Source::Matrix { maps, column, row, part } => {
                    if maps != 0 {
                        let x = column + index * (ROW / E::SIZE);
                        for (map, y, offset) in boxes(rows) {
                            tensor_load(to + offset, maps + map, x, row + y, part, barrier);
                        }
                    }
                }
                Source::Slot { address, .. } => {
                    let bytes = rows as u32 * ROW;
                    bulk_load(to, address + index as u64 * bytes as u64, bytes, barrier);
                }
            }
        }
    }

    /// Bytes that [`load_box`](Self::load_box) brings.
    #[inline(always)]
    fn box_bytes(&self, from: Source, rows: usize) -> u32 {
        match from {
            Source::Matrix { maps: 0, .. } => 0,
            _ => rows as u32 * ROW,
        }
    }

    /// Passes `count` boxes through the ring, as many to a slot as fit.
    #[inline(always)]
    fn stream<E: Element>(&self, from: Source, count: u32, rows: usize) {
        let per_slot = C::RING_SLOT / (rows as u32 * ROW);
        let mut index = 0;
        while index < count {
            let cursor = self.reserve();
            let here = if count - index < per_slot { count - index } else { per_slot };
            let limited = matches!(from, Source::Slot { limited: true, .. });
            if limited {
                self.signals.take_link();
            }
            let full = self.cta.full(cursor.slot);
            unsafe { mbarrier_arrive_expect(full, here * self.box_bytes(from, rows)) };
            for offset in 0..here {
                let to = self.cta.ring(cursor.slot) + offset * rows as u32 * ROW;
                self.load_box::<E>(from, index + offset, rows, to, full);
            }
            if limited {
                // Given back here: whoever reads the slot may itself wait for a share before it comes to it.
                self.cta.wait(full, cursor.parity);
                self.signals.return_link();
            }
            index += here;
        }
    }
}

impl<'c, 'p, C: Config> Role for Loader<'c, 'p, C> {
    holds_nothing!();

    #[inline(always)]
    fn head(&self) -> &Head {
        self.cta.head
    }

    #[inline(always)]
    fn cta(&self) -> u32 {
        block_idx_x()
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(LOADER, stage, tile);
    }

    /// The loader is ahead of the other roles, so it is the one that chooses.
    #[inline(always)]
    fn first_ready(&self, candidates: u64, slot: impl Fn(u32) -> Option<SlotPlace>) -> u32 {
        let chosen = Cell::new(candidates.trailing_zeros());
        self.signals.poll_until(
            || {
                let mut left = candidates;
                while left != 0 {
                    let candidate = left.trailing_zeros();
                    if slot(candidate).is_none_or(|slot| self.signals.arrived(&slot)) {
                        chosen.set(candidate);
                        return true;
                    }
                    left &= left - 1;
                }
                false
            },
            || {
                if let Some(slot) = slot(candidates.trailing_zeros()) {
                    self.signals.missing(&slot);
                }
            },
        );
        let cursor = self.choice.get();
        self.cta.wait(self.cta.choice_free(cursor.slot), cursor.parity ^ 1);
        unsafe {
            store_shared(self.cta.choice(cursor.slot), chosen.get());
            mbarrier_arrive(self.cta.chosen(cursor.slot));
        }
        self.choice.set(cursor.next(CHOICES));
        chosen.get()
    }

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, a: &PanelPlace, b: &PanelPlace)
    where
        Shape<M, N>: TileShape,
    {
        const {
            assert!(
                M == C::ROWS && N <= C::COLUMNS,
                "a matmul's tile must be of the kernel's BM rows and at most BN columns"
            )
        };
        let (from_a, from_b) = (self.panel_source(a), self.panel_source(b));
        let chunks = tiles(a.columns(), ROW / E::SIZE);
        for chunk in 0..chunks {
            let cursor = self.reserve();
            let (full, to) = (self.cta.full(cursor.slot), self.cta.ring(cursor.slot));
            unsafe { mbarrier_arrive_expect(full, self.box_bytes(from_a, M) + self.box_bytes(from_b, N)) };
            self.load_box::<E>(from_a, chunk, M, to, full);
            self.load_box::<E>(from_b, chunk, N, to + M as u32 * ROW, full);
        }
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, _: &mut (), _: &Place) {}

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, _: &Place) {}

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, _: &(), _: &Place) {}

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, _: &Place) {
        let from = match from {
            Place::Matrix(place) => Source::matrix(place),
            Place::Slot(slot) => self.slot_source(slot),
        };
        self.stream::<E>(from, S::COLUMNS as u32 * E::SIZE / ROW, S::ROWS);
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, _: &SlotPlace) {
        self.stream::<E>(self.panel_source(from), tiles(from.columns() * E::SIZE, ROW), M);
    }
}
