//! Recorded launches: nothing is missing from the record, causes come before effects, and results are right as ever.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, ensure};
use entwine::device::abi::{MAX_AXES, NONE};
use entwine::spec::{Extent, KernelSpec, StageSpec};
use entwine::{Event, EventKind, Kernel, KernelType, Recorder, Timeline};

use super::number::Number;
use super::product::{Problem, Product, Size};
use super::ranks::{Ranks, check_guards};
use crate::kernels::broadcast;

/// Launches with a record, without one and in a graph follow each other on the same tensors.
pub fn records<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let size = ranks.pick(Size { m: 300, n: 270, k: 40 }, Size { m: 1000, n: 600, k: 200 });
    let mut problem = Problem::<P, T>::random(&world, size, 7)?;
    for tile in Kernel::<P::Kernel>::load(&world)?.tiles() {
        let kernel = Kernel::load(&world)?.with_tile(tile)?;
        problem.poison()?;
        let timeline = kernel.record(problem.args())?;
        problem.check().context("a recorded launch")?;
        check(P::Kernel::SPEC, &timeline, ranks.count())?;
        let by_rank = |stage: &StageSpec| !stage.products.is_empty() && matches!(stage.grid[0], Extent::World);
        let split = if P::Kernel::SPEC.stages.iter().any(by_rank) { ranks.count() } else { 1 };
        let rows = split * size.m.div_ceil(split).div_ceil(tile.0 as usize);
        let products = rows * size.n.div_ceil(tile.1 as usize);
        for rank in 0..ranks.count() as u32 {
            for kind in [EventKind::Multiply, EventKind::Multiplied] {
                let found = timeline.events().iter().filter(|event| event.rank == rank && event.kind == kind).count();
                ensure!(found == products, "rank {rank}: {found} times {kind:?}, expected {products}");
            }
        }
        problem.poison()?;
        problem.run_and_check(&kernel).context("a launch after a recorded one")?;
        kernel.record(problem.args())?;
        problem.poison()?;
        kernel.graph(3, problem.args())?.launch()?.wait()?;
        problem.check().context("a graph after a recorded launch")?;
    }
    check_guards(&world)
}

/// Stages in several orders, that of arrival among them.
pub fn records_orders<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = broadcast::load(&world)?.with_tile((64, 64))?;
    let data: Vec<_> = (0..900 * 136).map(|index| T::from_f32((index % 97) as f32)).collect();
    let x = world.scatter([900, 136], &data)?;
    let [mut y, mut z] = [world.zeros([900, 136])?, world.zeros([900, 136])?];
    let timeline = kernel.record(broadcast::Args { x: &x, y: &mut y, z: &mut z })?;
    check(&broadcast::SPEC, &timeline, ranks.count())?;
    check_guards(&world)
}

/// What must hold of any record.
fn check(spec: &KernelSpec, timeline: &Timeline, ranks: usize) -> Result<()> {
    ensure!(timeline.dropped() == 0, "there was no room for {} events", timeline.dropped());
    for rank in 0..ranks as u32 {
        for stage in 0..spec.stages.len() as u32 {
            every_tile_once(timeline, rank, stage).with_context(|| format!("rank {rank}, stage {stage}"))?;
        }
    }
    let ends = |kind| timeline.events().iter().filter(|event| event.kind == kind).count();
    ensure!(ends(EventKind::Begin) <= ends(EventKind::End), "some tiles have no end");
    for row in timeline.events().chunk_by(|a, b| (a.rank, a.cta, a.recorder) == (b.rank, b.cta, b.recorder)) {
        ensure!(row.is_sorted_by_key(|event| event.at), "CTA {}: events go back in time", row[0].cta);
    }
    causes_come_first(timeline, ranks)
}

/// One role begins with each tile of the whole grid, and no other tile.
fn every_tile_once(timeline: &Timeline, rank: u32, stage: u32) -> Result<()> {
    let carries = |recorder| matches!(recorder, Recorder::Communication | Recorder::Mover | Recorder::Whole);
    let of_stage = timeline.events().iter().filter(|event| event.rank == rank && event.stage == stage);
    let begun = of_stage.filter(|event| event.kind == EventKind::Begin && carries(event.recorder));
    let tiles: Vec<_> = begun.map(|event| event.tile).collect();
    let distinct: HashSet<_> = tiles.iter().collect();
    ensure!(distinct.len() == tiles.len(), "a tile was begun twice");
    let extent = |axis: usize| {
        let coordinates = tiles.iter().map(|tile| tile[axis]).filter(|coordinate| *coordinate != NONE);
        coordinates.max().map_or(1, |last| last as usize + 1)
    };
    let grid: usize = (0..MAX_AXES).map(extent).product();
    ensure!(tiles.len() == grid, "{} tiles were begun of {grid}", tiles.len());
    Ok(())
}

/// Whatever was received had been sent, as far as the clocks can tell.
fn causes_come_first(timeline: &Timeline, ranks: usize) -> Result<()> {
    let received = |event: &&Event| event.kind == EventKind::Ready && event.channel != NONE;
    let arrows = timeline.arrows();
    let slot = |event: &Event| (event.rank, event.channel, event.slot, event.piece);
    let causes: HashMap<_, _> = arrows.iter().map(|(send, ready)| (slot(ready), send)).collect();
    for ready in timeline.events().iter().filter(received) {
        let send = causes.get(&slot(ready)).with_context(|| format!("nothing was sent for {ready:?}"))?;
        let apart = [send.rank, ready.rank].map(|rank| timeline.clocks()[rank as usize].uncertainty_ns);
        if let [Some(one), Some(other)] = apart {
            ensure!(ready.at + one + other >= send.at, "{ready:?} was received before {send:?}");
        }
    }
    // Signals go both ways between all ranks where there are any.
    if ranks > 1 && !arrows.is_empty() {
        for clock in timeline.clocks() {
            ensure!(clock.uncertainty_ns.is_some_and(|apart| apart < 100_000), "a clock is not aligned: {clock:?}");
        }
    }
    Ok(())
}
