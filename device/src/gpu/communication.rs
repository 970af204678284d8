//! The communication thread: owner of the staging buffer whenever a tile comes in or goes out, and the one
//! that signals.

use core::cell::Cell;

use super::boxes::{Source, put_in_matrix};
use super::cta::{Config, Cta, Cursor};
use super::fault::{COMMUNICATION, misfit};
use super::signals::{Signals, Way};
use super::straight::{comes_straight, goes_straight, passes_straight};
use super::{holds_nothing, in_a_cta};
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::layout::{ROW, boxes, staging};
use crate::log::EventKind;
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// Ring slots that may be being stored while the loader fills the next.
const PENDING_STORES: u32 = 1;

/// The communicating thread.
///
/// The staging buffer passes to the math warpgroups when a phase of `ready` ends and back when one of `staged`
/// does. A tile that is *added* stays with them after they have read it (`held`), so that they can store
/// their sum in its place; both sides follow that by the same rule. Of a small tile that goes [`straight`](super::straight), what
/// passes with it is where that lies.
pub struct Communication<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    signals: Signals<'c, 'p, C>,
    ring: Cell<Cursor>,
    choice: Cell<Cursor>,
    held: Cell<bool>,
    ready: Cell<u32>,
    staged: Cell<u32>,
    /// Slots of the ring have passed the math warpgroups by.
    skipped: Cell<bool>,
    /// The math warpgroups may be multiplying: they have stored nothing since.
    multiplies: Cell<bool>,
}

impl<'c, 'p, C: Config> Communication<'c, 'p, C> {
    /// Starts the role; on the first CTA, tells every rank that this one has started.
    #[inline(always)]
    pub fn begin(cta: &'c Cta<'p, C>) -> Self {
        if C::COMMUNICATES {
            unsafe { cta.keep_regions() };
        }
        let signals = Signals::new(cta, true);
        if C::COMMUNICATES && block_idx_x() == 0 {
            signals.start();
        }
        unsafe { cta.know_epoch() };
        Communication {
            cta,
            signals,
            ring: Cell::new(Cursor::START),
            choice: Cell::new(Cursor::START),
            held: Cell::new(false),
            ready: Cell::new(0),
            staged: Cell::new(0),
            skipped: Cell::new(false),
            multiplies: Cell::new(false),
        }
    }

    /// Ends the role, once nothing reads or fills the staging buffer any more.
    #[inline(always)]
    pub fn finish(&self) {
        if self.held.get() {
            self.cta.wait(self.cta.ready(), self.ready.get() ^ 1);
        }
        self.cta.end_log();
    }

    /// Waits until the math warpgroups have handed the staging buffer over.
    #[inline(always)]
    fn take_staging(&self) {
        self.cta.wait(self.cta.staged(), self.staged.get());
        self.staged.set(self.staged.get() ^ 1);
    }

    /// Waits for the staging buffer, if the math warpgroups have kept it.
    #[inline(always)]
    fn have_staging(&self) {
        if self.held.replace(false) {
            self.take_staging();
        }
    }

    /// Brings the tile at `from` into the staging buffer and hands it to the math warpgroups.
    #[inline(always)]
    fn fetch<E: Element, S: TileShape>(&self, from: &Place) {
        check_staged::<C, E, S>();
        self.have_staging();
        let from = Source::tile::<C, S>(&self.signals, from);
        if from.limited() {
            self.signals.take_link(Way::In);
        }
        let (count, ready) = (boxes(S::COLUMNS, E::SIZE), self.cta.ready());
        unsafe { mbarrier_arrive_expect(ready, count * from.bytes(S::ROWS)) };
        for index in 0..count {
            from.load::<E>(index, S::ROWS, self.cta.staging() + index * S::ROWS as u32 * ROW, ready);
        }
        if from.limited() {
            self.cta.wait(ready, self.ready.get());
            self.signals.return_link(Way::In);
        }
        self.ready.set(self.ready.get() ^ 1);
    }

    /// Lets the math warpgroups have the staging buffer, and waits until they have given it back.
    #[inline(always)]
    fn collect(&self) {
        if self.held.get() {
            self.held.set(false);
        } else {
            unsafe { mbarrier_arrive(self.cta.ready()) };
            self.ready.set(self.ready.get() ^ 1);
        }
        self.take_staging();
    }

    /// Stores the boxes that the loader passes through the ring.
    #[inline(always)]
    fn drain(&self, count: u32, rows: usize, put: impl Fn(u32, u32, u32)) {
        self.skipped.set(true);
        let per_slot = C::RING_SLOT / (rows as u32 * ROW);
        self.cta.event(EventKind::Store);
        let mut oldest = self.ring.get();
        let mut pending = 0;
        let mut index = 0;
        while index < count {
            let cursor = self.ring.get();
            self.ring.set(cursor.next(C::RING_DEPTH));
            self.cta.wait(self.cta.full(cursor.slot), cursor.parity);
            let here = if count - index < per_slot { count - index } else { per_slot };
            put(index, here, self.cta.ring(cursor.slot));
            bulk_commit();
            index += here;
            if pending < PENDING_STORES {
                pending += 1;
                continue;
            }
            bulk_wait_read::<PENDING_STORES>();
            self.free(oldest.slot);
            oldest = oldest.next(C::RING_DEPTH);
        }
        bulk_wait_read::<0>();
        for _ in 0..pending {
            self.free(oldest.slot);
            oldest = oldest.next(C::RING_DEPTH);
        }
    }

    /// Lets the math warpgroups store a tile themselves, if it goes straight.
    #[inline(always)]
    fn lets_store(&self, to: &Place) -> bool {
        let Place::Slot(slot) = to else {
            self.collect();
            return true;
        };
        if !passes_straight(slot, self.cta.head.link_limit) {
            return false;
        }
        self.have_staging();
        unsafe { self.signals.tell_targets(slot) };
        self.collect();
        self.cta.event(EventKind::Store);
        self.signals.announce(slot);
        true
    }

    /// Lets the math warpgroups read a tile themselves, once it is there, if it comes straight.
    #[inline(always)]
    fn lets_read(&self, from: &Place) -> bool {
        let Place::Slot(slot) = from else { return false };
        if !comes_straight(slot, self.cta.head.link_limit, self.multiplies.get()) {
            return false;
        }
        let address = self.signals.receive_to_read(slot);
        self.have_staging();
        unsafe {
            self.cta.keep_target(0, address);
            self.cta.keep_targets(1);
            mbarrier_arrive(self.cta.ready());
        }
        self.ready.set(self.ready.get() ^ 1);
        true
    }

    /// Gives a ring slot back in the place of all its usual readers.
    #[inline(always)]
    fn free(&self, slot: u32) {
        for _ in 0..C::WARPGROUPS {
            unsafe { mbarrier_arrive(self.cta.empty(slot)) };
        }
    }
}

/// What passes through the staging buffer must fit into it, and be shared out to the math warpgroups as they are.
#[inline(always)]
fn check_staged<C: Config, E: Element, S: TileShape>() {
    const {
        assert!(
            S::ROWS == C::ROWS && staging(S::ROWS, S::COLUMNS, E::SIZE) <= C::STAGING,
            "a tile that is read, added or stored must be of the kernel's BM rows and fit a tile of BM x BN elements of T"
        )
    }
}

impl<'c, 'p, C: Config> Role for Communication<'c, 'p, C> {
    in_a_cta!();
    holds_nothing!();

    #[inline(always)]
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(COMMUNICATION, stage, tile);
    }

    #[inline(always)]
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], last: bool) {
        self.signals.begin(last);
        self.note(stage, tile);
        self.cta.begin_tile(stage, Some(tile));
    }

    #[inline(always)]
    fn take(&self, _: &Queue, _: bool, _: impl Fn(u32) -> Option<SlotPlace>, _: impl Fn(u32)) -> u32 {
        self.cta.told(&self.choice)
    }

    #[inline(always)]
    fn arrive(&self, gate: &SlotPlace, of: u32) {
        self.signals.arrive(gate, of);
    }

    #[inline(always)]
    fn pass(&self, gate: &SlotPlace) {
        self.signals.pass(gate);
    }

    /// The math warpgroups count, fill the table when those of all CTAs have and, on the first CTA, once all tables are there,
    /// the arrangement.
    #[inline(always)]
    fn arrange(&self, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) {
        if let Some(found) = routing.misfit(choices, weights, loads) {
            misfit(routing, &found);
        }
        let (head, member) = (self.cta.head, routing.member);
        let (table, counted) = (routing.table(anew(head.rank)), routing.counted(head));
        self.collect();
        fence_acq_rel_sys();
        self.signals.count(&counted, member.of);
        self.signals.await_receivers(&table);
        self.signals.pass(&counted);
        self.collect();
        fence_acq_rel_sys();
        self.signals.count(&table, member.of);
        if member.index != 0 {
            return;
        }
        for source in 0..head.world {
            self.signals.pass(&routing.table(source));
        }
        self.collect();
        let (slot, blocks) = (routing.arrangement(head), routing.arranged(head).blocks());
        if blocks > routing.size.blocks() {
            self.signals.overflow(&slot, blocks, routing.size.blocks());
        }
        self.signals.release(&slot);
    }

    #[inline(always)]
    fn arranged(&self, _: &RoutingPlace) -> u32 {
        self.cta.told(&self.choice)
    }

    #[inline(always)]
    fn scatter<E: Element>(&self, _: &RoutingPlace, _: &Scattered) {}

    #[inline(always)]
    fn weighted_sum<E: Element, S: TileShape>(&self, _: &RoutingPlace, _: u32, _: u32, _: &MatrixPlace) {
        self.cta.hear(&self.choice);
    }

    #[inline(always)]
    fn zip_columns<E: Element, F: Element, S: TileShape>(&self, _: (), _: &MatrixPlace, _: impl Fn(f32, f32) -> f32) {
        self.cta.hear(&self.choice);
    }

    #[inline(always)]
    fn reclaim(&self) {}

    #[inline(always)]
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, a: &PanelPlace, _: &PanelPlace)
    where
        Shape<M, N>: TileShape,
    {
        self.multiplies.set(true);
        // The math warpgroups catch up before they multiply.
        if self.skipped.replace(false) {
            self.collect();
        }
        self.ring.set(self.ring.get().skip(tiles(a.columns(), ROW / E::SIZE), C::RING_DEPTH));
    }

    #[inline(always)]
    fn accumulate<E: Element, S: TileShape>(&self, _: &mut (), from: &Place) {
        if !const { goes_straight::<E, S>() } || !self.lets_read(from) {
            self.fetch::<E, S>(from);
        }
        self.held.set(true);
    }

    #[inline(always)]
    fn load<E: Element, S: TileShape>(&self, from: &Place) {
        self.fetch::<E, S>(from);
        self.take_staging();
    }

    #[inline(always)]
    fn store<E: Element, S: TileShape>(&self, _: &(), to: &Place) {
        check_staged::<C, E, S>();
        self.multiplies.set(false);
        if const { goes_straight::<E, S>() } && self.lets_store(to) {
            return;
        }
        self.collect();
        self.cta.event(EventKind::Store);
        let (count, from) = (boxes(S::COLUMNS, E::SIZE), self.cta.staging());
        match to {
            Place::Matrix(to) => {
                put_in_matrix::<E>(to, (S::ROWS, S::COLUMNS), 0, count, from);
                bulk_commit();
                bulk_wait_read::<0>();
                self.cta.event(EventKind::Stored);
            }
            Place::Slot(slot) => {
                let limited = self.signals.limits_store(slot);
                if limited {
                    self.signals.take_link(Way::Out);
                }
                self.signals.put::<E>(slot, S::ROWS, S::COLUMNS, 0, count, from);
                bulk_commit();
                bulk_wait_read::<0>();
                if limited {
                    self.signals.return_link(Way::Out);
                }
                self.signals.announce(slot);
            }
        }
    }

    #[inline(always)]
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        if let Place::Slot(arriving) = from
            && from.is_at(to, S::ROWS, S::COLUMNS)
        {
            self.signals.receive(arriving);
            return;
        }
        let (count, shape) = (boxes(S::COLUMNS, E::SIZE), (S::ROWS, S::COLUMNS));
        match to {
            Place::Matrix(place) => {
                self.drain(count, S::ROWS, |first, here, from| put_in_matrix::<E>(place, shape, first, here, from));
                self.cta.event(EventKind::Stored);
            }
            Place::Slot(slot) => {
                self.drain(count, S::ROWS, |first, here, from| {
                    self.signals.put::<E>(slot, S::ROWS, S::COLUMNS, first, here, from)
                });
                self.signals.announce(slot);
            }
        }
    }

    #[inline(always)]
    fn transfer_panel<E: Element, const M: usize>(&self, _: &PanelPlace, to: &SlotPlace) {
        let (first, count) = to.boxes(tiles(to.arg.columns * E::SIZE, ROW));
        self.drain(count, M, |index, here, from| self.signals.put::<E>(to, M, 0, first + index, here, from));
        self.signals.announce_pieces(to);
    }
}
