//! What only GPUs show: processes and worlds that share them.

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use entwine::device::bf16;
use entwine::{Error, Kernel, World};

use super::product::{AllReduce, Problem, ReduceScatter, Size};
use super::ranks::Ranks;

const SIZE: Size = Size { m: 600, n: 520, k: 128 };

/// Case 10: with `CUDA_LAUNCH_BLOCKING=1` several ranks are refused, with the reason. It takes a process of its own.
pub fn launch_blocking(ranks: Ranks) -> Result<()> {
    let program = env::current_exe().context("where is this program?")?;
    let ranks = ranks.count().to_string();
    let output = Command::new(program)
        .args(["refusals::settings", "--ranks", &ranks])
        .env("CUDA_LAUNCH_BLOCKING", "1")
        .output()
        .context("couldn't start this program again")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success(), "not refused:\n{text}");
    ensure!(text.contains("unset it to run"), "refused for another reason:\n{text}");
    Ok(())
}

/// Case 8: where another kernel holds every SM, the launch is given up with the reason; both kernels are right again.
pub fn occupied(ranks: Ranks) -> Result<()> {
    let (world, other) = (ranks.builder().start_limit(Duration::from_secs(1)).build()?, ranks.world()?);
    let (kernel, occupying) = (Kernel::load(&world)?, Kernel::load(&other)?);
    let mut problem = Problem::<ReduceScatter, bf16>::random(&world, SIZE, 8)?;
    problem.run_and_check(&kernel)?;

    let mut occupant = Problem::<AllReduce, bf16>::random(&other, SIZE, 8)?;
    other.delay(1, Duration::from_secs(3))?;
    let occupied = occupant.launch(&occupying)?;
    match problem.launch(&kernel)?.wait() {
        Err(Error::NotStarted { rank: 0, .. }) => {}
        Err(error) => return Err(error).context("expected that rank 0 could not start"),
        Ok(()) => bail!("the launch succeeded on occupied GPUs"),
    }
    occupied.wait()?;
    occupant.check()?;
    problem.run_and_check(&kernel)
}

/// Worlds that can't be opened say which GPU is wrong.
pub fn worlds(_: Ranks) -> Result<()> {
    let refused = |ordinals: &[usize], words: &str| match World::gpus(ordinals) {
        Ok(_) => bail!("a world of GPUs {ordinals:?} was opened"),
        Err(error) => {
            ensure!(error.to_string().contains(words), "the error lacks `{words}`: {error}");
            Ok(())
        }
    };
    refused(&[0, 0], "GPU 0 is named twice")?;
    refused(&[99], "there is no GPU 99")
}
