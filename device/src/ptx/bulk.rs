//! Copies by the bulk-copy engine (TMA): boxes of a described tensor, and plain runs of bytes.

use core::arch::asm;

/// Copies a box of a three-dimensional tensor into shared memory; completes on `barrier`.
///
/// # Safety
/// `map` must be the address of a tensor map, `to` a shared address aligned for its swizzle with room for the box.
#[inline(always)]
pub unsafe fn tensor_load(to: u32, map: u64, x: u32, y: u32, z: u32, barrier: u32) {
    unsafe {
        asm!(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{}], [{}, {{{}, {}, {}}}], [{}];",
            in(reg32) to, in(reg64) map, in(reg32) x, in(reg32) y, in(reg32) z, in(reg32) barrier,
        );
    }
}

/// Has a tensor map at hand for the copies that will name it.
///
/// # Safety
/// `map` must be the address of a tensor map.
#[inline(always)]
pub unsafe fn prefetch_tensor_map(map: u64) {
    unsafe { asm!("prefetch.tensormap [{}];", in(reg64) map, options(nostack)) }
}

/// Copies a box from shared memory into a three-dimensional tensor, as far as it lies inside; joins the
/// thread's bulk group.
///
/// # Safety
/// As [`tensor_load`].
#[inline(always)]
pub unsafe fn tensor_store(map: u64, x: u32, y: u32, z: u32, from: u32) {
    unsafe {
        asm!(
            "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [{}, {{{}, {}, {}}}], [{}];",
            in(reg64) map, in(reg32) x, in(reg32) y, in(reg32) z, in(reg32) from,
        );
    }
}

/// Copies `bytes` (a multiple of 16) into shared memory; completes on `barrier`.
///
/// # Safety
/// Both addresses must be 16-byte aligned and valid for `bytes`.
#[inline(always)]
pub unsafe fn bulk_load(to: u32, from: u64, bytes: u32, barrier: u32) {
    unsafe {
        asm!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
            in(reg32) to, in(reg64) from, in(reg32) bytes, in(reg32) barrier,
        );
    }
}

/// Copies `bytes` (a multiple of 16) out of shared memory; joins the thread's bulk group.
///
/// # Safety
/// As [`bulk_load`].
#[inline(always)]
pub unsafe fn bulk_store(to: u64, from: u32, bytes: u32) {
    unsafe {
        asm!(
            "cp.async.bulk.global.shared::cta.bulk_group [{}], [{}], {};",
            in(reg64) to, in(reg32) from, in(reg32) bytes,
        );
    }
}

/// Closes the thread's bulk group.
#[inline(always)]
pub fn bulk_commit() {
    unsafe { asm!("cp.async.bulk.commit_group;") }
}

/// Waits until all but the last `PENDING` groups have been read out of shared memory.
#[inline(always)]
pub fn bulk_wait_read<const PENDING: u32>() {
    unsafe { asm!("cp.async.bulk.wait_group.read {};", const PENDING) }
}

/// Waits until all groups are complete: their writes are visible to this thread, so it can release them.
#[inline(always)]
pub fn bulk_wait() {
    unsafe { asm!("cp.async.bulk.wait_group 0;") }
}

/// Orders this thread's generic accesses to shared memory before later ones of the async proxy.
#[inline(always)]
pub fn fence_proxy_async_shared() {
    unsafe { asm!("fence.proxy.async.shared::cta;") }
}

/// Orders this thread's generic accesses to global memory before later ones of the async proxy.
#[inline(always)]
pub fn fence_proxy_async_global() {
    unsafe { asm!("fence.proxy.async.global;") }
}
