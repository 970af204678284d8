//! The role itself: tiles, and what waits for signals and gives them.

use super::held::{self, Quads, ROWS, row_of, rows_held};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::gpu::ampere::Collective;
use crate::gpu::ampere::collective::{slot_of, slot_of_panel};
use crate::gpu::ampere::copy::pass;
use crate::gpu::ampere::thread::Thread;
use crate::gpu::area::Area;
use crate::gpu::cta::{Config, Cta};
use crate::gpu::fault::COLLECTIVE;
use crate::gpu::fragment::holds_fragments;
use crate::layout::ROW;
use crate::layout::ampere::threads;
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// A thread of a CTA whose threads stream together. [`held`] says what it holds of a tile.
pub struct Streaming<'c, 'p, C: Config> {
    /// The same without tiles in registers.
    pub(super) all: Collective<'c, 'p, C>,
}

impl<'c, 'p, C: Config> Streaming<'c, 'p, C> {
    /// Starts the role; on the first CTA, tells every rank that this one has started.
    ///
    /// # Safety
    /// All threads of the CTA must begin together.
    #[inline(always)]
    pub unsafe fn begin(cta: &'c Cta<'p, C>) -> Self {
        if cfg!(not(entwine_sm_80)) {
            launch_dependents();
            wait_for_dependencies();
        }
        Streaming { all: Collective::begin(cta) }
    }

    /// Ends the role.
    ///
    /// # Safety
    /// All threads of the CTA must end it together.
    #[inline(always)]
    pub unsafe fn finish(&self) {
        unsafe { self.all.finish() };
    }

    /// What this thread holds of the tile at `place`, once it is there.
    #[inline(always)]
    fn fetch<E: Element, S: TileShape>(&self, place: &Place) -> Quads {
        let slot = slot_of(place);
        if slot.is_some() {
            self.all.enter::<E>([slot, None], None);
        }
        unsafe { held::gather::<E, S>(&self.all.tile::<E, S>(place)) }
    }

    /// Stores what this thread holds of a tile.
    #[inline(always)]
    fn put<E: Element, S: TileShape>(&self, quads: &Quads, to: &Place) {
        let slot = slot_of(to);
        if slot.is_some() {
            self.all.enter::<E>([None, None], slot);
        }
        self.all.for_targets::<E>(to, S::ROWS, S::COLUMNS, |area| unsafe { held::scatter::<E, S>(quads, area) });
        self.all.leave(None, slot);
    }
}

impl<'c, 'p, C: Config> Role for Streaming<'c, 'p, C> {
    holds_fragments!(rows = 8, row_of = row_of);

    #[inline(always)]
    fn head(&self) -> &Head {
        self.all.cta.head
    }

    #[inline(always)]
    fn cta(&self) -> u32 {
        block_idx_x()
    }

    /// All threads note the same: each may have to report a panic before others have come so far.
    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.all.cta.note(COLLECTIVE, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], _: bool) {
        self.note(stage, tile);
    }

    #[inline(always)]
    fn take(&self, queue: &Queue, beside: bool, slot: impl Fn(u32) -> Option<SlotPlace>, note: impl Fn(u32)) -> u32 {
        self.all.take(queue, beside, slot, note)
    }

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(
        &self,
        _: &PanelPlace,
        _: &PanelPlace,
    ) -> <Shape<M, N> as TileShape>::Values
    where
        Shape<M, N>: TileShape,
    {
        const { panic!("a kernel whose threads have one role multiplies no matrices") }
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, sum: &mut S::Values, from: &Place) {
        let quads = self.fetch::<E, S>(from);
        for held in 0..rows_held::<S>() {
            let [first, second] = held::values::<E>(quads[held]);
            let sums = held::get::<f32, S>(sum, held);
            let added = [(sums[0].0 + first.0, sums[0].1 + first.1), (sums[1].0 + second.0, sums[1].1 + second.1)];
            held::set::<f32, S>(sum, held, added);
        }
    }

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, from: &Place) -> E::Held<S> {
        let quads = self.fetch::<E, S>(from);
        let mut tile = E::zeros::<S>();
        for held in 0..rows_held::<S>() {
            held::set::<E, S>(&mut tile, held, held::values::<E>(quads[held]));
        }
        tile
    }

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, tile: &E::Held<S>, to: &Place) {
        let mut quads = held::NOTHING;
        for held in 0..rows_held::<S>() {
            quads[held] = held::quad::<E>(held::get::<E, S>(tile, held));
        }
        self.put::<E, S>(&quads, to);
    }

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        if from.is_at(to, S::ROWS, S::COLUMNS) {
            self.all.enter::<E>([slot_of(from), None], None);
            return;
        }
        self.put::<E, S>(&self.fetch::<E, S>(from), to);
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace) {
        const { assert!(M % 64 == 0, "a panel that is sent has a multiple of 64 rows") };
        self.all.enter::<E>([slot_of_panel(from), None], Some(to));
        let (first, count) = to.boxes(tiles(to.arg.columns * E::SIZE, ROW));
        let from = self.all.panel::<E>(from, M);
        let (thread, to_slot) = (Thread::this(), Place::Slot(*to));
        self.all.for_targets::<E>(&to_slot, M, 0, |to| {
            if thread.index < threads(C::ROWS) {
                unsafe { pass::<C>(thread, M, first..first + count, &from, to) };
            }
        });
        self.all.leave(None, Some(to));
    }

    #[inline(always)]
    fn arrive(&self, gate: &SlotPlace, of: u32) {
        self.all.arrive(gate, of);
    }

    #[inline(always)]
    fn pass(&self, gate: &SlotPlace) {
        self.all.pass(gate);
    }

    #[inline(always)]
    fn arrange(&self, _: &RoutingPlace, _: &MatrixArg, _: &MatrixArg, _: &MatrixArg) {
        unreachable!("the macro refuses routings where threads have one role")
    }

    #[inline(always)]
    fn arranged(&self, _: &RoutingPlace) -> u32 {
        unreachable!("the macro refuses routings where threads have one role")
    }

    #[inline(always)]
    fn scatter<E: Element>(&self, _: &RoutingPlace, _: &Scattered) {
        unreachable!("the macro refuses routings where threads have one role")
    }

    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(&self, _: &RoutingPlace, _: u32, _: u32, _: &MatrixPlace) -> S::Values {
        unreachable!("the macro refuses routings where threads have one role")
    }

    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(
        &self,
        mut tile: E::Held<S>,
        from: &MatrixPlace,
        f: impl Fn(f32, f32) -> f32,
    ) -> E::Held<S> {
        let [(a, b), (c, d)] = held::values::<F>(unsafe { held::gather_row::<F, S>(&Area::matrix::<F>(from)) });
        for held in 0..rows_held::<S>() {
            let [first, second] = held::get::<E, S>(&tile, held);
            let zipped = [(f(first.0, a), f(first.1, b)), (f(second.0, c), f(second.1, d))];
            held::set::<E, S>(&mut tile, held, zipped);
        }
        tile
    }

    /// What was stored on other ranks is released to them with it.
    #[inline(always)]
    fn reclaim(&self) {
        unsafe { sync_threads() };
        self.all.together(|| {
            fence_acq_rel_sys();
            self.all.signals.reclaim();
        });
    }

    #[inline(always)]
    fn fold<E: Element, S: TileShape, H: TileShape>(_: &E::Held<S>, _: impl Fn(f32, f32) -> f32) -> E::Held<H> {
        const { panic!("a kernel whose threads have one role folds no tiles") }
    }

    /// In each thread, then over the group that shares the row, as a tree.
    #[inline(always)]
    fn reduce_rows<E: Element, S: TileShape>(tile: &E::Held<S>, f: impl Fn(f32, f32) -> f32) -> [f32; ROWS] {
        let mut rows = [0.0; ROWS];
        for held in 0..rows_held::<S>() {
            let [first, second] = held::get::<E, S>(tile, held);
            let value = f(f(first.0, first.1), f(second.0, second.1));
            rows[held] = unsafe { held::reduce::<S>(value, &f) };
        }
        rows
    }
}
