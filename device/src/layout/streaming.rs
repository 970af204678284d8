//! The same for kernels whose threads have one role and stream: several CTAs share a multiprocessor, and shared memory holds
//! a header alone.

use super::warpgroups;

/// Threads that a multiprocessor holds of a kernel's CTAs: few enough for each to hold its part of a tile and what is under way.
const RESIDENT: u32 = 512;
/// Bytes of shared memory of a CTA: what reports of faults need, a choice, and a word on its way to all threads.
pub const SHARED: u32 = super::ampere::HEADER;

/// Threads of a CTA.
pub const fn threads(rows: usize) -> u32 {
    256 * warpgroups(rows)
}

/// CTAs that a multiprocessor holds at once.
pub const fn resident(rows: usize) -> u32 {
    RESIDENT / threads(rows)
}
