//! Matrices of the host: inputs, and references to hold results against.

use anyhow::{Result, ensure};
use entwine::device::bf16;
use ndarray::Array2;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// `rows × columns` numbers from −1 to 1, times `scale`; the same ones for the same seed.
pub fn random([rows, columns]: [usize; 2], scale: f32, seed: u64) -> Array2<f32> {
    let mut generator = SmallRng::seed_from_u64(seed);
    let number = || bf16::from_f32(scale * generator.random_range(-1.0..1.0)).to_f32();
    Array2::from_shape_simple_fn([rows, columns], number)
}

/// The elements as the kernels take them, row-major.
pub fn elements(matrix: &Array2<f32>) -> Vec<bf16> {
    matrix.iter().map(|&x| bf16::from_f32(x)).collect()
}

/// The largest difference between a result and what it should be, as a part of the largest element.
///
/// # Errors
/// It is more than rounding to `bf16` explains, or there are not as many elements.
pub fn error(found: &[bf16], expected: &Array2<f32>) -> Result<f32> {
    ensure!(found.len() == expected.len(), "the result has {} elements, not {}", found.len(), expected.len());
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let mut worst = 0.0;
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found.to_f32() - expected).abs() / largest;
        ensure!(error < 0.02, "element {index} is {found}, not {expected}");
        worst = error.max(worst);
    }
    Ok(worst)
}
