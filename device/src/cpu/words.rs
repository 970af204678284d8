//! Words of symmetric matrices: who accesses them at which scope, and who waits for what they hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::vec::Vec;

use crate::abi::FaultRecord;
use crate::ordering::Reach;

/// Who accesses a word, in which launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) rank: u32,
    pub(super) lane: usize,
    pub(super) epoch: u32,
}

impl Seat {
    /// Whether the threads of another seat are among those that a scope reaches from here.
    fn reaches(self, other: Seat, reach: Reach) -> bool {
        match reach {
            Reach::Cta => self.lane == other.lane,
            Reach::Gpu => self.rank == other.rank,
            Reach::Sys => true,
        }
    }
}

/// A scope did not reach others who access the word.
pub(super) struct TooNarrow;

/// Who has accessed which words in the present launch, at which scope.
#[derive(Default)]
pub(super) struct Words(HashMap<u64, Vec<(Seat, Reach)>>);

impl Words {
    /// Notes an access. Either of two must reach the other.
    pub(super) fn access(&mut self, seat: Seat, address: u64, reach: Reach) -> Result<(), TooNarrow> {
        let accesses = self.0.entry(address).or_default();
        accesses.retain(|(other, _)| other.epoch == seat.epoch);
        if accesses.iter().any(|(other, theirs)| !seat.reaches(*other, reach) || !other.reaches(seat, *theirs)) {
            return Err(TooNarrow);
        }
        if !accesses.contains(&(seat, reach)) {
            accesses.push((seat, reach));
        }
        Ok(())
    }
}

/// What is waited for in a word.
#[derive(Clone)]
pub(super) struct Condition {
    pub(super) address: u64,
    /// The bits that it holds.
    pub(super) seen: Arc<dyn Fn() -> u64 + core::marker::Send + Sync>,
    /// Whether that is what is waited for.
    pub(super) holds: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl Condition {
    pub(super) fn holds(&self) -> bool {
        (self.holds)((self.seen)())
    }

    /// Whether it holds, and is about the word at this address.
    pub(super) fn holds_at(&self, address: u64) -> bool {
        self.address == address && self.holds()
    }

    /// The record of what is missing, with what was seen.
    pub(super) fn missed(&self, missing: FaultRecord) -> FaultRecord {
        let seen = (self.seen)();
        FaultRecord { seen: seen as u32, high: [missing.high[0], (seen >> 32) as u32], ..missing }
    }
}
