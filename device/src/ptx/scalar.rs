//! Functions of `f32`.

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
    /// 2 to the power `x`, approximately; 0 where that is subnormal, which would take four instructions more.
    exp2 = "ex2.approx.ftz.f32";
    /// The hyperbolic tangent, approximately.
    tanh = "tanh.approx.f32";
    /// The reciprocal, approximately.
    reciprocal = "rcp.approx.ftz.f32";
}

/// `one` or the `other`, without a branch: where shuffles follow, threads that took other ways would come to them apart.
#[inline(always)]
pub fn select(first: bool, one: f32, other: f32) -> f32 {
    let selected: f32;
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {3}, 0; selp.f32 {0}, {1}, {2}, p; }}",
            out(reg32) selected, in(reg32) one, in(reg32) other, in(reg32) first as u32,
            options(pure, nomem, nostack),
        );
    }
    selected
}
