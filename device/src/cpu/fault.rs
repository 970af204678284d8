//! How a launch is given up: the record of the first fault, and the way out of a tile function.

use core::cell::RefCell;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::string::String;
use std::sync::Once;

use crate::abi::{FaultKind, FaultRecord, MAX_AXES, NONE};
use crate::place::SlotPlace;
use crate::together::WordPlace;
use crate::word::Comparison;

/// The payload that unwinds a CTA out of its tile function once the launch is given up.
pub(super) struct Abandoned;

/// Leaves the tile function. The panic hook is not run: the fault is reported by its record.
pub(super) fn abandon(_: Abandoned) -> ! {
    resume_unwind(std::boxed::Box::new(Abandoned))
}

/// Where a tile function panicked, and what it said.
pub(super) struct Panicked {
    file: String,
    line: u32,
    message: String,
}

std::thread_local! {
    static LAST_PANIC: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Notes where each panic of a thread came from, which its payload doesn't say.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(std::boxed::Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let message = text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
            let place =
                info.location().map(|at| Panicked { file: at.file().into(), line: at.line(), message: message.into() });
            LAST_PANIC.with(|last| *last.borrow_mut() = place);
            previous(info);
        }));
    });
}

/// Runs a CTA's tile functions to their end, or until they are abandoned or panic.
pub(super) fn guard(body: impl FnOnce()) -> Result<(), Panicked> {
    note_panics();
    let Err(payload) = catch_unwind(AssertUnwindSafe(body)) else { return Ok(()) };
    if <dyn Any>::is::<Abandoned>(&*payload) {
        return Ok(());
    }
    let place = LAST_PANIC.with(|last| last.borrow_mut().take());
    Err(place.unwrap_or(Panicked { file: String::new(), line: 0, message: String::new() }))
}

impl FaultRecord {
    /// A fault of `rank` in a tile of a stage.
    pub(super) fn new(kind: FaultKind, rank: u32, stage: u32, tile: [u32; MAX_AXES]) -> Self {
        FaultRecord {
            kind: kind as u32,
            rank,
            stage,
            tile,
            channel: NONE,
            slot: [NONE; MAX_AXES],
            piece: NONE,
            peer: NONE,
            expected: 0,
            seen: 0,
            argument: NONE,
            word: [NONE; 2],
            comparison: 0,
            high: [0; 2],
            line: 0,
            file_length: 0,
            file: [0; 128],
            message_length: 0,
            message: [0; 256],
        }
    }

    /// The slot that it happened at, and the rank at the other end.
    pub(super) fn at_slot(mut self, slot: &SlotPlace, peer: u32) -> Self {
        self.channel = slot.channel;
        self.slot = named(slot);
        self.piece = slot.named_piece(slot.piece);
        self.peer = peer;
        self
    }

    /// The word that it happened at, and the rank that has it.
    pub(super) fn at_word(self, place: &WordPlace) -> Self {
        FaultRecord { argument: place.argument, word: [place.row, place.column], peer: place.rank, ..self }
    }

    /// What was waited for, and what was seen instead.
    pub(super) fn compared(self, comparison: Comparison, expected: u64, seen: u64) -> Self {
        let comparison = comparison as u32;
        let high = [expected, seen].map(|bits| (bits >> 32) as u32);
        FaultRecord { comparison, expected: expected as u32, seen: seen as u32, high, ..self }
    }

    /// The place of a panic, and what it said.
    pub(super) fn at_source(mut self, place: &Panicked) -> Self {
        let mut start = place.file.len().saturating_sub(self.file.len());
        while !place.file.is_char_boundary(start) {
            start += 1;
        }
        let tail = &place.file.as_bytes()[start..];
        self.file[..tail.len()].copy_from_slice(tail);
        self.file_length = tail.len() as u32;
        self.line = place.line;
        let mut end = place.message.len().min(self.message.len());
        while !place.message.is_char_boundary(end) {
            end -= 1;
        }
        self.message[..end].copy_from_slice(&place.message.as_bytes()[..end]);
        self.message_length = end as u32;
        self
    }
}

/// A slot's coordinates, [`NONE`] beyond the channel's arity.
pub(super) fn named(slot: &SlotPlace) -> [u32; MAX_AXES] {
    let mut index = slot.index;
    index[slot.axes as usize..].fill(NONE);
    index
}
