//! What does not fit together: each time the matrix is named with what it has and what is needed of it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use entwine::device::abi::FaultKind;
use entwine::device::{Element, bf16};
use entwine::spec::Carriage;
use entwine::{Error, Fault, Launch, World};
use entwine_kernels::embedding_all_to_all;

use super::ranks::{Ranks, check_guards};
use crate::kernels::{biased_together, miscounted, misled, narrowed, overfilled, resent, routed, spilled};

const DEADLINE: Duration = Duration::from_millis(500);

/// The fault that a launch is given up with, which must be of this kind and say all of these.
fn fault(launch: Launch, kind: FaultKind, words: &[&str]) -> Result<Fault> {
    match launch.wait() {
        Err(Error::Fault(fault)) => {
            let text = fault.to_string();
            ensure!(fault.kind == kind && words.iter().all(|word| text.contains(word)), "not {words:?}: {text}");
            Ok((*fault).clone())
        }
        Err(error) => Err(error.into()),
        Ok(()) => bail!("the launch succeeded, where {words:?} was expected"),
    }
}

/// The sizes of what goes by a routing.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: usize,
    loads: usize,
    x: usize,
    columns: usize,
    to: [usize; 2],
    summed: usize,
    gates: usize,
    stray: u32,
    astray: u32,
    beyond: u32,
}

/// Launches it once, each row choosing the first group and the third.
fn launch(world: &World, sizes: Sizes) -> Result<Launch> {
    let kernel = routed::load(world)?.with_deadline(DEADLINE);
    let choices: Vec<_> = [0u32, 2].repeat(sizes.rows);
    let nan = bf16::from_f32(f32::NAN);
    Ok(kernel.launch(routed::Args {
        choices: &world.scatter([sizes.rows, 2], &choices)?,
        weights: &world.scatter([sizes.rows, 2], &vec![0.5; 2 * sizes.rows])?,
        loads: &mut world.zeros([1, sizes.loads])?,
        stray: sizes.stray,
        x: &world.scatter([sizes.x, sizes.columns], &vec![bf16::ONE; sizes.x * sizes.columns])?,
        rows: &mut world.filled(sizes.to, nan)?,
        beyond: sizes.beyond,
        copied: &mut world.filled(sizes.to, nan)?,
        astray: sizes.astray,
        summed: &world.filled([sizes.summed, sizes.columns], bf16::ONE)?,
        y: &mut world.zeros_scattered([sizes.rows, sizes.columns])?,
        _gates: &world.zeros([1, sizes.gates])?,
    })?)
}

/// Case 20: whatever is not as large as a routing says is named before anything is read or written beyond it.
pub fn routed_matrices(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let right = Sizes {
        rows: 60,
        loads: 4,
        x: 60,
        columns: 40,
        to: [256, 40],
        summed: 256,
        gates: 4,
        stray: 0,
        astray: 0,
        beyond: 0,
    };
    launch(&world, right)?.wait()?;
    let there = ranks.count() as u32;
    let misfit = FaultKind::Misfit;
    let cases = [
        (Sizes { loads: 3, ..right }, "at least 4 columns in the matrix of loads", "loads", "3"),
        (Sizes { loads: 0, ..right }, "at least 4 columns in the matrix of loads", "loads", "0"),
        (Sizes { to: [255, 40], ..right }, "at least 256 rows in the matrix that rows are scattered to", "rows", "255"),
        (Sizes { to: [256, 39], ..right }, "40 columns in the matrix that rows are scattered to", "rows", "39"),
        (Sizes { to: [256, 48], ..right }, "40 columns in the matrix that rows are scattered to", "rows", "48"),
        (Sizes { summed: 255, ..right }, "at least 256 rows in the matrix that is summed", "summed", "255"),
        (Sizes { summed: 0, ..right }, "at least 256 rows in the matrix that is summed", "summed", "0"),
    ];
    for (sizes, needed, argument, found) in cases {
        let text = format!("routing `Experts` needs {needed}");
        let fault = fault(launch(&world, sizes)?, misfit, &[&text, &format!("has {found}")])?;
        let named = if ranks.pick(argument, "it") == "it" { "it".into() } else { format!("`{argument}`") };
        ensure!(fault.to_string().ends_with(&format!("; {named} has {found}")), "{fault}");
        check_guards(&world)?;
    }
    // The last row chooses groups, and there is none of x.
    let short = launch(&world, Sizes { x: 59, ..right })?;
    let of_last = fault(short, misfit, &["rows in the matrix whose rows are scattered"])?;
    ensure!(of_last.argument == ranks.pick(Some("x"), None), "{of_last}");
    let few = "needs at least 4 slots in the gates that count scattered rows; it has 3";
    fault(launch(&world, Sizes { gates: 3, ..right })?, misfit, &[few])?;
    let stray = launch(&world, Sizes { astray: there, ..right })?;
    let stray = fault(stray, FaultKind::OutOfRange, &["the memory of rank", "does not exist"])?;
    ensure!(stray.peer >= Some(there), "{stray}");
    if ranks.pick(true, false) {
        let beyond = ["at tests/src/kernels/misfits.rs", "there is no block 10485"];
        for sizes in [Sizes { beyond: 1 << 20, ..right }, Sizes { stray: 1 << 20, ..right }] {
            fault(launch(&world, sizes)?, FaultKind::Panic, &beyond)?;
        }
    }
    check_guards(&world)?;
    launch(&world, right)?.wait()?;
    Ok(())
}

fn numbers<T: Element>(count: usize) -> Vec<T> {
    (0..count).map(|index| T::from_f32((index % 97) as f32)).collect()
}

/// What a launch was refused with.
fn refusal<V>(result: Result<V, Error>) -> Result<String> {
    match result {
        Ok(_) => bail!("not refused"),
        Err(error) => Ok(error.to_string()),
    }
}

/// A channel in a matrix has a slot for each of its tiles, no more and no fewer.
pub fn slots_in_a_matrix(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = overfilled::load(&world)?;
    let x = world.replicate([130, 70], &numbers::<f32>(130 * 70))?;
    for ([p, q], tiles) in [([64, 70], [1, 2]), ([129, 64], [3, 1]), ([256, 70], [4, 2]), ([0, 0], [0, 0])] {
        let text = refusal(kernel.launch(overfilled::Args { x: &x, c: &mut world.zeros([p, q])? }))?;
        let expected = format!(
            "channel `Filled` lies in `c`, so that it has a slot for each of its tiles: expected slots [{}, {}], found \
             [3, 2]; here m = 130 (rows of `x`)",
            tiles[0], tiles[1]
        );
        ensure!(text.contains(&expected), "{text}");
    }
    let mut c = world.zeros([192, 128])?;
    kernel.launch(overfilled::Args { x: &x, c: &mut c })?.wait()?;
    check_guards(&world)
}

/// On simulated ranks, a tile that lies wholly outside of its matrix is named; those that reach beyond its edge are right, and
/// so are those of ranks whose share is smaller than others'.
pub fn tiles_outside(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = spilled::load(&world)?;
    let [m, n] = [130, 70];
    let launch = |[p, q]: [usize; 2], part: usize| -> Result<Launch> {
        let x = world.replicate([m, n], &numbers::<f32>(m * n))?;
        let (mut y, mut z) = (world.zeros([p, q])?, world.zeros([ranks.count() * m, n])?);
        Ok(kernel.launch(spilled::Args { part: part as u32, x: &x, y: &mut y, z: &mut z })?)
    };
    launch([130, 70], 0)?.wait()?;
    launch([129, 65], ranks.count() - 1)?.wait()?;
    let low = ["a tile at row 128 and column ", " lies wholly outside of `y`, which has 128 rows and 70 columns"];
    ensure!(fault(launch([128, 70], 0)?, FaultKind::Outside, &low)?.stage == Some("copy"));
    let narrow = ["and column 64 lies wholly outside of `y`, which has 130 rows and 64 columns"];
    fault(launch([130, 64], 0)?, FaultKind::Outside, &narrow)?;
    let parts = ranks.count();
    let there = format!("part {parts} lies wholly outside of `z`, which has {parts} parts");
    fault(launch([130, 70], parts)?, FaultKind::Outside, &[&there])?;
    check_guards(&world)
}

/// On simulated ranks, values for columns are named that lie wholly outside of their matrix.
pub fn columns_outside(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = biased_together::load(&world)?;
    let launch = |row: u32| -> Result<Launch> {
        let (x, biases) = (world.zeros::<f32>([130, 70])?, world.zeros([2, 70])?);
        let mut y = world.zeros([130, 70])?;
        Ok(kernel.launch(biased_together::Args { x: &x, row, biases: &biases, y: &mut y })?)
    };
    launch(1)?.wait()?;
    let low = ["at row 2 and column ", " lies wholly outside of `biases`, which has 2 rows and 70 columns"];
    fault(launch(2)?, FaultKind::Outside, &low)?;
    check_guards(&world)
}

/// On simulated ranks, a gate where more tiles are counted than it waits for is found, and one where fewer are says how many.
pub fn gates_with_wrong_numbers(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = miscounted::load(&world)?.with_deadline(DEADLINE);
    let [m, n] = [60, 190];
    let launch = |count: u32| -> Result<Launch> {
        let x = world.replicate([m, n], &numbers::<f32>(m * n))?;
        let (mut y, mut z) = (world.zeros([m, n])?, world.zeros([m, n])?);
        Ok(kernel.launch(miscounted::Args { count, x: &x, y: &mut y, z: &mut z })?)
    };
    launch(3)?.wait()?;
    let often = ["slot [0] of gate `Complete` is counted more often than the 2 tiles that it waits for"];
    fault(launch(2)?, FaultKind::Overcounted, &often)?;
    let never = ["slot [0] of gate `Complete` is counted more often than the 0 tiles that it waits for"];
    fault(launch(0)?, FaultKind::Overcounted, &never)?;
    let few = match launch(4)?.wait() {
        Err(Error::Fault(fault)) => fault.to_string(),
        other => bail!("expected a fault, found {other:?}"),
    };
    let (missing, deadlock) = ("at slot [0] of gate `Complete` for 4 tiles", "3 came");
    ensure!(few.contains(missing) && few.contains(deadlock), "{few}");
    launch(3)?.wait()?;
    check_guards(&world)
}

/// On simulated ranks, a slot that is sent twice in a launch is found, and one that is another rank's to send, however tiles travel.
pub fn slots_of_others(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let x = world.replicate([200, 64], &numbers::<f32>(200 * 64))?;
    let mut y = world.zeros([200, 64])?;
    for carriage in [Carriage::Push, Carriage::Pull] {
        let kernel = resent::load(&world)?.with_deadline(DEADLINE).with_carriage("Moved", carriage)?;
        kernel.launch(resent::Args { x: &x, last: 3, stray: 0, y: &mut y })?.wait()?;
        let twice = ["slot [", ", 1] of channel `Moved` is sent to rank ", " twice in a launch"];
        fault(kernel.launch(resent::Args { x: &x, last: 1, stray: 0, y: &mut y })?, FaultKind::SentTwice, &twice)?;
        if ranks.count() > 1 {
            let others = ["of channel `Moved` is rank ", "'s to send: its first coordinate"];
            let launch = kernel.launch(resent::Args { x: &x, last: 3, stray: 1, y: &mut y })?;
            fault(launch, FaultKind::NotTheSender, &others)?;
        }
        kernel.launch(resent::Args { x: &x, last: 3, stray: 0, y: &mut y })?.wait()?;
    }
    check_guards(&world)
}

/// On simulated ranks, a panel of other columns than the channel's is refused where it is sent.
pub fn narrow_panels(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = narrowed::load(&world)?;
    let b = world.zeros::<bf16>([128, 72])?;
    let mut y = world.zeros([64, 128])?;
    for columns in [64, 80] {
        let x = world.zeros([64, columns])?;
        let text = format!("a panel of {columns} columns can't be sent on a channel whose panels have 72");
        let fault = fault(kernel.launch(narrowed::Args { x: &x, b: &b, y: &mut y })?, FaultKind::Panic, &[&text])?;
        ensure!(fault.location.as_ref().is_some_and(|(file, _)| file.ends_with("kernels/misfits.rs")), "{fault}");
    }
    kernel.launch(narrowed::Args { x: &world.zeros([64, 72])?, b: &b, y: &mut y })?.wait()?;
    Ok(())
}

/// Tables that end before they begin, or beyond the rows, are named where they are looked up.
pub fn bags_of_a_bad_table(ranks: &Ranks) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count());
    let kernel = embedding_all_to_all::load(&world)?;
    let launch = |begins: [u32; 3]| -> Result<Launch> {
        Ok(kernel.launch(embedding_all_to_all::Args {
            table: &world.zeros::<f32>([10, 8])?,
            begins: &world.replicate([1, 3], &begins)?,
            offsets: &world.zeros([2, 5])?,
            indices: &world.zeros([1, 4])?,
            mean: false,
            out: &mut world.zeros_scattered([4, count * 2 * 8])?,
        })?)
    };
    for (begins, says) in [([0, 6, 4], "`begins` decreases"), ([0, 4, 11], "there are no 7 rows from row 4 on")] {
        let says = ranks.pick(says, "panicked");
        let fault = fault(launch(begins)?, FaultKind::Panic, &[says])?;
        let here = |(file, _): &(String, u32)| file.ends_with("embedding.rs") || ranks.pick(false, true);
        ensure!(fault.stage == Some("pool") && fault.location.as_ref().is_some_and(here), "{fault}");
    }
    check_guards(&world)
}

/// On simulated ranks, an order that does not lead to each tile once is found before tiles are missing.
pub fn orders_that_mislead(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = misled::load(&world)?;
    let launch = |[m, p]: [usize; 2]| -> Result<Launch> {
        let (x, u) = (world.zeros::<f32>([m, 64])?, world.zeros::<f32>([p, 64])?);
        Ok(kernel.launch(misled::Args {
            x: &x,
            y: &mut world.zeros([m, 64])?,
            u: &u,
            v: &mut world.zeros([p, 64])?,
        })?)
    };
    launch([64, 0])?.wait()?;
    let twice = ["stage `first`, tile [0, 0]", "its order leads to tile [0, 0] twice, and so to another never"];
    fault(launch([65, 0])?, FaultKind::Panic, &twice)?;
    let outside = ["stage `second`, tile [1, 0]", "its order leads to tile [1, 0], outside of a grid of [1, 1]"];
    fault(launch([0, 64])?, FaultKind::Panic, &outside)?;
    Ok(())
}
