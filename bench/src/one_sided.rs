//! Times embedding bags that are exchanged from one side, and what they stand on: the rates of memory and of the link, as a
//! kernel's threads reach them, and the way of a word to another GPU and back.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use entwine::{Kernel, Tensor, World};
use entwine_kernels::embedding_all_to_all;
use entwine_kernels::probes::put_to_next;
use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

use crate::gpus::{self, Gpus};
use crate::limit::{limit_us, median_and_spread, transfer_us};
use crate::record::Regime;
use crate::timing::{Batch, Stopwatch};
use crate::{link, memory, watchdog};

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
    /// CTAs that a put is tried with
    #[arg(long, value_delimiter = ',', default_values_t = [16, 66, 132, 264, 528])]
    put_ctas: Vec<usize>,
    /// KiB that each of them puts at a time
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256, 4096])]
    put_kib: Vec<usize>,
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
/// What is put, and so much that starting and ending the launch doesn't count: the rate at which the link takes a kernel's
/// stores.
const PUT_BYTES: usize = 64 << 20;
const LONG_PUT_BYTES: usize = 1 << 30;

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
    watchdog::compile_step("measuring rates");
    let link_gbps = link::gbps(&world, &gpus, &stopwatch)?;
    let memory_gbps = memory::gbps(&world, &gpus, &stopwatch)?;
    println!("own memory, read: {memory_gbps:.0} GB/s");
    let mut records = Vec::new();
    if let Some(link_gbps) = link_gbps {
        println!("link, by the copy engine: {link_gbps:.1} GB/s");
        println!("a word to another GPU and back: {:.2} µs", link::round_trip_us(&world, &gpus, &stopwatch)?);
        watchdog::compile_step("putting");
        records = bench.puts(link_gbps, memory_gbps)?;
    }
    for (&batch, &width) in options.batch.iter().zip(&options.width) {
        watchdog::compile_step(format!("embedding, {batch} × {width}"));
        for (tile, times) in bench.embedding(batch, width)? {
            let (ours_us, spread) = median_and_spread(&times);
            let read = batch * options.tables * options.pooling * width * size_of::<f32>();
            let ranks = world.ranks();
            let sent = batch * options.tables * width * size_of::<f32>() * (ranks - 1) / ranks;
            let limit_us = limit_us(transfer_us(read, memory_gbps), sent, link_gbps);
            let shape = format!(
                "batch {batch}, {} tables of {} rows, width {width}, pooling {}",
                options.tables, options.rows, options.pooling
            );
            println!("{shape}, tile {tile:?}: {ours_us:.0} µs, limit {limit_us:.0} µs ({:.3})", limit_us / ours_us);
            let variant = format!("{}x{}", tile.0, tile.1);
            let (timed, rates) = ((ours_us, spread, limit_us), (memory_gbps, link_gbps));
            records.push(bench.record("embedding_all_to_all", shape, variant, timed, rates)?);
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

    /// Times of a put of about so many bytes by so many CTAs, so many KiB at a time, and the bytes that are put.
    fn put(
        &self,
        kernel: &Kernel<put_to_next::Woven>,
        bytes: usize,
        ctas: usize,
        piece_kib: usize,
    ) -> Result<(Vec<f64>, usize)> {
        let launches = (LONG_PUT_BYTES / bytes).max(2);
        // A row is a CTA's share, in whole lines of 128 bytes.
        let columns = bytes / size_of::<f32>() / ctas / 32 * 32;
        let (mut x, mut y) = (self.world.filled([ctas, columns], 1.0f32)?, self.world.zeros([ctas, columns])?);
        let piece = (piece_kib * 1024 / size_of::<f32>()) as u32;
        let graph = kernel.graph(launches as u32, put_to_next::Args { piece, x: &mut x, y: &mut y })?;
        let mut batch: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&self.gpus.streams)?]));
        let times = self.times(launches, &mut batch)?;
        drop(batch);
        drop(graph);
        for rank in 0..self.world.ranks() {
            ensure!(y.to_vec(rank)?.iter().all(|x| *x == 1.0), "rank {rank} didn't get all that was put there");
        }
        Ok((times, ctas * columns * size_of::<f32>()))
    }

    /// A record of a put for each number of CTAs and size of piece, held against a put that is so long that the link alone
    /// counts, and the fastest printed.
    fn puts(&self, copied_gbps: f64, memory_gbps: f64) -> Result<Vec<Record>> {
        let kernel = put_to_next::load(self.world)?;
        let Options { put_ctas, put_kib, .. } = self.options;
        let ways = put_ctas.iter().flat_map(|ctas| put_kib.iter().map(move |kib| (*ctas, *kib)));
        let mut stored_gbps = 0.0f64;
        for &ctas in put_ctas {
            let (times, bytes) = self.put(&kernel, LONG_PUT_BYTES, ctas, LONG_PUT_BYTES >> 10)?;
            stored_gbps = stored_gbps.max(bytes as f64 / median_and_spread(&times).0 / 1e3);
        }
        println!("link, by a kernel's stores of 1 GiB: {stored_gbps:.1} GB/s");
        let mut records = Vec::new();
        for (ctas, piece) in ways {
            let (times, bytes) = self.put(&kernel, PUT_BYTES, ctas, piece)?;
            let (ours_us, spread) = median_and_spread(&times);
            let limit_us = transfer_us(bytes, stored_gbps);
            println!(
                "a put of 64 MiB by {ctas} CTAs, {piece} KiB at a time: {:.1} GB/s, {:.3} of a kernel's stores, {:.3} of the \
                 copy engine",
                bytes as f64 / ours_us / 1e3,
                limit_us / ours_us,
                transfer_us(bytes, copied_gbps) / ours_us
            );
            records.push(self.record(
                "put_to_next",
                "64 MiB".into(),
                format!("{ctas} CTAs, {piece} KiB"),
                (ours_us, spread, limit_us),
                (memory_gbps, Some(stored_gbps)),
            )?);
        }
        if let Some(best) = records.iter().max_by(|one, other| one.fraction.total_cmp(&other.fraction)) {
            println!("the fastest put: {}, {:.3} of the rate of a kernel's stores", best.variant, best.fraction);
        }
        Ok(records)
    }

    fn record(
        &self,
        op: &'static str,
        shape: String,
        variant: String,
        (ours_us, spread, limit_us): (f64, f64, f64),
        (memory_gbps, link_gbps): (f64, Option<f64>),
    ) -> Result<Record> {
        Ok(Record {
            op,
            shape,
            dtype: "f32",
            world: self.world.ranks(),
            variant,
            regime: Regime::Burst,
            ours_us,
            limit_us,
            fraction: limit_us / ours_us,
            spread,
            memory_gbps,
            link_gbps,
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            device: self.gpus.name()?,
            driver: gpus::driver()?,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_what_is_put() {
        let world = World::simulated(3).unwrap();
        let kernel = put_to_next::load(&world).unwrap();
        let element = |rank: usize, index: usize| (rank * 100 + index) as f32;
        for piece in [0, 1, 3, 8, 100] {
            let mut x: Tensor<f32> =
                world.per_rank(|rank| ([2, 8], (0..16).map(|index| element(rank, index)).collect())).unwrap();
            let mut y = world.filled([2, 8], f32::NAN).unwrap();
            kernel.launch(put_to_next::Args { piece, x: &mut x, y: &mut y }).unwrap().wait().unwrap();
            for rank in 0..3 {
                let expected: Vec<_> = (0..16).map(|index| element((rank + 2) % 3, index)).collect();
                assert_eq!(y.to_vec(rank).unwrap(), expected, "{piece} columns at a time");
            }
        }
    }
}
