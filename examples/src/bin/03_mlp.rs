//! A two-layer MLP, tensor-parallel, as two fused kernels: Y = relu(X·W1ᵀ)²·W2ᵀ.
//!
//! Tokens (the rows of X and Y) are split over the ranks, and so are the hidden units between the layers. The first
//! kernel gathers the tokens while it multiplies, the second scatters the sums; no rank ever waits for a whole tensor.

use anyhow::Result;
use entwine::World;
use entwine::device::bf16;
use entwine_examples::matrices::{elements, error, random};
use entwine_examples::mlp::all_gather_gemm_relu2;
use entwine_kernels::gemm_reduce_scatter;
use ndarray::s;

fn main() -> Result<()> {
    let world = World::simulated(4)?;
    let ranks = world.ranks();
    let (tokens, width, hidden) = (600, 256, 1024);
    let units = hidden / ranks;

    let x = random([tokens, width], 1.0, 1);
    let w1 = random([hidden, width], 0.1, 2);
    let w2 = random([width, hidden], 0.1, 3);

    // Each rank has its tokens, and the weights of its hidden units: rows of W1, columns of W2.
    let of = |rank: usize| rank * units..(rank + 1) * units;
    let x_there = world.scatter([tokens, width], &elements(&x))?;
    let w1_there = world.scatter([hidden, width], &elements(&w1))?;
    let w2_there = world.per_rank(|rank| ([width, units], elements(&w2.slice(s![.., of(rank)]).to_owned())))?;
    let mut between = world.zeros::<bf16>([tokens, units])?;
    let mut y = world.zeros_scattered::<bf16>([tokens, width])?;

    let up = all_gather_gemm_relu2::load(&world)?;
    let down = gemm_reduce_scatter::load(&world)?;
    // The second launch follows the first on each rank by itself: a rank that is done goes on, whatever the others do.
    let first = up.launch(all_gather_gemm_relu2::Args { a: &x_there, b: &w1_there, c: &mut between })?;
    let second = down.launch(gemm_reduce_scatter::Args { a: &between, b: &w2_there, c: &mut y })?;
    first.wait()?;
    second.wait()?;

    let expected = x.dot(&w1.t()).mapv(|x| x.max(0.0).powi(2)).dot(&w2.t());
    let error = error(&y.gather()?, &expected)?;
    println!("{tokens} tokens, width {width}, {hidden} hidden units on {ranks} ranks");
    println!("right: largest error {:.2} % of the largest element", error * 100.0);
    Ok(())
}
