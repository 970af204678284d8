//! What a CTA of a simulated rank did and when, for a timeline.

use core::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

use crate::abi::{Head, MAX_AXES};
use crate::log::{ENTRY, EventKind, Mark, Recorder, coordinates, count, row};
use crate::place::SlotPlace;

/// One CTA's row.
pub(super) struct Log {
    /// Its address; 0 if none is kept.
    row: u64,
    capacity: u64,
    written: Cell<u32>,
}

impl Log {
    /// The row of a CTA.
    ///
    /// # Safety
    /// The log in `head` must have room for it until the launch has left, and nobody else may write to it.
    pub(super) unsafe fn begin(head: &Head, cta: u32) -> Self {
        let row = match head.log {
            0 => 0,
            log => row(log, cta, Recorder::Whole as u32, head.log_capacity),
        };
        let log = Log { row, capacity: head.log_capacity, written: Cell::new(0) };
        log.event(EventKind::Start);
        log
    }

    /// Notes an event that concerns no channel.
    pub(super) fn event(&self, kind: EventKind) {
        self.mark(Mark::of(kind));
    }

    /// Notes the beginning of a tile.
    pub(super) fn begin_tile(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.mark(Mark { of: stage, ..Mark::of(EventKind::Begin) });
        self.write(coordinates(tile));
    }

    /// Notes what happened to a slot, and with which rank.
    pub(super) fn slot_event(&self, kind: EventKind, slot: &SlotPlace, peer: u32) {
        self.mark(Mark { kind, of: slot.channel, peer, signal: slot.signal(slot.first_piece()) });
    }

    /// Ends the row.
    pub(super) fn end(&self) {
        self.event(EventKind::End);
        self.put(0, count(self.written.get()));
    }

    fn mark(&self, mark: Mark) {
        if self.row != 0 {
            self.write(mark.entry(now()));
        }
    }

    fn write(&self, entry: [u32; 4]) {
        let index = self.written.replace(self.written.get() + 1) as u64;
        if index < self.capacity {
            self.put(index + 1, entry);
        }
    }

    fn put(&self, index: u64, entry: [u32; 4]) {
        if self.row != 0 {
            // SAFETY: the row has this entry, as `begin` was promised.
            unsafe { ((self.row + index * ENTRY) as *mut [u32; 4]).write(entry) };
        }
    }
}

/// Nanoseconds on a clock that all simulated ranks share.
fn now() -> u64 {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    BEGINNING.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
