//! Hopper's warpgroup matrix product.

use core::arch::asm;
use core::mem::MaybeUninit;

/// What one thread holds of an `f32` tile, and the product that accumulates into it.
pub trait Accumulator: Copy {
    /// Zeros.
    fn zeros() -> Self;

    /// The values.
    fn values(&self) -> &[f32];

    /// The values.
    fn values_mut(&mut self) -> &mut [f32];

    /// `A·Bᵀ` over 16 columns of bf16.
    ///
    /// # Safety
    /// `a` and `b` must describe operands in shared memory; all threads of the warpgroup must take part,
    /// between [`wgmma_fence`] and [`wgmma_wait`], before which the values must not be touched.
    unsafe fn wgmma_bf16(a: u64, b: u64) -> Self;

    /// `+= A·Bᵀ` over 16 columns of bf16.
    ///
    /// # Safety
    /// As [`wgmma_bf16`](Accumulator::wgmma_bf16).
    unsafe fn wgmma_add_bf16(&mut self, a: u64, b: u64);

    /// `A·Bᵀ` over 16 columns of f16.
    ///
    /// # Safety
    /// As [`wgmma_bf16`](Accumulator::wgmma_bf16).
    unsafe fn wgmma_f16(a: u64, b: u64) -> Self;

    /// `+= A·Bᵀ` over 16 columns of f16.
    ///
    /// # Safety
    /// As [`wgmma_bf16`](Accumulator::wgmma_bf16).
    unsafe fn wgmma_add_f16(&mut self, a: u64, b: u64);
}

/// What one thread holds of a tile of 16-bit elements.
pub trait Words: Copy {
    /// Zeros.
    fn zeros() -> Self;
    /// The words.
    fn words(&self) -> &[u32];
    /// The words.
    fn words_mut(&mut self) -> &mut [u32];
}

impl<const LENGTH: usize> Words for [u32; LENGTH] {
    #[inline(always)]
    fn zeros() -> Self {
        [0; LENGTH]
    }
    #[inline(always)]
    fn words(&self) -> &[u32] {
        self
    }
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u32] {
        self
    }
}

/// Orders register and shared-memory accesses before the products that follow.
///
/// # Safety
/// All threads of the warpgroup must take part.
#[inline(always)]
pub unsafe fn wgmma_fence() {
    unsafe { asm!("wgmma.fence.sync.aligned;") }
}

/// Closes a group of products.
///
/// # Safety
/// As [`wgmma_fence`].
#[inline(always)]
pub unsafe fn wgmma_commit() {
    unsafe { asm!("wgmma.commit_group.sync.aligned;") }
}

/// Waits until all but the last `PENDING` groups are complete.
///
/// # Safety
/// As [`wgmma_fence`].
#[inline(always)]
pub unsafe fn wgmma_wait<const PENDING: u32>() {
    unsafe { asm!("wgmma.wait_group.sync.aligned {};", const PENDING) }
}

/// Describes an operand in shared memory: rows of 128 bytes along K, 128-byte swizzle, 8 rows to 1024 bytes.
#[inline(always)]
pub fn descriptor(address: u32) -> u64 {
    const LEADING: u64 = 1 << 16;
    const STRIDE: u64 = (1024 >> 4) << 32;
    const SWIZZLE_128B: u64 = 1 << 62;
    ((address & 0x3ffff) >> 4) as u64 | LEADING | STRIDE | SWIZZLE_128B
}

/// The registers of an accumulator can't be passed to `asm!` as an array, so each is named by its index.
macro_rules! accumulator {
    ($shape:literal, $length:literal: $first:literal $($i:literal)*) => {
        impl Accumulator for [f32; $length] {
            #[inline(always)]
            fn zeros() -> Self {
                [0.0; $length]
            }
            #[inline(always)]
            fn values(&self) -> &[f32] {
                self
            }
            #[inline(always)]
            fn values_mut(&mut self) -> &mut [f32] {
                self
            }
            #[inline(always)]
            unsafe fn wgmma_bf16(a: u64, b: u64) -> Self {
                accumulator!(@product "bf16", $shape, a, b, $first $($i)*)
            }
            #[inline(always)]
            unsafe fn wgmma_add_bf16(&mut self, a: u64, b: u64) {
                accumulator!(@add "bf16", $shape, self, a, b, $first $($i)*)
            }
            #[inline(always)]
            unsafe fn wgmma_f16(a: u64, b: u64) -> Self {
                accumulator!(@product "f16", $shape, a, b, $first $($i)*)
            }
            #[inline(always)]
            unsafe fn wgmma_add_f16(&mut self, a: u64, b: u64) {
                accumulator!(@add "f16", $shape, self, a, b, $first $($i)*)
            }
        }
    };
    (@template $element:literal, $shape:literal, $add:literal, $first:literal $($i:literal)*) => {
        concat!(
            "wgmma.mma_async.sync.aligned.", $shape, ".f32.", $element, ".", $element,
            " {{ {", $first, "}", $(", {", $i, "}",)* " }}, {a}, {b}, ", $add, ", 1, 1, 0, 0;"
        )
    };
    (@product $element:literal, $shape:literal, $a:ident, $b:ident, $($i:literal)*) => {
        unsafe {
            let mut d = MaybeUninit::<Self>::uninit();
            let to = d.as_mut_ptr().cast::<f32>();
            asm!(
                accumulator!(@template $element, $shape, "0", $($i)*),
                $(out(reg32) *to.add($i),)*
                a = in(reg64) $a,
                b = in(reg64) $b,
                options(nostack),
            );
            d.assume_init()
        }
    };
    (@add $element:literal, $shape:literal, $d:ident, $a:ident, $b:ident, $($i:literal)*) => {
        unsafe {
            asm!(
                accumulator!(@template $element, $shape, "1", $($i)*),
                $(inout(reg32) $d[$i],)*
                a = in(reg64) $a,
                b = in(reg64) $b,
                options(nostack),
            )
        }
    };
}
accumulator!("m64n64k16", 32:
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);

/// Accumulators, each of more columns than the one before.
macro_rules! growing_accumulators {
    ([$($i:literal)*] $shape:literal, $length:literal) => {
        accumulator!($shape, $length: $($i)*);
    };
    ([$($i:literal)*] $shape:literal, $length:literal, then $($next:literal)*: $($rest:tt)*) => {
        accumulator!($shape, $length: $($i)*);
        growing_accumulators!([$($i)* $($next)*] $($rest)*);
    };
}
growing_accumulators!(
    [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    ] "m64n96k16", 48,
    then 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63: "m64n128k16", 64,
    then 64 65 66 67: "m64n136k16", 68,
    then 68 69 70 71: "m64n144k16", 72,
    then 72 73 74 75: "m64n152k16", 76,
    then 76 77 78 79: "m64n160k16", 80,
    then 80 81 82 83: "m64n168k16", 84,
    then 84 85 86 87: "m64n176k16", 88,
    then 88 89 90 91: "m64n184k16", 92,
    then 92 93 94 95: "m64n192k16", 96,
    then 96 97 98 99: "m64n200k16", 100,
    then 100 101 102 103: "m64n208k16", 104,
    then 104 105 106 107: "m64n216k16", 108,
    then 108 109 110 111: "m64n224k16", 112,
    then 112 113 114 115: "m64n232k16", 116,
    then 116 117 118 119: "m64n240k16", 120,
    then 120 121 122 123: "m64n248k16", 124,
    then 124 125 126 127: "m64n256k16", 128
);
