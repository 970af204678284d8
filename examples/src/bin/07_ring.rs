//! A ring reduction that is written by hand, with one-sided operations: stores into the next rank's memory, words that say what
//! has arrived, and waits for them. The library's channels would give the signals and the waits by themselves.

use anyhow::{Result, ensure};
use entwine::World;
use entwine_examples::ring::ring_all_reduce;

fn main() -> Result<()> {
    let world = World::simulated(4)?;
    let ranks = world.ranks();
    let shape = [200, 1000];
    let count = shape[0] * shape[1];
    let element = |rank: usize, index: usize| ((index * 7 + index / 11 + rank * 5) % 23) as f32;

    let mut x = world.per_rank(|rank| (shape, (0..count).map(|index| element(rank, index)).collect()))?;
    let mut inbox = world.zeros::<f32>(shape)?;
    let mut y = world.zeros::<f32>(shape)?;
    // A row for each tile of a part, however small tiles are.
    let mut arrived = world.zeros([shape[0].div_ceil(64) * shape[1].div_ceil(ranks).div_ceil(64), ranks])?;

    let kernel = ring_all_reduce::load(&world)?;
    for launch in 1..=3 {
        let args = ring_all_reduce::Args { launch, x: &mut x, inbox: &mut inbox, arrived: &mut arrived, y: &mut y };
        kernel.launch(args)?.wait()?;
    }
    for rank in 0..ranks {
        for (index, found) in y.to_vec(rank)?.into_iter().enumerate() {
            let expected = (0..ranks).map(|rank| element(rank, index)).sum::<f32>();
            ensure!(found == expected, "element {index} on rank {rank} is {found}, not {expected}");
        }
    }
    println!("{} × {} elements summed around a ring of {ranks} ranks, three times", shape[0], shape[1]);
    println!("right on every rank");
    Ok(())
}
