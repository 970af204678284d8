//! Products of every shape: no dimension need be a multiple of a tile's, and any may be 0.

use anyhow::{Result, anyhow, ensure};
use entwine::{Kernel, RawMatrix, Tensor};
use entwine_kernels::gemm;
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::number::{Number, bits, random};
use super::product::{Problem, Product, Size};
use super::ranks::{Ranks, check_guards};

/// Cases 19, 23 and 24: what is not a multiple of a tile, nothing at all, fewer rows than ranks; each with each tile.
/// The result starts as NaN and must be written in full, and nothing around it.
pub fn ragged<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    const SIZES: [[usize; 3]; 12] = [
        [1, 1, 1],
        [127, 129, 64],
        [0, 64, 64],
        [129, 127, 65],
        [64, 0, 64],
        [2, 328, 40],
        [64, 64, 0],
        [1000, 256, 16],
        [5, 8, 1000],
        [0, 0, 0],
        [328, 264, 127],
        [1, 1, 1],
    ];
    let world = ranks.world()?;
    let mut kernel = Kernel::load(&world)?;
    for (index, [m, n, k]) in SIZES.into_iter().enumerate() {
        for tile in kernel.tiles() {
            kernel = kernel.with_tile(tile)?;
            let size = Size { m, n, k };
            Problem::<P, T>::random(&world, size, index as u64)?.run_and_check(&kernel)?;
            check_guards(&world)?;
        }
    }
    Ok(())
}

/// Cases 3 and 19: random shapes one after the other on one kernel, with the tile that the launcher chooses.
pub fn of_any_size<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let config = Config {
        cases: ranks.pick(4, 64),
        max_shrink_iters: 32,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(19),
        ..Config::default()
    };
    let sizes = (0..500usize, 0..500usize, 0..200usize).prop_map(|(m, n, k)| Size { m, n, k });
    TestRunner::new(config)
        .run(&sizes, |size| {
            let check = || {
                Problem::<P, T>::random(&world, size, 3)?.run_and_check(&kernel)?;
                check_guards(&world)
            };
            check().map_err(|error: anyhow::Error| TestCaseError::fail(format!("{error:#}")))
        })
        .map_err(|failure| anyhow!("{failure}"))
}

/// Case 24: operands and a result that are some of the columns of wider matrices, whose others stay as they are.
pub fn strided<T: Number>(ranks: &Ranks) -> Result<()> {
    const MARGIN: usize = 24;
    let world = ranks.world()?;
    let kernel = gemm::load(&world)?;
    let [m, n, k] = [150, 200, 64];
    let wide = |rows: usize, columns: usize, seed: u64| {
        let mut generator = SmallRng::seed_from_u64(seed);
        world.per_rank(|_| ([rows, columns + 2 * MARGIN], random::<T>(&mut generator, rows * (columns + 2 * MARGIN))))
    };
    let inner = |tensor: &Tensor<T>| {
        let ranks = (0..ranks.count()).map(|rank| {
            let raw = tensor.raw(rank);
            let address = raw.address + (MARGIN * size_of::<T>()) as u64;
            RawMatrix { address, columns: raw.columns - 2 * MARGIN, ..raw }
        });
        // SAFETY: the wide tensor outlives the inner one, and nothing accesses both at a time.
        unsafe { Tensor::<T>::from_raw(&world, &ranks.collect::<Vec<_>>()) }
    };
    let copy = |tensor: &Tensor<T>| {
        let ranks = (0..ranks.count()).map(|rank| tensor.to_vec(rank)).collect::<Result<Vec<_>, _>>()?;
        world.per_rank(|rank| (tensor.shape(rank), ranks[rank].clone()))
    };
    let (wide_a, wide_b, wide_c) = (wide(m, k, 1)?, wide(n, k, 2)?, wide(m, n, 3)?);
    let (a, b, mut c) = (inner(&wide_a)?, inner(&wide_b)?, inner(&wide_c)?);
    let before = bits(&wide_c.gather()?);
    kernel.launch(gemm::Args { a: &a, b: &b, c: &mut c })?.wait()?;

    let mut expected = world.zeros([m, n])?;
    kernel.launch(gemm::Args { a: &copy(&a)?, b: &copy(&b)?, c: &mut expected })?.wait()?;
    ensure!(bits(&c.gather()?) == bits(&expected.gather()?), "the result differs from that of contiguous matrices");
    let width = n + 2 * MARGIN;
    for (index, (before, after)) in before.into_iter().zip(bits(&wide_c.gather()?)).enumerate() {
        let outside = !(MARGIN..MARGIN + n).contains(&(index % width));
        ensure!(!outside || before == after, "row {} was written beyond the result's columns", index / width);
    }
    Ok(())
}
