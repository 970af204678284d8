//! Launch after launch with the same signals and slots: nothing is reset, and nothing mixed up.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use entwine::{Kernel, Launch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::number::Number;
use super::product::{AllGather, AllReduce, Problem, Product, ReduceScatter, Size, TILES};
use super::ranks::{Ranks, check_guards};

/// Launches that may be in flight at once.
const IN_FLIGHT: usize = 6;

/// Cases 1 and 3: many launches without a pause, whose inputs and shapes change from each to the next.
pub fn back_to_back<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let mut generator = SmallRng::seed_from_u64(3);
    let mut in_flight = VecDeque::new();
    for round in 0..ranks.pick(24, 1000) {
        let [m, n, k] = [300, 300, 70].map(|most| generator.random_range(1..=most));
        let mut problem = Problem::<P, T>::random(&world, Size { m, n, k }, round)?;
        in_flight.push_back((kernel.launch(problem.args())?, problem));
        if in_flight.len() == IN_FLIGHT {
            check_oldest(&mut in_flight).with_context(|| format!("round {round}"))?;
        }
    }
    while !in_flight.is_empty() {
        check_oldest(&mut in_flight)?;
    }
    check_guards(&world)
}

fn check_oldest<P: Product, T: Number>(in_flight: &mut VecDeque<(Launch, Problem<P, T>)>) -> Result<()> {
    let Some((launch, problem)) = in_flight.pop_front() else { return Ok(()) };
    launch.wait()?;
    problem.check()
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
    let mut launches = Vec::new();
    for round in 0..ranks.pick(3, 50) {
        let mut scattered = Problem::<ReduceScatter, T>::random(&world, size, round)?;
        let mut gathered = Problem::<AllGather, T>::random(&world, size, round)?;
        let mut reduced = Problem::<AllReduce, T>::random(&world, size, round)?;
        let started =
            [scatter.launch(scattered.args())?, gather.launch(gathered.args())?, reduce.launch(reduced.args())?];
        launches.push((started, scattered, gathered, reduced));
    }
    for (started, scattered, gathered, reduced) in launches {
        started.into_iter().try_for_each(Launch::wait)?;
        scattered.check()?;
        gathered.check()?;
        reduced.check()?;
    }
    check_guards(&world)
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
    for round in 0..6 {
        kernel = kernel.with_tile(TILES[round % TILES.len()])?;
        let mut problem = Problem::<P, T>::random(&world, Size { m: 300, n: 600, k: 40 }, round as u64)?;
        problem.run_and_check(&kernel)?;
        check_guards(&world)?;
    }
    Ok(())
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
