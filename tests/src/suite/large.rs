//! Products that need minutes and tens of gigabytes, and so GPUs.

use anyhow::Result;
use entwine::Kernel;

use super::number::Number;
use super::product::{AllGather, Alone, Problem, Product, ReduceScatter, Size};
use super::ranks::{Ranks, check_guards};

/// Case 21: an operand of more than 2³¹ bytes, whose last rows lie beyond what 32 bits reach.
pub fn offsets_over_2_gib<T: Number>(ranks: &Ranks) -> Result<()> {
    sampled::<Alone, T>(ranks, Size { m: 140_000, n: 256, k: 8192 })
}

/// Case 22: the reduce-scatter's largest product.
pub fn reduce_scatter<T: Number>(ranks: &Ranks) -> Result<()> {
    sampled::<ReduceScatter, T>(ranks, Size { m: 8192, n: 8192, k: 29568 / ranks.count() })
}

/// Case 22: the all-gather's largest product.
pub fn all_gather<T: Number>(ranks: &Ranks) -> Result<()> {
    sampled::<AllGather, T>(ranks, Size { m: 8192, n: 53248 / ranks.count(), k: 16384 })
}

/// Holds a sample of the result against the reference, its corners among it.
fn sampled<P: Product, T: Number>(ranks: &Ranks, size: Size) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let mut problem = Problem::<P, T>::random(&world, size, 21)?;
    let sample = |count: usize| (0..=16).map(|part| part * (count - 1) / 16).collect::<Vec<_>>();
    for _ in 0..3 {
        problem.poison()?;
        kernel.launch(problem.args())?.wait()?;
        problem.check_where(&sample(size.m), &sample(size.n))?;
    }
    check_guards(&world)
}
