//! Values for each column of a tile.

use anyhow::{Result, ensure};
use entwine::device::Element;
use entwine::{Tensor, TensorElement};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::number::Number;
use super::ranks::{Ranks, check_guards};
use crate::kernels::{biased, biased_together, biased_twice};

/// Columns of matrices whose tiles have so many: fewer, as many and more, even numbers and odd ones.
fn widths(columns: u32) -> [usize; 4] {
    let columns = columns as usize;
    [1, columns / 2 - 5, columns, 2 * columns + 43]
}

/// Whole numbers up to `most`, whose sums are exact in every type.
fn integers(seed: u64, most: i32, count: usize) -> Vec<f32> {
    let mut generator = SmallRng::seed_from_u64(seed);
    (0..count).map(|_| generator.random_range(-most..=most) as f32).collect()
}

fn elements<T: Element>(values: &[f32]) -> Vec<T> {
    values.iter().map(|x| T::from_f32(*x)).collect()
}

/// Each rank has these elements.
fn same<T: Element + TensorElement>(ranks: &Ranks, found: &Tensor<T>, expected: &[f32], case: &str) -> Result<()> {
    for rank in 0..ranks.count() {
        for (index, (found, expected)) in found.to_vec(rank)?.into_iter().zip(expected).enumerate() {
            ensure!(found.to_f32() == *expected, "{case}, element {index}: {}, not {expected}", found.to_f32());
        }
    }
    Ok(())
}

/// A product with a bias for each column, and scales.
pub fn biased<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = biased::load(&world)?;
    for tile in kernel.tiles() {
        kernel = kernel.with_tile(tile)?;
        let [m, k] = [2 * tile.0 as usize + 9, 72];
        for n in widths(tile.1) {
            let (a, b) = (integers(1, 1, m * k), integers(2, 1, n * k));
            let (bias, scales) = (integers(3, 20, n), integers(4, 2, 6 * n));
            let mut c = world.filled([m, n], T::from_f32(f32::NAN))?;
            let arguments = biased::Args {
                a: &world.replicate([m, k], &elements::<T>(&a))?,
                b: &world.replicate([n, k], &elements::<T>(&b))?,
                bias: &world.replicate([1, n], &elements::<T>(&bias))?,
                scales: &world.replicate([6, n], &scales)?,
                c: &mut c,
            };
            kernel.launch(arguments)?.wait()?;
            let expected = (0..m * n).map(|index| {
                let (row, column) = (index / n, index % n);
                let product: f32 = a[row * k..][..k].iter().zip(&b[column * k..][..k]).map(|(a, b)| a * b).sum();
                let group = row / tile.0 as usize % 2;
                (product + bias[column]).max(0.0) * scales[(3 * group + 1) * n + column]
            });
            same(ranks, &c, &expected.collect::<Vec<_>>(), &format!("tiles of {tile:?}, n = {n}"))?;
            check_guards(&world)?;
        }
    }
    Ok(())
}

/// Values that another stage made are read once they are there, also by who has waited for nothing else.
pub fn biased_twice<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = biased_twice::load(&world)?;
    for tile in kernel.tiles() {
        kernel = kernel.with_tile(tile)?;
        for n in widths(tile.1) {
            let m = 3 * tile.0 as usize;
            let (x, bias) = (integers(1, 9, m * n), integers(2, 9, n));
            let x_there = world.replicate([m, n], &elements::<T>(&x))?;
            let bias_there = world.replicate([1, n], &elements::<T>(&bias))?;
            let expected: Vec<_> = x.iter().enumerate().map(|(index, x)| x + 2.0 * bias[index % n]).collect();
            for _ in 0..ranks.pick(1, 20) {
                let mut doubled = world.filled([1, n], T::from_f32(f32::NAN))?;
                let mut y = world.filled([m, n], T::from_f32(f32::NAN))?;
                let arguments = biased_twice::Args { bias: &bias_there, doubled: &mut doubled, x: &x_there, y: &mut y };
                kernel.launch(arguments)?.wait()?;
                same(ranks, &y, &expected, &format!("tiles of {tile:?}, n = {n}"))?;
            }
            check_guards(&world)?;
        }
    }
    Ok(())
}

/// A bias for each column where threads have one role.
pub fn biased_together<T: Element + TensorElement>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = biased_together::load(&world)?;
    for tile in kernel.tiles() {
        kernel = kernel.with_tile(tile)?;
        for n in widths(tile.1) {
            let m = 2 * tile.0 as usize + 9;
            let (x, biases) = (integers(1, 9, m * n), integers(2, 9, 2 * n));
            let x_there = world.replicate([m, n], &elements::<T>(&x))?;
            let biases_there = world.replicate([2, n], &elements::<T>(&biases))?;
            // On GPUs a row that there is not is one of zeros.
            for row in 0..ranks.pick(2, 3) {
                let mut y = world.filled([m, n], T::from_f32(f32::NAN))?;
                let arguments =
                    biased_together::Args { x: &x_there, row: row as u32, biases: &biases_there, y: &mut y };
                kernel.launch(arguments)?.wait()?;
                let bias = |column: usize| biases.get(row * n + column).copied().unwrap_or_default();
                let expected: Vec<_> = x.iter().enumerate().map(|(index, x)| x + bias(index % n)).collect();
                same(ranks, &y, &expected, &format!("tiles of {tile:?}, n = {n}, row {row}"))?;
            }
            check_guards(&world)?;
        }
    }
    Ok(())
}
