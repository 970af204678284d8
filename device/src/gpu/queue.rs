//! Tiles are taken from a queue by whoever is free: a thread draws the next one, puts by what isn't ready, and comes back to it.

use core::cell::Cell;
use core::mem::offset_of;

use super::cta::Config;
use super::signals::Signals;
use crate::abi::Control;
use crate::log::EventKind;
use crate::order::Queue;
use crate::place::SlotPlace;
use crate::ptx::*;

/// Looks at what is put by before one more tile is drawn. What each CTA holds nobody else takes, and at the start of a launch
/// nothing is ready for a while.
const PATIENCE: u32 = 8;

/// Tiles that a thread has drawn before they were ready. A bit for each seat says whether one has it.
pub(super) struct PutBy {
    seats: u32,
    /// Seats from 1 on, by the places of their bits.
    taken: Cell<u32>,
    /// The queue had no tile left.
    drained: Cell<bool>,
}

impl PutBy {
    /// Nothing is put by in these words of shared memory, [`Queue::PUT_BY`] of them.
    #[inline(always)]
    pub fn new(seats: u32) -> Self {
        PutBy { seats, taken: Cell::new(0), drained: Cell::new(false) }
    }

    /// The candidate at a place: that before the first seat is the tile beside.
    #[inline(always)]
    fn at(&self, place: u32) -> u32 {
        if place == 0 { Queue::BESIDE } else { unsafe { load_shared(self.seats + 4 * (place - 1)) } }
    }

    #[inline(always)]
    fn put(&self, position: u32) {
        let place = (!self.taken.get() & !1).trailing_zeros();
        unsafe { store_shared(self.seats + 4 * (place - 1), position) };
        self.taken.set(self.taken.get() | 1 << place);
    }

    #[inline(always)]
    fn may_draw(&self) -> bool {
        !self.drained.get() && self.taken.get() != (1 << (Queue::PUT_BY + 1)) - 2
    }
}

impl<'c, 'p, C: Config> Signals<'c, 'p, C> {
    /// Takes the next tile that is ready, as [`Role::take`](crate::Role::take) says.
    #[inline(always)]
    pub fn take(
        &self,
        put_by: &PutBy,
        queue: &Queue,
        beside: bool,
        slot: impl Fn(u32) -> Option<SlotPlace>,
        note: impl Fn(u32),
    ) -> u32 {
        let chosen = Cell::new(Queue::EMPTY);
        let candidates = || put_by.taken.get() | beside as u32;
        let looks = Cell::new(0u32);
        let draws_at = Cell::new((put_by.taken.get() != 0) as u32);
        self.cta().event(EventKind::End);
        self.cta().event(EventKind::Wait);
        self.poll_until(
            || {
                if looks.get() == draws_at.get() && put_by.may_draw() {
                    self.draw(put_by, queue);
                    draws_at.set(draws_at.get() + PATIENCE);
                }
                looks.set(looks.get().wrapping_add(1));
                let mut left = candidates();
                if left == 0 {
                    put_by.drained.set(false);
                    return true;
                }
                while left != 0 {
                    let place = left.trailing_zeros();
                    let candidate = put_by.at(place);
                    if slot(candidate).is_none_or(|slot| self.arrived(&slot)) {
                        put_by.taken.set(put_by.taken.get() & !(1 << place));
                        chosen.set(candidate);
                        return true;
                    }
                    left &= left - 1;
                }
                false
            },
            || {
                let first = put_by.at(candidates().trailing_zeros());
                note(first);
                if let Some(slot) = slot(first) {
                    self.missing(&slot);
                }
            },
        );
        self.cta().event(EventKind::Ready);
        chosen.get()
    }

    #[inline(always)]
    fn draw(&self, put_by: &PutBy, queue: &Queue) {
        let counter = self.cta().region + (offset_of!(Control, taken) + 4 * queue.stage as usize) as u64;
        let position = unsafe { count_relaxed_gpu(counter, queue.last()) };
        if position < queue.tiles { put_by.put(position) } else { put_by.drained.set(true) }
    }
}
