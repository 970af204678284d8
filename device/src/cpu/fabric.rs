//! The fabric between simulated ranks: signals that wake parked CTAs, and the search for what a launch
//! hangs on when none of them can go on.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::vec::Vec;

use super::clock::{Clock, Clocks, Race};
use super::fault::Abandoned;
use super::region::{Regions, word};
use super::sync::{self, Thread};
use super::words::{Condition, Seat, TooNarrow, Words};
use crate::abi::{FaultKind, FaultRecord, Head, NONE};
use crate::ordering::{Order, Reach};

/// What the CTAs of a simulated world meet in. Launches on one fabric run in the order in which they were
/// launched on each rank, and overlap between ranks.
pub struct Fabric {
    world: u32,
    state: Mutex<State>,
    /// Signals: how many launches each rank has left.
    turns: Vec<AtomicU32>,
    broken: OnceLock<Break>,
}

/// A way to break the protocol, to see that it is found.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Slots are overwritten without waiting until their receiver is done with them.
    OverwriteEarly,
    /// Slots are read without waiting for their signal.
    ReadEarly,
    /// Signals are written before what they stand for.
    SignalEarly,
}

#[derive(Default)]
struct State {
    clocks: Clocks,
    words: Words,
    launches: u32,
    /// By the address of its signal, the epoch in which a slot was last begun to be sent.
    sent: HashMap<u64, u32>,
    /// By the address of a gate's counter, how many tiles the gate waits for.
    gates: HashMap<u64, u32>,
    /// CTAs that were launched and have not left.
    running: usize,
    parked: Vec<Parked>,
    /// No longer parked, to be woken when the state is unlocked.
    woken: Vec<Thread>,
    delays: Vec<Duration>,
}

/// A launch's turn on every rank, and what the host knew when it launched.
pub(super) struct Announced {
    turn: u32,
    known: Clock,
}

/// A signal, and the count that is waited for.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) signal: u64,
    pub(super) count: u32,
}

impl Want {
    fn seen(&self) -> u32 {
        word(self.signal).load(Ordering::Acquire)
    }

    fn arrived(&self) -> bool {
        reached(self.seen(), self.count)
    }
}

/// Whether a monotonic count has come as far as `count`, however often it has wrapped.
fn reached(seen: u32, count: u32) -> bool {
    seen.wrapping_sub(count) as i32 >= 0
}

/// The launch that a wait belongs to, and what is missing if the wait fails.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) head: Head,
    pub(super) epoch: u32,
    pub(super) missing: FaultRecord,
    /// The counter of the gate that is waited at.
    pub(super) gate: Option<u64>,
}

impl Watch {
    fn regions(&self) -> Regions {
        Regions::of(&self.head)
    }

    fn aborted(&self) -> bool {
        self.regions().abort(self.head.rank).load(Ordering::Acquire) != 0
    }

    fn all_started(&self) -> bool {
        (0..self.head.world).all(|of| reached(self.word_of(self.regions().started(self.head.rank, of)), self.epoch))
    }

    /// Whether the rank that should have sent (any other, where it can't be told) has left the launch, so
    /// that it never will.
    fn never_comes(&self) -> bool {
        let Head { rank, world, .. } = self.head;
        let left = |of| reached(self.word_of(self.regions().finished(rank, of)), self.epoch);
        match self.missing.peer {
            NONE => (0..world).all(|of| of == rank || left(of)),
            peer => left(peer),
        }
    }

    fn word_of(&self, address: u64) -> u32 {
        word(address).load(Ordering::Acquire)
    }
}

/// A CTA that waits for one of several signals.
struct Parked {
    thread: Thread,
    wants: Vec<Want>,
    /// What it waits for in the place of signals.
    condition: Option<Condition>,
    watch: Option<Watch>,
}

impl Parked {
    fn give_up(&self, watch: &Watch, kind: u32, gates: &HashMap<u64, u32>) {
        let mut fault = match &self.condition {
            Some(condition) => condition.missed(watch.missing),
            None => {
                let want = self.wants[0];
                FaultRecord { kind, expected: want.count, seen: want.seen(), ..watch.missing }
            }
        };
        if let Some(counter) = watch.gate {
            let counted = word(counter).load(Ordering::Acquire);
            fault.word = [counted, if counted > 0 { gates.get(&counter).copied().unwrap_or(NONE) } else { NONE }];
        }
        record(&watch.head, fault);
    }
}

/// Leaves the record of a rank's first fault and aborts the launch on every rank.
fn record(head: &Head, fault: FaultRecord) {
    let regions = Regions::of(head);
    if regions.faulted(head.rank).swap(1, Ordering::AcqRel) == 0 {
        // SAFETY: the launch has a record for each rank, and only the first fault of a rank gets here.
        unsafe { *(head.fault as *mut FaultRecord) = fault };
    }
    for rank in 0..head.world {
        regions.abort(rank).store(1, Ordering::Release);
    }
}

impl State {
    /// Writes a signal and lets go on whom it satisfies.
    fn signal(&mut self, lane: usize, signal: u64, count: u32) {
        self.clocks.release(lane, signal);
        word(signal).store(count, Ordering::Release);
        let woken = self
            .parked
            .extract_if(.., |parked| parked.wants.iter().any(|want| want.signal == signal && want.arrived()));
        self.woken.extend(woken.map(|parked| parked.thread));
    }

    fn wake_all(&mut self) {
        self.woken.extend(self.parked.drain(..).map(|parked| parked.thread));
    }

    /// If every CTA is parked, gives up. A signal whose sender's rank has left the launch can't come any
    /// more and is reported as missing; if there is none such, so is what is waited for in a word; else the CTAs
    /// wait for each other, and each rank's first wait is reported as part of a deadlock.
    fn check_progress(&mut self) {
        if self.running == 0 || self.parked.len() < self.running {
            return;
        }
        let mut watched: Vec<_> =
            self.parked.iter().filter_map(|parked| Some((parked, parked.watch.as_ref()?))).collect();
        // A rank's first one is its report. Waits of later stages, and for what a rank makes itself, mostly follow from others.
        watched.sort_by_key(|(_, Watch { head, missing, .. })| {
            let at_end = missing.channel == NONE && missing.kind == FaultKind::MissingSignal as u32;
            (at_end, missing.stage, missing.peer == NONE || missing.peer == head.rank)
        });
        let watched = || watched.iter().copied();
        if watched().any(|(_, watch)| watch.never_comes()) {
            for (parked, watch) in watched().filter(|(_, watch)| watch.never_comes()) {
                parked.give_up(watch, watch.missing.kind, &self.gates);
            }
        } else if watched().any(|(parked, _)| parked.condition.is_some()) {
            for (parked, watch) in watched().filter(|(parked, _)| parked.condition.is_some()) {
                parked.give_up(watch, watch.missing.kind, &self.gates);
            }
        } else {
            for (parked, watch) in watched() {
                parked.give_up(watch, FaultKind::Deadlock as u32, &self.gates);
            }
        }
        self.wake_all();
    }
}

impl Fabric {
    /// The fabric of a world of `world` ranks.
    pub fn new(world: u32) -> Arc<Self> {
        let state = State { delays: std::vec![Duration::ZERO; world as usize], ..State::default() };
        let turns = (0..world).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Fabric { world, state: Mutex::new(state), turns, broken: OnceLock::new() })
    }

    /// Fault injection: every CTA of `rank` starts its next launches this much late.
    pub fn delay(&self, rank: u32, by: Duration) {
        self.with(|state| state.delays[rank as usize] = by);
    }

    /// Breaks the protocol, once and for all.
    #[cfg(feature = "explore")]
    #[doc(hidden)]
    pub fn break_protocol(&self, how: Break) {
        self.broken.set(how).expect("a fabric is broken in one way only");
    }

    pub(super) fn is_broken(&self, how: Break) -> bool {
        self.broken.get() == Some(&how)
    }

    pub(super) fn world(&self) -> u32 {
        self.world
    }

    /// The lane of a CTA: its index in vector clocks.
    pub(super) fn lane(&self, rank: u32, cta: u32) -> usize {
        (cta * self.world + rank) as usize
    }

    fn turn(&self, rank: u32) -> u64 {
        self.turns[rank as usize].as_ptr() as u64
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        sync::step();
        let mut state = self.state.lock().expect("the fabric doesn't panic while it holds its state");
        let result = change(&mut state);
        let woken = core::mem::take(&mut state.woken);
        drop(state);
        for thread in woken {
            thread.unpark();
        }
        result
    }

    /// Counts a launch of `ctas` CTAs as running.
    pub(super) fn announce(&self, ctas: usize) -> Announced {
        self.with(|state| {
            let turn = state.launches;
            if state.running == 0 {
                // Another region may lie where that of the launches before did.
                state.sent.clear();
            }
            state.running += ctas;
            state.launches = turn.wrapping_add(1);
            Announced { turn, known: state.clocks.host() }
        })
    }

    /// Waits until every earlier launch has left the rank. Returns by how much it is to be held up.
    pub(super) fn admit(&self, rank: u32, lane: usize, launch: &Announced) -> Duration {
        let wants = [Want { signal: self.turn(rank), count: launch.turn }];
        let Ok(_) = self.wait(lane, &wants, None) else { unreachable!("a wait that isn't watched isn't given up") };
        self.with(|state| {
            state.clocks.launched(lane, &launch.known);
            state.delays[rank as usize]
        })
    }

    /// Whether the launch has left every rank.
    pub(super) fn has_left(&self, launch: &Announced) -> bool {
        self.turns.iter().all(|left| reached(left.load(Ordering::Acquire), launch.turn.wrapping_add(1)))
    }

    /// The host has seen that its launches have left every rank.
    pub(super) fn settle(&self) {
        self.with(|state| {
            (0..self.world).for_each(|rank| state.clocks.acquire_on_host(self.turn(rank)));
            if state.running == 0 {
                state.clocks.forget();
            }
        });
    }

    /// The rank has started an epoch: tells every rank, and those that wait, whose deadlines may now run.
    pub(super) fn start(&self, lane: usize, head: &Head, epoch: u32) {
        self.with(|state| {
            for rank in 0..head.world {
                state.signal(lane, Regions::of(head).started(rank, head.rank), epoch);
            }
            // Not those that wait for their launch's turn, of which there may be many.
            let waiting = state.parked.iter().filter(|parked| parked.watch.is_some());
            let waiting: Vec<_> = waiting.map(|parked| parked.thread.clone()).collect();
            state.woken.extend(waiting);
        });
    }

    /// The CTA has left; the last one to leave ends the epoch on its rank.
    pub(super) fn leave(&self, lane: usize, head: &Head, epoch: u32) {
        let regions = Regions::of(head);
        self.with(|state| {
            let left = regions.left(head.rank);
            state.clocks.count(lane, left.as_ptr() as u64);
            if left.fetch_add(1, Ordering::AcqRel) + 1 == head.ctas {
                left.store(0, Ordering::Relaxed);
                regions.epoch(head.rank).store(epoch, Ordering::Release);
                for rank in 0..head.world {
                    state.signal(lane, regions.finished(rank, head.rank), epoch);
                }
                let turn = self.turns[head.rank as usize].load(Ordering::Relaxed);
                state.signal(lane, self.turn(head.rank), turn.wrapping_add(1));
            }
            state.running -= 1;
            state.check_progress();
        });
    }

    /// Begins to send the slot with this signal. Whether nobody else has in this epoch.
    pub(super) fn begin_send(&self, signal: u64, epoch: u32) -> bool {
        self.with(|state| state.sent.insert(signal, epoch) != Some(epoch))
    }

    /// Writes a signal.
    pub(super) fn signal(&self, lane: usize, signal: u64, count: u32) {
        self.with(|state| state.signal(lane, signal, count));
    }

    /// Whether a signal has arrived.
    pub(super) fn has_come(&self, want: &Want) -> bool {
        self.with(|_| want.arrived())
    }

    /// Counts the lane in a counter, which the last of `of` sets back to 0. Whether it is the last.
    pub(super) fn count(&self, lane: usize, counter: u64, of: u32) -> bool {
        self.with(|state| {
            state.clocks.count(lane, counter);
            state.gates.insert(counter, of);
            let counted = word(counter).load(Ordering::Relaxed) + 1;
            word(counter).store(if counted == of { 0 } else { counted }, Ordering::Relaxed);
            counted == of
        })
    }

    /// Accesses a word of a symmetric matrix: `access` says what it held, and whether it was written.
    pub(super) fn access<V>(
        &self,
        seat: Seat,
        address: u64,
        order: Order,
        reach: Reach,
        access: impl FnOnce() -> (V, bool),
    ) -> Result<V, TooNarrow> {
        self.with(|state| {
            state.words.access(seat, address, reach)?;
            if order.acquires() {
                state.clocks.acquire(seat.lane, address);
            }
            let (before, written) = access();
            if written && order.releases() {
                state.clocks.count(seat.lane, address);
            }
            if written {
                let held = |parked: &mut Parked| parked.condition.as_ref().is_some_and(|it| it.holds_at(address));
                let woken = state.parked.extract_if(.., held);
                state.woken.extend(woken.map(|parked| parked.thread));
            }
            Ok(before)
        })
    }

    /// Does something while nobody accesses a word or does the like.
    pub(super) fn alone(&self, act: impl FnOnce()) {
        self.with(|_| act());
    }

    /// Waits for what a word holds, as [`wait`](Fabric::wait) does for signals.
    pub(super) fn wait_word(&self, condition: Condition, watch: &Watch) -> Result<(), Abandoned> {
        self.wait_while(
            Some(watch),
            |_| condition.holds().then_some(()),
            || Parked {
                thread: Thread::current(),
                wants: Vec::new(),
                condition: Some(condition.clone()),
                watch: Some(*watch),
            },
        )
    }

    /// Notes that the lane is about to read a slot.
    pub(super) fn read(&self, lane: usize, slot: u64) -> Result<(), Race> {
        self.with(|state| state.clocks.read(lane, slot))
    }

    /// Notes that the lane is about to overwrite a slot.
    pub(super) fn write(&self, lane: usize, slot: u64) -> Result<(), Race> {
        self.with(|state| state.clocks.write(lane, slot))
    }

    /// Gives a launch up.
    pub(super) fn fault(&self, head: &Head, fault: FaultRecord) {
        self.with(|state| {
            record(head, fault);
            state.wake_all();
        });
    }

    /// Waits for one of several signals and returns which one has arrived, the first if there are several.
    /// A watched wait ends without it when the launch is given up, be it by this wait itself: past its
    /// deadline, which runs from the moment at which it has seen every rank started.
    pub(super) fn wait(&self, lane: usize, wants: &[Want], watch: Option<&Watch>) -> Result<usize, Abandoned> {
        let arrived = |state: &mut State| {
            let first = wants.iter().position(Want::arrived)?;
            state.clocks.acquire(lane, wants[first].signal);
            Some(first)
        };
        self.wait_while(watch, arrived, || Parked {
            thread: Thread::current(),
            wants: wants.into(),
            condition: None,
            watch: watch.copied(),
        })
    }

    /// Waits until there is something that has come, parked so in the meantime.
    fn wait_while<T>(
        &self,
        watch: Option<&Watch>,
        arrived: impl Fn(&mut State) -> Option<T>,
        parked: impl Fn() -> Parked,
    ) -> Result<T, Abandoned> {
        let mut deadline = None;
        loop {
            let decided = self.with(|state| {
                state.parked.retain(|parked| !parked.thread.is_current());
                if watch.is_some_and(Watch::aborted) {
                    return Some(Err(Abandoned));
                }
                if let Some(first) = arrived(state) {
                    return Some(Ok(first));
                }
                let parked = parked();
                if let Some(watch) = watch {
                    if deadline.is_none() && watch.all_started() {
                        deadline = Some(Instant::now() + Duration::from_nanos(watch.head.deadline_ns));
                    }
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        parked.give_up(watch, watch.missing.kind, &state.gates);
                        state.wake_all();
                        return Some(Err(Abandoned));
                    }
                }
                state.parked.push(parked);
                state.check_progress();
                None
            });
            if let Some(decided) = decided {
                return decided;
            }
            sync::park(deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())));
        }
    }
}
