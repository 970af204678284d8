//! Times embedding bags that are exchanged from one side, and what they stand on: the rates of memory and of the link, as a
//! kernel's threads reach them, and the way of a word to another GPU and back.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use entwine::{Tensor, World};
use entwine_kernels::embedding_all_to_all;
use entwine_kernels::probes::{put_to_next, read_once, to_and_fro};
use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

use crate::gpus::{self, Gpus};
use crate::limit::median_and_spread;
use crate::record::Regime;
use crate::timing::{Batch, Stopwatch};
use crate::{link, watchdog};

/// What to measure of embedding bags
#[derive(Debug, Args)]
pub struct Options {
    /// Bags of each table, for all ranks
    #[arg(long, value_delimiter = ',', default_values_t = [4096, 16384])]
    batch: Vec<usize>,
    /// Columns, for each of these batches
    #[arg(long, value_delimiter = ',', default_values_t = [256, 128])]
    width: Vec<usize>,
    /// Tables of each rank
    #[arg(long, default_value_t = 32)]
    tables: usize,
    /// Rows of a table
    #[arg(long, default_value_t = 100_000)]
    rows: usize,
    /// Rows of a bag
    #[arg(long, default_value_t = 40)]
    pooling: usize,
    /// Repeats, of which the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// The file to write
    #[arg(long)]
    out: Option<PathBuf>,
}

/// One measured row, as [`Record`](crate::record::Record) has them, with the sizes as text.
#[derive(Debug, Serialize)]
struct Record {
    op: &'static str,
    shape: String,
    dtype: &'static str,
    world: usize,
    variant: String,
    regime: Regime,
    ours_us: f64,
    limit_us: f64,
    fraction: f64,
    spread: f64,
    /// What a GPU reads from its own memory.
    memory_gbps: f64,
    link_gbps: Option<f64>,
    date: String,
    device: String,
    driver: String,
}

/// Tiles that the embedding kernel is tried with.
const TILES: [(u32, u32); 2] = [(64, 128), (64, 64)];
/// What is put, in rows: four for each of 264 CTAs make 64 MiB.
const PUT: [usize; 2] = [1056, 15888];
/// What is read from memory.
const READ: [usize; 2] = [1 << 16, 1 << 13];
const TIMES: u32 = 2000;

/// Measures what the options say and prints it.
///
/// # Errors
/// The machine is not fit for it, or something failed or was wrong.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.batch.len() == options.width.len(), "there must be as many widths as batches");
    watchdog::start();
    watchdog::step("opening the GPUs");
    let world = World::open()?;
    let gpus = Gpus::of(&world)?;
    let stopwatch = Stopwatch::new(&gpus)?;
    let bench = Bench { options, world: &world, gpus: &gpus, stopwatch: &stopwatch };
    watchdog::step("measuring rates");
    let link_gbps = link::gbps(&world, &gpus, &stopwatch)?;
    let memory_gbps = bench.memory_gbps()?;
    println!("own memory, read: {memory_gbps:.0} GB/s");
    if let Some(link_gbps) = link_gbps {
        let put_gbps = bench.put_gbps()?;
        println!("link: copies {link_gbps:.1} GB/s, a put of 64 MiB {put_gbps:.1} GB/s ({:.3})", put_gbps / link_gbps);
        println!("a word to another GPU and back: {:.2} µs", bench.round_trip_us()?);
    }
    let mut records = Vec::new();
    for (&batch, &width) in options.batch.iter().zip(&options.width) {
        watchdog::step(format!("embedding, {batch} × {width}"));
        for (tile, times) in bench.embedding(batch, width)? {
            let (ours_us, spread) = median_and_spread(&times);
            let read = batch * options.tables * options.pooling * width * size_of::<f32>();
            let ranks = world.ranks();
            let sent = batch * options.tables * width * size_of::<f32>() * (ranks - 1) / ranks;
            let of = |bytes: usize, gbps: f64| bytes as f64 / (gbps * 1e3);
            let limit_us = of(read, memory_gbps).max(link_gbps.map_or(0.0, |gbps| of(sent, gbps)));
            let shape = format!(
                "batch {batch}, {} tables of {} rows, width {width}, pooling {}",
                options.tables, options.rows, options.pooling
            );
            println!("{shape}, tile {tile:?}: {ours_us:.0} µs, limit {limit_us:.0} µs ({:.3})", limit_us / ours_us);
            records.push(Record {
                op: "embedding_all_to_all",
                shape,
                dtype: "f32",
                world: ranks,
                variant: format!("{}x{}", tile.0, tile.1),
                regime: Regime::Burst,
                ours_us,
                limit_us,
                fraction: limit_us / ours_us,
                spread,
                memory_gbps,
                link_gbps,
                date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
                device: gpus.name()?,
                driver: gpus::driver()?,
            });
        }
    }
    if let Some(out) = &options.out {
        std::fs::write(out, serde_json::to_string_pretty(&records)? + "\n")?;
    }
    Ok(())
}

/// A tile, and the times of its repeats, in µs for a call.
type Measured = ((u32, u32), Vec<f64>);

struct Bench<'a> {
    options: &'a Options,
    world: &'a World,
    gpus: &'a Gpus,
    stopwatch: &'a Stopwatch<'a>,
}

impl Bench<'_> {
    /// Times of `calls` calls that a batch makes, in µs for one.
    fn times(&self, calls: usize, batch: &mut Batch<'_>) -> Result<Vec<f64>> {
        self.stopwatch.run(batch)?;
        self.stopwatch.time(batch, 1)?;
        let time = |_| Ok(self.stopwatch.time(batch, 1)? / calls as f64);
        (0..self.options.repeats).map(time).collect()
    }

    fn memory_gbps(&self) -> Result<f64> {
        let kernel = read_once::load(self.world)?;
        let x: Tensor<f32> = self.world.zeros(READ)?;
        let mut sums = self.world.zeros([READ[0], 128])?;
        let graph = kernel.graph(8, read_once::Args { x: &x, sums: &mut sums })?;
        let mut batch: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&self.gpus.streams)?]));
        let (us, _) = median_and_spread(&self.times(8, &mut batch)?);
        Ok((READ[0] * READ[1] * size_of::<f32>()) as f64 / us / 1e3)
    }

    fn put_gbps(&self) -> Result<f64> {
        let kernel = put_to_next::load(self.world)?;
        let (mut x, mut y): (Tensor<f32>, Tensor<f32>) = (self.world.zeros(PUT)?, self.world.zeros(PUT)?);
        let graph = kernel.graph(32, put_to_next::Args { x: &mut x, y: &mut y })?;
        let mut batch: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&self.gpus.streams)?]));
        let (us, _) = median_and_spread(&self.times(32, &mut batch)?);
        Ok((PUT[0] * PUT[1] * size_of::<f32>()) as f64 / us / 1e3)
    }

    fn round_trip_us(&self) -> Result<f64> {
        let kernel = to_and_fro::load(self.world)?;
        let mut word = self.world.zeros([1, 1])?;
        let mut times = Vec::new();
        for _ in 0..=self.options.repeats {
            word.fill(0)?;
            let mut args = Some(&mut word);
            let mut batch: Batch<'_> = Box::new(|| {
                let word = args.take().expect("the batch runs once");
                Ok(vec![kernel.launch_on(&self.gpus.streams, to_and_fro::Args { times: TIMES, word })?])
            });
            times.push(self.stopwatch.time(&mut batch, 1)? / f64::from(TIMES));
        }
        Ok(median_and_spread(&times[1..]).0)
    }

    /// Times with each tile, once the result has been found right.
    fn embedding(&self, batch: usize, width: usize) -> Result<Vec<Measured>> {
        let &Options { tables, rows, pooling, .. } = self.options;
        let world = self.world;
        let element = |rank: usize, row: usize, column: usize| ((row * 31 + column * 7 + rank * 3) % 17) as f32 - 8.0;
        let table: Tensor<f32> = world.per_rank(|rank| {
            let mut elements = vec![0.0; tables * rows * width];
            elements.par_chunks_mut(width).enumerate().for_each(|(row, elements)| {
                elements.iter_mut().enumerate().for_each(|(column, x)| *x = element(rank, row, column));
            });
            ([tables * rows, width], elements)
        })?;
        let count = batch * tables * pooling;
        let index = |rank: usize, position: usize| {
            let hash = (position as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (rank as u64) << 17);
            ((hash >> 32) % rows as u64) as u32
        };
        let begins =
            world.replicate([1, tables + 1], &(0..=tables).map(|table| (table * rows) as u32).collect::<Vec<_>>())?;
        let begin = |table: usize, bag: usize| ((table * batch + bag) * pooling) as u32;
        let offsets: Vec<_> = (0..tables).flat_map(|table| (0..=batch).map(move |bag| begin(table, bag))).collect();
        let offsets = world.replicate([tables, batch + 1], &offsets)?;
        let indices =
            world.per_rank(|rank| ([1, count], (0..count).map(|position| index(rank, position)).collect()))?;
        let ranks = world.ranks();
        let share = batch / ranks;
        let mut measured = Vec::new();
        for tile in TILES {
            let mut out = world.filled([share, ranks * tables * width], f32::NAN)?;
            let kernel = embedding_all_to_all::load(world)?.with_tile(tile)?;
            let args = embedding_all_to_all::Args {
                table: &table,
                begins: &begins,
                offsets: &offsets,
                indices: &indices,
                mean: false,
                out: &mut out,
            };
            let calls = 4;
            let graph = kernel.graph(calls as u32, args)?;
            let mut calls_in_graph: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&self.gpus.streams)?]));
            let times = self.times(calls, &mut calls_in_graph)?;
            drop(calls_in_graph);
            drop(graph);
            for rank in 0..ranks {
                let found = out.to_vec(rank)?;
                for bag in (0..share).step_by(97) {
                    for table in 0..ranks * tables {
                        let (owner, number) = (table / tables, table % tables);
                        let first = begin(number, rank * share + bag) as usize;
                        let row = |position| number * rows + index(owner, position) as usize;
                        let column = (bag + table) % width;
                        let sum: f32 = (first..first + pooling).map(|at| element(owner, row(at), column)).sum();
                        let found = found[(bag * ranks * tables + table) * width + column];
                        ensure!(found == sum, "bag {bag} of table {table} on rank {rank} is {found}, not {sum}");
                    }
                }
            }
            measured.push((tile, times));
        }
        Ok(measured)
    }
}
