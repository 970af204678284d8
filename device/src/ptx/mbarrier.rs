//! Barriers in shared memory that count arrivals and bytes.
//!
//! All take the barrier's address in the shared window.

use core::arch::asm;

/// Makes a barrier whose phase ends after `count` arrivals.
///
/// # Safety
/// `barrier` must be an 8-byte aligned word of this CTA's shared memory that is not in use.
#[inline(always)]
pub unsafe fn mbarrier_init(barrier: u32, count: u32) {
    unsafe { asm!("mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) barrier, in(reg32) count) }
}

/// Makes the barriers known to the async proxy. Of shared memory alone: for all memory it would wait as for a fence of the GPU.
#[inline(always)]
pub fn fence_mbarrier_init() {
    unsafe { asm!("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;") }
}

/// Arrives, and announces `bytes` that copies will bring before the phase ends.
///
/// # Safety
/// `barrier` must be a barrier.
#[inline(always)]
pub unsafe fn mbarrier_arrive_expect(barrier: u32, bytes: u32) {
    unsafe { asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", in(reg32) barrier, in(reg32) bytes) }
}

/// Arrives.
///
/// # Safety
/// `barrier` must be a barrier.
#[inline(always)]
pub unsafe fn mbarrier_arrive(barrier: u32) {
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) barrier) }
}

/// Whether the phase of this parity has ended; waits for it a bounded time, which the hardware sets.
///
/// # Safety
/// `barrier` must be a barrier.
#[inline(always)]
pub unsafe fn mbarrier_try_wait(barrier: u32, parity: u32) -> bool {
    let done: u32;
    unsafe {
        asm!(
            "{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{}], {}; selp.u32 {}, 1, 0, p; }}",
            in(reg32) barrier, in(reg32) parity, out(reg32) done,
        );
    }
    done != 0
}
