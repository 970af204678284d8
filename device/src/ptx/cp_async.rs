//! Copies into shared memory that a thread starts and waits for in groups, in the generic proxy.

use core::arch::asm;

/// Copies the first `bytes`, at most 16, of the 16 at `from`, and fills the rest with zeros.
///
/// # Safety
/// Both addresses must be 16-byte aligned, `to` in the shared window; `from` must be valid unless `bytes` is 0.
#[inline(always)]
pub unsafe fn cp_async(to: u32, from: u64, bytes: u32) {
    unsafe {
        asm!(
            "cp.async.cg.shared.global.L2::128B [{}], [{}], 16, {};",
            in(reg32) to, in(reg64) from, in(reg32) bytes,
        );
    }
}

/// Closes the thread's group.
#[inline(always)]
pub fn cp_async_commit() {
    unsafe { asm!("cp.async.commit_group;") }
}

/// Waits until all but the last `PENDING` groups of this thread are complete.
#[inline(always)]
pub fn cp_async_wait<const PENDING: u32>() {
    unsafe { asm!("cp.async.wait_group {};", const PENDING) }
}
