//! The symmetric regions of a kernel, as memory of this process.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

use crate::abi::{Control, Head};

/// The word at an address.
pub(super) fn word(address: u64) -> &'static AtomicU32 {
    // SAFETY: callers pass addresses of aligned words in regions, which outlive the launch.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

/// Where every rank's region lies, and the control words in them.
#[derive(Clone, Copy)]
pub(super) struct Regions {
    table: u64,
}

impl Regions {
    pub(super) fn of(head: &Head) -> Self {
        Regions { table: head.regions }
    }

    /// The address of the region of `rank`, which must be one of the world.
    pub(super) fn base(self, rank: u32) -> u64 {
        // SAFETY: the launch's table has an address for each rank.
        unsafe { *(self.table as *const u64).add(rank as usize) }
    }

    pub(super) fn epoch(self, rank: u32) -> &'static AtomicU32 {
        word(self.base(rank) + offset_of!(Control, epoch) as u64)
    }

    pub(super) fn left(self, rank: u32) -> &'static AtomicU32 {
        word(self.base(rank) + offset_of!(Control, left) as u64)
    }

    pub(super) fn abort(self, rank: u32) -> &'static AtomicU32 {
        word(self.base(rank) + offset_of!(Control, abort) as u64)
    }

    pub(super) fn faulted(self, rank: u32) -> &'static AtomicU32 {
        word(self.base(rank) + offset_of!(Control, faulted) as u64)
    }

    /// The address, on `rank`, of the epoch that `of` last started.
    pub(super) fn started(self, rank: u32, of: u32) -> u64 {
        self.base(rank) + offset_of!(Control, started) as u64 + 4 * of as u64
    }

    /// The address, on `rank`, of the epoch in which `of` was last done with what `rank` lends.
    pub(super) fn returned(self, rank: u32, of: u32) -> u64 {
        self.base(rank) + offset_of!(Control, returned) as u64 + 4 * of as u64
    }

    /// The address, on `rank`, of the number of CTAs that are done with what others lend.
    pub(super) fn returning(self, rank: u32) -> u64 {
        self.base(rank) + offset_of!(Control, returning) as u64
    }

    /// How many tiles of a stage have been taken on `rank`.
    pub(super) fn taken(self, rank: u32, stage: u32) -> &'static AtomicU32 {
        word(self.base(rank) + offset_of!(Control, taken) as u64 + 4 * stage as u64)
    }

    /// The address, on `rank`, of the epoch that `of` last finished.
    pub(super) fn finished(self, rank: u32, of: u32) -> u64 {
        self.base(rank) + offset_of!(Control, finished) as u64 + 4 * of as u64
    }
}
