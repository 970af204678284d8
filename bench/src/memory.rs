//! The rate at which a GPU reads its own memory, as a kernel's threads reach it.

use anyhow::Result;
use entwine::{Tensor, World};
use entwine_kernels::probes::read_once;

use crate::gpus::Gpus;
use crate::limit::median_and_spread;
use crate::timing::{Batch, Stopwatch};

/// What is read: 2 GiB of `f32`.
const SHAPE: [usize; 2] = [1 << 16, 1 << 13];
const LAUNCHES: usize = 8;
const REPEATS: usize = 5;

/// GB/s that the slowest of the GPUs reads, all at once.
///
/// # Errors
/// Memory ran out, or a launch failed.
pub fn gbps(world: &World, gpus: &Gpus, stopwatch: &Stopwatch<'_>) -> Result<f64> {
    let kernel = read_once::load(world)?;
    let x: Tensor<f32> = world.zeros(SHAPE)?;
    let mut sums = world.zeros([SHAPE[0], 128])?;
    let graph = kernel.graph(LAUNCHES as u32, read_once::Args { x: &x, sums: &mut sums })?;
    let mut batch: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&gpus.streams)?]));
    stopwatch.run(&mut batch)?;
    stopwatch.time(&mut batch, 1)?;
    let times = (0..REPEATS).map(|_| stopwatch.time(&mut batch, 1)).collect::<Result<Vec<_>>>()?;
    let (median_us, _) = median_and_spread(&times);
    Ok((LAUNCHES * SHAPE[0] * SHAPE[1] * size_of::<f32>()) as f64 / median_us / 1e3)
}
