//! A fused kernel from its source (`src/first_kernel.rs`) to its result, on four simulated ranks.

use anyhow::Result;
use entwine::World;
use entwine::device::bf16;
use entwine_examples::first_kernel::gemm_all_to_all;
use entwine_examples::matrices;
use ndarray::s;

fn main() -> Result<()> {
    // Ranks are threads of this process here. `World::open()?` takes the GPUs of this machine, and nothing else changes.
    let world = World::simulated(4)?;
    let (m, n, k) = (500, 512, 128);

    // A typed tensor lies in the memory of every rank: A split by rows, B whole on each.
    let (a, b) = (matrices::random([m, k], 1.0, 1), matrices::random([n, k], 1.0, 2));
    let a_there = world.scatter([m, k], &matrices::elements(&a))?;
    let b_there = world.replicate([n, k], &matrices::elements(&b))?;
    let mut c = world.zeros::<bf16>([m, n / world.ranks()])?;

    // `Args` was generated from the tile functions' parameters. A wrong shape would be refused here, by name.
    let kernel = gemm_all_to_all::load(&world)?;
    kernel.launch(gemm_all_to_all::Args { a: &a_there, b: &b_there, c: &mut c })?.wait()?;

    let expected = a.dot(&b.t());
    for rank in 0..world.ranks() {
        let [_, columns] = c.shape(rank);
        let part = expected.slice(s![.., rank * columns..(rank + 1) * columns]).to_owned();
        let error = matrices::error(&c.to_vec(rank)?, &part)?;
        println!("rank {rank}: {m} rows, {columns} columns, largest error {:.2} %", error * 100.0);
    }

    // Who sends what to whom, as the macro understood it.
    println!("\n{}", gemm_all_to_all::protocol());
    Ok(())
}
