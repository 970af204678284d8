//! The protocol of one launch as one CTA carries it out: starting, sending, receiving, leaving.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::Vec;

use super::clock::Race;
use super::fabric::{Break, Fabric, Want, Watch};
use super::fault::{Abandoned, Panicked, abandon};
use super::log::Log;
use super::region::Regions;
use super::words::{Condition, Seat, TooNarrow};
use crate::abi::{FaultKind, FaultRecord, Head, MAX_AXES, MatrixArg, NONE};
use crate::channel::Route;
use crate::layout::ROW;
use crate::log::EventKind;
use crate::order::Queue;
use crate::ordering::{Order, Reach};
use crate::place::{MatrixPlace, SlotPlace};
use crate::routing::{Misfit, RoutingPlace};
use crate::together::WordPlace;
use crate::word::Comparison;

/// A word of a symmetric matrix.
pub(super) struct Word {
    pub(super) address: u64,
    pub(super) place: WordPlace,
}

/// One CTA of a launch.
pub(super) struct Cta {
    fabric: Arc<Fabric>,
    head: Head,
    index: u32,
    epoch: u32,
    /// Where this rank's matrices lie, by their index.
    matrices: Vec<u64>,
    /// The ranks (a bit each) that are late on purpose, and haven't been waited for.
    late: Cell<u32>,
    /// Since when it has but looked at words.
    looks_since: Cell<Option<Instant>>,
    /// The tile that the CTA is at.
    at: Cell<Option<(u32, [u32; MAX_AXES])>>,
    /// Tiles that were drawn from a queue before they were ready.
    put_by: RefCell<Vec<u32>>,
    /// The queue had no tile left.
    drained: Cell<bool>,
    /// How many tiles were drawn from it.
    drawn: Cell<u32>,
    log: Log,
}

impl Cta {
    /// Starts the launch on this CTA.
    ///
    /// # Safety
    /// The addresses in `head` must be valid until the launch has left every rank, and `head.fabric`
    /// that of the `Fabric` it was launched on.
    pub(super) unsafe fn start(head: Head, matrices: &[MatrixArg], index: u32) -> Self {
        let fabric = head.fabric as *const Fabric;
        // SAFETY: the launch holds the fabric in an `Arc`.
        let fabric = unsafe {
            Arc::increment_strong_count(fabric);
            Arc::from_raw(fabric)
        };
        let epoch = Regions::of(&head).epoch(head.rank).load(Ordering::Acquire).wrapping_add(1);
        // SAFETY: the addresses in `head` are valid, and this is the only thread of the CTA.
        let log = unsafe { Log::begin(&head, index) };
        let matrices = matrices.iter().map(|matrix| matrix.data).collect();
        let (late, looks_since, at) = (Cell::new(head.late), Cell::new(None), Cell::new(None));
        let (put_by, drained, drawn) = (RefCell::default(), Cell::new(false), Cell::new(0));
        let cta = Cta { fabric, head, index, epoch, matrices, late, looks_since, at, put_by, drained, drawn, log };
        if index == 0 {
            cta.fabric.start(cta.lane(), &cta.head, epoch);
        }
        cta
    }

    /// Leaves the launch, which is given up if the tile functions panicked.
    pub(super) fn leave(self, ended: Result<(), Panicked>) {
        if let Err(place) = ended {
            self.fabric.fault(&self.head, self.record(FaultKind::Panic).at_source(&place));
        }
        self.log.end();
        self.fabric.leave(self.lane(), &self.head, self.epoch);
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The tile to name if a fault is to be reported; none if the launch has been given up.
    pub(super) fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        if self.regions().abort(self.head.rank).load(Ordering::Acquire) != 0 {
            abandon(Abandoned);
        }
        self.at.set(Some((stage, tile)));
        self.looks_since.set(None);
    }

    /// The tile that the following belongs to.
    pub(super) fn begin(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.note(stage, tile);
        self.log.begin_tile(stage, tile);
    }

    /// Notes an event for the timeline.
    pub(super) fn event(&self, kind: EventKind) {
        self.log.event(kind);
    }

    /// Sends a slot, or a piece of one: `write` is given a receiver and the address of the slot's data, once for each place
    /// that it has to be stored at.
    pub(super) fn send(&self, slot: &SlotPlace, write: impl Fn(u32, u64)) {
        let receivers: Vec<u32> = match slot.route {
            Route::One => std::vec![slot.to],
            Route::Peers => (0..self.head.world).filter(|&peer| peer != self.head.rank).collect(),
            Route::All => (0..self.head.world).collect(),
        };
        for &receiver in &receivers {
            self.reuse(slot, receiver);
            let signal = self.signal_address(slot, receiver, self.check(slot, receiver, slot.linear()));
            if !self.fabric.begin_send(signal, self.epoch) {
                self.give_up(self.record(FaultKind::SentTwice).at_slot(slot, receiver));
            }
        }
        self.event(EventKind::Store);
        let mut written = None;
        for &receiver in &receivers {
            let signal_early = self.fabric.is_broken(Break::SignalEarly);
            if signal_early {
                self.signal(slot, receiver);
            }
            let data = self.outgoing(slot, receiver);
            if written != Some(data) {
                self.ordered(slot, receiver, |start| self.fabric.write(self.lane(), data + start));
                write(receiver, data);
                self.event(EventKind::Stored);
                written = Some(data);
            }
            if !signal_early {
                self.log.slot_event(EventKind::Send, slot, receiver);
                self.signal(slot, receiver);
            }
        }
    }

    /// Waits for a slot's signal, or a piece's, and returns the address of the slot's data.
    pub(super) fn receive(&self, slot: &SlotPlace) -> u64 {
        let sender = slot.sender(self.head.world);
        self.log.slot_event(EventKind::Wait, slot, sender);
        if !self.fabric.is_broken(Break::ReadEarly) {
            self.wait(&[self.wanted(slot)], self.record(FaultKind::MissingSignal).at_slot(slot, sender));
        }
        self.log.slot_event(EventKind::Ready, slot, sender);
        let data = self.incoming(slot);
        self.ordered(slot, sender, |start| self.fabric.read(self.lane(), data + start));
        data
    }

    /// Counts this CTA in a gate's slot, and opens it if that makes `of`.
    pub(super) fn arrive(&self, gate: &SlotPlace, of: u32) {
        let counter = self.counter(gate);
        if of == 0 || self.fabric.has_come(&self.wanted(gate)) {
            self.give_up(FaultRecord { expected: of, ..self.record(FaultKind::Overcounted).at_slot(gate, NONE) });
        }
        if self.fabric.count(self.lane(), counter, of) {
            self.log.slot_event(EventKind::Send, gate, self.head.rank);
            self.signal(gate, self.head.rank);
        }
    }

    /// Waits for a gate's slot.
    pub(super) fn pass(&self, gate: &SlotPlace) {
        self.log.slot_event(EventKind::Wait, gate, self.head.rank);
        let missing = self.record(FaultKind::MissingSignal).at_slot(gate, self.head.rank);
        self.wait_at(&[self.wanted(gate)], missing, Some(self.counter(gate)));
        self.log.slot_event(EventKind::Ready, gate, self.head.rank);
    }

    /// Waits until a rank has started the launch, so that what it lends may be read.
    pub(super) fn await_lender(&self, rank: u32) {
        let signal = self.regions().started(self.head.rank, rank);
        let missing = FaultRecord { peer: rank, ..self.record(FaultKind::NotAcknowledged) };
        self.wait(&[Want { signal, count: self.epoch }], missing);
        if self.late.get() >> rank & 1 != 0 {
            self.await_late(missing);
            self.late.set(self.late.get() & !(1 << rank));
        }
    }

    /// Waits until a rank that is late on purpose is no longer taken for not started. Nobody parks: no signal would wake it.
    fn await_late(&self, missing: FaultRecord) {
        let Head { late_ns, deadline_ns, .. } = self.head;
        let (begun, late) = (Instant::now(), Duration::from_nanos(late_ns.into()));
        while let Some(left) = late.checked_sub(begun.elapsed()) {
            if begun.elapsed() >= Duration::from_nanos(deadline_ns) {
                self.give_up(FaultRecord { expected: self.epoch, seen: self.epoch.wrapping_sub(1), ..missing });
            }
            if self.regions().abort(self.head.rank).load(Ordering::Acquire) != 0 {
                abandon(Abandoned);
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
    }

    /// Says, on the last CTA that is done with what others lend, that this rank is, and waits, on the first, for all others.
    pub(super) fn reclaim(&self) {
        let (Head { rank, world, ctas, .. }, regions) = (self.head, self.regions());
        if self.fabric.count(self.lane(), regions.returning(rank), ctas) {
            for lender in 0..world {
                self.fabric.signal(self.lane(), regions.returned(lender, rank), self.epoch);
            }
        }
        // Whoever waits for what is missing says so first.
        let head = Head { deadline_ns: self.head.deadline_ns.saturating_add(self.head.deadline_ns / 4), ..self.head };
        for borrower in (0..world).filter(|_| self.index == 0) {
            let missing = FaultRecord { peer: borrower, ..self.record(FaultKind::MissingSignal) };
            let want = Want { signal: regions.returned(rank, borrower), count: self.epoch };
            let watch = Watch { head, epoch: self.epoch, missing, gate: None };
            self.fabric.wait(self.lane(), &[want], Some(&watch)).unwrap_or_else(|abandoned| abandon(abandoned));
        }
    }

    /// Gives up since the routing has more blocks here than there is room for.
    pub(super) fn overflow(&self, slot: &SlotPlace, blocks: u32, room: u32) -> ! {
        let fault = self.record(FaultKind::Capacity).at_slot(slot, self.head.rank);
        self.give_up(FaultRecord { expected: room, seen: blocks, ..fault })
    }

    /// Gives up since something is not as large as a routing says.
    pub(super) fn misfit(&self, routing: &RoutingPlace, misfit: &Misfit) -> ! {
        let Misfit { operand, data, need, needed, found } = *misfit;
        self.give_up(FaultRecord {
            channel: routing.channel,
            slot: [operand as u32, need as u32, NONE, NONE],
            expected: needed,
            seen: found,
            argument: self.argument(data),
            ..self.record(FaultKind::Misfit)
        })
    }

    /// Gives up since there is no such rank.
    pub(super) fn check_source(&self, rank: u32) {
        if rank >= self.head.world {
            self.give_up(FaultRecord { peer: rank, ..self.record(FaultKind::OutOfRange) });
        }
    }

    /// Gives up since a place lies wholly outside of its matrix.
    pub(super) fn outside(&self, place: &MatrixPlace, rows: u32) -> ! {
        let MatrixPlace { matrix, part, row, column } = *place;
        self.give_up(FaultRecord {
            argument: self.argument(matrix.data),
            word: [row, column],
            expected: rows,
            seen: matrix.columns,
            high: [part, matrix.parts],
            ..self.record(FaultKind::Outside)
        })
    }

    /// The index of this rank's matrix that lies here.
    fn argument(&self, data: u64) -> u32 {
        self.matrices.iter().position(|matrix| *matrix == data).map_or(NONE, |index| index as u32)
    }

    /// The address of a gate's counter.
    fn counter(&self, gate: &SlotPlace) -> u64 {
        let position = self.check(gate, gate.to, gate.linear());
        self.regions().base(self.head.rank) + gate.counter_offset(position)
    }

    /// The launch's epoch.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Takes the next tile that is ready, as [`Role::take`](crate::Role::take) says. For a panel without columns nobody waits.
    pub(super) fn take(
        &self,
        queue: &Queue,
        beside: bool,
        slot: impl Fn(u32) -> Option<SlotPlace>,
        note: impl Fn(u32),
    ) -> u32 {
        let mut put_by = self.put_by.borrow_mut();
        let want = |candidate: u32| {
            note(candidate);
            let slot = slot(candidate);
            let want = match &slot {
                Some(slot) if slot.arg.columns > 0 => self.wanted(slot),
                _ => self.arrived(),
            };
            (slot, want)
        };
        self.event(EventKind::End);
        self.event(EventKind::Wait);
        let chosen = loop {
            let candidates = beside.then_some(Queue::BESIDE).into_iter().chain(put_by.iter().copied());
            let candidates: Vec<_> = candidates.map(|candidate| (candidate, want(candidate))).collect();
            if let Some((candidate, (_, want))) = candidates.iter().find(|(_, (_, want))| self.fabric.has_come(want)) {
                self.acquire(want);
                break *candidate;
            }
            let room = put_by.len() < Queue::PUT_BY as usize && self.drawn.get() < queue.share();
            if (room || put_by.is_empty())
                && let Some(position) = self.draw(queue)
            {
                let (_, want) = want(position);
                if self.fabric.has_come(&want) {
                    self.acquire(&want);
                    break position;
                }
                put_by.push(position);
                continue;
            }
            let Some((first, (slot, _))) = candidates.first() else { break Queue::EMPTY };
            note(*first);
            let missing = self.record(FaultKind::MissingSignal);
            let missing = match slot {
                Some(slot) => missing.at_slot(slot, slot.sender(self.head.world)),
                None => missing,
            };
            let gate = slot.as_ref().filter(|slot| slot.is_gate()).map(|gate| self.counter(gate));
            let wants: Vec<_> = candidates.iter().map(|(_, (_, want))| *want).collect();
            break candidates[self.wait_at(&wants, missing, gate)].0;
        };
        put_by.retain(|candidate| *candidate != chosen);
        if chosen == Queue::EMPTY {
            self.drained.set(false);
            self.drawn.set(0);
        }
        self.event(EventKind::Ready);
        chosen
    }

    /// Acquires what has come.
    fn acquire(&self, want: &Want) {
        self.wait(&[*want], self.record(FaultKind::MissingSignal));
    }

    /// Draws the next tile of a queue, and none any more once none was left.
    fn draw(&self, queue: &Queue) -> Option<u32> {
        if self.drained.get() {
            return None;
        }
        let counter = self.regions().taken(self.head.rank, queue.stage);
        let next = |taken| Some(if taken == queue.last() { 0 } else { taken + 1 });
        let drawn = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        self.drained.set(drawn >= queue.tiles);
        self.drawn.set(self.drawn.get() + 1);
        (drawn < queue.tiles).then_some(drawn)
    }

    /// Waits until a rank has begun the launch, so that its memory may be accessed.
    pub(super) fn await_rank(&self, argument: u32, rank: u32) {
        let record = |kind| FaultRecord { argument, peer: rank, ..self.record(kind) };
        if rank >= self.head.world {
            self.give_up(record(FaultKind::OutOfRange));
        }
        let want = Want { signal: self.regions().started(self.head.rank, rank), count: self.epoch };
        self.wait(&[want], record(FaultKind::NotAcknowledged));
    }

    /// Accesses a word: `access` says what it held, and whether it was written.
    pub(super) fn access<V>(&self, word: &Word, order: Order, reach: Reach, access: impl FnOnce() -> (V, bool)) -> V {
        // A word may be loaded again and again until it changes, and that may be never. Who waits for this rank says so first.
        let since = self.looks_since.get().unwrap_or_else(Instant::now);
        if since.elapsed() / 2 >= Duration::from_nanos(self.head.deadline_ns) {
            self.give_up_at(FaultKind::Spun, &word.place);
        }
        self.looks_since.set(Some(since));
        let access = || {
            let (before, written) = access();
            if written {
                self.looks_since.set(None);
            }
            (before, written)
        };
        if self.regions().abort(self.head.rank).load(Ordering::Acquire) != 0 {
            abandon(Abandoned);
        }
        let seat = Seat { rank: self.head.rank, lane: self.lane(), epoch: self.epoch };
        match self.fabric.access(seat, word.address, order, reach, access) {
            Ok(before) => before,
            Err(TooNarrow) => self.give_up_at(FaultKind::TooNarrow, &word.place),
        }
    }

    /// Waits for what a word holds.
    pub(super) fn await_word(
        &self,
        word: &Word,
        comparison: Comparison,
        wanted: u64,
        seen: impl Fn() -> u64 + Send + Sync + 'static,
        holds: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) {
        let missing = self.record(FaultKind::NotHeld).at_word(&word.place).compared(comparison, wanted, 0);
        let watch = Watch { head: self.head, epoch: self.epoch, missing, gate: None };
        let condition = Condition { address: word.address, seen: Arc::new(seen), holds: Arc::new(holds) };
        self.fabric.wait_word(condition, &watch).unwrap_or_else(|abandoned| abandon(abandoned))
    }

    /// Does something to data that nobody else does at the same time.
    pub(super) fn alone(&self, act: impl FnOnce()) {
        self.fabric.alone(act);
    }

    /// Gives up over a word.
    pub(super) fn give_up_at(&self, kind: FaultKind, place: &WordPlace) -> ! {
        self.give_up(self.record(kind).at_word(place))
    }

    fn lane(&self) -> usize {
        self.fabric.lane(self.head.rank, self.index)
    }

    fn regions(&self) -> Regions {
        Regions::of(&self.head)
    }

    /// Waits until the receiver is done with what the launch before last sent in the slot: it has started the next.
    fn reuse(&self, slot: &SlotPlace, receiver: u32) {
        self.check_rank(slot, receiver);
        if slot.arg.by_rank != 0 && slot.index[0] < self.head.world && slot.index[0] != self.head.rank {
            self.give_up(self.record(FaultKind::NotTheSender).at_slot(slot, slot.index[0]));
        }
        if slot.arg.pull != 0 && slot.index[0] != self.head.rank {
            self.out_of_range(slot, receiver);
        }
        let acknowledged = slot.acknowledged || slot.into.is_some();
        if acknowledged && !self.fabric.is_broken(Break::OverwriteEarly) {
            let signal = self.regions().started(self.head.rank, receiver);
            // A matrix is free when the launch has begun that writes it, a slot one launch before.
            let count = if slot.into.is_some() { self.epoch } else { self.epoch.wrapping_sub(1) };
            let want = Want { signal, count };
            self.wait(&[want], self.record(FaultKind::NotAcknowledged).at_slot(slot, receiver));
        }
    }

    fn signal(&self, slot: &SlotPlace, receiver: u32) {
        let position = self.check(slot, receiver, slot.linear());
        if slot.channel != self.head.drop_channel || position != self.head.drop_slot {
            self.fabric.signal(self.lane(), self.signal_address(slot, receiver, position), self.epoch);
        }
    }

    /// What this rank waits for before it reads a slot.
    fn wanted(&self, slot: &SlotPlace) -> Want {
        let position = self.check(slot, slot.sender(self.head.world), slot.linear());
        Want { signal: self.signal_address(slot, self.head.rank, position), count: self.epoch }
    }

    /// A signal that has arrived: this rank's last epoch.
    fn arrived(&self) -> Want {
        let epoch = self.regions().epoch(self.head.rank);
        Want { signal: epoch.as_ptr() as u64, count: self.epoch.wrapping_sub(1) }
    }

    fn signal_address(&self, slot: &SlotPlace, rank: u32, position: u32) -> u64 {
        self.regions().base(rank) + slot.signal_offset(position, slot.first_piece())
    }

    /// Where the data that this rank sends to a receiver lies; an address that stands for it, if that is in a matrix.
    fn outgoing(&self, slot: &SlotPlace, receiver: u32) -> u64 {
        if slot.into.is_some() {
            return self.signal_address(slot, receiver, self.check(slot, receiver, slot.linear()));
        }
        match slot.arg.pull {
            0 => self.data_address(slot, receiver, self.check(slot, receiver, slot.linear())),
            _ => self.data_address(slot, self.head.rank, self.check(slot, receiver, slot.outbox(receiver))),
        }
    }

    /// Where the data that this rank receives in a slot lies; an address that stands for it, if that is in a matrix.
    pub(super) fn incoming(&self, slot: &SlotPlace) -> u64 {
        if slot.into.is_some() {
            return self.signal_address(slot, self.head.rank, self.check(slot, NONE, slot.linear()));
        }
        let sender = slot.index[0];
        match slot.arg.pull {
            0 => self.data_address(slot, self.head.rank, self.check(slot, NONE, slot.linear())),
            _ => {
                self.check_rank(slot, sender);
                self.data_address(slot, sender, self.check(slot, sender, slot.outbox(self.head.rank)))
            }
        }
    }

    fn data_address(&self, slot: &SlotPlace, rank: u32, position: u32) -> u64 {
        self.regions().base(rank) + slot.data_offset(position, self.epoch)
    }

    fn check(&self, slot: &SlotPlace, peer: u32, position: Option<u32>) -> u32 {
        position.unwrap_or_else(|| self.out_of_range(slot, peer))
    }

    fn check_rank(&self, slot: &SlotPlace, rank: u32) {
        if rank >= self.head.world {
            self.out_of_range(slot, rank);
        }
    }

    fn wait(&self, wants: &[Want], missing: FaultRecord) -> usize {
        self.wait_at(wants, missing, None)
    }

    /// Waits, the first of the signals perhaps that of a gate with this counter.
    fn wait_at(&self, wants: &[Want], missing: FaultRecord, gate: Option<u64>) -> usize {
        let watch = Watch { head: self.head, epoch: self.epoch, missing, gate };
        self.fabric.wait(self.lane(), wants, Some(&watch)).unwrap_or_else(|abandoned| abandon(abandoned))
    }

    fn out_of_range(&self, slot: &SlotPlace, peer: u32) -> ! {
        self.give_up(self.record(FaultKind::SlotOutOfRange).at_slot(slot, peer))
    }

    /// Gives up if a use of a slot, or of a piece, races with another. It is noted where its first row starts in the
    /// slot's data. One without data can't race, and starts where another does that may: what is done with it isn't noted.
    fn ordered(&self, slot: &SlotPlace, peer: u32, note: impl FnOnce(u64) -> Result<(), Race>) {
        let start = slot.first_piece() as u64 * slot.arg.piece_boxes as u64 * ROW as u64;
        if start < slot.arg.slot_bytes && note(start).is_err() {
            self.give_up(self.record(FaultKind::Race).at_slot(slot, peer));
        }
    }

    pub(super) fn give_up(&self, fault: FaultRecord) -> ! {
        self.fabric.fault(&self.head, fault);
        abandon(Abandoned)
    }

    pub(super) fn record(&self, kind: FaultKind) -> FaultRecord {
        let (stage, tile) = self.at.get().unwrap_or((NONE, [NONE; MAX_AXES]));
        FaultRecord::new(kind, self.head.rank, stage, tile)
    }
}
