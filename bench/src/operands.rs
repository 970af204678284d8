//! The operands of what is timed: random inputs, poisoned outputs, and how far two outputs are apart.

use anyhow::Result;
use entwine::{Tensor, World};
use half::bf16;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use crate::shapes::{Operation, Shape};

/// The cache. Inputs of less than twice this might be found there in part from one call to the next.
const CACHE: usize = 60_000_000;
/// Elements that one generator fills.
const CHUNK: usize = 1 << 16;
const SCALE: f32 = 0.5;
/// Seeds that no two matrices share: those of one set, of a rank and an operand.
const SEEDS_OF_SET: u64 = 64;

/// A and B of one call, on every rank.
pub struct Inputs {
    pub a: Tensor<bf16>,
    pub b: Tensor<bf16>,
}

impl Inputs {
    /// Inputs for calls to take in turns: so many that none finds its own in the cache.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn in_turns(world: &World, operation: Operation, shape: Shape) -> Result<Vec<Self>> {
        let rows_of_a = match operation {
            Operation::AllGatherGemm => shape.m / world.ranks(),
            _ => shape.m,
        };
        let set = |set: u64| {
            Ok(Inputs {
                a: random(world, [rows_of_a, shape.k], set * SEEDS_OF_SET)?,
                b: random(world, [shape.n, shape.k], set * SEEDS_OF_SET + 1)?,
            })
        };
        (0..turns(shape.input_bytes()) as u64).map(set).collect()
    }
}

/// How many inputs of so many bytes it takes.
fn turns(bytes: usize) -> usize {
    (2 * CACHE).div_ceil(bytes)
}

/// On each rank other normally distributed elements.
///
/// # Errors
/// Memory ran out.
pub fn random(world: &World, [rows, columns]: [usize; 2], seed: u64) -> Result<Tensor<bf16>> {
    let elements = |rank: usize| normal(rows * columns, seed + 2 * rank as u64);
    Ok(world.per_rank(|rank| ([rows, columns], elements(rank)))?)
}

fn normal(count: usize, seed: u64) -> Vec<bf16> {
    let mut elements = vec![bf16::ZERO; count];
    elements.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, elements)| {
        let mut generator = SmallRng::seed_from_u64((seed << 32) + chunk as u64);
        for element in elements {
            let normal: f32 = StandardNormal.sample(&mut generator);
            *element = bf16::from_f32(SCALE * normal);
        }
    });
    elements
}

/// Overwrites outputs, so that whatever is not written afterwards is found.
///
/// # Errors
/// The machine failed.
pub fn poison(outputs: &mut [Tensor<bf16>]) -> Result<()> {
    outputs.iter_mut().try_for_each(|output| Ok(output.fill(bf16::NAN)?))
}

/// The relative Frobenius error over all elements of all ranks; NaN if any is NaN.
///
/// # Errors
/// The machine failed.
pub fn relative_error(found: &[Tensor<bf16>], expected: &[Tensor<bf16>]) -> Result<f64> {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (found, expected) in found.iter().zip(expected) {
        for rank in 0..found.world().ranks() {
            let squares = sums_of_squares(&found.to_vec(rank)?, &expected.to_vec(rank)?);
            difference += squares.0;
            norm += squares.1;
        }
    }
    Ok((difference / norm).sqrt())
}

/// Of the difference, and of what was expected.
fn sums_of_squares(found: &[bf16], expected: &[bf16]) -> (f64, f64) {
    assert_eq!(found.len(), expected.len(), "outputs of one operation have one shape");
    let of_chunk = |(found, expected): (&[bf16], &[bf16])| {
        found.iter().zip(expected).fold((0.0, 0.0), |(difference, norm), (found, expected)| {
            let (found, expected) = (found.to_f64(), expected.to_f64());
            (difference + (found - expected).powi(2), norm + expected.powi(2))
        })
    };
    let chunks = found.par_chunks(CHUNK).zip(expected.par_chunks(CHUNK));
    chunks.map(of_chunk).reduce(|| (0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_random_and_differ_by_rank() {
        let world = World::simulated(2).unwrap();
        let tensor = random(&world, [300, 400], 7).unwrap();
        let [first, second] = [0, 1].map(|rank| tensor.to_vec(rank).unwrap());
        assert_ne!(first, second);
        assert_eq!(first, normal(120_000, 7), "the same in every run");
        let mean = first.iter().map(|x| x.to_f64()).sum::<f64>() / 120_000.0;
        let variance = first.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / 120_000.0;
        assert!(mean.abs() < 0.01 && (variance - 0.25).abs() < 0.01, "{mean} {variance}");
    }

    #[test]
    fn small_inputs_take_turns() {
        assert_eq!(turns(51_000_000), 3);
        assert_eq!(turns(59_000_000), 3);
        assert_eq!(turns(67_200_000), 2);
        assert_eq!(turns(120_000_000), 1);
        let world = World::simulated(2).unwrap();
        let inputs = Inputs::in_turns(&world, Operation::AllGatherGemm, Shape { m: 4096, n: 4096, k: 2048 }).unwrap();
        assert_eq!(inputs.len(), 4);
        assert_eq!([inputs[0].a.shape(1), inputs[0].b.shape(1)], [[2048, 2048], [4096, 2048]]);
        assert_ne!(inputs[0].a.to_vec(0).unwrap(), inputs[1].a.to_vec(0).unwrap());
    }

    #[test]
    fn errors_are_relative_and_poison_is_found() {
        let world = World::simulated(2).unwrap();
        let filled = |value: f32| vec![world.filled([8, 64], bf16::from_f32(value)).unwrap()];
        assert_eq!(relative_error(&filled(2.5), &filled(2.0)).unwrap(), 0.25);
        let mut poisoned = filled(2.0);
        poison(&mut poisoned).unwrap();
        assert!(relative_error(&poisoned, &filled(2.0)).unwrap().is_nan());
    }
}
