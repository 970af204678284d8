//! The element types that the kernels multiply, as the tests see them.

use entwine::TensorElement;
use entwine::device::{MatmulElement, bf16, f16};
use rand::Rng;

/// A 16-bit element.
pub trait Number: MatmulElement + TensorElement + PartialEq {
    /// The largest relative error of rounding to it.
    const ROUNDOFF: f64;

    /// The smallest positive value.
    const SMALLEST: f64;

    /// Its bits.
    fn bits(self) -> u16;

    /// The number that has these bits.
    fn from_bits(bits: u16) -> Self;

    /// The value, exact.
    fn value(self) -> f64 {
        self.to_f32().into()
    }
}

impl Number for bf16 {
    const ROUNDOFF: f64 = 1.0 / 256.0;
    const SMALLEST: f64 = f32::from_bits(1 << 16) as f64;

    fn bits(self) -> u16 {
        self.to_bits()
    }

    fn from_bits(bits: u16) -> Self {
        Self::from_bits(bits)
    }
}

impl Number for f16 {
    const ROUNDOFF: f64 = 1.0 / 2048.0;
    const SMALLEST: f64 = 1.0 / (1 << 24) as f64;

    fn bits(self) -> u16 {
        self.to_bits()
    }

    fn from_bits(bits: u16) -> Self {
        Self::from_bits(bits)
    }
}

/// `count` numbers from −1 to 1.
pub fn random<T: Number>(generator: &mut impl Rng, count: usize) -> Vec<T> {
    (0..count).map(|_| T::from_f32(generator.random_range(-1.0..1.0))).collect()
}

/// The bits of all of them, to compare what may be NaN.
pub fn bits<T: Number>(numbers: &[T]) -> Vec<u16> {
    numbers.iter().map(|number| number.bits()).collect()
}
