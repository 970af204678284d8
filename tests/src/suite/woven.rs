//! Kernels of the suite's own: what the ready-made ones have no use for.

use anyhow::{Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::number::{Number, bits, random};
use super::ranks::{Ranks, check_guards};
use crate::kernels::{self, broadcast, copy_then_multiply, mirror, normalize, rotate};

/// Elements one by one and row by row.
pub fn normalizes<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = normalize::load(&world)?;
    for tile in kernel.tiles() {
        let [m, n] = [tile.0 as usize + 72, 2 * tile.1 as usize + 72];
        kernel = kernel.with_tile(tile)?;
        let [x, z] = [1, 2].map(|seed| random::<T>(&mut SmallRng::seed_from_u64(seed), m * n));
        let mut y = world.filled([m, n], T::from_f32(f32::NAN))?;
        let (x_there, z_there) = (world.replicate([m, n], &x)?, world.replicate([m, n], &z)?);
        kernel.launch(normalize::Args { x: &x_there, z: &z_there, floor: 0.0, y: &mut y })?.wait()?;
        let squares: Vec<_> = x.iter().zip(&z).map(|(x, z)| (x.value() + z.value()).powi(2)).collect();
        for found in (0..ranks.count()).map(|rank| y.to_vec(rank)) {
            for (index, found) in found?.into_iter().enumerate() {
                let in_tile = (index % n) / tile.1 as usize * tile.1 as usize;
                let row = &squares[index / n * n..][..n];
                let sum: f64 = row[in_tile..n.min(in_tile + tile.1 as usize)].iter().sum();
                let expected = squares[index] / sum;
                let close = (found.value() - expected).abs() <= T::ROUNDOFF * expected + T::SMALLEST;
                ensure!(close, "[{m}, {n}], element {index}: {}, not {expected}", found.value());
            }
        }
        check_guards(&world)?;
    }
    Ok(())
}

/// The functions of numbers that `core` lacks, as exact as they say.
pub fn scalar_functions<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = kernels::scalar_functions::load(&world)?;
    for tile in kernel.tiles() {
        kernel = kernel.with_tile(tile)?;
        let [rows, columns] = [tile.0 as usize + 2, tile.1 as usize];
        let x = random::<T>(&mut SmallRng::seed_from_u64(1), rows * columns);
        let x_there = world.replicate([rows, columns], &x)?;
        let mut y = world.filled([rows, columns], T::from_f32(f32::NAN))?;
        kernel.launch(kernels::scalar_functions::Args { x: &x_there, y: &mut y })?.wait()?;
        for rank in 0..ranks.count() {
            for (row, found) in x.chunks(columns).zip(y.to_vec(rank)?.chunks(columns)) {
                let largest = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
                let powers: Vec<_> = row.iter().map(|x| (x.value() - largest).exp()).collect();
                let scale = largest.tanh() / powers.iter().sum::<f64>().sqrt();
                for (found, expected) in found.iter().zip(powers.iter().map(|power| power * scale)) {
                    let close = (found.value() - expected).abs() <= (T::ROUNDOFF + 1.0 / 1024.0) * expected.abs();
                    ensure!(close, "tile {tile:?}: {}, not {expected}", found.value());
                }
            }
        }
        check_guards(&world)?;
    }
    Ok(())
}

/// Numbers of all bits, NaN and infinities among them.
fn any_bits<T: Number>(seed: u64, count: usize) -> Vec<T> {
    let mut generator = SmallRng::seed_from_u64(seed);
    (0..count).map(|_| T::from_bits(generator.random())).collect()
}

/// A product's operands are its own, however many tiles have passed through the ring before that the math warpgroups didn't look at.
pub fn copies_then_multiplies<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = copy_then_multiply::load(&world)?;
    let mut generator = SmallRng::seed_from_u64(3);
    let [m, w, k] = [197, 130, 200];
    for n in [8, 128 * 3, 128 * 7 + 8, 128 * 8, 128 * 41] {
        let x = any_bits::<T>(n as u64, m * n);
        // Sums of so few small integers are exact in every type.
        let mut integers = |count| -> Vec<i32> { (0..count).map(|_| generator.random_range(-1..=1)).collect() };
        let (a, b) = (integers(m * k), integers(w * k));
        let elements = |integers: &[i32]| -> Vec<T> { integers.iter().map(|x| T::from_f32(*x as f32)).collect() };
        let x_there = world.replicate([m, n], &x)?;
        let (a_there, b_there) = (world.replicate([m, k], &elements(&a))?, world.replicate([w, k], &elements(&b))?);
        let (mut y, mut c) =
            (world.filled([m, n], T::from_f32(f32::NAN))?, world.filled([m, w], T::from_f32(f32::NAN))?);
        let arguments = copy_then_multiply::Args { x: &x_there, y: &mut y, a: &a_there, b: &b_there, c: &mut c };
        kernel.launch(arguments)?.wait()?;
        for rank in 0..ranks.count() {
            ensure!(bits(&y.to_vec(rank)?) == bits(&x), "n = {n}: the copy differs on rank {rank}");
            for (index, found) in c.to_vec(rank)?.into_iter().enumerate() {
                let (a, b) = (&a[index / w * k..][..k], &b[index % w * k..][..k]);
                let expected: i32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                ensure!(
                    found.value() == expected as f64,
                    "n = {n}, element {index}: {}, not {expected}",
                    found.value()
                );
            }
        }
        check_guards(&world)?;
    }
    Ok(())
}

/// Case 25: tiles that only move arrive with the bits that they left with, pushed and pulled, also at their own rank.
pub fn rotates<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = rotate::load(&world)?;
    for distance in (0..ranks.count()).chain([0]) {
        for tile in kernel.tiles() {
            let [m, n] = [tile.0 as usize + 22, 2 * tile.1 as usize + 8];
            kernel = kernel.with_tile(tile)?;
            let x = world.per_rank(|rank| ([m, n], any_bits::<T>(rank as u64, m * n)))?;
            let [mut y, mut z] = [world.zeros([m, n])?, world.zeros([m, n])?];
            kernel.launch(rotate::Args { distance: distance as u32, x: &x, y: &mut y, z: &mut z })?.wait()?;
            for rank in 0..ranks.count() {
                let from = (rank + ranks.count() - distance) % ranks.count();
                let expected = bits(&x.to_vec(from)?);
                ensure!(bits(&y.to_vec(rank)?) == expected, "distance {distance}, rank {rank}: pushed tiles differ");
                ensure!(bits(&z.to_vec(rank)?) == expected, "distance {distance}, rank {rank}: pulled tiles differ");
            }
            check_guards(&world)?;
        }
    }
    Ok(())
}

/// Case 2: what one stage wrote is read by another behind gates, whoever the last one was that was counted.
pub fn mirrors<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = mirror::load(&world)?;
    for tile in kernel.tiles() {
        let [m, n] = [tile.0 as usize * 2 + 22, 3 * tile.1 as usize];
        kernel = kernel.with_tile(tile)?;
        let columns = tile.1 as usize;
        // Elements pass through registers as `f32`, which keeps a NaN, but not its bits.
        let numbers = |rank: usize| random::<T>(&mut SmallRng::seed_from_u64(rank as u64), m * n);
        let (x, mut y) = (world.per_rank(|rank| ([m, n], numbers(rank)))?, world.zeros([m, n])?);
        for _ in 0..ranks.pick(2, 20) {
            let mut z = world.zeros([m, n])?;
            kernel.launch(mirror::Args { x: &x, y: &mut y, z: &mut z })?.wait()?;
            for rank in 0..ranks.count() {
                let rows = x.to_vec(rank)?;
                let turned = rows.chunks_exact(n).flat_map(|row| row.chunks_exact(columns).rev().flatten().copied());
                let turned: Vec<_> = turned.collect();
                ensure!(
                    bits(&z.to_vec(rank)?) == bits(&turned),
                    "rank {rank}, tiles of {tile:?}: not the mirror image"
                );
            }
        }
        check_guards(&world)?;
    }
    Ok(())
}

/// Every order visits every tile once, with more tiles than ranks, fewer, and none.
pub fn broadcasts<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = broadcast::load(&world)?;
    for [m, n] in [[900, 136], [3, 500], [0, 64], [64, 0], [129, 8]] {
        for tile in kernel.tiles() {
            kernel = kernel.with_tile(tile)?;
            let data = any_bits::<T>(m as u64, m * n);
            let x = world.scatter([m, n], &data)?;
            let [mut y, mut z] = [world.zeros([m, n])?, world.zeros([m, n])?];
            kernel.launch(broadcast::Args { x: &x, y: &mut y, z: &mut z })?.wait()?;
            for rank in 0..ranks.count() {
                ensure!(bits(&y.to_vec(rank)?) == bits(&data), "[{m}, {n}], rank {rank}: wrong as it comes");
                ensure!(bits(&z.to_vec(rank)?) == bits(&data), "[{m}, {n}], rank {rank}: wrong in turn");
            }
            check_guards(&world)?;
        }
    }
    Ok(())
}
