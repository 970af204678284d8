//! Loads, stores, atomics and fences with a scope.
//!
//! Another GPU's thread is reached by `.sys` alone; a signal is written and polled with these only.

use core::arch::asm;

/// # Safety
/// `address` must be a 4-byte aligned word of global memory.
#[inline(always)]
pub unsafe fn load_acquire_sys(address: u64) -> u32 {
    let value: u32;
    unsafe { asm!("ld.acquire.sys.global.u32 {}, [{}];", out(reg32) value, in(reg64) address) };
    value
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn load_relaxed_sys(address: u64) -> u32 {
    let value: u32;
    unsafe { asm!("ld.relaxed.sys.global.u32 {}, [{}];", out(reg32) value, in(reg64) address) };
    value
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn store_relaxed_sys(address: u64, value: u32) {
    unsafe { asm!("st.relaxed.sys.global.u32 [{}], {};", in(reg64) address, in(reg32) value) }
}

/// Orders what this thread has seen and done before what it stores next, for every GPU.
#[inline(always)]
pub fn fence_acq_rel_sys() {
    unsafe { asm!("fence.acq_rel.sys;") }
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn exchange_relaxed_sys(address: u64, value: u32) -> u32 {
    let old: u32;
    unsafe {
        asm!("atom.relaxed.sys.global.exch.b32 {}, [{}], {};", out(reg32) old, in(reg64) address, in(reg32) value)
    };
    old
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn add_acq_rel_gpu(address: u64, value: u32) -> u32 {
    let old: u32;
    unsafe {
        asm!("atom.acq_rel.gpu.global.add.u32 {}, [{}], {};", out(reg32) old, in(reg64) address, in(reg32) value)
    };
    old
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn add_relaxed_gpu(address: u64, value: u32) -> u32 {
    let old: u32;
    unsafe {
        asm!("atom.relaxed.gpu.global.add.u32 {}, [{}], {};", out(reg32) old, in(reg64) address, in(reg32) value)
    };
    old
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn load_relaxed_gpu(address: u64) -> u32 {
    let value: u32;
    unsafe { asm!("ld.relaxed.gpu.global.u32 {}, [{}];", out(reg32) value, in(reg64) address) };
    value
}

/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn store_relaxed_gpu(address: u64, value: u32) {
    unsafe { asm!("st.relaxed.gpu.global.u32 [{}], {};", in(reg64) address, in(reg32) value) }
}

/// Adds 1, or sets back to 0 what is `last`. What there was before.
///
/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn count_acq_rel_gpu(address: u64, last: u32) -> u32 {
    let old: u32;
    unsafe { asm!("atom.acq_rel.gpu.global.inc.u32 {}, [{}], {};", out(reg32) old, in(reg64) address, in(reg32) last) };
    old
}

/// As [`count_acq_rel_gpu`], but orders nothing.
///
/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn count_relaxed_gpu(address: u64, last: u32) -> u32 {
    let old: u32;
    unsafe { asm!("atom.relaxed.gpu.global.inc.u32 {}, [{}], {};", out(reg32) old, in(reg64) address, in(reg32) last) };
    old
}

/// A word of global memory. Not for signals: its order with other accesses is that of barriers and fences.
///
/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn load_global(address: u64) -> u32 {
    let value: u32;
    unsafe { asm!("ld.global.u32 {}, [{}];", out(reg32) value, in(reg64) address) };
    value
}

/// Stores what [`load_global`] loads.
///
/// # Safety
/// As [`load_acquire_sys`].
#[inline(always)]
pub unsafe fn store_global(address: u64, value: u32) {
    unsafe { asm!("st.global.u32 [{}], {};", in(reg64) address, in(reg32) value) }
}

/// Stores two words.
///
/// # Safety
/// `address` must be that of two 4-byte words of global memory, 8-byte aligned.
#[inline(always)]
pub unsafe fn store_global_u32x2(address: u64, words: [u32; 2]) {
    unsafe { asm!("st.global.v2.u32 [{}], {{{}, {}}};", in(reg64) address, in(reg32) words[0], in(reg32) words[1]) }
}

/// # Safety
/// `address` must be 16 bytes of global memory, aligned to 16, that no other thread accesses now.
#[inline(always)]
pub unsafe fn store_global_u32x4(address: u64, words: [u32; 4]) {
    let [a, b, c, d] = words;
    unsafe {
        asm!(
            "st.global.v4.u32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) address, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
        );
    }
}

/// A word that nobody writes during the launch.
///
/// # Safety
/// `address` must be an 8-byte aligned word of global memory.
#[inline(always)]
pub unsafe fn load_constant_u64(address: u64) -> u64 {
    let value: u64;
    unsafe { asm!("ld.global.u64 {}, [{}];", out(reg64) value, in(reg64) address, options(pure, readonly, nostack)) };
    value
}

/// # Safety
/// `address` must be a 4-byte aligned word of shared memory.
#[inline(always)]
pub unsafe fn load_shared(address: u32) -> u32 {
    let value: u32;
    unsafe { asm!("ld.volatile.shared.u32 {}, [{}];", out(reg32) value, in(reg32) address) };
    value
}

/// # Safety
/// As [`load_shared`].
#[inline(always)]
pub unsafe fn store_shared(address: u32, value: u32) {
    unsafe { asm!("st.volatile.shared.u32 [{}], {};", in(reg32) address, in(reg32) value) }
}

/// # Safety
/// `address` must be an 8-byte aligned word of shared memory.
#[inline(always)]
pub unsafe fn load_shared_u64(address: u32) -> u64 {
    let value: u64;
    unsafe { asm!("ld.volatile.shared.u64 {}, [{}];", out(reg64) value, in(reg32) address) };
    value
}

/// # Safety
/// As [`load_shared_u64`].
#[inline(always)]
pub unsafe fn store_shared_u64(address: u32, value: u64) {
    unsafe { asm!("st.volatile.shared.u64 [{}], {};", in(reg32) address, in(reg64) value) }
}

/// For a word that another thread of the CTA stores with [`store_release_shared`].
///
/// # Safety
/// As [`load_shared`].
#[inline(always)]
pub unsafe fn load_acquire_shared(address: u32) -> u32 {
    let value: u32;
    unsafe { asm!("ld.acquire.cta.shared::cta.u32 {}, [{}];", out(reg32) value, in(reg32) address) };
    value
}

/// # Safety
/// As [`load_shared`].
#[inline(always)]
pub unsafe fn store_release_shared(address: u32, value: u32) {
    unsafe { asm!("st.release.cta.shared::cta.u32 [{}], {};", in(reg32) address, in(reg32) value) }
}

/// 16 bytes of global memory. Not for signals: their order with other accesses is that of barriers and fences.
///
/// # Safety
/// `address` must be valid and 16-byte aligned.
#[inline(always)]
pub unsafe fn load_global_16(address: u64) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    unsafe {
        asm!(
            "ld.global.v4.u32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) address,
        );
    }
    [a, b, c, d]
}

/// As [`load_global_16`], or zeros unless `there`.
///
/// # Safety
/// As [`load_global_16`], where `there`.
#[inline(always)]
pub unsafe fn load_global_16_if(address: u64, there: bool) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {5}, 0; mov.u32 {0}, 0; mov.u32 {1}, 0; mov.u32 {2}, 0; mov.u32 {3}, 0; \
             @p ld.global.v4.u32 {{{0}, {1}, {2}, {3}}}, [{4}]; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) address, in(reg32) there as u32,
        );
    }
    [a, b, c, d]
}

/// As [`load_global_16_if`], of 8 bytes.
///
/// # Safety
/// As [`load_global_8`], where `there`.
#[inline(always)]
pub unsafe fn load_global_8_if(address: u64, there: bool) -> [u32; 2] {
    let (a, b): (u32, u32);
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {3}, 0; mov.u32 {0}, 0; mov.u32 {1}, 0; @p ld.global.v2.u32 {{{0}, {1}}}, [{2}]; }}",
            out(reg32) a, out(reg32) b, in(reg64) address, in(reg32) there as u32,
        );
    }
    [a, b]
}

/// As [`load_global_16_if`], of a word.
///
/// # Safety
/// As [`load_global`], where `there`.
#[inline(always)]
pub unsafe fn load_global_if(address: u64, there: bool) -> u32 {
    let value: u32;
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {2}, 0; mov.u32 {0}, 0; @p ld.global.u32 {0}, [{1}]; }}",
            out(reg32) value, in(reg64) address, in(reg32) there as u32,
        );
    }
    value
}

/// # Safety
/// As [`load_global_16`].
#[inline(always)]
pub unsafe fn store_global_16(address: u64, words: [u32; 4]) {
    unsafe {
        asm!(
            "st.global.v4.b32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) address, in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3],
        );
    }
}

/// As [`load_global_16`], of 8 bytes.
///
/// # Safety
/// `address` must be valid and 8-byte aligned.
#[inline(always)]
pub unsafe fn load_global_8(address: u64) -> [u32; 2] {
    let (a, b): (u32, u32);
    unsafe { asm!("ld.global.v2.u32 {{{}, {}}}, [{}];", out(reg32) a, out(reg32) b, in(reg64) address) };
    [a, b]
}

/// # Safety
/// As [`load_global_8`].
#[inline(always)]
pub unsafe fn store_global_8(address: u64, [a, b]: [u32; 2]) {
    unsafe { asm!("st.global.v2.u32 [{}], {{{}, {}}};", in(reg64) address, in(reg32) a, in(reg32) b) }
}

/// Half a word.
///
/// # Safety
/// `address` must be valid and 2-byte aligned.
#[inline(always)]
pub unsafe fn load_global_half(address: u64) -> u32 {
    let half: u16;
    unsafe { asm!("ld.global.b16 {}, [{}];", out(reg16) half, in(reg64) address) };
    half as u32
}

/// Stores the low half of a word.
///
/// # Safety
/// `address` must be valid and 2-byte aligned.
#[inline(always)]
pub unsafe fn store_global_half(address: u64, half: u32) {
    unsafe {
        asm!("{{ .reg .b16 l, h; mov.b32 {{l, h}}, {1}; st.global.b16 [{0}], l; }}", in(reg64) address, in(reg32) half)
    }
}

/// # Safety
/// `address` must be a 16-byte aligned place in shared memory.
#[inline(always)]
pub unsafe fn load_shared_16(address: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    unsafe {
        asm!(
            "ld.shared.v4.u32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address,
        );
    }
    [a, b, c, d]
}
