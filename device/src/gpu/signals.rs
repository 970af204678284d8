//! The protocol between ranks, as one thread carries it out: where slots lie, when they may be written and
//! read, how arrival is signalled, and when it is given up.

use core::cell::Cell;
use core::mem::offset_of;
use core::ops::Range;

use super::boxes::put_in_matrix;
use super::cta::{Config, Cta};
use super::fault::{fault, fault_of, word_fault};
use crate::abi::{Control, FaultKind, MAX_WORLD, MatrixArg, NONE, Ticket};
use crate::channel::Route;
use crate::element::Element;
use crate::layout::ROW;
use crate::log::{EventKind, NOBODY};
use crate::place::SlotPlace;
use crate::ptx::*;

/// Polls between two looks at the clock and at the abort word.
const POLLS: u32 = 32;

/// Deadlines within which the other ranks end a launch: what holds one of them up is a wait of its own, which ends within
/// one, and says better what is missing.
const RETURN_DEADLINES: u64 = 2;

/// A direction of the link. Each has its own limit: what a rank stores to others does not hold up what it loads from them.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Out,
    In,
}

/// One thread's end of the protocol.
pub(super) struct Signals<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    /// Whether this thread keeps the addresses of the regions in shared memory.
    kept_regions: bool,
    epoch: u32,
    /// The ranks (a bit each) whose slots are known to be free for this epoch, and then those whose matrices are.
    acknowledged: Cell<u32>,
    /// Whether what this thread stores is of its CTA's last tile.
    last: Cell<bool>,
    /// The slot that was found to have arrived when a tile was chosen, by its channel and position.
    chosen: Cell<[u32; 2]>,
}

impl<'c, 'p, C: Config> Signals<'c, 'p, C> {
    #[inline(always)]
    pub fn new(cta: &'c Cta<'p, C>, kept_regions: bool) -> Self {
        Signals {
            cta,
            kept_regions,
            epoch: cta.epoch(),
            acknowledged: Cell::new(0),
            last: Cell::new(false),
            chosen: Cell::new([NONE; 2]),
        }
    }

    /// Begins with a tile, perhaps its CTA's last.
    #[inline(always)]
    pub fn begin(&self, last: bool) {
        self.last.set(last);
    }

    /// Tells every rank that this one has started, and so has read all that it was sent before.
    #[inline(always)]
    pub fn start(&self) {
        fence_acq_rel_sys();
        unsafe { self.cta.tell_all(offset_of!(Control, started), self.epoch) };
    }

    /// Waits until a rank has begun the launch, so that its symmetric matrices may be accessed.
    #[inline(always)]
    pub fn await_rank(&self, argument: u32, rank: u32) {
        let started = self.cta.region + (offset_of!(Control, started) + 4 * rank as usize) as u64;
        self.poll(started, self.epoch, |seen| {
            let compared = [self.epoch as u64, seen as u64];
            word_fault(FaultKind::NotAcknowledged, argument, [NONE; 2], rank, compared)
        });
    }

    /// Whether a rank is known to have begun the launch.
    #[inline(always)]
    pub fn knows(&self, rank: u32) -> bool {
        self.acknowledged.get() >> (rank + MAX_WORLD as u32) & 1 != 0
    }

    /// Notes that it has, for this thread.
    #[inline(always)]
    pub fn know(&self, rank: u32) {
        self.acknowledged.set(self.acknowledged.get() | 1 << (rank + MAX_WORLD as u32));
    }

    /// Counts this thread as one that knows the epoch.
    ///
    /// # Safety
    /// As for [`Cta::leave_epoch`].
    #[inline(always)]
    pub unsafe fn leave_epoch(&self) {
        unsafe { self.cta.leave_epoch(self.epoch) };
    }

    /// As [`leave_epoch`](Signals::leave_epoch), where all threads have met since they read the epoch.
    ///
    /// # Safety
    /// As for [`Cta::count_out`].
    #[inline(always)]
    pub unsafe fn count_out(&self) {
        unsafe { self.cta.count_out(self.epoch) };
    }

    /// Waits for a slot's signal. The address of what lies in it, for bulk copies, if that is not in a matrix.
    #[inline(always)]
    pub fn receive(&self, slot: &SlotPlace) -> u64 {
        let address = self.receive_to_read(slot);
        fence_proxy_async_global();
        address
    }

    /// Waits for a slot's signal. The address of what lies in it, for loads other than bulk copies, if that is not in a matrix.
    #[inline(always)]
    pub fn receive_to_read(&self, slot: &SlotPlace) -> u64 {
        self.wait_for(slot, slot.first_piece());
        self.incoming(slot)
    }

    /// Waits for all that a slot of `boxes` boxes is sent in; for an empty piece nobody waits.
    #[inline(always)]
    pub fn wait_for_all(&self, slot: &SlotPlace, boxes: u32) {
        for piece in slot.pieces() {
            if slot.boxes_of(piece, boxes).1 > 0 {
                self.wait_for(slot, piece);
            }
        }
    }

    /// Waits for the signal of a piece.
    #[inline(always)]
    fn wait_for(&self, slot: &SlotPlace, piece: u32) {
        let (linear, sender) = (self.checked(slot, slot.linear()), slot.sender(self.cta.head.world));
        self.cta.slot_event(EventKind::Wait, slot, piece, sender);
        if self.chosen.get() == [slot.channel, linear] {
            // A look takes as long as one at memory. That of the choice has acquired it.
            self.cta.slot_event(EventKind::Ready, slot, piece, sender);
            return;
        }
        self.poll(self.signal_address(slot, piece, self.cta.head.rank, linear), self.epoch, |seen| {
            fault(FaultKind::MissingSignal, slot, piece, slot.sender(self.cta.head.world), self.epoch, seen)
        });
        self.cta.slot_event(EventKind::Ready, slot, piece, sender);
    }

    /// Waits for the signal of a slot that is sent as a whole.
    #[inline(always)]
    pub fn await_slot(&self, slot: &SlotPlace) {
        self.wait_for(slot, 0);
    }

    /// Waits for the signal of a slot that holds nothing which is copied by itself: a gate's, or one of a routing.
    #[inline(always)]
    pub fn pass(&self, slot: &SlotPlace) {
        self.await_slot(slot);
        fence_proxy_async_global();
    }

    /// Counts this thread in a gate's slot, all that it has stored being complete.
    #[inline(always)]
    pub fn arrive(&self, gate: &SlotPlace, of: u32) {
        self.complete();
        fence_acq_rel_sys();
        self.count(gate, of);
    }

    /// Counts this thread in a gate's slot, all that it has stored being complete and released. The last one of `of` opens it.
    #[inline(always)]
    pub fn count(&self, gate: &SlotPlace, of: u32) {
        let counter = self.cta.region + gate.counter_offset(self.checked(gate, gate.linear()));
        if unsafe { count_acq_rel_gpu(counter, of - 1) } == of - 1 {
            self.release(gate);
        }
    }

    /// Waits until a rank has started the launch, so that what it lends may be read.
    #[inline(always)]
    pub fn await_lender(&self, rank: u32) {
        let known = 1 << (rank + MAX_WORLD as u32);
        if self.acknowledged.get() & known == 0 {
            let started = self.cta.region + (offset_of!(Control, started) + 4 * rank as usize) as u64;
            self.poll(started, self.epoch, |seen| fault_of(FaultKind::NotAcknowledged, rank, self.epoch, seen));
            if self.cta.head.late >> rank & 1 != 0 {
                let since = globaltimer();
                self.poll_until(
                    || globaltimer().wrapping_sub(since) >= self.cta.head.late_ns as u64,
                    || fault_of(FaultKind::NotAcknowledged, rank, self.epoch, self.epoch.wrapping_sub(1)),
                );
            }
            self.acknowledged.set(self.acknowledged.get() | known);
        }
    }

    /// Says, on the last CTA that is done with what others lend, that this rank is, and waits, on the first, for all others.
    #[inline(always)]
    pub fn reclaim(&self) {
        let word = |offset: usize| self.cta.region + offset as u64;
        let last = self.cta.head.ctas - 1;
        if unsafe { count_acq_rel_gpu(word(offset_of!(Control, returning)), last) } == last {
            fence_acq_rel_sys();
            unsafe { self.cta.tell_all(offset_of!(Control, returned), self.epoch) };
        }
        if block_idx_x() == 0 {
            for rank in 0..self.cta.head.world {
                let returned = word(offset_of!(Control, returned) + 4 * rank as usize);
                let seen = Cell::new(0);
                self.poll_within(
                    RETURN_DEADLINES,
                    || {
                        seen.set(unsafe { load_acquire_sys(returned) });
                        seen.get().wrapping_sub(self.epoch) as i32 >= 0
                    },
                    || fault_of(FaultKind::MissingSignal, rank, self.epoch, seen.get()),
                );
            }
        }
    }

    /// Gives up since a routing has more blocks here than there is room for.
    #[inline(always)]
    pub fn overflow(&self, slot: &SlotPlace, blocks: u32, room: u32) -> ! {
        fault(FaultKind::Capacity, slot, 0, self.cta.head.rank, room, blocks)
    }

    /// The CTA.
    #[inline(always)]
    pub fn cta(&self) -> &'c Cta<'p, C> {
        self.cta
    }

    /// The launch's epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The address of what arrives in a slot, if that is not in a matrix.
    #[inline(always)]
    pub fn incoming(&self, slot: &SlotPlace) -> u64 {
        if slot.into.is_some() {
            return 0;
        }
        let rank = self.cta.head.rank;
        match slot.arg.pull {
            0 => self.data_address(slot, rank, self.checked(slot, slot.linear())),
            _ => self.data_address(slot, slot.index[0], self.checked(slot, slot.outbox(rank))),
        }
    }

    /// Waits for the piece of a panel that the box at `first` belongs to. The first box behind that piece.
    #[inline(always)]
    pub fn receive_boxes(&self, slot: &SlotPlace, first: u32) -> u32 {
        let piece = slot.piece_of(first);
        self.wait_for(slot, piece);
        fence_proxy_async_global();
        (piece + 1).saturating_mul(slot.arg.piece_boxes)
    }

    /// Whether a slot's signal, or that of its first piece, has arrived. For nothing nobody waits.
    #[inline(always)]
    pub fn arrived(&self, slot: &SlotPlace) -> bool {
        if slot.arg.columns == 0 {
            return true;
        }
        let linear = self.checked(slot, slot.linear());
        let seen =
            unsafe { load_acquire_sys(self.signal_address(slot, slot.first_piece(), self.cta.head.rank, linear)) };
        let arrived = seen.wrapping_sub(self.epoch) as i32 >= 0;
        if arrived && slot.arg.pieces == 1 {
            self.chosen.set([slot.channel, linear]);
        }
        arrived
    }

    /// Waits until a slot may be written for `to`. The address to write to, if that is not in a matrix.
    #[inline(always)]
    fn reserve(&self, slot: &SlotPlace, to: u32) -> u64 {
        self.wait_until_free(slot, to);
        self.target(slot, to)
    }

    /// Waits until a slot may be written for `to`.
    #[inline(always)]
    pub fn wait_until_free(&self, slot: &SlotPlace, to: u32) {
        self.checked(slot, slot.linear());
        if slot.arg.pull != 0 && slot.index[0] != self.cta.head.rank {
            fault(FaultKind::SlotOutOfRange, slot, slot.piece, to, 0, 0);
        }
        // A matrix is free when the launch has begun that writes it, a slot one launch before.
        let in_matrix = slot.into.is_some() as u32;
        let known = 1 << (to + in_matrix * MAX_WORLD as u32);
        if (slot.acknowledged || slot.into.is_some()) && self.acknowledged.get() & known == 0 {
            let started = self.cta.region + (offset_of!(Control, started) + 4 * to as usize) as u64;
            let wanted = self.epoch.wrapping_sub(1 - in_matrix);
            self.poll(started, wanted, |seen| fault(FaultKind::NotAcknowledged, slot, slot.piece, to, wanted, seen));
            self.acknowledged.set(self.acknowledged.get() | known);
        }
    }

    /// The address at which a slot is written for `to`, if that is not in a matrix.
    #[inline(always)]
    pub fn target(&self, slot: &SlotPlace, to: u32) -> u64 {
        if slot.into.is_some() {
            return 0;
        }
        match slot.arg.pull {
            0 => self.data_address(slot, to, self.checked(slot, slot.linear())),
            _ => self.data_address(slot, self.cta.head.rank, self.checked(slot, slot.outbox(to))),
        }
    }

    /// Waits until a slot may be written for every rank that the route names.
    #[inline(always)]
    pub fn await_receivers(&self, slot: &SlotPlace) {
        self.for_receivers(slot, |receiver| self.wait_until_free(slot, receiver));
    }

    /// Stores boxes into a slot of every rank that the route names.
    #[inline(always)]
    pub fn put<E: Element>(&self, to: &SlotPlace, rows: usize, columns: usize, first: u32, count: u32, from: u32) {
        let bytes = rows as u32 * ROW;
        let mut stored = false;
        self.for_receivers(to, |receiver| {
            let address = self.reserve(to, receiver);
            if let Some(matrix) = to.into {
                let place = to.within(self.matrix_of(&matrix, receiver), rows, columns);
                put_in_matrix::<E>(&place, (rows, columns), first, count, from);
                return;
            }
            // What is pulled lies in this rank's memory once, for all receivers of a broadcast.
            if stored && to.arg.pull != 0 {
                return;
            }
            let sent = to.rows(rows) * ROW;
            for index in 0..count {
                let offset = (first + index) as u64 * bytes as u64;
                unsafe { bulk_store(address + offset, from + index * bytes, sent) };
            }
            stored = true;
        });
    }

    /// Tells the math warpgroups where to store a slot's tile.
    ///
    /// # Safety
    /// The staging buffer must be this thread's.
    #[inline(always)]
    pub unsafe fn tell_targets(&self, slot: &SlotPlace) {
        let mut count = 0;
        self.for_receivers(slot, |receiver| {
            let address = self.reserve(slot, receiver);
            // As with `put`.
            if count == 0 || slot.arg.pull == 0 {
                unsafe { self.cta.keep_target(count, address) };
                count += 1;
            }
        });
        unsafe { self.cta.keep_targets(count) };
    }

    /// Completes and releases what was stored into a slot, and signals its receivers.
    #[inline(always)]
    pub fn announce(&self, slot: &SlotPlace) {
        self.complete();
        fence_acq_rel_sys();
        let piece = slot.first_piece();
        self.signal(slot, piece..piece + 1);
    }

    /// Completes and releases what was stored into a panel's slot, and signals its receivers each piece of it.
    #[inline(always)]
    pub fn announce_pieces(&self, slot: &SlotPlace) {
        self.complete();
        self.release(slot);
    }

    /// Completes what this thread has stored. That alone isn't enough: without the fence after it receivers were seen to
    /// read what was there before.
    #[inline(always)]
    fn complete(&self) {
        bulk_wait();
        self.cta.event(EventKind::Stored);
    }

    /// Releases what this thread, and those before it at a CTA barrier, stored into a slot, and signals its receivers
    /// each piece of it.
    #[inline(always)]
    pub fn release(&self, slot: &SlotPlace) {
        fence_acq_rel_sys();
        self.signal(slot, slot.pieces());
    }

    /// Signals pieces to every rank that the route names. What filled them must be complete and released.
    #[inline(always)]
    fn signal(&self, slot: &SlotPlace, pieces: Range<u32>) {
        let (head, linear) = (self.cta.head, self.checked(slot, slot.linear()));
        let dropped = head.drop_channel == slot.channel && head.drop_slot == linear;
        for piece in pieces {
            self.cta.slot_event(EventKind::Send, slot, piece, if slot.route == Route::One { slot.to } else { NOBODY });
            self.for_receivers(slot, |receiver| {
                if !dropped {
                    unsafe { store_relaxed_sys(self.signal_address(slot, piece, receiver, linear), self.epoch) };
                }
            });
        }
    }

    /// Calls `each` with every rank that receives what is stored into a slot.
    #[inline(always)]
    pub fn for_receivers(&self, slot: &SlotPlace, mut each: impl FnMut(u32)) {
        match slot.route {
            Route::One if slot.to < self.cta.head.world => each(slot.to),
            Route::One => fault(FaultKind::SlotOutOfRange, slot, slot.piece, slot.to, 0, 0),
            Route::Peers | Route::All => {
                for rank in 0..self.cta.head.world {
                    if rank != self.cta.head.rank || slot.route == Route::All {
                        each(rank);
                    }
                }
            }
        }
    }

    /// Whether a slot's tile comes over the link when it is loaded, and is to be limited.
    #[inline(always)]
    pub fn limits_load(&self, slot: &SlotPlace) -> bool {
        self.cta.head.link_limit != 0 && slot.arg.pull != 0 && slot.index[0] != self.cta.head.rank
    }

    /// Whether a tile goes over the link when it is stored into a slot, and is to be limited. The limit is there for the sake
    /// of products, and a CTA's last tile leaves none to be slowed.
    #[inline(always)]
    pub fn limits_store(&self, slot: &SlotPlace) -> bool {
        self.cta.head.link_limit != 0 && !self.last.get() && slot.arg.pull == 0 && slot.to != self.cta.head.rank
    }

    /// Waits while the allowed number of transfers drive the link in this direction.
    #[inline(always)]
    pub fn take_link(&self, way: Way) {
        let width = self.cta.head.link_limit;
        let ticket = unsafe { add_relaxed_gpu(self.tickets(offset_of!(Control, link_taken), way), 1) };
        let returned = self.tickets(offset_of!(Control, link_returned), way);
        let mut polls = 0u32;
        // Signed: later tickets may come back before this thread looks again.
        while ticket.wrapping_sub(unsafe { load_relaxed_gpu(returned) }) as i32 >= width as i32 {
            polls = polls.wrapping_add(1);
            if polls % POLLS == 0 {
                self.cta.end_if_aborted();
            }
        }
    }

    /// Lets the next transfer drive the link.
    #[inline(always)]
    pub fn return_link(&self, way: Way) {
        unsafe { add_relaxed_gpu(self.tickets(offset_of!(Control, link_returned), way), 1) };
    }

    /// A matrix that a channel lies in, as `rank` has it.
    #[inline(always)]
    pub fn matrix_of(&self, matrix: &MatrixArg, rank: u32) -> MatrixArg {
        let theirs = matrix.ranks + rank as u64 * size_of::<MatrixArg>() as u64;
        let word = |offset: usize| unsafe { load_constant_u64(theirs + offset as u64) };
        let (data, pitch) = (word(offset_of!(MatrixArg, data)), word(offset_of!(MatrixArg, pitch)));
        let (maps, rows) = (word(offset_of!(MatrixArg, maps)), word(offset_of!(MatrixArg, rows)) as u32);
        MatrixArg { data, pitch, maps, rows, ..*matrix }
    }

    #[inline(always)]
    fn tickets(&self, counts: usize, way: Way) -> u64 {
        self.cta.region + (counts + way as usize * size_of::<Ticket>()) as u64
    }

    /// Waits until something `holds`; calls `report` when the deadline passes.
    #[inline(always)]
    pub fn poll_until(&self, holds: impl FnMut() -> bool, report: impl Fn()) {
        self.poll_within(1, holds, report);
    }

    /// Waits until something `holds`; calls `report` when so many deadlines have passed.
    #[inline(always)]
    fn poll_within(&self, deadlines: u64, mut holds: impl FnMut() -> bool, report: impl Fn()) {
        let mut polls = 0u32;
        while !holds() {
            polls = polls.wrapping_add(1);
            if polls % POLLS == 0 {
                self.cta.end_if_aborted();
                if self.late(deadlines) {
                    report();
                }
            }
        }
    }

    /// Reports that the signal of `slot` is missing.
    #[inline(always)]
    pub fn missing(&self, slot: &SlotPlace) -> ! {
        let piece = slot.first_piece();
        let signal = self.signal_address(slot, piece, self.cta.head.rank, self.checked(slot, slot.linear()));
        fault(FaultKind::MissingSignal, slot, piece, slot.sender(self.cta.head.world), self.epoch, unsafe {
            load_relaxed_sys(signal)
        })
    }

    #[inline(always)]
    fn poll(&self, address: u64, wanted: u32, report: impl Fn(u32)) {
        let seen = Cell::new(0);
        self.poll_until(
            || {
                seen.set(unsafe { load_acquire_sys(address) });
                seen.get().wrapping_sub(wanted) as i32 >= 0
            },
            || report(seen.get()),
        )
    }

    /// Whether so many deadlines have passed. They run from when this thread, waiting, sees that all ranks have started.
    #[inline(always)]
    fn late(&self, deadlines: u64) -> bool {
        let now = globaltimer();
        let since = self.cta.waits_since();
        if since != 0 {
            return now.wrapping_sub(since) > self.cta.head.deadline_ns.saturating_mul(deadlines);
        }
        for rank in 0..self.cta.head.world {
            let address = self.cta.region + (offset_of!(Control, started) + 4 * rank as usize) as u64;
            if (unsafe { load_relaxed_sys(address) }.wrapping_sub(self.epoch) as i32) < 0 {
                return false;
            }
        }
        unsafe { self.cta.wait_since(now) };
        false
    }

    #[inline(always)]
    fn checked(&self, slot: &SlotPlace, position: Option<u32>) -> u32 {
        match position {
            Some(position) => position,
            None => fault(FaultKind::SlotOutOfRange, slot, slot.piece, slot.to, 0, 0),
        }
    }

    #[inline(always)]
    fn signal_address(&self, slot: &SlotPlace, piece: u32, rank: u32, linear: u32) -> u64 {
        self.region_of(rank) + slot.signal_offset(linear, piece)
    }

    #[inline(always)]
    fn data_address(&self, slot: &SlotPlace, rank: u32, position: u32) -> u64 {
        self.region_of(rank) + slot.data_offset(position, self.epoch)
    }

    #[inline(always)]
    fn region_of(&self, rank: u32) -> u64 {
        if rank == self.cta.head.rank {
            return self.cta.region;
        }
        if self.kept_regions { unsafe { self.cta.kept_region(rank) } } else { self.cta.region_of(rank) }
    }
}
