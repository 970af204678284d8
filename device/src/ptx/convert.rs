//! Conversions of packed pairs.

use core::arch::asm;

/// Two values as bf16, the first in the low half, to nearest, ties to even.
#[inline(always)]
pub fn pack_bf16(low: f32, high: f32) -> u32 {
    let word: u32;
    unsafe {
        asm!(
            "cvt.rn.bf16x2.f32 {}, {}, {};",
            out(reg32) word, in(reg32) high, in(reg32) low, options(pure, nomem, nostack),
        );
    }
    word
}

/// Two values as f16, the first in the low half, to nearest, ties to even.
#[inline(always)]
pub fn pack_f16(low: f32, high: f32) -> u32 {
    let word: u32;
    unsafe {
        asm!(
            "cvt.rn.f16x2.f32 {}, {}, {};",
            out(reg32) word, in(reg32) high, in(reg32) low, options(pure, nomem, nostack),
        );
    }
    word
}

/// The two f16 values of a word, the low half first.
#[inline(always)]
pub fn unpack_f16(word: u32) -> (f32, f32) {
    let (low, high): (f32, f32);
    unsafe {
        asm!(
            "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; cvt.f32.f16 {0}, l; cvt.f32.f16 {1}, h; }}",
            out(reg32) low, out(reg32) high, in(reg32) word, options(pure, nomem, nostack),
        );
    }
    (low, high)
}
