//! The link between the GPUs: its rate, by copies in both directions at once, and the time of a word's way there and back.

use anyhow::Result;
use cudarc::driver::result;
use entwine::{Tensor, World};
use entwine_kernels::probes::to_and_fro;

use crate::gpus::Gpus;
use crate::limit::median_and_spread;
use crate::timing::{Batch, Stopwatch};

/// What one copy moves: 256 MiB of `f32`.
const SHAPE: [usize; 2] = [1 << 13, 1 << 13];
const COPIES: usize = 8;
const REPEATS: usize = 5;
/// How often a word goes to and fro.
const TIMES: u32 = 2000;

/// GB/s that each GPU sends while it receives as much, by copies to the next one; none for one GPU.
///
/// # Errors
/// Memory ran out, or the driver failed.
pub fn gbps(world: &World, gpus: &Gpus, stopwatch: &Stopwatch<'_>) -> Result<Option<f64>> {
    let ranks = world.ranks();
    if ranks == 1 {
        return Ok(None);
    }
    let (from, into): (Tensor<f32>, Tensor<f32>) = (world.zeros(SHAPE)?, world.zeros(SHAPE)?);
    let bytes = SHAPE[0] * SHAPE[1] * size_of::<f32>();
    let copy = |rank: usize| -> Result<()> {
        let (from, into) = (from.raw(rank).address, into.raw((rank + 1) % ranks).address);
        gpus.make_current(rank)?;
        // SAFETY: both tensors have so many bytes, and live until the copies are done.
        Ok(unsafe { result::memcpy_dtod_async(into, from, bytes, gpus.streams[rank].cu_stream()) }?)
    };
    let mut copies: Batch<'_> = Box::new(|| {
        for _ in 0..COPIES {
            (0..ranks).try_for_each(copy)?;
        }
        Ok(Vec::new())
    });
    stopwatch.run(&mut copies)?;
    let times = (0..REPEATS).map(|_| stopwatch.time(&mut copies, 1)).collect::<Result<Vec<_>>>()?;
    let (median_us, _) = median_and_spread(&times);
    Ok(Some((COPIES * bytes) as f64 / median_us / 1e3))
}

/// µs that a word takes to rank 1 and back to rank 0, released and acquired, in a world of several GPUs.
///
/// # Errors
/// A launch failed.
pub fn round_trip_us(world: &World, gpus: &Gpus, stopwatch: &Stopwatch<'_>) -> Result<f64> {
    let kernel = to_and_fro::load(world)?;
    let mut word = world.zeros([1, 1])?;
    let mut times = Vec::new();
    for _ in 0..=REPEATS {
        word.fill(0)?;
        let mut args = Some(&mut word);
        let mut batch: Batch<'_> = Box::new(|| {
            let word = args.take().expect("the batch runs once");
            Ok(vec![kernel.launch_on(&gpus.streams, to_and_fro::Args { times: TIMES, word })?])
        });
        times.push(stopwatch.time(&mut batch, 1)? / f64::from(TIMES));
    }
    Ok(median_and_spread(&times[1..]).0)
}
