//! Embedding bags, held against sums that the host forms in the same order: they must have the same bits.

use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use entwine::device::Element;
use entwine::device::abi::FaultKind;
use entwine::{Error, Launch, Tensor, TensorElement, World};
use entwine_kernels::embedding_all_to_all;
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ranks::{Ranks, check_guards};
use crate::kernels::pooled_shards;

/// The sizes of a problem.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Tables of each rank.
    tables: usize,
    /// Bags of each table, for all ranks.
    batch: usize,
    /// Columns.
    d: usize,
    /// The most rows of a bag.
    longest: usize,
}

/// What every rank has.
struct Problem {
    size: Size,
    mean: bool,
    /// By rank: where tables begin, the tables' elements, where bags begin by table, and the rows of all bags.
    begins: Vec<Vec<u32>>,
    elements: Vec<Vec<f32>>,
    offsets: Vec<Vec<u32>>,
    indices: Vec<Vec<u32>>,
}

impl Problem {
    /// Tables of different heights, the last one of a single row; bags of all lengths, many of them empty; rows that are
    /// named again and again.
    fn random(ranks: usize, size: Size, mean: bool, seed: u64) -> Self {
        let mut generator = SmallRng::seed_from_u64(seed);
        let Size { tables, batch, d, longest } = size;
        let mut problem = Problem { size, mean, begins: vec![], elements: vec![], offsets: vec![], indices: vec![] };
        let heights: Vec<u32> =
            (0..tables).map(|table| if table + 1 == tables { 1 } else { 3 + 5 * table as u32 }).collect();
        for _ in 0..ranks {
            let mut begins = vec![0];
            begins.extend(heights.iter().scan(0, |end, height| {
                *end += height;
                Some(*end)
            }));
            let rows = begins[tables] as usize;
            problem.elements.push((0..rows * d).map(|_| generator.random_range(-1.0..1.0)).collect());
            problem.begins.push(begins);
            let (mut offsets, mut indices) = (Vec::new(), Vec::new());
            for height in &heights {
                offsets.push(indices.len() as u32);
                for _ in 0..batch {
                    let length = if generator.random_bool(0.3) { 0 } else { generator.random_range(0..=longest) };
                    indices.extend((0..length).map(|_| generator.random_range(0..*height)));
                    offsets.push(indices.len() as u32);
                }
            }
            problem.offsets.push(offsets);
            problem.indices.push(indices);
        }
        let room = problem.indices.iter().map(Vec::len).max().unwrap_or(0);
        problem.indices.iter_mut().for_each(|indices| indices.resize(room, u32::MAX));
        problem
    }

    fn tensors<T: TensorElement + Element>(&self, world: &World) -> Result<Tensors<T>> {
        let Size { tables, batch, d, .. } = self.size;
        let elements = |rank: usize| self.elements[rank].iter().map(|x| T::from_f32(*x)).collect::<Vec<_>>();
        let share = batch.div_ceil(world.ranks());
        let share = |rank: usize| batch.saturating_sub(rank * share).min(share);
        Ok(Tensors {
            table: world.per_rank(|rank| ([self.elements[rank].len() / d.max(1), d], elements(rank)))?,
            begins: world.per_rank(|rank| ([1, tables + 1], self.begins[rank].clone()))?,
            offsets: world.per_rank(|rank| ([tables, batch + 1], self.offsets[rank].clone()))?,
            indices: world.per_rank(|rank| ([1, self.indices[rank].len()], self.indices[rank].clone()))?,
            out: world.per_rank(|rank| {
                let columns = world.ranks() * tables * d;
                ([share(rank), columns], vec![T::from_f32(f32::NAN); share(rank) * columns])
            })?,
        })
    }

    /// The pooled rows of a bag of a rank's table.
    fn pooled<T: Element>(&self, rank: usize, table: usize, bag: usize) -> Vec<f32> {
        let Size { batch, d, .. } = self.size;
        let first = table * (batch + 1) + bag;
        let [begin, end] = [first, first + 1].map(|index| self.offsets[rank][index] as usize);
        let mut sums = vec![0.0f32; d];
        for index in &self.indices[rank][begin..end] {
            let row = (self.begins[rank][table] + index) as usize;
            for (sum, x) in sums.iter_mut().zip(&self.elements[rank][row * d..]) {
                *sum += T::from_f32(*x).to_f32();
            }
        }
        if self.mean && end > begin {
            sums.iter_mut().for_each(|sum| *sum /= (end - begin) as f32);
        }
        sums.into_iter().map(|sum| T::from_f32(sum).to_f32()).collect()
    }
}

struct Tensors<T> {
    table: Tensor<T>,
    begins: Tensor<u32>,
    offsets: Tensor<u32>,
    indices: Tensor<u32>,
    out: Tensor<T>,
}

impl<T> Tensors<T> {
    fn args(&mut self, mean: bool) -> embedding_all_to_all::Args<'_, T> {
        let Tensors { table, begins, offsets, indices, out } = self;
        embedding_all_to_all::Args { table, begins, offsets, indices, mean, out }
    }
}

impl Problem {
    /// Holds what every rank has of its bags against the host's sums.
    fn check<T: TensorElement + Element>(&self, out: &Tensor<T>) -> Result<()> {
        let (size @ Size { tables, batch, d, .. }, count) = (self.size, out.world().ranks());
        let share = batch.div_ceil(count).max(1);
        for rank in 0..count {
            let found = out.to_vec(rank)?;
            let bags = (rank * share).min(batch)..((rank + 1) * share).min(batch);
            for (row, bag) in bags.enumerate() {
                for table in 0..count * tables {
                    let expected = self.pooled::<T>(table / tables, table % tables, bag);
                    let found = &found[(row * count * tables + table) * d..][..d];
                    let found: Vec<_> = found.iter().map(|x| x.to_f32()).collect();
                    ensure!(found == expected, "{size:?}: bag {bag} of table {table} on rank {rank}");
                }
            }
        }
        Ok(())
    }
}

fn pools_and_exchanges<T: TensorElement + Element>(ranks: &Ranks, size: Size, mean: bool, seed: u64) -> Result<()> {
    let world = ranks.world()?;
    let problem = Problem::random(ranks.count(), size, mean, seed);
    let mut tensors = problem.tensors::<T>(&world)?;
    for tile in [(64, 128), (64, 64)] {
        tensors.out.fill(T::from_f32(f32::NAN))?;
        let kernel = embedding_all_to_all::load(&world)?.with_tile(tile)?;
        kernel.launch(tensors.args(mean))?.wait()?;
        check_guards(&world)?;
        problem.check(&tensors.out)?;
    }
    Ok(())
}

/// Cases 6 and 14: launches in a row, some rank late in each, and graphs of two shapes that are replayed in turn.
pub fn in_a_row(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = embedding_all_to_all::load(&world)?;
    let size = |launch: usize| Size { tables: 1 + launch % 2, batch: 40 + 30 * launch, d: 24, longest: 9 };
    let problems: Vec<_> =
        (0..4).map(|launch| Problem::random(ranks.count(), size(launch), false, launch as u64)).collect();
    let tensors = problems.iter().map(|problem| problem.tensors::<f32>(&world));
    let mut tensors = tensors.collect::<Result<Vec<_>>>()?;
    let mut launches = Vec::new();
    for (launch, tensors) in tensors.iter_mut().enumerate() {
        world.delay(launch % ranks.count(), Duration::from_millis(20))?;
        launches.push(kernel.launch(tensors.args(false))?);
    }
    launches.into_iter().try_for_each(Launch::wait)?;
    (0..ranks.count()).try_for_each(|rank| world.delay(rank, Duration::ZERO))?;
    problems.iter().zip(&tensors).try_for_each(|(problem, tensors)| problem.check(&tensors.out))?;

    let [one, other, ..] = &mut tensors[..] else { bail!("there are four problems") };
    one.out.fill(f32::NAN)?;
    other.out.fill(f32::NAN)?;
    let graphs = [kernel.graph(2, one.args(false))?, kernel.graph(3, other.args(false))?];
    let launches = graphs.iter().cycle().take(6).map(|graph| graph.launch()).collect::<Result<Vec<_>, _>>()?;
    launches.into_iter().try_for_each(Launch::wait)?;
    drop(graphs);
    problems[0].check(&tensors[0].out)?;
    problems[1].check(&tensors[1].out)?;
    check_guards(&world)
}

/// Cases 20, 23 and 26: ragged and empty bags, ranks that own none of them, columns that are no multiples of a tile or of 16
/// bytes, sums and means. All bits are those of sums in the order of each bag.
pub fn ragged<T: TensorElement + Element>(ranks: &Ranks) -> Result<()> {
    let sizes = [
        [1, 1, 1, 3],
        [3, 130, 64, 9],
        [2, 70, 128, 40],
        [2, 65, 20, 17],
        [1, 9, 264, 5],
        [2, 0, 8, 4],
        [3, 5, 129, 0],
    ];
    for (seed, [tables, batch, d, longest]) in sizes.into_iter().enumerate() {
        pools_and_exchanges::<T>(ranks, Size { tables, batch, d, longest }, seed % 2 == 1, seed as u64)?;
    }
    Ok(())
}

/// Cases 3 and 20: random ones, launched one after the other.
pub fn of_any_size<T: TensorElement + Element>(ranks: &Ranks) -> Result<()> {
    let config = Config {
        cases: ranks.pick(6, 48),
        max_shrink_iters: 32,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20),
        ..Config::default()
    };
    let sizes = (1..4usize, 0..200usize, 1..150usize, 0..50usize);
    let sizes = sizes.prop_map(|(tables, batch, d, longest)| Size { tables, batch, d, longest });
    TestRunner::new(config)
        .run(&(sizes, proptest::bool::ANY, 0..1000u64), |(size, mean, seed)| {
            pools_and_exchanges::<T>(ranks, size, mean, seed).map_err(|error| TestCaseError::fail(format!("{error:#}")))
        })
        .map_err(|failure| anyhow!("{failure}"))
}

/// Cases 16 and 20: an index that is no row's is named with its table and its position, and the next launch is right.
pub fn index_out_of_range(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let size = Size { tables: 2, batch: 100, d: 64, longest: 12 };
    let mut problem = Problem::random(ranks.count(), size, false, 1);
    let position = problem.offsets[0][101 + 7] as usize;
    let right = std::mem::replace(&mut problem.indices[0][position], 1);
    let kernel = embedding_all_to_all::load(&world)?;
    match kernel.launch(problem.tensors::<f32>(&world)?.args(false))?.wait() {
        Err(Error::Fault(fault)) => {
            ensure!((fault.kind, fault.rank, fault.stage) == (FaultKind::BadIndex, 0, Some("pool")), "{fault}");
            ensure!(fault.word == [1, position as u32] && fault.tile[1] == 1, "{fault}");
            ensure!((fault.seen, fault.expected) == (1, 1), "{fault}");
        }
        Err(error) => return Err(error.into()),
        Ok(()) => bail!("row 1 of a table with one row was found"),
    }
    problem.indices[0][position] = right;
    let mut tensors = problem.tensors::<f32>(&world)?;
    kernel.launch(tensors.args(false))?.wait()?;
    check_guards(&world)
}

/// Offsets beyond the indices, or smaller than the one before, are named by list and number, whichever of the two bags that
/// they bound is looked at first.
pub fn offset_out_of_range(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let size = Size { tables: 2, batch: 100, d: 64, longest: 12 };
    let mut problem = Problem::random(ranks.count(), size, false, 1);
    let kernel = embedding_all_to_all::load(&world)?;
    let indices = problem.indices.iter().map(Vec::len).max().unwrap_or(0) as u32;
    // Of the second list. One too small leads back to indices of its own table, so that nothing else is wrong.
    let before = problem.offsets[0][101 + 39];
    for (number, wrong) in [(0, indices + 1), (40, indices + 1), (40, before - 1), (100, indices + 1)] {
        let right = std::mem::replace(&mut problem.offsets[0][101 + number], wrong);
        match kernel.launch(problem.tensors::<f32>(&world)?.args(false))?.wait() {
            Err(Error::Fault(fault)) => {
                ensure!((fault.kind, fault.rank, fault.stage) == (FaultKind::BadOffset, 0, Some("pool")), "{fault}");
                ensure!(fault.word == [1, number as u32] && fault.tile[1] == 1, "{fault}");
                ensure!((fault.seen, fault.expected) == (wrong, indices), "{fault}");
                let says = format!("offset {number} of list 1 is {wrong}: ");
                ensure!(
                    ["`embedding_all_to_all`", &says].iter().all(|part| fault.to_string().contains(part)),
                    "{fault}"
                );
            }
            Err(error) => return Err(error.into()),
            Ok(()) => bail!("bags were pooled where offset {number} is {wrong} of {indices} indices"),
        }
        problem.offsets[0][101 + number] = right;
    }
    kernel.launch(problem.tensors::<f32>(&world)?.args(false))?.wait()?;
    check_guards(&world)
}

/// Bags of a part of a table, and of a part's rows, are of that part.
pub fn of_shards(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let (count, [t, b, d]) = (ranks.count(), [6, 70, 70]);
    let element = |row: usize, column: usize| (row * 3 + column) as f32;
    let table: Vec<_> = (0..count * t).flat_map(|row| (0..d).map(move |column| element(row, column))).collect();
    let offsets: Vec<_> = (0..=b).map(|bag| 2 * bag as u32).collect();
    let indices: Vec<_> = (0..2 * b).map(|position| (position * 7 % (t - 1)) as u32).collect();
    let sum = |first: usize, bag: usize, column: usize| {
        indices[2 * bag..][..2].iter().map(|row| element(first + *row as usize, column)).sum::<f32>()
    };

    let mut whole = world.filled([count * b, d], f32::NAN)?;
    let mut rest = world.filled([count * b, d], f32::NAN)?;
    let args = pooled_shards::Args {
        table: &world.replicate([count * t, d], &table)?,
        offsets: &world.replicate([1, b + 1], &offsets)?,
        indices: &world.replicate([1, 2 * b], &indices)?,
        whole: &mut whole,
        rest: &mut rest,
    };
    pooled_shards::load(&world)?.launch(args)?.wait()?;
    for rank in 0..count {
        let (whole, rest) = (whole.to_vec(rank)?, rest.to_vec(rank)?);
        for (place, (whole, rest)) in whole.into_iter().zip(rest).enumerate() {
            let (owner, bag, column) = (place / d / b, place / d % b, place % d);
            let expected = [sum(owner * t, bag, column), sum(owner * t + 1, bag, column)];
            ensure!([whole, rest] == expected, "rank {rank}, place {place}: {whole} and {rest}, not {expected:?}");
        }
    }
    check_guards(&world)
}
