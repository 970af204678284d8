//! What the CTAs of simulated ranks did and when, for a timeline.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::Instant;
use std::vec::Vec;

use crate::abi::MAX_AXES;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The CTA began with the tile.
    Begin,
    /// It began to wait for the slot's signal.
    Wait,
    /// The slot's signal had arrived.
    Ready,
    /// It signalled the slot to its receivers.
    Send,
    /// It was done with the tile, or gave it up.
    End,
}

/// Something that a CTA did.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// The CTA's rank.
    pub rank: u32,
    /// The CTA.
    pub cta: u32,
    /// The stage's index in the kernel.
    pub stage: u32,
    /// The tile's coordinates; [`NONE`](crate::abi::NONE) beyond the stage's arity.
    pub tile: [u32; MAX_AXES],
    /// The channel's index, or [`NONE`](crate::abi::NONE).
    pub channel: u32,
    /// The slot's coordinates; [`NONE`](crate::abi::NONE) beyond the channel's arity.
    pub slot: [u32; MAX_AXES],
    /// When.
    pub at: Instant,
}

/// The events of one fabric, in the order in which they happened on each CTA.
#[derive(Default)]
pub(super) struct Timeline {
    recording: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Timeline {
    pub(super) fn set_recording(&self, recording: bool) {
        self.recording.store(recording, Ordering::Relaxed);
    }

    pub(super) fn record(&self, event: impl FnOnce() -> Event) {
        if self.recording.load(Ordering::Relaxed) {
            self.events.lock().expect("no event is recorded halfway").push(event());
        }
    }

    pub(super) fn take(&self) -> Vec<Event> {
        core::mem::take(&mut self.events.lock().expect("no event is recorded halfway"))
    }
}
