//! The role of a CTA's threads, all of them together.

use super::copy;
use super::product::product;
use super::thread::{ROWS_HELD, Thread, block_columns};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::gpu::area::{Area, PIECE};
use crate::gpu::columns;
use crate::gpu::cta::{Config, Cta};
use crate::gpu::fault::{COLLECTIVE, end_thread, misfit, no_rank};
use crate::gpu::fragment::{from_pairs, holds_fragments, reduce_in_warp};
use crate::gpu::gathered::{Gathered, Part, pair};
use crate::gpu::in_a_cta;
use crate::gpu::queue::PutBy;
use crate::gpu::routing::Team;
use crate::gpu::signals::{Signals, Way};
use crate::layout::{ROW, ampere, staging};
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{Placed, RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// A thread of a CTA whose threads do everything together. [`Thread`] says what it holds of a tile.
pub struct Collective<'c, 'p, C: Config> {
    pub(in crate::gpu) cta: &'c Cta<'p, C>,
    pub(in crate::gpu) signals: Signals<'c, 'p, C>,
    put_by: PutBy,
}

// Offsets in the header, behind what reports of faults need.
const CHOICE: u32 = 512;
const PUT_BY: u32 = 768;
const ROW_VALUES: u32 = 1024;

impl<'p, C: Config> Cta<'p, C> {
    /// Sets shared memory up.
    ///
    /// # Safety
    /// Every thread of the CTA must begin, once, with the launch's parameters.
    #[inline(always)]
    pub unsafe fn begin_together(head: &'p Head) -> Self {
        let cta = Cta::open(head);
        unsafe {
            if leads() {
                cta.prepare_reports();
            }
            sync_threads();
        }
        cta
    }
}

impl<'c, 'p, C: Config> Collective<'c, 'p, C> {
    /// Starts the role; on the first CTA, tells every rank that this one has started.
    #[inline(always)]
    pub fn begin(cta: &'c Cta<'p, C>) -> Self {
        let signals = Signals::new(cta, false);
        if C::COMMUNICATES && block_idx_x() == 0 && leads() {
            signals.start();
        }
        Collective { cta, signals, put_by: PutBy::new(cta.shared() + PUT_BY) }
    }

    /// Ends the role.
    ///
    /// # Safety
    /// All threads of the CTA must end it together.
    #[inline(always)]
    pub unsafe fn finish(&self) {
        if C::COMMUNICATES {
            unsafe {
                sync_threads();
                if leads() {
                    self.signals.count_out();
                }
            }
        }
    }

    /// Lets one thread wait for what all need, and all go on when it has; ends them all if the launch is given up. What
    /// they did before is done for all of them then.
    #[inline(always)]
    pub(in crate::gpu) fn together(&self, wait: impl FnOnce()) {
        if leads() {
            wait();
        }
        // Threads that have ended don't keep the others from passing a barrier.
        unsafe { sync_threads() };
        if self.cta.has_ended_thread() {
            end_thread();
        }
    }

    /// The ring, or the staging buffer.
    #[inline(always)]
    fn buffer(&self) -> u32 {
        self.cta.shared() + ampere::HEADER
    }

    /// Waits for what an operation reads and until it may write, then for its share of the link if that is limited, and
    /// takes the buffer. The direction of the link that it has a share of.
    #[inline(always)]
    pub(in crate::gpu) fn enter<E: Element>(
        &self,
        from: [Option<&SlotPlace>; 2],
        to: Option<&SlotPlace>,
    ) -> Option<Way> {
        let [one, other] = from;
        let limits_load = |slot: &SlotPlace| self.signals.limits_load(slot);
        let limited = if to.is_some_and(|slot| self.signals.limits_store(slot)) {
            Some(Way::Out)
        } else {
            (one.is_some_and(limits_load) || other.is_some_and(limits_load)).then_some(Way::In)
        };
        let wait = |slot: &SlotPlace| self.signals.wait_for_all(slot, tiles(slot.arg.columns * E::SIZE, ROW));
        self.together(|| {
            // Each by itself: a loop over them would keep them in memory.
            if let Some(slot) = one {
                wait(slot);
            }
            if let Some(slot) = other {
                wait(slot);
            }
            if let Some(slot) = to {
                self.signals.for_receivers(slot, |receiver| self.signals.wait_until_free(slot, receiver));
            }
            if let Some(way) = limited {
                self.signals.take_link(way);
            }
        });
        limited
    }

    /// Once all threads are done with an operation: gives its share of the link back, and signals what it wrote.
    #[inline(always)]
    pub(in crate::gpu) fn leave(&self, limited: Option<Way>, to: Option<&SlotPlace>) {
        if limited.is_none() && to.is_none() {
            return;
        }
        unsafe { sync_threads() };
        if leads() {
            if let Some(way) = limited {
                self.signals.return_link(way);
            }
            if let Some(slot) = to {
                self.signals.release(slot);
            }
        }
    }

    /// Where a tile lies that is there.
    #[inline(always)]
    pub(in crate::gpu) fn tile<E: Element, S: TileShape>(&self, place: &Place) -> Area {
        match place {
            Place::Matrix(place) => Area::matrix::<E>(place),
            Place::Slot(slot) => match slot.into {
                Some(matrix) => Area::matrix::<E>(&slot.within(matrix, S::ROWS, S::COLUMNS)),
                None => Area::slot(self.signals.incoming(slot), S::ROWS),
            },
        }
    }

    /// Where a panel lies that is there.
    #[inline(always)]
    pub(in crate::gpu) fn panel<E: Element>(&self, place: &PanelPlace, rows: usize) -> Area {
        match place {
            PanelPlace::Matrix(place) => Area::matrix::<E>(place),
            PanelPlace::Slot(slot) => {
                Area { bytes: slot.arg.columns * E::SIZE, ..Area::slot(self.signals.incoming(slot), rows) }
            }
        }
    }

    /// Calls `store` with each place in memory that a tile is stored to.
    #[inline(always)]
    pub(in crate::gpu) fn for_targets<E: Element>(
        &self,
        to: &Place,
        rows: usize,
        columns: usize,
        mut store: impl FnMut(&Area),
    ) {
        match to {
            Place::Matrix(place) => store(&Area::matrix::<E>(place)),
            Place::Slot(slot) => {
                let mut stored = false;
                self.signals.for_receivers(slot, |receiver| {
                    if let Some(matrix) = slot.into {
                        let theirs = self.signals.matrix_of(&matrix, receiver);
                        return store(&Area::matrix::<E>(&slot.within(theirs, rows, columns)));
                    }
                    // What is pulled lies in this rank's memory once, for all receivers of a broadcast.
                    if !stored || slot.arg.pull == 0 {
                        store(&Area::slot(self.signals.target(slot, receiver), rows));
                    }
                    stored = true;
                });
            }
        }
    }

    /// Brings a tile into the buffer.
    #[inline(always)]
    fn fetch<E: Element, S: TileShape>(&self, from: &Place) {
        check_staged::<C, E, S>();
        let limited = self.enter::<E>([slot_of(from), None], None);
        unsafe { copy::fetch::<E, S>(Thread::this(), self.buffer(), &self.tile::<E, S>(from)) };
        cp_async_wait::<0>();
        unsafe { sync_threads() };
        if let Some(way) = limited
            && leads()
        {
            self.signals.return_link(way);
        }
    }
}

/// Whether this thread speaks for the CTA.
#[inline(always)]
pub(in crate::gpu) fn leads() -> bool {
    Thread::this().index == 0
}

/// The slot that a tile lies in, if it lies in one.
#[inline(always)]
pub(in crate::gpu) fn slot_of(place: &Place) -> Option<&SlotPlace> {
    match place {
        Place::Matrix(_) => None,
        Place::Slot(slot) => Some(slot),
    }
}

/// The slot that a panel lies in, if it lies in one.
#[inline(always)]
pub(in crate::gpu) fn slot_of_panel(place: &PanelPlace) -> Option<&SlotPlace> {
    match place {
        PanelPlace::Matrix(_) => None,
        PanelPlace::Slot(slot) => Some(slot),
    }
}

/// What passes through the buffer must fit into it, and be shared out to the warps as they are.
#[inline(always)]
fn check_staged<C: Config, E: Element, S: TileShape>() {
    const {
        assert!(S::COLUMNS % 64 == 0, "on GPUs without TMA a tile has a multiple of 64 columns");
        assert!(
            S::ROWS == C::ROWS && staging(S::ROWS, S::COLUMNS, E::SIZE) <= staging(C::ROWS, C::COLUMNS, C::ELEMENT),
            "a tile that is read, added or stored must be of the kernel's BM rows and fit a tile of BM x BN elements of T"
        )
    }
}

/// The blocks row by row, of each its two rows.
#[inline(always)]
fn row_of<S: TileShape>(pair: usize) -> usize {
    pair / (2 * block_columns(S::COLUMNS)) * 2 + pair % 2
}

impl<'c, 'p, C: Config> Role for Collective<'c, 'p, C> {
    in_a_cta!();
    holds_fragments!(rows = 8, row_of = row_of);

    /// All threads note the same: each may have to report a panic before others have come so far.
    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(COLLECTIVE, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], last: bool) {
        self.signals.begin(last);
        self.note(stage, tile);
    }

    #[inline(always)]
    fn take(&self, queue: &Queue, beside: bool, slot: impl Fn(u32) -> Option<SlotPlace>, note: impl Fn(u32)) -> u32 {
        let choice = self.cta.shared() + CHOICE;
        self.together(|| {
            let taken = self.signals.take(&self.put_by, queue, beside, slot, note);
            unsafe { store_shared(choice, taken) };
        });
        let chosen = unsafe { load_shared(choice) };
        // All have read it before the next one is made.
        unsafe { sync_threads() };
        chosen
    }

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(
        &self,
        a: &PanelPlace,
        b: &PanelPlace,
    ) -> <Shape<M, N> as TileShape>::Values
    where
        Shape<M, N>: TileShape,
    {
        const {
            assert!(N % 64 == 0, "on GPUs without TMA a tile has a multiple of 64 columns");
            assert!(
                M == C::ROWS && N <= C::COLUMNS,
                "a matmul's tile must be of the kernel's BM rows and at most BN columns"
            )
        };
        self.enter::<E>([slot_of_panel(a), slot_of_panel(b)], None);
        let (a, b) = (self.panel::<E>(a, M), self.panel::<E>(b, N));
        unsafe { product::<E, M, N>(Thread::this(), self.buffer(), a, b) }
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, sum: &mut S::Values, from: &Place) {
        self.fetch::<E, S>(from);
        let add = |index: usize, (low, high): (f32, f32)| {
            let values = sum.values_mut();
            values[2 * index] += low;
            values[2 * index + 1] += high;
        };
        unsafe { copy::read::<E, S>(Thread::this(), self.buffer(), add) };
    }

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, from: &Place) -> E::Held<S> {
        self.fetch::<E, S>(from);
        let mut tile = E::zeros::<S>();
        let set = |index, pair| E::set_pair::<S>(&mut tile, index, pair);
        unsafe { copy::read::<E, S>(Thread::this(), self.buffer(), set) };
        tile
    }

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, tile: &E::Held<S>, to: &Place) {
        check_staged::<C, E, S>();
        let limited = self.enter::<E>([None, None], slot_of(to));
        unsafe {
            copy::write::<E, S>(Thread::this(), self.buffer(), tile);
            sync_threads();
        }
        self.for_targets::<E>(to, S::ROWS, S::COLUMNS, |to| unsafe {
            copy::put::<E, S>(Thread::this(), self.buffer(), to)
        });
        self.leave(limited, slot_of(to));
    }

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        let limited = self.enter::<E>([slot_of(from), None], slot_of(to));
        if from.is_at(to, S::ROWS, S::COLUMNS) {
            return;
        }
        let (boxes, from) = (S::COLUMNS as u32 * E::SIZE / ROW, self.tile::<E, S>(from));
        self.for_targets::<E>(to, S::ROWS, S::COLUMNS, |to| unsafe {
            copy::pass::<C>(Thread::this(), S::ROWS, 0..boxes, &from, to)
        });
        self.leave(limited, slot_of(to));
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace) {
        const { assert!(M % 64 == 0, "a panel that is sent has a multiple of 64 rows") };
        let limited = self.enter::<E>([slot_of_panel(from), None], Some(to));
        let (first, count) = to.boxes(tiles(to.arg.columns * E::SIZE, ROW));
        let (boxes, from) = (first..first + count, self.panel::<E>(from, M));
        let to_slot = Place::Slot(*to);
        self.for_targets::<E>(&to_slot, M, 0, |to| unsafe {
            copy::pass::<C>(Thread::this(), M, boxes.clone(), &from, to)
        });
        self.leave(limited, Some(to));
    }

    #[inline(always)]
    fn arrive(&self, gate: &SlotPlace, of: u32) {
        unsafe { sync_threads() };
        if leads() {
            fence_acq_rel_sys();
            self.signals.count(gate, of);
        }
    }

    #[inline(always)]
    fn pass(&self, gate: &SlotPlace) {
        self.together(|| self.signals.await_slot(gate));
    }

    #[inline(always)]
    fn arrange(&self, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) {
        let (head, member) = (self.cta.head, routing.member);
        let (table, counted) = (routing.table(head.rank), routing.counted(head));
        let threads = ampere::threads(C::ROWS);
        let team = Team { thread: Thread::this().index, threads, shared: self.buffer(), room: C::STAGING };
        let sync = || unsafe { sync_threads() };
        self.together(|| {
            if let Some(found) = routing.misfit(choices, weights, loads) {
                misfit(routing, &found);
            }
        });
        unsafe { team.count(self.cta, routing, choices, sync) };
        self.arrive(&counted, member.of);
        self.together(|| {
            self.signals.await_receivers(&table);
            self.signals.await_slot(&counted);
        });
        unsafe { team.tabulate(self.cta, routing, choices, weights, sync) };
        self.arrive(&table, member.of);
        if member.index != 0 {
            return;
        }
        self.together(|| {
            for source in 0..head.world {
                self.signals.await_slot(&routing.table(source));
            }
        });
        unsafe { team.arrange(self.cta, routing, loads, sync) };
        let slot = routing.arrangement(head);
        self.together(|| {
            let blocks = routing.arranged(head).blocks();
            if blocks > routing.size.blocks() {
                self.signals.overflow(&slot, blocks, routing.size.blocks());
            }
        });
        self.leave(None, Some(&slot));
    }

    #[inline(always)]
    fn arranged(&self, routing: &RoutingPlace) -> u32 {
        self.together(|| self.signals.await_slot(&routing.arrangement(self.cta.head)));
        routing.arranged(self.cta.head).blocks()
    }

    #[inline(always)]
    fn scatter<E: Element>(&self, routing: &RoutingPlace, rows: &Scattered) {
        let (thread, head, arranged) = (Thread::this(), self.cta.head, routing.arranged(self.cta.head));
        self.together(|| {
            if let Some(found) = routing.misfit_scattered(rows) {
                misfit(routing, &found);
            }
        });
        let group = arranged.group(rows.block);
        let end = rows.block * routing.size.block_rows + arranged.rows(rows.block);
        let pieces = tiles(rows.from.columns * E::SIZE, PIECE);
        for row in rows.first..(rows.first + rows.count).min(end) {
            let mut source = head.rank;
            for turn in 1..head.world {
                let next = if head.rank + turn < head.world { head.rank + turn } else { head.rank + turn - head.world };
                if arranged.start(next, group) <= row {
                    source = next;
                }
            }
            self.together(|| self.signals.await_lender(source));
            let (from, routed) = (self.signals.matrix_of(&rows.from, source), arranged.rows_of(source));
            let chosen = routed.row_at(row, group);
            if chosen >= from.rows {
                misfit(routing, &routing.misfit_row(&from, chosen));
            }
            let place = |choice: u32| routed.place(&routed.entry(chosen, choice));
            if (0..routing.size.choices).any(|choice| place(choice).is_some_and(|place| place.row < row)) {
                continue;
            }
            for choice in 0..routing.size.choices {
                let Some(Placed { row, .. }) = place(choice) else { continue };
                let (from, to) = (from.data + chosen as u64 * from.pitch, rows.to.data + row as u64 * rows.to.pitch);
                for piece in (thread.index..pieces).step_by(ampere::threads(C::ROWS) as usize) {
                    let offset = (piece * PIECE) as u64;
                    unsafe { store_global_16(to + offset, load_global_16(from + offset)) };
                }
                let block = row.checked_div(routing.size.block_rows).unwrap_or(0);
                self.arrive(&SlotPlace { index: [block, 0, 0, 0], ..rows.gate }, arranged.rows(block));
            }
        }
    }

    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(
        &self,
        routing: &RoutingPlace,
        source: u32,
        row: u32,
        from: &MatrixPlace,
    ) -> S::Values {
        if source >= self.cta.head.world {
            no_rank(source);
        }
        if let Some(found) = routing.misfit_summed(&from.matrix) {
            misfit(routing, &found);
        }
        let thread = Thread::this();
        let first_column = thread.first_column(S::COLUMNS);
        let rows = Gathered::new::<E>(routing, self.cta.head, source, from);
        let mut sum = f32::zeros::<S>();
        for held in 0..ROWS_HELD {
            for choice in 0..routing.size.choices {
                let choice = rows.look(row + thread.row_of(held), choice);
                let Some(Part { row, weight }) = rows.part(choice) else { continue };
                for block in 0..block_columns(S::COLUMNS) {
                    let column = first_column + 8 * block as u32;
                    // The filter of an iterator would keep the loop from being unrolled.
                    if rows.has(column) {
                        let (low, high) = unsafe { pair::<E>(rows.address::<E>(row, column)) };
                        let pair = 2 * (held / 2 * block_columns(S::COLUMNS) + block) + held % 2;
                        let values = sum.values_mut();
                        values[2 * pair] += weight * low;
                        values[2 * pair + 1] += weight * high;
                    }
                }
            }
        }
        sum
    }

    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(
        &self,
        tile: E::Held<S>,
        from: &MatrixPlace,
        f: impl Fn(f32, f32) -> f32,
    ) -> E::Held<S> {
        let first = Thread::this().first_column(S::COLUMNS);
        unsafe { columns::zip::<E, F, S>(tile, from, first, block_columns(S::COLUMNS), f) }
    }

    #[inline(always)]
    fn reclaim(&self) {
        unsafe { sync_threads() };
        if leads() {
            self.signals.reclaim();
        }
    }

    #[inline(always)]
    fn fold<E: Element, S: TileShape, H: TileShape>(tile: &E::Held<S>, f: impl Fn(f32, f32) -> f32) -> E::Held<H> {
        from_pairs::<E, H>(|index| {
            let (block, half) = (index / 2, index % 2);
            let ((a, b), (c, d)) = (E::pair::<S>(tile, 4 * block + half), E::pair::<S>(tile, 4 * block + 2 + half));
            (f(a, c), f(b, d))
        })
    }

    /// In each warp, then over the four that share the rows, in the order of their columns.
    #[inline(always)]
    fn reduce_rows<E: Element, S: TileShape>(tile: &E::Held<S>, f: impl Fn(f32, f32) -> f32) -> [f32; ROWS_HELD] {
        let thread = Thread::this();
        let values = |row: u32| shared_base() + ROW_VALUES + row * 16;
        let mut rows = unsafe { reduce_in_warp::<E, S, ROWS_HELD>(tile, row_of::<S>, &f) };
        // Once the values of the reduction before have been read.
        unsafe { sync_threads() };
        if thread.lane % 4 == 0 {
            for (held, value) in rows.iter().enumerate() {
                unsafe { store_shared(values(thread.row_of(held)) + 4 * thread.column, value.to_bits()) };
            }
        }
        unsafe { sync_threads() };
        for (held, value) in rows.iter_mut().enumerate() {
            let [first, second, third, fourth] =
                unsafe { load_shared_16(values(thread.row_of(held))) }.map(f32::from_bits);
            *value = f(f(f(first, second), third), fourth);
        }
        rows
    }
}
