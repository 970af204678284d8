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

/// Looks before one more tile is drawn: what a CTA has put by nobody else takes.
const PATIENCE: u32 = 4;
/// The same until a first tile was ready, since at the start of a launch none is for a while.
const PATIENCE_AT_FIRST: u32 = 64;
/// The same for a number of tiles when one was ready before another that was drawn before it: then more may be.
const IMPATIENCE: u32 = 2;
const IMPATIENTLY: u32 = 8;

/// The bit of the first place that a tile is put by in. The place before it is that of the tile beside.
const FIRST: u32 = 1 << 1;

/// Where a thread stands with a queue, and the tiles that it has drawn before they were ready.
pub(super) struct PutBy {
    /// Words of shared memory for the tiles.
    words: u32,
    /// The places (a bit each) that are occupied.
    occupied: Cell<u32>,
    /// The place that was occupied last: from there on, round and round, tiles are mostly in the order in which they were drawn.
    last: Cell<u32>,
    /// The place that was looked at last.
    looked_at: Cell<u32>,
    /// How many tiles were drawn.
    drawn: Cell<u32>,
    /// A tile was ready.
    begun: Cell<bool>,
    /// One was ready before others that are put by.
    overtaken: Cell<bool>,
    /// The queue had no tile left.
    drained: Cell<bool>,
}

impl PutBy {
    /// Nothing is put by in these words of shared memory, [`Queue::PUT_BY`] of them.
    #[inline(always)]
    pub fn new(words: u32) -> Self {
        PutBy {
            words,
            occupied: Cell::new(0),
            last: Cell::new(0),
            looked_at: Cell::new(0),
            drawn: Cell::new(0),
            begun: Cell::new(false),
            overtaken: Cell::new(false),
            drained: Cell::new(false),
        }
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

    /// Puts a tile by that was drawn and isn't ready.
    #[inline(always)]
    fn put(&self, position: u32) {
        let place = Queue::behind(self.last.get(), !self.occupied.get() & !(FIRST - 1));
        self.last.set(place);
        unsafe { store_shared(self.word(place), position) };
        self.occupied.set(self.occupied.get() | 1 << place);
    }

    /// Goes on with a tile that is ready: the one that was just drawn, or what is at a place.
    #[inline(always)]
    fn begin(&self, drawn: bool, place: u32) {
        self.begun.set(true);
        if !drawn {
            self.occupied.set(self.occupied.get() & !(1 << place));
        }
        self.overtaken.set(self.occupied.get() != 0 && (drawn || self.overtaken.get()));
    }

    /// Is done with the queue.
    #[inline(always)]
    fn end(&self) {
        self.drawn.set(0);
        self.begun.set(false);
        self.drained.set(false);
    }

    /// Whether to draw one more. Who holds tiles draws no more than an even share: others wait for none, and would be done before.
    #[inline(always)]
    fn may_draw(&self, queue: &Queue) -> bool {
        let room = self.occupied.get() != !(FIRST - 1) && self.drawn.get() < queue.share();
        !self.drained.get() && (room || self.occupied.get() == 0)
    }

    /// Looks from one draw to the next, of which there were so many.
    #[inline(always)]
    fn patience(&self, draws: u32) -> u32 {
        if self.overtaken.get() && draws < IMPATIENTLY {
            IMPATIENCE
        } else if self.begun.get() {
            PATIENCE
        } else {
            PATIENCE_AT_FIRST
        }
    }
}

impl<'c, 'p, C: Config> Signals<'c, 'p, C> {
    /// Takes the next tile that is ready, as [`Role::take`](crate::Role::take) says. One is looked at at a time.
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
        let (looks, draws) = (Cell::new(0u32), Cell::new(0u32));
        // Looked at first are the tile beside, and of those put by the one that was drawn first: CTAs that have waited for the same go on
        // with what their tiles have in common. Then one is drawn.
        let draws_at = Cell::new(beside as u32 + (put_by.occupied.get() != 0) as u32);
        put_by.looked_at.set(if beside { u32::BITS - 1 } else { put_by.last.get() });
        self.cta().event(EventKind::End);
        self.cta().event(EventKind::Wait);
        self.poll_until(
            || {
                let drawn = if looks.get() == draws_at.get() && put_by.may_draw(queue) {
                    draws.set(draws.get().wrapping_add(1));
                    draws_at.set(looks.get().wrapping_add(put_by.patience(draws.get())));
                    self.draw(put_by, queue)
                } else {
                    None
                };
                looks.set(looks.get().wrapping_add(1));
                if drawn.is_none() && candidates() == 0 {
                    put_by.end();
                    return true;
                }
                let place = Queue::behind(put_by.looked_at.get(), candidates());
                let candidate = drawn.unwrap_or_else(|| put_by.at(place));
                if drawn.is_some() {
                    note(candidate);
                }
                let ready = slot(candidate).is_none_or(|slot| self.arrived(&slot));
                if ready {
                    put_by.begin(drawn.is_some(), place);
                    taken.set(candidate);
                } else if drawn.is_some() {
                    put_by.put(candidate);
                } else {
                    put_by.looked_at.set(place);
                }
                ready
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

    /// Draws the next tile, unless none is left. The counter is 0 again when all tiles are drawn and each CTA has drawn once in vain.
    #[inline(always)]
    fn draw(&self, put_by: &PutBy, queue: &Queue) -> Option<u32> {
        let counter = self.cta().region + (offset_of!(Control, taken) + 4 * queue.stage as usize) as u64;
        let position = unsafe { count_relaxed_gpu(counter, queue.last()) };
        let left = position < queue.tiles;
        put_by.drawn.set(put_by.drawn.get().wrapping_add(1));
        put_by.drained.set(!left);
        left.then_some(position)
    }
}
