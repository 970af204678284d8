//! Products whose columns are exchanged, held against products that the host computes in f64.

use anyhow::{Result, anyhow, ensure};
use entwine_kernels::gemm_all_to_all;
use ndarray::Array2;
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::number::{self, Number};
use super::ranks::{Ranks, check_guards};

/// Each rank's A is `m × k`, and it owns `n` columns of every rank's product.
#[derive(Debug, Clone, Copy)]
struct Size {
    m: usize,
    n: usize,
    k: usize,
}

/// Cases 19 and 23: sizes that are no multiples of a tile, and 0, with each tile; every element of a result that starts as
/// NaN is written, and nothing around it.
pub fn ragged<T: Number>(ranks: &Ranks) -> Result<()> {
    const SIZES: [[usize; 3]; 7] =
        [[1, 1, 1], [129, 65, 64], [0, 64, 64], [64, 0, 64], [300, 200, 40], [64, 64, 0], [5, 264, 130]];
    for (m, n, k) in SIZES.map(|[m, n, k]| (m, n, k)) {
        for tile in [(128, 256), (128, 128)] {
            exchanges::<T>(ranks, Size { m, n, k }, Some(tile), 1)?;
        }
    }
    Ok(())
}

/// Cases 3 and 19: random sizes with the tile that the launcher chooses, several launches of each.
pub fn of_any_size<T: Number>(ranks: &Ranks) -> Result<()> {
    let config = Config {
        cases: ranks.pick(4, 32),
        max_shrink_iters: 32,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(5),
        ..Config::default()
    };
    let sizes = (0..300usize, 0..300usize, 0..200usize).prop_map(|(m, n, k)| Size { m, n, k });
    TestRunner::new(config)
        .run(&sizes, |size| {
            exchanges::<T>(ranks, size, None, 3).map_err(|error| TestCaseError::fail(format!("{error:#}")))
        })
        .map_err(|failure| anyhow!("{failure}"))
}

fn exchanges<T: Number>(ranks: &Ranks, size: Size, tile: Option<(u32, u32)>, launches: usize) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count());
    let mut kernel = gemm_all_to_all::load(&world)?;
    if let Some(tile) = tile {
        kernel = kernel.with_tile(tile)?;
    }
    let Size { m, n, k } = size;
    let mut generator = SmallRng::seed_from_u64((m * n + k) as u64);
    let mut operands = |rows| -> Vec<Vec<T>> { (0..count).map(|_| number::random(&mut generator, rows * k)).collect() };
    let (a_host, b_host) = (operands(m), operands(count * n));
    let a = world.per_rank(|rank| ([m, k], a_host[rank].clone()))?;
    let b = world.per_rank(|rank| ([count * n, k], b_host[rank].clone()))?;
    let mut c = world.filled([count * m, n], T::from_f32(f32::NAN))?;
    for _ in 0..launches {
        c.fill(T::from_f32(f32::NAN))?;
        kernel.launch(gemm_all_to_all::Args { a: &a, b: &b, c: &mut c })?.wait()?;
    }
    check_guards(&world)?;

    let matrix = |rows, numbers: &[T], f: fn(f64) -> f64| {
        Array2::from_shape_vec([rows, k], numbers.iter().map(|number| f(number.value())).collect())
    };
    for sender in 0..count {
        let product = |f| anyhow::Ok(matrix(m, &a_host[sender], f)?.dot(&matrix(count * n, &b_host[sender], f)?.t()));
        let (values, magnitudes) = (product(|x| x)?, product(f64::abs)?);
        for rank in 0..count {
            let found = &c.to_vec(rank)?[sender * m * n..][..m * n];
            for (index, found) in found.iter().enumerate() {
                let at = [index / n, rank * n + index % n];
                let tolerance = T::ROUNDOFF * values[at].abs() + magnitudes[at] / (1 << 20) as f64 + T::SMALLEST;
                ensure!(
                    (found.value() - values[at]).abs() <= tolerance,
                    "{size:?}: element {index} of rank {sender}'s on rank {rank} is {}, not {}",
                    found.value(),
                    values[at]
                );
            }
        }
    }
    Ok(())
}
