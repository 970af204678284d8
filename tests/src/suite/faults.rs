//! Launches that must be given up: the error names what was wrong, and the next launch is right.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use entwine::device::abi::FaultKind;
use entwine::device::bf16;
use entwine::{Error, Fault, Injection, Kernel, KernelType, Launch, World};
use entwine_kernels::gemm;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::number::random;
use super::product::{AllGather, AllReduce, Alone, Problem, Product, ReduceScatter, Size};
use super::ranks::{Ranks, check_guards};
use crate::kernels::faulty;

const SIZE: Size = Size { m: 700, n: 300, k: 200 };
const DEADLINE: Duration = Duration::from_secs(2);

/// The fault that a launch is given up with.
fn fault(launch: Launch) -> Result<Fault> {
    match launch.wait() {
        Err(Error::Fault(fault)) => Ok((*fault).clone()),
        Err(error) => Err(error.into()),
        Ok(()) => bail!("the launch succeeded"),
    }
}

/// Case 15: of a signal that rank 1 drops, the receiver says everything, before long; the next launch, the world's
/// other kernels and other worlds go on.
fn missing_signal<P: Product>(
    ranks: &Ranks,
    channel: &'static str,
    slot: &'static [u32],
    piece: Option<u32>,
    stage: &str,
    tile: impl Fn(&Fault) -> Vec<u32>,
) -> Result<()> {
    let (world, other_world) = (ranks.world()?, ranks.own_world()?);
    let kernel = Kernel::load(&world)?.with_deadline(DEADLINE);
    let random = |world: &World, seed| Problem::<P, bf16>::random(world, SIZE, seed);
    random(&world, 0)?.run_and_check(&kernel)?;

    kernel.inject(Injection::DropSignal { rank: 1, channel, slot })?;
    let mut problem = random(&world, 1)?;
    let begun = Instant::now();
    let fault = fault(kernel.launch(problem.args())?)?;
    ensure!(begun.elapsed() < 2 * DEADLINE, "it took {:?} until the fault was reported", begun.elapsed());
    let expected = Fault {
        kind: FaultKind::MissingSignal,
        kernel: P::name(),
        rank: fault.rank,
        stage: P::Kernel::SPEC.stages.iter().map(|spec| spec.name).find(|name| *name == stage),
        tile: tile(&fault),
        channel: Some(channel),
        slot: slot.to_vec(),
        piece,
        peer: Some(1),
        expected: 2,
        seen: 1,
        argument: None,
        word: Vec::new(),
        compared: None,
        location: None,
        message: None,
    };
    ensure!(fault.rank != 1 && fault == expected, "found {fault:?}\nexpected {expected:?}");

    random(&world, 2)?.run_and_check(&kernel)?;
    Problem::<Alone, bf16>::random(&world, SIZE, 3)?.run_and_check(&gemm::load(&world)?)?;
    random(&other_world, 4)?.run_and_check(&Kernel::load(&other_world)?)?;
    check_guards(&world)
}

/// Case 15, for a tile that is added up where it arrives.
pub fn missing_partial_tile(ranks: &Ranks) -> Result<()> {
    missing_signal::<ReduceScatter>(ranks, "Partial", &[1, 0, 1], None, "multiply", |fault| vec![fault.rank, 0, 1])
}

/// Case 15, for a tile that goes to every rank.
pub fn missing_sum(ranks: &Ranks) -> Result<()> {
    missing_signal::<AllReduce>(ranks, "Reduced", &[1, 0, 1], None, "collect", |_| vec![1, 0, 1])
}

/// Case 15, for a panel that goes to every rank, where all of a row's tiles wait for it.
pub fn missing_panel(ranks: &Ranks) -> Result<()> {
    missing_signal::<AllGather>(ranks, "Gathered", &[1, 0], Some(0), "multiply", |fault| {
        [1, 0].into_iter().chain(fault.tile.iter().copied().skip(2)).collect()
    })
}

/// Has the last rank take a factor, and shift its slots, as told, which must be reported as `check` says. The next
/// launch is right.
fn misdeed(ranks: &Ranks, factor: u32, shift: u32, check: impl Fn(&Fault) -> bool) -> Result<()> {
    let world = ranks.world()?;
    let kernel = faulty::load(&world)?.with_deadline(DEADLINE);
    let [m, n] = [300, 200];
    let culprit = ranks.count() as u32 - 1;
    let data: Vec<Vec<bf16>> =
        (0..ranks.count()).map(|rank| random(&mut SmallRng::seed_from_u64(rank as u64), m * n)).collect();
    let x = world.per_rank(|rank| ([m, n], data[rank].clone()))?;
    let mut y = world.zeros([m, n])?;
    for _ in 0..2 {
        let fault = fault(kernel.launch(faulty::Args { culprit, factor, shift, x: &x, y: &mut y })?)?;
        let named = fault.rank == culprit && fault.kernel == "faulty" && fault.stage == Some("scale");
        ensure!(named && check(&fault), "found {fault:?}");
        kernel.launch(faulty::Args { culprit, factor: 0, shift: 0, x: &x, y: &mut y })?.wait()?;
        for rank in 0..ranks.count() {
            let previous = (rank + ranks.count() - 1) % ranks.count();
            ensure!(y.to_vec(rank)? == data[previous], "the launch after the fault is wrong on rank {rank}");
        }
    }
    check_guards(&world)
}

/// Case 16: an index out of bounds names the rank, the stage and the line, and no rank hangs.
pub fn index_out_of_bounds(ranks: &Ranks) -> Result<()> {
    misdeed(ranks, 7, 0, |fault| {
        let in_file = |(file, line): &(String, u32)| file.ends_with("failures.rs") && *line > 0;
        fault.kind == FaultKind::Panic && fault.location.as_ref().is_some_and(in_file)
    })
}

/// Case 17, as far as it shows at run time only: a slot that is not there is named, and nothing is written.
pub fn slot_out_of_range(ranks: &Ranks) -> Result<()> {
    misdeed(ranks, 0, 3, |fault| {
        fault.kind == FaultKind::SlotOutOfRange
            && fault.channel == Some("Scaled")
            && fault.slot.first() == Some(&fault.rank)
            && fault.slot.get(1).is_some_and(|row| *row >= 3)
    })
}
