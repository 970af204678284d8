//! Who and where a thread is, and what it does to itself.

use core::arch::asm;
use core::arch::nvptx;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.f32"]
    fn shuffle_bfly_f32(mask: u32, value: f32, lane_xor: u32, clamp: u32) -> f32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shuffle_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    // The older `barrier0` is a name that LLVM replaces late: until then it is a call like any other, and not convergent.
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_sync(barrier: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    fn barrier_sync_count(barrier: u32, threads: u32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    fn match_any(mask: u32, value: u32) -> u32;
}

core::arch::global_asm!(".extern .shared .align 1024 .b8 entwine_shared[];");

/// Address in the shared window of the CTA's dynamic shared memory.
#[inline(always)]
pub fn shared_base() -> u32 {
    let base: u32;
    unsafe {
        asm!(
            "{{ .reg .u64 t; mov.u64 t, entwine_shared; cvt.u32.u64 {}, t; }}",
            out(reg32) base, options(pure, nomem, nostack),
        );
    }
    base
}

/// Index of the thread in its CTA.
#[inline(always)]
pub fn thread_idx_x() -> u32 {
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// Index of the thread in its CTA, read anew: what is computed from it doesn't stay in registers from one use to the next.
#[inline(always)]
pub fn thread_idx_x_anew() -> u32 {
    let index: u32;
    unsafe { asm!("mov.u32 {}, %tid.x;", out(reg32) index, options(nomem, nostack)) };
    index
}

/// The same word, of which the compiler knows nothing: what is computed from it is computed where it is used.
#[inline(always)]
pub fn anew(word: u32) -> u32 {
    let same: u32;
    unsafe { asm!("mov.b32 {}, {};", out(reg32) same, in(reg32) word, options(nomem, nostack)) };
    same
}

/// Index of the CTA in the grid.
#[inline(always)]
pub fn block_idx_x() -> u32 {
    unsafe { nvptx::_block_idx_x() as u32 }
}

/// Waits for all threads of the CTA.
///
/// # Safety
/// Every thread of the CTA that has not exited must come to the same barrier.
#[inline(always)]
pub unsafe fn sync_threads() {
    unsafe { barrier_sync(0) }
}

/// Waits for `threads` threads of the CTA, whole warps, at a barrier of their own.
///
/// # Safety
/// So many threads must come to the barrier of this index, which is not 0.
#[inline(always)]
pub unsafe fn sync_some(barrier: u32, threads: u32) {
    unsafe { barrier_sync_count(barrier, threads) }
}

/// Waits for all lanes of the warp, and orders what they did to memory before what they do next.
///
/// # Safety
/// All lanes of the warp that have not exited must take part.
#[inline(always)]
pub unsafe fn sync_warp() {
    unsafe { warp_sync(u32::MAX) }
}

/// The lanes, a bit each, for which it holds.
///
/// # Safety
/// As [`sync_warp`].
#[inline(always)]
pub unsafe fn lanes_where(holds: bool) -> u32 {
    unsafe { vote_ballot(u32::MAX, holds) }
}

/// The lanes, a bit each, that have the same value.
///
/// # Safety
/// As [`sync_warp`].
#[inline(always)]
pub unsafe fn lanes_with_same(value: u32) -> u32 {
    unsafe { match_any(u32::MAX, value) }
}

/// The value of the lane whose index differs in the bits of `lane_xor`.
///
/// # Safety
/// All lanes of the warp must take part.
#[inline(always)]
pub unsafe fn shuffle_xor(value: f32, lane_xor: u32) -> f32 {
    unsafe { shuffle_bfly_f32(u32::MAX, value, lane_xor, 31) }
}

/// The value of the lane whose index is the last five bits of `lane`.
///
/// # Safety
/// All lanes of the warp must take part.
#[inline(always)]
pub unsafe fn shuffle(value: u32, lane: u32) -> u32 {
    unsafe { shuffle_idx(u32::MAX, value, lane, 31) }
}

/// Nanoseconds on a clock that all CTAs of a GPU share.
#[inline(always)]
pub fn globaltimer() -> u64 {
    let now: u64;
    unsafe { asm!("mov.u64 {}, %globaltimer;", out(reg64) now, options(nostack)) };
    now
}

/// Lets the next kernel of the stream start, if it was launched to start early.
#[inline(always)]
pub fn launch_dependents() {
    unsafe { asm!("griddepcontrol.launch_dependents;") }
}

/// Waits until the kernel before in the stream is complete, if this one was launched to start early.
#[inline(always)]
pub fn wait_for_dependencies() {
    unsafe { asm!("griddepcontrol.wait;") }
}

/// Gives up registers beyond `COUNT`.
///
/// # Safety
/// All warps of the warpgroup must execute it; the entry must have a register cap.
#[inline(always)]
pub unsafe fn setmaxnreg_dec<const COUNT: u32>() {
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const COUNT) }
}

/// Takes registers up to `COUNT`.
///
/// # Safety
/// As [`setmaxnreg_dec`].
#[inline(always)]
pub unsafe fn setmaxnreg_inc<const COUNT: u32>() {
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const COUNT) }
}

/// Ends this thread.
#[inline(always)]
pub fn exit() -> ! {
    unsafe {
        asm!("exit;");
        core::hint::unreachable_unchecked()
    }
}
