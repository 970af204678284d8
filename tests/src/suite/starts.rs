//! Ranks that start at different times, and what the host may do meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use entwine::Kernel;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::number::Number;
use super::product::{Problem, Product, Size};
use super::ranks::Ranks;

const SIZE: Size = Size { m: 300, n: 260, k: 64 };

/// Cases 9 and 12: a rank that starts later than the deadline, be it in the first launch of all, holds the others up
/// and no more: the deadline runs from the last rank's start.
pub fn later_than_the_deadline<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let deadline = Duration::from_millis(400);
    let delay = deadline + deadline / 4;
    for late in [0, ranks.count() - 1] {
        let world = ranks.own_world()?;
        let kernel = Kernel::load(&world)?.with_deadline(deadline);
        let mut problem = Problem::<P, T>::random(&world, SIZE, 12)?;
        world.delay(late, delay)?;
        let begun = Instant::now();
        problem.run_and_check(&kernel)?;
        ensure!(begun.elapsed() >= delay, "rank {late} was not late");
    }
    Ok(())
}

/// Case 14: in several launches in a row, whichever rank is late, none ends before what it needs has arrived.
pub fn late_in_turn<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let mut generator = SmallRng::seed_from_u64(14);
    for late in 0..ranks.count() {
        // All of them first: what the host does to a tensor waits for the launches in flight.
        let problems = (0..4).map(|round| Problem::<P, T>::random(&world, SIZE, round));
        let mut problems = problems.collect::<Result<Vec<_>>>()?;
        let launches = problems.iter_mut().map(|problem| {
            world.delay(late, Duration::from_millis(generator.random_range(1..20)))?;
            kernel.launch(problem.args())
        });
        let launches = launches.collect::<Result<Vec<_>, _>>()?;
        for (launch, problem) in launches.into_iter().zip(&problems) {
            launch.wait()?;
            problem.check()?;
        }
        world.delay(late, Duration::ZERO)?;
    }
    Ok(())
}

/// Case 11: allocating and freeing while launches run neither hangs nor disturbs them.
pub fn allocations_meanwhile<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    for round in 0..4 {
        let mut problem = Problem::<P, T>::random(&world, SIZE, round)?;
        world.delay(0, Duration::from_millis(20))?;
        let launch = kernel.launch(problem.args())?;
        let other = world.zeros::<T>([1000, 1000])?;
        drop(other);
        launch.wait()?;
        problem.check()?;
    }
    Ok(())
}

/// The launch, the kernel, the tensors and the world may be dropped in any order while the kernel runs.
pub fn dropped_meanwhile<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    for order in 0..4 {
        let world = ranks.own_world()?;
        let kernel = Kernel::load(&world)?;
        let mut problem = Problem::<P, T>::random(&world, SIZE, order)?;
        let launch = kernel.launch(problem.args())?;
        match order {
            0 => drop((problem, launch, kernel, world)),
            1 => drop((world, kernel, problem, launch)),
            2 => drop((launch, world, problem, kernel)),
            _ => {
                drop((kernel, problem, world));
                launch.wait()?;
            }
        }
    }
    Ok(())
}
