//! A stage's tiles, taken from a queue by whoever is free: a thread draws the next one, puts by what isn't ready, and comes back
//! to it.

use core::cell::Cell;
use core::mem::offset_of;

use super::cta::Config;
use super::signals::Signals;
use crate::abi::Control;
use crate::log::EventKind;
use crate::order::Queue;
use crate::place::SlotPlace;
use crate::ptx::*;

/// Looks at what is put by before one more tile is drawn: what a CTA has put by nobody else takes.
const PATIENCE: u32 = 4;
/// The same until a first tile was ready, since at the start of a launch none is for a while.
const PATIENCE_AT_FIRST: u32 = 64;

/// All places of tiles that are put by. The place before them is that of the tile beside.
const PLACES: u32 = (1 << (Queue::PUT_BY + 1)) - 2;

/// Where a thread stands with a queue, and the tiles that it has drawn before they were ready.
pub(super) struct PutBy {
    /// Words of shared memory for the tiles.
    words: u32,
    /// The places (a bit each) that are occupied.
    occupied: Cell<u32>,
    /// A tile was ready.
    begun: Cell<bool>,
    /// The queue had no tile left.
    drained: Cell<bool>,
}

impl PutBy {
    /// Nothing is put by in these words of shared memory, [`Queue::PUT_BY`] of them.
    #[inline(always)]
    pub fn new(words: u32) -> Self {
        PutBy { words, occupied: Cell::new(0), begun: Cell::new(false), drained: Cell::new(false) }
    }

    #[inline(always)]
    fn word(&self, place: u32) -> u32 {
        self.words + 4 * (place - 1)
    }

    /// The candidate at a place.
    #[inline(always)]
    fn at(&self, place: u32) -> u32 {
        if place == 0 { Queue::BESIDE } else { unsafe { load_shared(self.word(place)) } }
    }

    #[inline(always)]
    fn put(&self, position: u32) {
        let place = (PLACES & !self.occupied.get()).trailing_zeros();
        unsafe { store_shared(self.word(place), position) };
        self.occupied.set(self.occupied.get() | 1 << place);
    }

    /// Goes on without what is at a place, which was ready.
    #[inline(always)]
    fn begin(&self, place: u32) {
        self.begun.set(true);
        self.occupied.set(self.occupied.get() & !(1 << place));
    }

    /// Is done with the queue.
    #[inline(always)]
    fn end(&self) {
        self.begun.set(false);
        self.drained.set(false);
    }

    #[inline(always)]
    fn may_draw(&self) -> bool {
        !self.drained.get() && self.occupied.get() != PLACES
    }

    #[inline(always)]
    fn patience(&self) -> u32 {
        if self.begun.get() { PATIENCE } else { PATIENCE_AT_FIRST }
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
        let candidates = || put_by.occupied.get() | beside as u32;
        let taken = Cell::new(Queue::EMPTY);
        let looks = Cell::new(0u32);
        // What has been put by is looked at first.
        let draws_at = Cell::new((put_by.occupied.get() != 0) as u32);
        self.cta().event(EventKind::End);
        self.cta().event(EventKind::Wait);
        self.poll_until(
            || {
                if looks.get() == draws_at.get() && put_by.may_draw() {
                    self.draw(put_by, queue);
                    draws_at.set(looks.get().wrapping_add(put_by.patience()));
                }
                looks.set(looks.get().wrapping_add(1));
                let mut left = candidates();
                if left == 0 {
                    put_by.end();
                    return true;
                }
                while left != 0 {
                    let place = left.trailing_zeros();
                    let candidate = put_by.at(place);
                    if slot(candidate).is_none_or(|slot| self.arrived(&slot)) {
                        put_by.begin(place);
                        taken.set(candidate);
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
        taken.get()
    }

    /// Draws the next tile. The counter is 0 again when all tiles are drawn and each CTA has drawn once in vain.
    #[inline(always)]
    fn draw(&self, put_by: &PutBy, queue: &Queue) {
        let counter = self.cta().region + (offset_of!(Control, taken) + 4 * queue.stage as usize) as u64;
        let position = unsafe { count_relaxed_gpu(counter, queue.last()) };
        if position < queue.tiles { put_by.put(position) } else { put_by.drained.set(true) }
    }
}
