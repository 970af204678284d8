//! Results to the bit: the same in every run and on every rank, whatever the elements are.

use std::ops::Range;

use anyhow::{Result, ensure};
use entwine::Kernel;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::number::{Number, random};
use super::product::{Operands, Problem, Product, Size};
use super::ranks::Ranks;

/// Cases 1, 2 and 26: the same operands give the same bits in every run, and every rank that has a row has the same.
pub fn same_in_every_run<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let size = ranks.pick(Size { m: 512, n: 300, k: 64 }, Size { m: 8192, n: 256, k: 128 });
    let mut problem = Problem::<P, T>::random(&world, size, 1)?;
    problem.run_and_check(&kernel)?;
    let first = problem.bits()?;
    for run in 1..ranks.pick(6, 100) {
        problem.poison()?;
        kernel.launch(problem.args())?.wait()?;
        let again = problem.bits()?;
        for row in 0..size.m {
            let of = |results: &[Vec<u16>]| results.iter().map(|all| all[row * size.n..][..size.n].to_vec()).collect();
            let [first, again]: [Vec<_>; 2] = [of(&first), of(&again)];
            ensure!(first == again, "row {row} of run {run} is not that of run 0");
        }
    }
    if P::SUMS {
        ensure!(first.iter().all(|result| *result == first[0]), "ranks have different bits");
    }
    Ok(())
}

/// Case 26: with a tile of its own choosing, a row has the same bits whatever the number of rows.
///
/// Where more than two ranks' products are added, their order depends on who owns the row.
pub fn rows_do_not_depend_on_the_others<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    if P::SUMS && ranks.count() > 2 {
        return Ok(());
    }
    let world = ranks.world()?;
    let [few, many] = ranks.pick([200, 320], [1664, 2048]);
    let (n, k) = (264, 96);
    let numbers = |seed, count| random::<T>(&mut SmallRng::seed_from_u64(seed), count);
    let mut kernel = Kernel::load(&world)?;
    for tile in kernel.tiles() {
        kernel = kernel.with_tile(tile)?;
        let mut results = Vec::new();
        for m in [few, many] {
            let a =
                |rank: usize, rows: Range<usize>| numbers(rank as u64, many * k)[rows.start * k..rows.end * k].to_vec();
            let b = |rank: usize| numbers(100 + rank as u64, n * k);
            let size = Size { m, n, k };
            let mut problem = Problem::<P, T>::new(&world, size, Operands::of::<P>(ranks.count(), size, a, b))?;
            problem.run_and_check(&kernel)?;
            results.push(problem.bits()?);
        }
        let same = results[0].iter().zip(&results[1]).all(|(few, many)| many.starts_with(few));
        ensure!(same, "rows among {few} have other bits than among {many}, with tiles of {tile:?}");
    }
    Ok(())
}

/// Case 25: subnormals, zeros, infinities and NaN come out as they went in: each is multiplied by 1, and added to zeros.
pub fn special_values<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let size = Size { m: 130, n: 70, k: 1 };
    let smallest = T::SMALLEST as f32;
    let values = [0.0, -0.0, smallest, -3.0 * smallest, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
    let whole = |row: usize| T::from_f32(values[row % values.len()]);
    let a = |rank, rows: Range<usize>| rows.map(|row| if rank == 0 { whole(row) } else { T::from_f32(0.0) }).collect();
    let b = |_| vec![T::from_f32(1.0); size.n];
    let mut problem = Problem::<P, T>::new(&world, size, Operands::of::<P>(ranks.count(), size, a, b))?;
    kernel.launch(problem.args())?.wait()?;
    for (rank, result) in problem.bits()?.into_iter().enumerate() {
        let source = if P::GATHERS || P::SUMS { 0 } else { rank };
        for (index, found) in result.into_iter().enumerate() {
            let expected = if source == 0 { whole(index / size.n) } else { T::from_f32(0.0) };
            let (found, expected) = (T::from_bits(found).to_f32(), expected.to_f32());
            ensure!(
                found == expected || found.is_nan() && expected.is_nan(),
                "{}: {expected:e} comes out as {found:e} on rank {rank}",
                P::name()
            );
        }
    }
    Ok(())
}

/// Case 26: sums that f16 could not hold, and terms that cancel, are added up in f32.
pub fn sums_beyond_the_elements<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let terms = [65504.0, 65504.0, 1.0, -65504.0, 1.0, -65504.0, 512.0];
    let size = Size { m: 140, n: 66, k: terms.len() };
    let a = |_, rows: Range<usize>| rows.flat_map(|_| terms.map(T::from_f32)).collect();
    let b = |_| vec![T::from_f32(1.0); size.n * size.k];
    let mut problem = Problem::<P, T>::new(&world, size, Operands::of::<P>(ranks.count(), size, a, b))?;
    problem.run_and_check(&kernel)
}
