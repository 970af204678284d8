//! Vector clocks: what every CTA knows of every other, through signals alone. They tell whether two uses
//! of a slot are ordered, whatever the order in which they happened to run.

use std::collections::HashMap;
use std::vec::Vec;

/// How far each lane (the CTAs of one index on one rank, over all launches) is known to have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    fn of(&self, lane: usize) -> u64 {
        self.0.get(lane).copied().unwrap_or(0)
    }

    fn knows(&self, earlier: Use) -> bool {
        self.of(earlier.lane) >= earlier.time
    }

    fn advance(&mut self, lane: usize) {
        if self.0.len() <= lane {
            self.0.resize(lane + 1, 0);
        }
        self.0[lane] += 1;
    }

    fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// One use of a slot: a lane, and how far it had come.
#[derive(Clone, Copy, Debug)]
struct Use {
    lane: usize,
    time: u64,
}

/// The uses of a slot that a later one must be ordered after.
#[derive(Debug, Default)]
struct History {
    written: Option<Use>,
    read: Vec<Use>,
}

/// Two uses of a slot that no signal orders.
#[derive(Debug)]
pub(super) struct Race;

/// The clocks of one fabric.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    lanes: Vec<Clock>,
    host: Clock,
    /// What the writers of each signal knew, by its address.
    signals: HashMap<u64, Clock>,
    /// By the address of the slot's data.
    slots: HashMap<u64, History>,
}

impl Clocks {
    /// The lane's clock; a lane starts at time 1, which nobody knows of yet.
    fn lane(&mut self, lane: usize) -> &mut Clock {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Clock::default);
        }
        let clock = &mut self.lanes[lane];
        if clock.of(lane) == 0 {
            clock.advance(lane);
        }
        clock
    }

    /// The lane writes a signal.
    pub(super) fn release(&mut self, lane: usize, signal: u64) {
        let known = self.lane(lane).clone();
        self.signals.insert(signal, known);
        self.lanes[lane].advance(lane);
    }

    /// The lane counts a signal up: it knows what all did that counted before, and they that count after know it.
    pub(super) fn count(&mut self, lane: usize, signal: u64) {
        self.acquire(lane, signal);
        self.release(lane, signal);
    }

    /// The lane has seen a signal.
    pub(super) fn acquire(&mut self, lane: usize, signal: u64) {
        self.lane(lane);
        if let Some(known) = self.signals.get(&signal) {
            self.lanes[lane].join(known);
        }
    }

    /// The lane starts a launch: it knows what the host knew when it launched.
    pub(super) fn launched(&mut self, lane: usize, known: &Clock) {
        self.lane(lane).join(known);
    }

    /// What the host knows.
    pub(super) fn host(&self) -> Clock {
        self.host.clone()
    }

    /// The host has seen a signal.
    pub(super) fn acquire_on_host(&mut self, signal: u64) {
        if let Some(known) = self.signals.get(&signal) {
            self.host.join(known);
        }
    }

    /// The host has seen all that ever ran: what is yet to come is ordered after it.
    pub(super) fn forget(&mut self) {
        self.signals.clear();
        self.slots.clear();
    }

    /// The lane reads a slot.
    pub(super) fn read(&mut self, lane: usize, slot: u64) -> Result<(), Race> {
        let time = self.lane(lane).of(lane);
        let history = self.slots.entry(slot).or_default();
        if !history.written.is_some_and(|written| self.lanes[lane].knows(written)) {
            return Err(Race);
        }
        history.read.retain(|read| read.lane != lane);
        history.read.push(Use { lane, time });
        Ok(())
    }

    /// The lane overwrites a slot.
    pub(super) fn write(&mut self, lane: usize, slot: u64) -> Result<(), Race> {
        let time = self.lane(lane).of(lane);
        let history = self.slots.entry(slot).or_default();
        if !history.read.iter().chain(&history.written).all(|&earlier| self.lanes[lane].knows(earlier)) {
            return Err(Race);
        }
        *history = History { written: Some(Use { lane, time }), read: Vec::new() };
        Ok(())
    }
}
