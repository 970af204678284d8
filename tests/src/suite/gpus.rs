//! What only GPUs show: processes and worlds that share them.

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use entwine::device::bf16;
use entwine::spec::Target;
use entwine::{Error, Kernel, Launch, Origin, Tensor, World};

use super::product::{AllGather, AllReduce, Problem, ReduceScatter, Size};
use super::ranks::{Ranks, check_guards};

const SIZE: Size = Size { m: 600, n: 520, k: 128 };

/// Case 10: with `CUDA_LAUNCH_BLOCKING=1` several ranks are refused, with the reason. It takes a process of its own.
pub fn launch_blocking(ranks: &Ranks) -> Result<()> {
    let program = env::current_exe().context("where is this program?")?;
    let count = ranks.count().to_string();
    let output = Command::new(program)
        .args(["refusals::settings", "--ranks", &count])
        .args(ranks.share().then_some("--share"))
        .env("CUDA_LAUNCH_BLOCKING", "1")
        .output()
        .context("couldn't start this program again")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success(), "not refused:\n{text}");
    ensure!(text.contains("unset it to run"), "refused for another reason:\n{text}");
    Ok(())
}

/// Case 8: where another kernel holds every SM, the launch is given up with the reason; both kernels are right again.
pub fn occupied(ranks: &Ranks) -> Result<()> {
    let (world, other) = (ranks.builder().start_limit(Duration::from_secs(1)).build()?, ranks.world()?);
    let (kernel, occupying) = (Kernel::load(&world)?, Kernel::load(&other)?.with_tile((128, 128))?);
    let mut problem = Problem::<ReduceScatter, bf16>::random(&world, SIZE, 8)?;
    problem.run_and_check(&kernel)?;

    // Every CTA of a rank has one of its own 144 tiles, for which it waits for the rank that is late.
    let size = Size { m: 12 * 128 * ranks.count(), n: 12 * 128, k: 32 };
    let mut occupant = Problem::<AllReduce, bf16>::random(&other, size, 8)?;
    other.delay(1, Duration::from_secs(3))?;
    let occupied = occupying.launch(occupant.args())?;
    match kernel.launch(problem.args())?.wait() {
        Err(Error::NotStarted { rank: 0, .. }) => {}
        Err(error) => return Err(error).context("expected that rank 0 could not start"),
        Ok(()) => bail!("the launch succeeded on occupied GPUs"),
    }
    occupied.wait()?;
    occupant.check()?;
    problem.run_and_check(&kernel)
}

/// Case 5: launches on streams of the user's own, of two kernels in turn.
pub fn own_streams(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let contexts = (0..ranks.count()).map(|rank| world.cuda_context(rank).context("the rank is no GPU"));
    let contexts = contexts.collect::<Result<Vec<_>>>()?;
    let streams = || contexts.iter().map(|context| context.new_stream()).collect::<Result<Vec<_>, _>>();
    let (scatter, reduce) = (Kernel::load(&world)?, Kernel::load(&world)?);
    let (some, others) = (streams()?, streams()?);
    let mut scattered = Problem::<ReduceScatter, bf16>::random(&world, SIZE, 1)?;
    let mut reduced = Problem::<AllReduce, bf16>::random(&world, SIZE, 2)?;
    let mut launches = Vec::new();
    for _ in 0..20 {
        launches.push(scatter.launch_on(&some, scattered.args())?);
        launches.push(reduce.launch_on(&others, reduced.args())?);
    }
    launches.into_iter().try_for_each(Launch::wait)?;
    scattered.check()?;
    reduced.check()
}

/// What was tuned is what launches take from then on, in this world and in later ones that know the file.
pub fn tunes(ranks: &Ranks) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tuning.json");
    let world = ranks.builder().tuning(&file).build()?;
    let kernel = Kernel::load(&world)?;
    let size = Size { m: 512, n: 2048, k: 1024 };
    let mut problem = Problem::<ReduceScatter, bf16>::random(&world, size, 1)?;
    let tuned = kernel.tune(problem.args())?;
    println!("{tuned}");
    let chosen = tuned.measured[0].0.clone();
    ensure!(tuned.measured.len() > 8, "too little was measured:\n{tuned}");
    problem.poison()?;
    problem.run_and_check(&kernel)?;

    let later = ranks.builder().tuning(&file).build()?;
    for world in [world, later] {
        let mut problem = Problem::<ReduceScatter, bf16>::random(&world, size, 2)?;
        let plan = Kernel::load(&world)?.plan(&problem.args())?;
        ensure!(matches!(plan.origin, Origin::Tuned { .. }) && plan.choice == chosen, "not what was tuned:\n{plan}");
    }
    Ok(())
}

/// Case 18: memory on another GPU than the rank's, which only one that has neighbours can be given.
pub fn memory_of_another_gpu(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let tensor = world.zeros::<bf16>([128, 64])?;
    let raws: Vec<_> = (0..ranks.count()).map(|rank| tensor.raw((rank + 1) % ranks.count())).collect();
    // SAFETY: the tensor outlives the refusal.
    match unsafe { Tensor::<bf16>::from_raw(&world, &raws) } {
        Ok(_) => bail!("memory of another GPU was taken"),
        Err(error) => ensure!(error.to_string().contains("must lie on GPU 0"), "the error lacks the GPU: {error}"),
    }
    Ok(())
}

/// Code for every GPU from Ampere on, where other code would suit the GPUs better.
pub fn code_for_ampere(ranks: &Ranks) -> Result<()> {
    let world = ranks.builder().target(Target::Sm80).build()?;
    Problem::<AllGather, bf16>::random(&world, SIZE, 1)?.run_and_check(&Kernel::load(&world)?)?;
    Problem::<ReduceScatter, bf16>::random(&world, SIZE, 2)?.run_and_check(&Kernel::load(&world)?)?;
    Problem::<AllReduce, bf16>::random(&world, SIZE, 3)?.run_and_check(&Kernel::load(&world)?)?;
    check_guards(&world)
}

/// Ranks that share a GPU, since they are told to.
pub fn shared(ranks: &Ranks) -> Result<()> {
    for count in [2, 3] {
        let world = ranks.builder().gpus(&vec![0; count]).share_gpus().build()?;
        ensure!(world.ranks() == count, "{} ranks in place of {count}", world.ranks());
        Problem::<ReduceScatter, bf16>::random(&world, SIZE, 1)?.run_and_check(&Kernel::load(&world)?)?;
        check_guards(&world)?;
    }
    Ok(())
}

/// Worlds that can't be opened say which GPU is wrong.
pub fn worlds(_: &Ranks) -> Result<()> {
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
