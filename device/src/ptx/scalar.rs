//! Functions of one `f32`.

use core::arch::asm;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $instruction:literal;)+) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            let y: f32;
            unsafe {
                asm!(concat!($instruction, " {}, {};"), out(reg32) y, in(reg32) x, options(pure, nomem, nostack));
            }
            y
        })+
    };
}
functions! {
    /// The square root, to nearest, ties to even.
    sqrt = "sqrt.rn.f32";
    /// 2 to the power `x`, approximately.
    exp2 = "ex2.approx.f32";
    /// The hyperbolic tangent, approximately.
    tanh = "tanh.approx.f32";
    /// The reciprocal, approximately.
    reciprocal = "rcp.approx.ftz.f32";
}
