//! Other ranks' memory, reached from one side: what arrives, what waits for it, and what is wrong.

use anyhow::{Result, bail, ensure};
use entwine::device::Element;
use entwine::device::abi::FaultKind;
use entwine::{Error, Fault, Tensor, TensorElement};

use super::ranks::{Ranks, check_guards};
use crate::kernels::{astray, hand_on, hand_tiles, meet, spinning, strangers};

/// Sizes that are no multiples of a tile, nor rows of 16 bytes.
const SIZES: [[usize; 2]; 5] = [[1, 1], [70, 33], [200, 128], [64, 264], [129, 8]];

fn x<T: Element>(rank: usize, [m, n]: [usize; 2]) -> Vec<T> {
    (0..m * n).map(|index| T::from_f32(((index * 3 + index / 7 + 5 * rank) % 13) as f32 - 6.0)).collect()
}

/// What a tensor holds on every rank.
fn check<T: TensorElement + Element>(
    what: &str,
    found: &Tensor<T>,
    expected: impl Fn(usize) -> Vec<f32>,
) -> Result<()> {
    for rank in 0..found.world().ranks() {
        let found: Vec<_> = found.to_vec(rank)?.iter().map(|x| x.to_f32()).collect();
        let expected = expected(rank);
        ensure!(found == expected, "`{what}` on rank {rank} is {found:?}, not {expected:?}");
    }
    Ok(())
}

fn times<T: Element>(x: &[T], factor: f32) -> Vec<f32> {
    x.iter().map(|x| x.to_f32() * factor).collect()
}

/// Blocks of each rank's x come to the next one, to all and back, in every way.
pub fn blocks<T: TensorElement + Element>(ranks: &Ranks) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count());
    for size @ [m, n] in SIZES {
        let kernel = hand_on::load(&world)?;
        let nan = || world.filled(size, T::from_f32(f32::NAN));
        let mut from = world.per_rank(|rank| (size, x::<T>(rank, size)))?;
        let (mut put, mut got, mut signalled) = (nan()?, nan()?, nan()?);
        let mut everywhere = world.filled([count * m, n], T::from_f32(f32::NAN))?;
        let mut met = world.zeros([m.div_ceil(64), count])?;
        for _ in 0..2 {
            let mut arrived = world.zeros([m.div_ceil(64), count])?;
            let args = hand_on::Args {
                x: &mut from,
                put: &mut put,
                got: &mut got,
                signalled: &mut signalled,
                everywhere: &mut everywhere,
                arrived: &mut arrived,
                met: &mut met,
            };
            kernel.launch(args)?.wait()?;
        }
        check_guards(&world)?;
        let before = |rank| times(&x::<T>((rank + count - 1) % count, size), 1.0);
        check("put", &put, before)?;
        check("signalled", &signalled, before)?;
        check("got", &got, |rank| times(&x::<T>(rank, size), 1.0))?;
        check("everywhere", &everywhere, |_| (0..count).flat_map(|rank| times(&x::<T>(rank, size), 1.0)).collect())?;
    }
    Ok(())
}

/// Tiles of each rank's x come to the next one, to a sum on all, and back.
pub fn tiles<T: TensorElement + Element>(ranks: &Ranks) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count());
    for (size, tile) in SIZES.into_iter().flat_map(|size| [(64, 64), (64, 128)].map(|tile| (size, tile))) {
        let [m, n] = size;
        let wide = tile.1 as usize;
        let kernel = hand_tiles::load(&world)?.with_tile(tile)?;
        let nan = || world.filled(size, T::from_f32(f32::NAN));
        let source = world.per_rank(|rank| (size, x::<T>(rank, size)))?;
        let (mut doubled, mut back, mut row_sums) = (nan()?, nan()?, nan()?);
        let mut total = world.zeros(size)?;
        let mut met = world.zeros([m.div_ceil(64) * n.div_ceil(wide), count])?;
        for _ in 0..2 {
            let args = hand_tiles::Args {
                source: &source,
                doubled: &mut doubled,
                total: &mut total,
                back: &mut back,
                row_sums: &mut row_sums,
                met: &mut met,
            };
            kernel.launch(args)?.wait()?;
        }
        check_guards(&world)?;
        let all: Vec<_> = (0..count).map(|rank| times(&x::<T>(rank, size), 1.0)).collect();
        check("doubled", &doubled, |rank| times(&x::<T>((rank + count - 1) % count, size), 2.0))?;
        check("back", &back, |rank| times(&x::<T>(rank, size), 2.0))?;
        let sum = |index: usize| all.iter().map(|x| 2.0 * x[index]).sum();
        check("total", &total, |_| (0..m * n).map(sum).collect())?;
        check("row_sums", &row_sums, |rank| {
            let sum_of = |index: usize| {
                let (row, column) = (index / n, index % n / wide * wide);
                all[rank][row * n + column..row * n + n.min(column + wide)].iter().sum()
            };
            (0..m * n).map(sum_of).collect()
        })?;
    }
    Ok(())
}

/// Barriers over all ranks and over some, launch after launch: nobody goes on before all have come.
pub fn barriers(ranks: &Ranks) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count());
    let kernel = meet::load(&world)?;
    let tables = 5;
    let (mut met, mut even) = (world.zeros([tables, count])?, world.zeros([tables, count])?);
    for _ in 0..3 {
        let mut seen = world.zeros([tables, count])?;
        let times = ranks.pick(5, 200);
        kernel.launch(meet::Args { times, met: &mut met, even: &mut even, seen: &mut seen })?.wait()?;
    }
    Ok(())
}

fn wander(ranks: &Ranks, [culprit, rank, row]: [u32; 3], awaited: i64, narrow: bool) -> Result<Fault> {
    let world = ranks.world()?;
    let kernel = astray::load(&world)?.with_deadline(std::time::Duration::from_millis(500));
    let mut words = world.zeros([3, 4])?;
    let args = astray::Args { culprit, rank, row, awaited, narrow, words: &mut words };
    let fault = match kernel.launch(args)?.wait() {
        Err(Error::Fault(fault)) => (*fault).clone(),
        Err(error) => return Err(error.into()),
        Ok(()) => bail!("the launch succeeded"),
    };
    let args = astray::Args { culprit: 0, rank: 0, row: 1, awaited: 0, narrow: false, words: &mut words };
    kernel.launch(args)?.wait()?;
    ensure!(words.to_vec(0)?[5] == -5, "the launch after the fault did nothing");
    check_guards(&world)?;
    Ok(fault)
}

/// Case 16: a row or a rank that is not there is named, and nothing is written.
pub fn out_of_range(ranks: &Ranks) -> Result<()> {
    let fault = wander(ranks, [1, 0, 3], 0, false)?;
    ensure!((fault.kind, fault.rank, fault.stage) == (FaultKind::OutOfRange, 1, Some("wander")), "{fault}");
    ensure!((fault.argument, &*fault.word, fault.peer) == (Some("words"), &[3, 1][..], Some(0)), "{fault}");
    let fault = wander(ranks, [0, ranks.count() as u32, 1], 0, false)?;
    ensure!((fault.kind, fault.argument) == (FaultKind::OutOfRange, Some("words")), "{fault}");
    ensure!(fault.peer == Some(ranks.count() as u32), "{fault}");
    Ok(())
}

/// Case 16: a group with a rank that the world doesn't have, or that no world has, waits for nobody, and names it.
pub fn strange_ranks(ranks: &Ranks) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count() as u32);
    let kernel = strangers::load(&world)?;
    let mut met = world.zeros([1, ranks.count()])?;
    for stranger in [count, 8, 31, 32, 33, 1 << 20] {
        match kernel.launch(strangers::Args { member: stranger, met: &mut met })?.wait() {
            Err(Error::Fault(fault)) => {
                let named = (fault.kind, fault.argument) == (FaultKind::OutOfRange, Some("met"));
                ensure!(named && fault.peer == Some(stranger) && fault.word.is_empty(), "{fault}");
            }
            other => bail!("expected a fault over rank {stranger}, found {other:?}"),
        }
        met.fill(0)?;
    }
    kernel.launch(strangers::Args { member: count - 1, met: &mut met })?.wait()?;
    check_guards(&world)
}

/// Case 15: what is waited for in a word, and does not come before the deadline, is named with what is there instead.
pub fn never_held(ranks: &Ranks) -> Result<()> {
    let fault = wander(ranks, [1, 0, 1], -3, false)?;
    ensure!((fault.kind, fault.rank, fault.stage) == (FaultKind::NotHeld, 1, Some("wander")), "{fault}");
    ensure!((fault.argument, &*fault.word) == (Some("words"), &[0, 0][..]), "{fault}");
    ensure!(fault.compared == Some(("at most -3".into(), "0".into())), "{fault}");
    Ok(())
}

/// Case 15: a rank that looks at a word for ever ends when the others have waited for it until the deadline.
pub fn spins(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = spinning::load(&world)?.with_deadline(std::time::Duration::from_millis(300));
    let mut words = world.zeros([1, 1])?;
    for compares in [false, true] {
        match kernel.launch(spinning::Args { culprit: 1, compares, words: &mut words })?.wait() {
            Err(Error::Fault(fault)) => {
                ensure!((fault.kind, fault.peer) == (FaultKind::MissingSignal, Some(1)), "{fault}");
            }
            other => bail!("expected a fault over rank 1, found {other:?}"),
        }
        kernel.launch(spinning::Args { culprit: u32::MAX, compares, words: &mut words })?.wait()?;
    }
    Ok(())
}

/// On simulated ranks, a rank that looks at a word for ever ends even if there is nobody to wait for it.
pub fn spins_alone(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = spinning::load(&world)?.with_deadline(std::time::Duration::from_millis(100));
    let mut words = world.zeros([1, 1])?;
    for compares in [false, true] {
        match kernel.launch(spinning::Args { culprit: 0, compares, words: &mut words })?.wait() {
            Err(Error::Fault(fault)) => {
                let text = "looked at `words[0, 0]` on rank 0 again and again";
                let found = (fault.kind, fault.rank) == (FaultKind::Spun, 0) && fault.to_string().contains(text);
                let missed = (fault.kind, fault.peer) == (FaultKind::MissingSignal, Some(0));
                ensure!(if ranks.count() == 1 { found } else { missed }, "{fault}");
            }
            other => bail!("expected a fault of rank 0, found {other:?}"),
        }
        kernel.launch(spinning::Args { culprit: u32::MAX, compares, words: &mut words })?.wait()?;
    }
    Ok(())
}

/// Case 27: on simulated ranks, a scope that does not reach another rank who accesses the word is found.
pub fn too_narrow(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = astray::load(&world)?;
    let mut words = world.zeros([3, 4])?;
    let args = astray::Args { culprit: 1, rank: 1, row: 1, awaited: 0, narrow: true, words: &mut words };
    kernel.launch(args)?.wait()?;
    ensure!(words.to_vec(1)?[5] == -4, "what only this rank accesses needs no wider scope");
    Ok(())
}
