//! The element types of matrices and tiles.

use half::{bf16, f16};

#[cfg(target_arch = "nvptx64")]
use crate::ptx::{Accumulator, Words};
#[cfg(target_arch = "nvptx64")]
use crate::shape::TileShape;

/// A type that matrices and tiles can hold. Arithmetic on elements is done in `f32`.
pub trait Element: Copy + core::marker::Send + Sync + 'static {
    /// Bytes of one element.
    const SIZE: u32 = size_of::<Self>() as u32;

    /// The value as `f32`, exact.
    fn to_f32(self) -> f32;

    /// The nearest value, ties to even.
    fn from_f32(value: f32) -> Self;

    /// What one thread of the math warpgroups holds of a tile.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    type Held<S: TileShape>: Copy;

    /// A thread's part of a tile of zeros.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    fn zeros<S: TileShape>() -> Self::Held<S>;

    /// Two neighbours in a row: of the `COLUMNS / 4` pairs a thread holds, the one at `index`.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    fn pair<S: TileShape>(held: &Self::Held<S>, index: usize) -> (f32, f32);

    /// A pair of 16-bit elements, as it is held.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    fn word<S: TileShape>(held: &Self::Held<S>, index: usize) -> u32;

    /// Replaces a pair.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    fn set_pair<S: TileShape>(held: &mut Self::Held<S>, index: usize, pair: (f32, f32));

    /// A pair of 16-bit elements in a word.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    fn pack_pair(pair: (f32, f32)) -> u32;

    /// The pair of 16-bit elements in a word.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    fn unpack_pair(word: u32) -> (f32, f32);
}

/// An element type that [`matmul`](crate::matmul) multiplies.
pub trait MatmulElement: Element {
    /// Two values, the first in the low half, each rounded to nearest, ties to even.
    fn pack(low: f32, high: f32) -> u32;

    /// The two values of a packed word, the low half first.
    fn unpack(word: u32) -> (f32, f32);

    /// A warp's product of 16 × 16 by 8 × 16, added to `sum`; how lanes hold them is said at [`crate::ptx::mma_bf16`].
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn mma(sum: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4];

    /// A `wgmma` step of 16 along K: `A·Bᵀ`, A and B in shared memory at these descriptors.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn wgmma<A: Accumulator>(a: u64, b: u64) -> A;

    /// A `wgmma` step of 16 along K: `accumulator += A·Bᵀ`.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn wgmma_add<A: Accumulator>(accumulator: &mut A, a: u64, b: u64);
}

impl Element for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[cfg(target_arch = "nvptx64")]
    type Held<S: TileShape> = S::Values;

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn zeros<S: TileShape>() -> S::Values {
        S::Values::zeros()
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn pair<S: TileShape>(held: &S::Values, index: usize) -> (f32, f32) {
        let values = held.values();
        (values[2 * index], values[2 * index + 1])
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn word<S: TileShape>(_: &S::Values, _: usize) -> u32 {
        unreachable!()
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn set_pair<S: TileShape>(held: &mut S::Values, index: usize, (low, high): (f32, f32)) {
        let values = held.values_mut();
        values[2 * index] = low;
        values[2 * index + 1] = high;
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn pack_pair(_: (f32, f32)) -> u32 {
        unreachable!()
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn unpack_pair(_: u32) -> (f32, f32) {
        unreachable!()
    }
}

/// A 16-bit element is held in words of two.
#[cfg(target_arch = "nvptx64")]
macro_rules! held_in_words {
    () => {
        type Held<S: TileShape> = S::Words;

        #[inline(always)]
        fn zeros<S: TileShape>() -> S::Words {
            S::Words::zeros()
        }
        #[inline(always)]
        fn pair<S: TileShape>(held: &S::Words, index: usize) -> (f32, f32) {
            Self::unpack(held.words()[index])
        }
        #[inline(always)]
        fn word<S: TileShape>(held: &S::Words, index: usize) -> u32 {
            held.words()[index]
        }
        #[inline(always)]
        fn set_pair<S: TileShape>(held: &mut S::Words, index: usize, (low, high): (f32, f32)) {
            held.words_mut()[index] = Self::pack(low, high);
        }
        #[inline(always)]
        fn pack_pair((low, high): (f32, f32)) -> u32 {
            Self::pack(low, high)
        }
        #[inline(always)]
        fn unpack_pair(word: u32) -> (f32, f32) {
            Self::unpack(word)
        }
    };
}

impl Element for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        bf16::from_bits(<Self as MatmulElement>::pack(value, 0.0) as u16)
    }

    #[cfg(target_arch = "nvptx64")]
    held_in_words!();
}

impl Element for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        <Self as MatmulElement>::unpack(self.to_bits() as u32).0
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        f16::from_bits(<Self as MatmulElement>::pack(value, 0.0) as u16)
    }

    #[cfg(target_arch = "nvptx64")]
    held_in_words!();
}

impl MatmulElement for bf16 {
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        return crate::ptx::pack_bf16(low, high);
        #[cfg(not(target_arch = "nvptx64"))]
        return bf16::from_f32(low).to_bits() as u32 | (bf16::from_f32(high).to_bits() as u32) << 16;
    }
    #[inline(always)]
    fn unpack(word: u32) -> (f32, f32) {
        (f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000))
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn mma(sum: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4] {
        unsafe { crate::ptx::mma_bf16(sum, a, b) }
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn wgmma<A: Accumulator>(a: u64, b: u64) -> A {
        unsafe { A::wgmma_bf16(a, b) }
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn wgmma_add<A: Accumulator>(accumulator: &mut A, a: u64, b: u64) {
        unsafe { accumulator.wgmma_add_bf16(a, b) }
    }
}

impl MatmulElement for f16 {
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        return crate::ptx::pack_f16(low, high);
        #[cfg(not(target_arch = "nvptx64"))]
        return f16::from_f32(low).to_bits() as u32 | (f16::from_f32(high).to_bits() as u32) << 16;
    }
    #[inline(always)]
    fn unpack(word: u32) -> (f32, f32) {
        #[cfg(target_arch = "nvptx64")]
        return crate::ptx::unpack_f16(word);
        #[cfg(not(target_arch = "nvptx64"))]
        return (f16::from_bits(word as u16).to_f32(), f16::from_bits((word >> 16) as u16).to_f32());
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn mma(sum: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4] {
        unsafe { crate::ptx::mma_f16(sum, a, b) }
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn wgmma<A: Accumulator>(a: u64, b: u64) -> A {
        unsafe { A::wgmma_f16(a, b) }
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn wgmma_add<A: Accumulator>(accumulator: &mut A, a: u64, b: u64) {
        unsafe { accumulator.wgmma_add_f16(a, b) }
    }
}
