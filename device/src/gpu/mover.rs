//! The mover: one thread that carries the stages which only move tiles, at its own pace beside the other roles.

use core::cell::Cell;

use super::boxes::{Source, await_boxes, put_in_matrix};
use super::cta::{Config, Cta};
use super::fault::{MOVER, end_thread};
use super::queue::PutBy;
use super::scatter::scatter;
use super::signals::{Signals, Way};
use super::{holds_nothing, in_a_cta};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::layout::{ROW, boxes};
use crate::log::EventKind;
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// The moving thread. One box at a time passes through a buffer of its own: a CTA's share of the traffic is
/// small, and all CTAs move at once (132 boxes of 16 KiB on their way are three times what fills a link of 390 GB/s).
/// Where it scatters rows it is a warp, whose lanes look up where they go.
pub struct Mover<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    signals: Signals<'c, 'p, C>,
    parity: Cell<u32>,
    put_by: PutBy,
}

impl<'c, 'p, C: Config> Mover<'c, 'p, C> {
    /// Starts the role.
    #[inline(always)]
    pub fn begin(cta: &'c Cta<'p, C>) -> Self {
        let signals = Signals::new(cta, false);
        if C::MOVES_ROWS {
            unsafe { Self::bring_rows_of(cta, !cta.head.late) };
        }
        if Self::leads(cta) {
            unsafe { cta.know_epoch() };
        }
        Mover { cta, signals, parity: Cell::new(0), put_by: PutBy::new(cta.mover_put_by()) }
    }

    /// Ends the role.
    #[inline(always)]
    pub fn finish(&self) {
        if Self::leads(self.cta) {
            self.cta.end_log();
        }
    }

    /// Scatters the rows of these ranks (a bit each) from now on.
    ///
    /// # Safety
    /// All lanes must come here together.
    #[inline(always)]
    unsafe fn bring_rows_of(cta: &Cta<'p, C>, ranks: u32) {
        unsafe {
            sync_warp();
            store_shared(cta.brings(), ranks);
            sync_warp();
        }
    }

    /// Whether this thread is the mover itself, and not one of its other lanes.
    #[inline(always)]
    fn leads(cta: &Cta<'p, C>) -> bool {
        !C::MOVES_ROWS || cta.thread() % 32 == 0
    }

    /// Brings a box into the buffer, while `meanwhile` is done.
    #[inline(always)]
    fn fetch<E: Element>(&self, from: Source, index: u32, rows: usize, meanwhile: impl FnOnce()) {
        let moved = self.cta.moved();
        if from.limited() {
            self.signals.take_link(Way::In);
        }
        unsafe { mbarrier_arrive_expect(moved, from.bytes(rows)) };
        from.load::<E>(index, rows, self.cta.move_buffer(), moved);
        meanwhile();
        self.cta.wait(moved, self.parity.get());
        self.parity.set(self.parity.get() ^ 1);
        if from.limited() {
            self.signals.return_link(Way::In);
        }
    }

    /// Passes a tile of this shape to a matrix.
    #[inline(always)]
    fn pass_to_matrix<E: Element>(&self, from: Source, shape: (usize, usize), to: &MatrixPlace) {
        self.cta.event(EventKind::Store);
        for index in 0..boxes(shape.1, E::SIZE) {
            self.fetch::<E>(from, index, shape.0, || {});
            put_in_matrix::<E>(to, shape, index, 1, self.cta.move_buffer());
            bulk_commit();
            bulk_wait_read::<0>();
        }
    }

    /// Passes `count` boxes from the one at `first` on to a slot that holds tiles of this shape, or panels.
    #[inline(always)]
    fn pass_to_slot<E: Element>(&self, from: Source, first: u32, count: u32, shape: (usize, usize), to: &SlotPlace) {
        let (rows, columns) = shape;
        let limited = self.signals.limits_store(to);
        self.cta.event(EventKind::Store);
        for index in first..first + count {
            self.fetch::<E>(from, index, rows, || {
                self.signals.await_receivers(to);
                if limited {
                    self.signals.take_link(Way::Out);
                }
            });
            self.signals.put::<E>(to, rows, columns, index, 1, self.cta.move_buffer());
            bulk_commit();
            bulk_wait_read::<0>();
            if limited {
                self.signals.return_link(Way::Out);
            }
        }
    }
}

impl<'c, 'p, C: Config> Role for Mover<'c, 'p, C> {
    in_a_cta!();
    holds_nothing!();

    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(MOVER, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], _: bool) {
        self.note(stage, tile);
        if Self::leads(self.cta) {
            self.cta.begin_tile(stage, Some(tile));
        }
    }

    /// The mover makes its own choices: no other role is at its stages.
    #[inline(always)]
    fn take(&self, queue: &Queue, beside: bool, slot: impl Fn(u32) -> Option<SlotPlace>, note: impl Fn(u32)) -> u32 {
        const { assert!(!C::MOVES_ROWS, "a mover that scatters rows takes no tiles from a queue") };
        self.signals.take(&self.put_by, queue, beside, slot, note)
    }

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, _: &PanelPlace, _: &PanelPlace)
    where
        Shape<M, N>: TileShape,
    {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't call `matmul`") }
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, _: &mut (), _: &Place) {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't add to one") }
    }

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, _: &Place) {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't `read` one") }
    }

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, _: &(), _: &Place) {
        const { panic!("a stage with `carrier = mover` only moves tiles: it can't store a computed one") }
    }

    #[inline(always)]
    fn arrive(&self, gate: &SlotPlace, of: u32) {
        const { assert!(!C::MOVES_ROWS, "a mover that scatters rows does nothing else") };
        self.signals.arrive(gate, of);
    }

    #[inline(always)]
    fn pass(&self, gate: &SlotPlace) {
        self.signals.pass(gate);
    }

    #[inline(always)]
    fn arrange(&self, _: &RoutingPlace, _: &MatrixArg, _: &MatrixArg, _: &MatrixArg) {
        const { panic!("a stage with `carrier = mover` only moves tiles and rows: it can't arrange them") }
    }

    #[inline(always)]
    fn arranged(&self, routing: &RoutingPlace) -> u32 {
        self.signals.pass(&routing.arrangement(self.cta.head));
        // Each lane has waited by itself, and one that has given up is missed by the others.
        if C::MOVES_ROWS && unsafe { lanes_where(self.cta.has_ended_thread()) } != 0 {
            end_thread();
        }
        if C::MOVES_ROWS && self.cta.head.late != 0 {
            unsafe { store_shared(self.cta.passes_since(), globaltimer() as u32) };
        }
        routing.arranged(self.cta.head).blocks()
    }

    #[inline(always)]
    fn comes_back(&self) -> bool {
        let Head { late, late_ns, .. } = *self.cta.head;
        if !C::MOVES_ROWS || late == 0 {
            return false;
        }
        let passed_by = late & !unsafe { load_shared(self.cta.brings()) };
        if passed_by != 0 {
            // Reported by those who wait for a block: there are no registers left for it here. Rows that come too late do no harm.
            let since = unsafe { load_shared(self.cta.passes_since()) };
            while (globaltimer() as u32).wrapping_sub(since) < late_ns && !self.cta.is_aborted() {}
        }
        unsafe { Self::bring_rows_of(self.cta, if passed_by != 0 { passed_by } else { u32::MAX }) };
        passed_by != 0
    }

    #[inline(always)]
    fn scatter<E: Element>(&self, routing: &RoutingPlace, rows: &Scattered) {
        const { assert!(C::MOVES_ROWS) };
        unsafe { scatter::<E, C>(self.cta, &self.signals, &self.parity, routing, rows) };
    }

    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(&self, _: &RoutingPlace, _: u32, _: u32, _: &MatrixPlace) {
        const { panic!("a stage with `carrier = mover` only moves tiles and rows: it can't add them up") }
    }

    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(&self, _: (), _: &MatrixPlace, _: impl Fn(f32, f32) -> f32) {
        const { panic!("a stage with `carrier = mover` only moves tiles and rows: it can't compute on them") }
    }

    #[inline(always)]
    fn reclaim(&self) {
        if Self::leads(self.cta) {
            self.signals.reclaim();
        }
    }

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        const { assert!(!C::MOVES_ROWS, "a mover that scatters rows does nothing else") };
        const { assert!(S::ROWS <= C::ROWS, "a tile that a mover moves has at most the kernel's BM rows") };
        if let Place::Slot(arriving) = from
            && from.is_at(to, S::ROWS, S::COLUMNS)
        {
            self.signals.receive(arriving);
            return;
        }
        let from = Source::tile::<C, S>(&self.signals, from);
        let shape = (S::ROWS, S::COLUMNS);
        match to {
            Place::Matrix(to) => {
                self.pass_to_matrix::<E>(from, shape, to);
                self.cta.event(EventKind::Stored);
            }
            Place::Slot(to) => {
                self.pass_to_slot::<E>(from, 0, boxes(S::COLUMNS, E::SIZE), shape, to);
                self.signals.announce(to);
            }
        }
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace) {
        const { assert!(!C::MOVES_ROWS, "a mover that scatters rows does nothing else") };
        const { assert!(M <= C::ROWS, "a panel that a mover moves has at most the kernel's BM rows") };
        let (source, total) = (Source::panel(&self.signals, from), tiles(to.arg.columns * E::SIZE, ROW));
        let (first, count) = to.boxes(total);
        await_boxes(&self.signals, from, first, count);
        self.pass_to_slot::<E>(source, first, count, (M, 0), to);
        self.signals.announce_pieces(to);
    }
}
