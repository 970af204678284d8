//! Fragments to and from shared memory.

use core::arch::asm;

/// Stores four 8×8 matrices of 16-bit elements; lane `8i + r` gives the address of row `r` of matrix `i`.
///
/// # Safety
/// All lanes of the warp must take part, with 16-byte aligned shared addresses.
#[inline(always)]
pub unsafe fn stmatrix_x4(address: u32, words: [u32; 4]) {
    unsafe {
        asm!(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [{}], {{{}, {}, {}, {}}};",
            in(reg32) address, in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3],
        );
    }
}

/// Loads what [`stmatrix_x4`] stores.
///
/// # Safety
/// As [`stmatrix_x4`].
#[inline(always)]
pub unsafe fn ldmatrix_x4(address: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    unsafe {
        asm!(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address,
        );
    }
    [a, b, c, d]
}

/// Stores two words.
///
/// # Safety
/// `address` must be an 8-byte aligned shared address.
#[inline(always)]
pub unsafe fn store_shared_f32x2(address: u32, low: f32, high: f32) {
    unsafe { asm!("st.shared.v2.f32 [{}], {{{}, {}}};", in(reg32) address, in(reg32) low, in(reg32) high) }
}

/// Loads two words.
///
/// # Safety
/// As [`store_shared_f32x2`].
#[inline(always)]
pub unsafe fn load_shared_f32x2(address: u32) -> (f32, f32) {
    let (low, high): (f32, f32);
    unsafe { asm!("ld.shared.v2.f32 {{{}, {}}}, [{}];", out(reg32) low, out(reg32) high, in(reg32) address) };
    (low, high)
}
