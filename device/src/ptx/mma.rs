//! The warp's matrix product.

use core::arch::asm;

macro_rules! products {
    ($($(#[$doc:meta])* $name:ident = $types:literal;)+) => {
        $($(#[$doc])*
        ///
        /// Of A a lane holds words of the rows `r` and `r + 8` (`r = lane / 4`) in columns `2·(lane % 4)` and the next,
        /// then those 8 columns further on; of B's row `r` the same; of the sum rows `r` and `r + 8` in those columns.
        ///
        /// # Safety
        /// All lanes of the warp must take part.
        #[inline(always)]
        pub unsafe fn $name(sum: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4] {
            let [mut s0, mut s1, mut s2, mut s3] = sum;
            unsafe {
                asm!(
                    concat!(
                        "mma.sync.aligned.m16n8k16.row.col.f32.", $types, ".f32 ",
                        "{{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};",
                    ),
                    inout(reg32) s0, inout(reg32) s1, inout(reg32) s2, inout(reg32) s3,
                    in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1],
                    options(nomem, nostack),
                );
            }
            [s0, s1, s2, s3]
        })+
    };
}
products! {
    /// `sum + A·Bᵀ` of 16 × 16 and 8 × 16 elements of bf16.
    mma_bf16 = "bf16.bf16";
    /// `sum + A·Bᵀ` of 16 × 16 and 8 × 16 elements of f16.
    mma_f16 = "f16.f16";
}
