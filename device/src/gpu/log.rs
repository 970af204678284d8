//! What a role did and when, for a timeline. Code that is not compiled to record has nothing of it.
//!
//! How many entries a role has written lies in shared memory, so that nothing has to be held in a register between two
//! events.

use super::cta::{Config, Cta, LOGGED};
use crate::abi::MAX_AXES;
use crate::log::{self, EventKind, Mark, Recorder};
use crate::place::SlotPlace;
use crate::ptx::*;

impl<'p, C: Config> Cta<'p, C> {
    /// Empties the rows.
    #[inline(always)]
    pub(super) unsafe fn prepare_log(&self) {
        if C::RECORDS {
            for recorder in 0..Recorder::ALL.len() as u32 {
                unsafe { store_shared(self.shared + LOGGED + 4 * recorder, 0) };
            }
        }
    }

    /// The time, where it is recorded.
    #[inline(always)]
    pub(super) fn time(&self) -> u64 {
        if C::RECORDS { globaltimer() } else { 0 }
    }

    /// Notes an event that concerns no channel.
    #[inline(always)]
    pub(super) fn event(&self, kind: EventKind) {
        self.event_at(kind, self.time());
    }

    /// Notes an event that has passed.
    #[inline(always)]
    pub(super) fn event_at(&self, kind: EventKind, at: u64) {
        self.write(Mark::of(kind).entry(at));
    }

    /// Notes that this role begins with a tile; with `None` in the place of what it doesn't know.
    #[inline(always)]
    pub(super) fn begin_tile(&self, stage: u32, tile: Option<[u32; MAX_AXES]>) {
        self.write(Mark { of: stage, ..Mark::of(EventKind::Begin) }.entry(self.time()));
        if let Some(tile) = tile {
            self.write(log::coordinates(tile));
        }
    }

    /// Notes what happened to a piece of a slot, and with which rank.
    #[inline(always)]
    pub(super) fn slot_event(&self, kind: EventKind, slot: &SlotPlace, piece: u32, peer: u32) {
        if C::RECORDS {
            let signal = slot.signal(piece);
            self.write(Mark { kind, of: slot.channel, peer, signal }.entry(self.time()));
        }
    }

    /// Ends this role's row.
    #[inline(always)]
    pub(super) fn end_log(&self) {
        self.event(EventKind::End);
        if C::RECORDS {
            unsafe { store_global_u32x4(self.row(), log::count(load_shared(self.logged()))) };
        }
    }

    #[inline(always)]
    fn write(&self, entry: [u32; 4]) {
        if C::RECORDS {
            unsafe {
                let index = load_shared(self.logged());
                store_shared(self.logged(), index + 1);
                if (index as u64) < self.head.log_capacity {
                    store_global_u32x4(self.row() + (index as u64 + 1) * log::ENTRY, entry);
                }
            }
        }
    }

    /// How many entries this role has written.
    #[inline(always)]
    fn logged(&self) -> u32 {
        self.shared + LOGGED + 4 * self.recorder()
    }

    #[inline(always)]
    fn row(&self) -> u64 {
        log::row(self.head.log, anew(block_idx_x()), self.recorder(), self.head.log_capacity)
    }

    /// This role, by the warp of its thread: the first four warps have a role each, and the others compute.
    #[inline(always)]
    fn recorder(&self) -> u32 {
        // Where the row lies is not to be held in a register between two events either.
        let (warp, math) = (thread_idx_x_anew() / 32, Recorder::Math as u32);
        if warp < math { warp } else { math }
    }
}
