//! One step of decoding through a tensor-parallel MLP, Y = relu(X·W1ᵀ)²·W2ᵀ, for a few tokens that every rank has.
//!
//! So few rows are multiplied in the time that it takes to read the weights. Each rank reads its part of them once; the
//! second kernel sends its partial sums to all ranks as they are computed, and all end with the same bits.

use anyhow::{Result, ensure};
use entwine::World;
use entwine::device::bf16;
use entwine_examples::decode::gemv_relu2;
use entwine_examples::matrices::{elements, error, random};
use entwine_kernels::gemv_all_reduce;
use ndarray::s;

fn main() -> Result<()> {
    let world = World::simulated(4)?;
    let ranks = world.ranks();
    let (tokens, width, hidden) = (5, 256, 1024);
    let units = hidden / ranks;

    let x = random([tokens, width], 1.0, 1);
    let w1 = random([hidden, width], 0.1, 2);
    let w2 = random([width, hidden], 0.1, 3);
    let of = |rank: usize| rank * units..(rank + 1) * units;
    let x_there = world.replicate([tokens, width], &elements(&x))?;
    let w1_there = world.scatter([hidden, width], &elements(&w1))?;
    let w2_there = world.per_rank(|rank| ([width, units], elements(&w2.slice(s![.., of(rank)]).to_owned())))?;
    let mut between = world.zeros::<bf16>([tokens, units])?;
    let mut y = world.zeros::<bf16>([tokens, width])?;

    let up = gemv_relu2::load(&world)?;
    let down = gemv_all_reduce::load(&world)?;
    up.launch(gemv_relu2::Args { a: &x_there, b: &w1_there, c: &mut between })?.wait()?;
    down.launch(gemv_all_reduce::Args { a: &between, b: &w2_there, c: &mut y })?.wait()?;

    let expected = x.dot(&w1.t()).mapv(|x| x.max(0.0).powi(2)).dot(&w2.t());
    let first = y.to_vec(0)?;
    let error = error(&first, &expected)?;
    for rank in 1..ranks {
        ensure!(y.to_vec(rank)? == first, "rank {rank} has other bits than rank 0");
    }
    println!("{tokens} tokens, width {width}, {hidden} hidden units on {ranks} ranks");
    println!("right, with the same bits on every rank: largest error {:.2} % of the largest element", error * 100.0);
    Ok(())
}
