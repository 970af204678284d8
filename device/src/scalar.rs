//! The functions of `f32` that `core` lacks.

/// What `std` gives `f32` and `core` doesn't, for the closures of `map` and its like.
///
/// On simulated ranks these are the functions of `std`, on GPUs the hardware's own.
pub trait Scalar {
    /// The square root, to the nearest.
    fn sqrt(self) -> Self;

    /// `e` to the power `self`; on GPUs with a relative error below 10⁻⁵, and 0 where it is subnormal.
    fn exp(self) -> Self;

    /// `1 / (1 + e⁻ˣ)`; on GPUs with a relative error below 10⁻⁵.
    fn sigmoid(self) -> Self;

    /// The hyperbolic tangent; on GPUs with a relative error below 2⁻¹⁰, less than that of rounding to `bf16`.
    fn tanh(self) -> Self;
}

#[cfg(not(target_arch = "nvptx64"))]
impl Scalar for f32 {
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    fn exp(self) -> f32 {
        f32::exp(self)
    }
    fn sigmoid(self) -> f32 {
        1.0 / (1.0 + f32::exp(-self))
    }
    fn tanh(self) -> f32 {
        f32::tanh(self)
    }
}

#[cfg(target_arch = "nvptx64")]
impl Scalar for f32 {
    #[inline(always)]
    fn sqrt(self) -> f32 {
        crate::ptx::sqrt(self)
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        crate::ptx::exp2(self * core::f32::consts::LOG2_E)
    }
    #[inline(always)]
    fn sigmoid(self) -> f32 {
        crate::ptx::reciprocal(1.0 + (-self).exp())
    }
    #[inline(always)]
    fn tanh(self) -> f32 {
        crate::ptx::tanh(self)
    }
}
