//! The loader: one thread that fills the ring ahead of the math warpgroups, and of the communication
//! thread where a tile only moves.

use core::cell::Cell;

use super::boxes::{Source, await_boxes};
use super::cta::{CHOICES, Config, Cta, Cursor, TRIES};
use super::fault::{LOADER, misfit, no_rank};
use super::queue::PutBy;
use super::signals::{Signals, Way};
use super::{holds_nothing, in_a_cta};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::layout::{ROW, boxes};
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// The loading thread.
pub struct Loader<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    signals: Signals<'c, 'p, C>,
    ring: Cell<Cursor>,
    choice: Cell<Cursor>,
    /// Chunks of products from slots that are done with.
    polled: Cell<u32>,
    put_by: PutBy,
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
            polled: Cell::new(0),
            put_by: PutBy::new(cta.put_by()),
        }
    }

    /// Ends the role, all that it loaded read.
    #[inline(always)]
    pub fn finish(&self) {
        for _ in 0..C::RING_DEPTH {
            self.reserve();
        }
        self.cta.end_log();
        unsafe { self.signals.leave_epoch() };
    }

    /// Waits for the next ring slot to be free.
    #[inline(always)]
    fn reserve(&self) -> Cursor {
        let cursor = self.ring.get();
        self.cta.wait(self.cta.empty(cursor.slot), cursor.parity ^ 1);
        self.ring.set(cursor.next(C::RING_DEPTH));
        cursor
    }

    /// Waits until the poller has seen a chunk of this product. The first chunk behind those that it has seen.
    #[inline(always)]
    fn polled(&self, chunk: u32) -> u32 {
        let seen = || unsafe { load_acquire_shared(self.cta.polled()) }.wrapping_sub(self.polled.get());
        let mut tries = 0u32;
        let mut there = seen();
        while there as i32 <= chunk as i32 {
            tries = tries.wrapping_add(1);
            if tries % TRIES == 0 {
                self.cta.end_if_aborted();
            }
            there = seen();
        }
        there
    }

    /// Tells the communication thread and the math warpgroups what the walk depends on.
    #[inline(always)]
    fn tell(&self, chosen: u32) -> u32 {
        let cursor = self.choice.get();
        self.cta.wait(self.cta.choice_free(cursor.slot), cursor.parity ^ 1);
        unsafe {
            store_shared(self.cta.choice(cursor.slot), chosen);
            mbarrier_arrive(self.cta.chosen(cursor.slot));
        }
        self.choice.set(cursor.next(CHOICES));
        chosen
    }

    /// Passes `count` boxes from the one at `first` on through the ring, as many to a slot as fit.
    #[inline(always)]
    fn stream<E: Element>(&self, from: Source, first: u32, count: u32, rows: usize) {
        let per_slot = C::RING_SLOT / (rows as u32 * ROW);
        let (mut index, end) = (first, first + count);
        while index < end {
            let cursor = self.reserve();
            let here = if end - index < per_slot { end - index } else { per_slot };
            if from.limited() {
                self.signals.take_link(Way::In);
            }
            let full = self.cta.full(cursor.slot);
            unsafe { mbarrier_arrive_expect(full, here * from.bytes(rows)) };
            for offset in 0..here {
                let to = self.cta.ring(cursor.slot) + offset * rows as u32 * ROW;
                from.load::<E>(index + offset, rows, to, full);
            }
            if from.limited() {
                // Given back here: whoever reads the slot may itself wait for a share before it comes to it.
                self.cta.wait(full, cursor.parity);
                self.signals.return_link(Way::In);
            }
            index += here;
        }
    }
}

impl<'c, 'p, C: Config> Role for Loader<'c, 'p, C> {
    in_a_cta!();
    holds_nothing!();

    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(LOADER, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], _: bool) {
        self.note(stage, tile);
        self.cta.begin_tile(stage, Some(tile));
    }

    /// The loader is ahead of the other roles, so it is the one that chooses.
    #[inline(always)]
    fn take(&self, queue: &Queue, beside: bool, slot: impl Fn(u32) -> Option<SlotPlace>, note: impl Fn(u32)) -> u32 {
        let taken = self.signals.take(&self.put_by, queue, beside, slot, note);
        self.tell(taken)
    }

    /// As with choices, the other roles learn of it from this one.
    #[inline(always)]
    fn arranged(&self, routing: &RoutingPlace) -> u32 {
        self.signals.pass(&routing.arrangement(self.cta.head));
        self.tell(routing.arranged(self.cta.head).blocks())
    }

    #[inline(always)]
    fn pass(&self, gate: &SlotPlace) {
        self.signals.pass(gate);
    }

    #[inline(always)]
    fn arrive(&self, _: &SlotPlace, _: u32) {}

    /// Until it is done the math warpgroups may ask for the epoch, which goes on when this thread is through.
    #[inline(always)]
    fn arrange(&self, routing: &RoutingPlace, _: &MatrixArg, _: &MatrixArg, _: &MatrixArg) {
        self.signals.pass(&routing.arrangement(self.cta.head));
    }

    #[inline(always)]
    fn scatter<E: Element>(&self, _: &RoutingPlace, _: &Scattered) {
        const { panic!("rows are scattered in a stage with `carrier = mover`") }
    }

    /// Says that what the rows wait for has come: the communication thread, which waits for it too, is often busy with the tile before.
    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(&self, routing: &RoutingPlace, source: u32, _: u32, from: &MatrixPlace) {
        if source >= self.cta.head.world {
            no_rank(source);
        }
        if let Some(found) = routing.misfit_summed(&from.matrix) {
            misfit(routing, &found);
        }
        self.tell(0);
    }

    /// Says that the gates before are passed: the math warpgroups, which read the values, don't wait at them.
    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(&self, _: (), _: &MatrixPlace, _: impl Fn(f32, f32) -> f32) {
        self.tell(0);
    }

    #[inline(always)]
    fn reclaim(&self) {}

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
        let (from_a, from_b) = (Source::panel(&self.signals, a), Source::panel(&self.signals, b));
        let chunks = tiles(a.columns(), ROW / E::SIZE);
        let arrives = a.arrives() || b.arrives();
        let mut chunk = 0;
        while chunk < chunks {
            let there = if arrives { self.polled(chunk).min(chunks) } else { chunks };
            while chunk < there {
                let cursor = self.reserve();
                let (full, to) = (self.cta.full(cursor.slot), self.cta.ring(cursor.slot));
                unsafe { mbarrier_arrive_expect(full, from_a.bytes(M) + from_b.bytes(N)) };
                from_a.load::<E>(chunk, M, to, full);
                from_b.load::<E>(chunk, N, to + M as u32 * ROW, full);
                chunk += 1;
            }
        }
        if arrives {
            self.polled.set(self.polled.get().wrapping_add(chunks));
        }
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, _: &mut (), _: &Place) {}

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, _: &Place) {}

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, _: &(), _: &Place) {}

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        if from.is_at(to, S::ROWS, S::COLUMNS) {
            return;
        }
        let from = Source::tile::<C, S>(&self.signals, from);
        self.stream::<E>(from, 0, boxes(S::COLUMNS, E::SIZE), S::ROWS);
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace) {
        const { assert!(M as u32 * ROW <= C::RING_SLOT, "a panel that is sent has at most BM + BN rows") };
        let (source, total) = (Source::panel(&self.signals, from), tiles(to.arg.columns * E::SIZE, ROW));
        let (first, count) = to.boxes(total);
        await_boxes(&self.signals, from, first, count);
        self.stream::<E>(source, first, count, M);
    }
}
