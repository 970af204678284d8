//! The math warpgroups: they multiply what lies in the ring and compute on fragments; tiles come in and go out
//! through the staging buffer, or straight.

use core::cell::Cell;

use super::area::Area;
use super::columns;
use super::cta::{CHOICES, Config, Cta, Cursor};
use super::fragment::{from_pairs, holds_fragments, reduce_in_warp};
use super::gathered::Gathered;
use super::in_a_cta;
use super::routing::Team;
use super::straight::{self, comes_straight, goes_straight, passes_straight};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::layout::{ROW, box_column, boxes};
use crate::log::EventKind;
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// Where the math warpgroups meet.
const MATH_BARRIER: u32 = 1;

/// A thread of the math warpgroups.
///
/// Of a tile of 64 rows to a warpgroup it holds, in rows `r` and `r + 8` of its warp's 16 (`r = lane / 4`), the
/// columns `8i + 2·(lane % 4)` and the next, for every `i`: pair `2i` in row `r`, pair `2i + 1` in row `r + 8`.
pub struct Math<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    warpgroup: u32,
    lane: u32,
    warp: u32,
    ring: Cell<Cursor>,
    choice: Cell<Cursor>,
    held: Cell<bool>,
    ready: Cell<u32>,
    /// Slots of the ring have passed it by.
    skipped: Cell<bool>,
    /// As the communication thread has it.
    multiplies: Cell<bool>,
}

impl<'c, 'p, C: Config> Math<'c, 'p, C> {
    /// Starts the role.
    ///
    /// # Safety
    /// All threads of the math warpgroups must begin together.
    #[inline(always)]
    pub unsafe fn begin(cta: &'c Cta<'p, C>) -> Self {
        unsafe { cta.take_registers() };
        let thread = cta.thread() - 128;
        Math {
            cta,
            warpgroup: thread / 128,
            lane: thread % 32,
            warp: thread % 128 / 32,
            ring: Cell::new(Cursor::START),
            choice: Cell::new(Cursor::START),
            held: Cell::new(false),
            ready: Cell::new(0),
            skipped: Cell::new(false),
            multiplies: Cell::new(false),
        }
    }

    /// Ends the role.
    #[inline(always)]
    pub fn finish(&self) {
        if C::RECORDS && self.records() {
            self.cta.end_log();
        }
    }

    /// Whether this thread speaks for all in the log.
    #[inline(always)]
    fn records(&self) -> bool {
        self.leads() && self.warpgroup == 0
    }

    /// Notes an event in the log.
    #[inline(always)]
    fn event(&self, kind: EventKind) {
        if C::RECORDS && self.records() {
            self.cta.event(kind);
        }
    }

    /// Whether this thread speaks for its warpgroup.
    #[inline(always)]
    fn leads(&self) -> bool {
        self.lane == 0 && self.warp == 0
    }

    /// The first of this warp's rows of a tile.
    #[inline(always)]
    fn first_row(&self) -> u32 {
        self.warpgroup * 64 + self.warp * 16
    }

    /// Descriptors of this warpgroup's rows of A and of B in a ring slot, once it is full.
    #[inline(always)]
    fn operands<const M: usize>(&self, cursor: Cursor) -> (u64, u64) {
        self.cta.wait_together(self.cta.full(cursor.slot), cursor.parity);
        let slot = self.cta.ring(cursor.slot);
        (descriptor(slot + self.warpgroup * 64 * ROW), descriptor(slot + M as u32 * ROW))
    }

    /// Multiplies what a chunk has beyond its first 16 columns. 16 columns of 2 bytes are two of a descriptor's
    /// units of 16 bytes.
    #[inline(always)]
    unsafe fn finish_chunk<E: MatmulElement, A: Accumulator>(&self, product: &mut A, a: u64, b: u64) {
        for step in 1..(ROW / 32) as u64 {
            unsafe { E::wgmma_add(product, a + 2 * step, b + 2 * step) };
        }
        unsafe { wgmma_commit() };
    }

    /// Gives a ring slot back to the loader.
    #[inline(always)]
    fn free(&self, slot: u32) {
        if self.leads() {
            unsafe { mbarrier_arrive(self.cta.empty(slot)) };
        }
    }

    /// What the loader tells between two tiles, or `otherwise` if it has given the launch up. All warps hear the same.
    #[inline(always)]
    fn told(&self, otherwise: u32) -> u32 {
        self.event(EventKind::End);
        self.hear(otherwise)
    }

    /// What the loader tells, or `otherwise` if it has given the launch up. All warps hear the same.
    #[inline(always)]
    fn hear(&self, otherwise: u32) -> u32 {
        let cursor = self.choice.get();
        self.choice.set(cursor.next(CHOICES));
        if !self.cta.wait_for_choice(cursor.slot, cursor.parity) {
            return otherwise;
        }
        unsafe { self.cta.read_choice(cursor.slot) }
    }

    /// Waits for the loader to tell what decides nothing, unless the launch is given up. Beside a tile's elements there are no registers to
    /// wait for the loader's end.
    #[inline(always)]
    fn hear_of_what_came(&self) {
        let cursor = self.choice.get();
        self.choice.set(cursor.next(CHOICES));
        self.cta.wait_together(self.cta.chosen(cursor.slot), cursor.parity);
        if !self.cta.is_given_up() {
            unsafe { self.cta.read_choice(cursor.slot) };
        }
    }

    /// Whether the launch is given up, as any lane knows. All lanes of a warp go the same way.
    ///
    /// # Safety
    /// All lanes of a warp must come here together.
    #[inline(always)]
    unsafe fn anyone_gave_up(&self) -> bool {
        unsafe { lanes_where(self.cta.is_given_up()) != 0 }
    }

    /// Waits until the staging buffer is this side's.
    #[inline(always)]
    fn take_staging(&self) {
        self.event(EventKind::Wait);
        self.cta.wait_together(self.cta.ready(), self.ready.get());
        self.ready.set(self.ready.get() ^ 1);
        self.event(EventKind::Ready);
    }

    /// Waits until the staging buffer is this side's, unless it has kept it.
    #[inline(always)]
    fn have_staging(&self) {
        if self.held.get() {
            self.held.set(false);
        } else {
            self.take_staging();
        }
    }

    /// Hands the staging buffer over, if this side has kept it.
    #[inline(always)]
    fn keep_no_staging(&self) {
        if self.held.replace(false) {
            self.give_staging();
        }
    }

    /// Takes no part in slots of the ring that the communication thread stores.
    #[inline(always)]
    fn skip(&self, slots: u32) {
        self.ring.set(self.ring.get().skip(slots, C::RING_DEPTH));
        self.skipped.set(true);
    }

    /// Waits until the communication thread has come as far, if slots were skipped: of a wait that is more than a round ahead, the
    /// parity says nothing.
    #[inline(always)]
    fn catch_up(&self) {
        if self.skipped.replace(false) {
            self.have_staging();
            self.give_staging();
        }
    }

    /// Hands the staging buffer to the communication thread.
    #[inline(always)]
    fn give_staging(&self) {
        fence_proxy_async_shared();
        unsafe { mbarrier_arrive(self.cta.staged()) };
    }

    /// The shared address that this lane gives for four matrices of 16-bit elements, 16 columns of a box of the staging
    /// buffer: row `lane % 16`, and the columns' first or second 16 bytes, swizzled.
    #[inline(always)]
    fn matrix_address<S: TileShape>(&self, index: u32, group: u32) -> u32 {
        let row = self.first_row() + self.lane % 16;
        let chunk = (group * 2 + self.lane / 16) ^ (self.lane % 8);
        self.cta.staging() + index * (S::ROWS as u32 * ROW) + row * ROW + chunk * 16
    }

    /// The shared address of a pair of `f32` of a box of the staging buffer.
    #[inline(always)]
    fn pair_address<S: TileShape>(&self, index: u32, pair: u32) -> u32 {
        let row = self.first_row() + self.lane / 4 + pair % 2 * 8;
        let byte = (pair / 2 * 8 + self.lane % 4 * 2) * 4;
        let chunk = (byte / 16) ^ (row % 8);
        self.cta.staging() + index * (S::ROWS as u32 * ROW) + row * ROW + chunk * 16 + byte % 16
    }

    /// Calls `f` with the index and the staged value of each pair.
    #[inline(always)]
    fn read_staged<E: Element, S: TileShape>(&self, mut f: impl FnMut(usize, (f32, f32))) {
        unsafe { stand_together() };
        for index in 0..boxes(S::COLUMNS, E::SIZE) {
            let first = first_pair::<E, S>(index);
            // The pairs before it were in the box before.
            let new = (index * pairs_of_box::<E>()) as usize;
            if const { E::SIZE == 2 } {
                for group in 0..4 {
                    let words = unsafe { ldmatrix_x4(self.matrix_address::<S>(index, group)) };
                    for (offset, word) in words.into_iter().enumerate() {
                        let pair = first + 4 * group as usize + offset;
                        if pair >= new {
                            f(pair, E::unpack_pair(word));
                        }
                    }
                }
            } else {
                for offset in 0..pairs_of_box::<E>() {
                    let pair = first + offset as usize;
                    if pair >= new {
                        f(pair, unsafe { load_shared_f32x2(self.pair_address::<S>(index, offset)) });
                    }
                }
            }
        }
    }

    /// Stores a tile where the communication thread lets this side do so, with the staging buffer, which is passed on for the order of
    /// turns alone.
    #[inline(always)]
    fn stores<E: Element, S: TileShape>(&self, tile: &E::Held<S>, to: &Place) -> bool {
        let store = |to: &Area| unsafe { straight::store::<E, S>(tile, to, self.first_row(), self.lane) };
        // When the launch is given up, what was multiplied may be anything.
        match to {
            Place::Matrix(place) => {
                self.have_staging();
                if !unsafe { self.anyone_gave_up() } {
                    store(&Area::matrix::<E>(place));
                }
            }
            Place::Slot(slot) if passes_straight(slot, self.cta.head.link_limit) => {
                self.keep_no_staging();
                self.take_staging();
                if !unsafe { self.anyone_gave_up() } {
                    let rows = slot.rows(S::ROWS);
                    unsafe { self.cta.kept_targets(|address| store(&Area { rows, ..Area::slot(address, S::ROWS) })) };
                }
            }
            Place::Slot(_) => return false,
        }
        true
    }

    /// Adds a tile where the communication thread says that it lies. As with [`stores`](Math::stores), the staging buffer stays this
    /// side's.
    #[inline(always)]
    fn adds<E: Element, S: TileShape>(&self, sum: &mut S::Values, from: &Place) -> bool {
        let Place::Slot(slot) = from else { return false };
        if !comes_straight(slot, self.cta.head.link_limit, self.multiplies.get()) {
            return false;
        }
        if !unsafe { self.anyone_gave_up() } {
            let rows = slot.rows(S::ROWS);
            let add = |address| {
                let from = Area { rows, ..Area::slot(address, S::ROWS) };
                unsafe { straight::add::<E, S>(sum, &from, self.first_row(), self.lane) }
            };
            unsafe { self.cta.kept_targets(add) };
        }
        true
    }

    #[inline(always)]
    fn write_staged<E: Element, S: TileShape>(&self, tile: &E::Held<S>) {
        unsafe { stand_together() };
        for index in 0..boxes(S::COLUMNS, E::SIZE) {
            let first = first_pair::<E, S>(index);
            if const { E::SIZE == 2 } {
                for group in 0..4 {
                    let word = |offset: usize| E::word::<S>(tile, first + 4 * group as usize + offset);
                    let words = [word(0), word(1), word(2), word(3)];
                    unsafe { stmatrix_x4(self.matrix_address::<S>(index, group), words) };
                }
            } else {
                for offset in 0..pairs_of_box::<E>() {
                    let (low, high) = E::pair::<S>(tile, first + offset as usize);
                    unsafe { store_shared_f32x2(self.pair_address::<S>(index, offset), low, high) };
                }
            }
        }
    }
}

/// Keeps the compiler from copying what follows into the arms of a branch that only some lanes take, such as those that note an event:
/// it doesn't know that all must come to `stmatrix` and `ldmatrix` together.
///
/// # Safety
/// All lanes of a warp must come here together.
#[inline(always)]
unsafe fn stand_together() {
    unsafe { sync_warp() };
}

/// Pairs of a box that a thread holds: of each 8 columns, one in each of its two rows.
const fn pairs_of_box<E: Element>() -> u32 {
    ROW / E::SIZE / 4
}

/// The first of a thread's pairs that lie in a box.
#[inline(always)]
fn first_pair<E: Element, S: TileShape>(index: u32) -> usize {
    box_column(index, S::COLUMNS as u32, E::SIZE) as usize / 4
}

/// Rows `r` and `r + 8` by turns.
#[inline(always)]
fn row_of<S: TileShape>(pair: usize) -> usize {
    pair % 2
}

impl<'c, 'p, C: Config> Role for Math<'c, 'p, C> {
    in_a_cta!();
    holds_fragments!(rows = 2, row_of = row_of);

    /// A note would cost these warps the computation of coordinates that they mostly don't need: a panic of
    /// theirs is reported at the tile that the communication thread is at.
    #[inline(always)]
    fn note(&self, _: u32, _: [u32; MAX_AXES]) {}

    #[inline(always)]
    fn begin(&self, stage: u32, _: [u32; MAX_AXES], _: bool) {
        if C::RECORDS && self.records() {
            self.cta.begin_tile(stage, None);
        }
    }

    #[inline(always)]
    fn take(&self, _: &Queue, _: bool, _: impl Fn(u32) -> Option<SlotPlace>, _: impl Fn(u32)) -> u32 {
        self.told(Queue::EMPTY)
    }

    #[inline(always)]
    fn arranged(&self, _: &RoutingPlace) -> u32 {
        self.told(0)
    }

    #[inline(always)]
    fn arrive(&self, _: &SlotPlace, _: u32) {}

    #[inline(always)]
    fn pass(&self, _: &SlotPlace) {}

    /// Also when the launch is given up, which not all threads may have seen yet: each is waited for. Whatever lies in the
    /// tables then, nothing is written outside of the arrangement.
    #[inline(always)]
    fn arrange(&self, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) {
        // The communication thread gives the launch up.
        if routing.misfit(choices, weights, loads).is_some() {
            return;
        }
        let (thread, threads) = (self.cta.thread() - 128, 128 * C::WARPGROUPS);
        let team = Team { thread, threads, shared: self.cta.staging(), room: C::STAGING };
        let sync = || unsafe { sync_some(MATH_BARRIER, 128 * C::WARPGROUPS) };
        self.have_staging();
        unsafe { team.count(self.cta, routing, choices, sync) };
        self.give_staging();
        self.take_staging();
        unsafe { team.tabulate(self.cta, routing, choices, weights, sync) };
        self.give_staging();
        if routing.member.index == 0 {
            self.take_staging();
            unsafe { team.arrange(self.cta, routing, loads, sync) };
            self.give_staging();
        }
    }

    #[inline(always)]
    fn scatter<E: Element>(&self, _: &RoutingPlace, _: &Scattered) {}

    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(
        &self,
        routing: &RoutingPlace,
        source: u32,
        row: u32,
        from: &MatrixPlace,
    ) -> S::Values {
        self.event(EventKind::Wait);
        self.hear(0);
        self.event(EventKind::Ready);
        if unsafe { self.anyone_gave_up() } {
            return f32::zeros::<S>();
        }
        let rows = Gathered::new::<E>(routing, self.cta.head, source, from);
        let first = row + self.first_row() + self.lane / 4;
        unsafe { rows.weighted_sum::<E, S>([first, first + 8], self.lane) }
    }

    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(
        &self,
        tile: E::Held<S>,
        from: &MatrixPlace,
        f: impl Fn(f32, f32) -> f32,
    ) -> E::Held<S> {
        self.event(EventKind::Wait);
        self.hear_of_what_came();
        self.event(EventKind::Ready);
        unsafe { columns::zip::<E, F, S>(tile, from, self.lane % 4 * 2, S::COLUMNS / 8, f) }
    }

    #[inline(always)]
    fn reclaim(&self) {}

    #[inline(always)]
    fn fold<E: Element, S: TileShape, H: TileShape>(tile: &E::Held<S>, f: impl Fn(f32, f32) -> f32) -> E::Held<H> {
        from_pairs::<E, H>(|index| {
            let (block, half) = (index / 2, index % 2);
            let ((a, b), (c, d)) = (E::pair::<S>(tile, 4 * block + half), E::pair::<S>(tile, 4 * block + 2 + half));
            (f(a, c), f(b, d))
        })
    }

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(
        &self,
        a: &PanelPlace,
        _: &PanelPlace,
    ) -> <Shape<M, N> as TileShape>::Values
    where
        Shape<M, N>: TileShape,
    {
        self.catch_up();
        self.multiplies.set(true);
        let chunks = tiles(a.columns(), ROW / E::SIZE);
        if chunks == 0 {
            return f32::zeros::<Shape<M, N>>();
        }
        let mut cursor = self.ring.get();
        let (a, b) = self.operands::<M>(cursor);
        self.event(EventKind::Multiply);
        let mut product = unsafe {
            wgmma_fence();
            let mut product = E::wgmma(a, b);
            self.finish_chunk::<E, _>(&mut product, a, b);
            product
        };
        for _ in 1..chunks {
            let previous = cursor.slot;
            cursor = cursor.next(C::RING_DEPTH);
            let (a, b) = self.operands::<M>(cursor);
            unsafe {
                wgmma_fence();
                E::wgmma_add(&mut product, a, b);
                self.finish_chunk::<E, _>(&mut product, a, b);
                wgmma_wait::<1>();
            }
            self.free(previous);
        }
        unsafe { wgmma_wait::<0>() };
        self.free(cursor.slot);
        self.ring.set(cursor.next(C::RING_DEPTH));
        self.event(EventKind::Multiplied);
        product
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, sum: &mut S::Values, from: &Place) {
        if self.held.get() {
            self.give_staging();
        }
        self.take_staging();
        self.held.set(true);
        if const { goes_straight::<E, S>() } && self.adds::<E, S>(sum, from) {
            return;
        }
        self.read_staged::<E, S>(|index, (low, high)| {
            let values = sum.values_mut();
            values[2 * index] += low;
            values[2 * index + 1] += high;
        });
    }

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, _: &Place) -> E::Held<S> {
        self.keep_no_staging();
        self.take_staging();
        let mut tile = E::zeros::<S>();
        self.read_staged::<E, S>(|index, pair| E::set_pair::<S>(&mut tile, index, pair));
        self.give_staging();
        tile
    }

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, tile: &E::Held<S>, to: &Place) {
        self.multiplies.set(false);
        if !const { goes_straight::<E, S>() } || !self.stores::<E, S>(tile, to) {
            self.have_staging();
            self.write_staged::<E, S>(tile);
        }
        self.give_staging();
        self.event(EventKind::Staged);
    }

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        if from.is_at(to, S::ROWS, S::COLUMNS) {
            return;
        }
        let per_slot = C::RING_SLOT / (S::ROWS as u32 * ROW);
        self.skip(tiles(boxes(S::COLUMNS, E::SIZE), per_slot));
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, _: &SlotPlace) {
        let per_slot = C::RING_SLOT / (M as u32 * ROW);
        self.skip(tiles(tiles(from.columns() * E::SIZE, ROW), per_slot));
    }

    #[inline(always)]
    fn reduce_rows<E: Element, S: TileShape>(tile: &E::Held<S>, f: impl Fn(f32, f32) -> f32) -> [f32; 2] {
        unsafe { reduce_in_warp::<E, S, 2>(tile, row_of::<S>, f) }
    }
}
