//! Launch after launch with the same signals and slots: nothing is reset, and nothing mixed up.

use anyhow::{Context, Result};
use entwine::spec::Carriage;
use entwine::{Choice, Kernel, KernelType, Launch, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::number::Number;
use super::product::{AllGather, AllReduce, Problem, Product, ReduceScatter, Size};
use super::ranks::{Ranks, check_guards};

/// Launches that are made without a pause. What the host does to a tensor would wait for them.
const IN_A_ROW: usize = 10;

/// Cases 1 and 3: many launches back to back, whose inputs and shapes change from each to the next.
pub fn back_to_back<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let mut generator = SmallRng::seed_from_u64(3);
    for row in 0..ranks.pick(3, 100) {
        let problems = (0..IN_A_ROW).map(|_| {
            let [m, n, k] = [300, 300, 70].map(|most| generator.random_range(1..=most));
            Problem::<P, T>::random(&world, Size { m, n, k }, generator.random())
        });
        let mut problems = problems.collect::<Result<Vec<_>>>()?;
        let launches = problems.iter_mut().map(|problem| kernel.launch(problem.args()));
        let launches = launches.collect::<Result<Vec<_>, _>>()?;
        for (index, (launch, problem)) in launches.into_iter().zip(&problems).enumerate() {
            launch.wait()?;
            problem.check().with_context(|| format!("launch {}", row * IN_A_ROW + index))?;
        }
    }
    check_guards(&world)
}

/// Cases 3 and 4: two shapes in turn, while the epochs pass from the positive to the negative numbers, or wrap.
pub fn epochs_wrap<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    for first_epoch in [(1 << 31) - 2, u32::MAX - 1] {
        let world = ranks.builder().first_epoch(first_epoch).build()?;
        let kernel = Kernel::load(&world)?;
        for round in 0..8 {
            let m = if round % 2 == 0 { 200 } else { 70 };
            let mut problem = Problem::<P, T>::random(&world, Size { m, n: 130, k: 40 }, round)?;
            problem.run_and_check(&kernel).with_context(|| format!("{round} launches from epoch {first_epoch}"))?;
        }
    }
    Ok(())
}

/// Case 5: kernels of one world in turn, all in flight at once.
pub fn kernels_alternate<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let (scatter, reduce) = (Kernel::load(&world)?, Kernel::load(&world)?);
    let gather = Kernel::load(&world)?;
    let size = Size { m: 300, n: 270, k: 50 };
    for seed in 0..ranks.pick(1, 8) {
        let mut scattered = problems::<ReduceScatter, T>(&world, size, seed)?;
        let mut gathered = problems::<AllGather, T>(&world, size, seed)?;
        let mut reduced = problems::<AllReduce, T>(&world, size, seed)?;
        let mut launches = Vec::new();
        for ((scattered, gathered), reduced) in scattered.iter_mut().zip(&mut gathered).zip(&mut reduced) {
            launches.push(scatter.launch(scattered.args())?);
            launches.push(gather.launch(gathered.args())?);
            launches.push(reduce.launch(reduced.args())?);
        }
        launches.into_iter().try_for_each(Launch::wait)?;
        scattered.iter().try_for_each(Problem::check)?;
        gathered.iter().try_for_each(Problem::check)?;
        reduced.iter().try_for_each(Problem::check)?;
    }
    check_guards(&world)
}

fn problems<P: Product, T: Number>(world: &World, size: Size, seed: u64) -> Result<Vec<Problem<P, T>>> {
    (0..4).map(|index| Problem::random(world, size, 4 * seed + index)).collect()
}

/// Case 6: graphs of two shapes on one kernel, replayed in turn.
pub fn graphs_alternate<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let mut large = Problem::<P, T>::random(&world, Size { m: 300, n: 270, k: 50 }, 1)?;
    let mut small = Problem::<P, T>::random(&world, Size { m: 90, n: 140, k: 24 }, 2)?;
    let graphs = [kernel.graph(3, large.args())?, kernel.graph(2, small.args())?];
    let replays = graphs.iter().cycle().take(ranks.pick(6, 100));
    let launches = replays.map(|graph| graph.launch()).collect::<Result<Vec<_>, _>>()?;
    launches.into_iter().try_for_each(Launch::wait)?;
    drop(graphs);
    large.check()?;
    small.check()?;
    check_guards(&world)
}

/// Case 7: larger tiles, then smaller ones, of which there are more, and so on in turn.
pub fn tiles_alternate<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel = Kernel::load(&world)?;
    let tiles = kernel.tiles();
    for (round, tile) in tiles.iter().cycle().take(3 * tiles.len()).enumerate() {
        kernel = kernel.with_tile(*tile)?;
        let mut problem = Problem::<P, T>::random(&world, Size { m: 300, n: 600, k: 40 }, round as u64)?;
        problem.run_and_check(&kernel)?;
        check_guards(&world)?;
    }
    Ok(())
}

/// Pushed and pulled tiles, spans of columns, limits of the link and stages that are fused or not, in turn on one kernel and
/// all in flight at once.
pub fn choices_alternate<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let mut kernel: Kernel<P::Kernel> = Kernel::load(&world)?;
    let tile = kernel.tiles().into_iter().find(|tile| *tile == (128, 128)).unwrap_or(kernel.tiles()[0]);
    let size = Size { m: 300, n: 600, k: 40 };
    let problems = (0..ranks.pick(4, 40)).map(|seed| Problem::<P, T>::random(&world, size, seed));
    let mut problems = problems.collect::<Result<Vec<_>>>()?;
    let mut launches = Vec::new();
    for (round, problem) in (0u32..).zip(&mut problems) {
        let carriage = if round / 2 % 2 == 0 { Carriage::Push } else { Carriage::Pull };
        let channels = P::Kernel::SPEC.channels.iter();
        kernel = kernel.with_choice(&Choice {
            tile,
            carriages: channels.map(|channel| channel.carriage.unwrap_or(carriage)).collect(),
            link_limit: round % 2 * 8,
            span: round % 3,
            fused: round % 4 < 2,
        })?;
        launches.push(kernel.launch(problem.args())?);
    }
    launches.into_iter().try_for_each(Launch::wait)?;
    problems.iter().try_for_each(Problem::check)?;
    check_guards(&world)
}

/// One CTA at a time on the link is slow, and neither wrong nor stuck.
pub fn limited_link<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?.with_link_limit(1);
    for round in 0..4 {
        Problem::<P, T>::random(&world, Size { m: 700, n: 520, k: 40 }, round)?.run_and_check(&kernel)?;
    }
    Ok(())
}
