//! What happens to mistakes: one in a kernel's protocol, which doesn't compile, and one that shows in a running launch.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use entwine::device::bf16;
use entwine::{Injection, World};
use entwine_kernels::gemm_reduce_scatter;

/// A kernel that could wait for ever, and what the compiler says to it: a case of this project's tests.
const WRONG: &str = include_str!("../../../tests/compile-fail/cases/protocol/waits_before_it_sends.rs");
const COMPILER: &str = include_str!("../../../tests/compile-fail/cases/protocol/waits_before_it_sends.stderr");

fn main() -> Result<()> {
    println!("1. In this kernel a rank may wait for a tile before it has sent its own:\n\n{WRONG}");
    println!("It doesn't compile:\n\n{COMPILER}");

    println!("2. In this launch rank 1 stores a tile, and its signal is dropped on purpose:\n");
    let world = World::simulated(2)?;
    let kernel = gemm_reduce_scatter::load(&world)?.with_deadline(Duration::from_secs(1));
    let a = world.filled([512, 64], bf16::ONE)?;
    let b = world.filled([256, 64], bf16::ONE)?;
    let mut c = world.zeros_scattered([512, 256])?;
    kernel.inject(Injection::DropSignal { rank: 1, channel: "Partial", slot: &[1, 0, 0] })?;
    match kernel.launch(gemm_reduce_scatter::Args { a: &a, b: &b, c: &mut c })?.wait() {
        Err(report) => println!("error: {report}\n"),
        Ok(()) => bail!("the launch succeeded without the signal"),
    }

    println!("3. The same launch, with every signal; nothing had to be reset:\n");
    kernel.launch(gemm_reduce_scatter::Args { a: &a, b: &b, c: &mut c })?.wait()?;
    let sum = bf16::from_f32(2.0 * 64.0);
    ensure!(c.gather()?.iter().all(|&element| element == sum), "some element is not {sum}");
    println!("every element is {sum}, as it should be");
    Ok(())
}
