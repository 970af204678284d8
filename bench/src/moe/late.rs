//! The first half of a layer of experts while one rank's rows are late: its products as their rows come, and in a fixed order.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use entwine::{Injection, Kernel, KernelType, World};
use entwine_kernels::probes::moe_dispatch_gemm_in_order;
use entwine_kernels::{moe_dispatch_gemm, moe_gemm_combine};
use jiff::Timestamp;
use serde::Serialize;

use super::layer::{Experts, Layer, Model};
use super::record::Shape;
use super::{TOLERANCE, write_records};
use crate::gpus::{self, Gpus, Which};
use crate::limit::median_and_spread;
use crate::record::{Regime, Timing};
use crate::table::right_align;
use crate::timing::{Batch, Stopwatch, calls_of_batch};
use crate::watchdog;

const HEADINGS: [&str; 6] = ["model", "T", "late by, µs", "fixed order, µs", "ready_first, µs", "fixed ÷ ready_first"];
const TEXT_COLUMNS: [usize; 1] = [0];
/// That of both orders, so that they differ in nothing else.
const TILE: (u32, u32) = (128, 256);
const REHEARSED: usize = 2;
/// How late rows are where results are checked.
const CHECKED_BY: Duration = Duration::from_micros(200);

/// What to measure, on all GPUs. The last one's rows are late
#[derive(Debug, Args)]
pub struct Options {
    /// Only these models
    #[arg(long = "model", value_delimiter = ',', default_values_t = Model::value_variants().to_vec())]
    models: Vec<Model>,
    /// Tokens of each rank
    #[arg(long, value_delimiter = ',', default_values_t = [4096])]
    tokens: Vec<usize>,
    /// By how much they are late, in per cent of what `ready_first` takes with nothing late
    #[arg(long, value_delimiter = ',', default_values_t = [0, 50, 100])]
    late: Vec<u32>,
    /// Repeats, of which the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    #[command(flatten)]
    which: Which,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

/// One measured row.
#[derive(Debug, Serialize)]
struct Record {
    op: &'static str,
    dtype: &'static str,
    world: usize,
    shape: Shape,
    regime: Regime,
    timing: Timing,
    late_rank: usize,
    late_us: f64,
    in_order_us: f64,
    ready_first_us: f64,
    in_order_spread: f64,
    ready_first_spread: f64,
    /// Largest error among the tokens looked at after the second half, relative to the norm of each.
    error: f64,
    date: String,
    device: String,
    driver: String,
}

struct Bench<'a> {
    options: &'a Options,
    world: &'a World,
    gpus: &'a Gpus,
    stopwatch: &'a Stopwatch<'a>,
    in_order: Kernel<moe_dispatch_gemm_in_order::Woven>,
    ready_first: Kernel<moe_dispatch_gemm::Woven>,
    second: Kernel<moe_gemm_combine::Woven>,
}

/// Measures what the options say, prints it and writes the records, after each layer anew.
///
/// # Errors
/// The machine is not fit for it, or something failed or was wrong.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.repeats > 0, "there must be at least one repeat");
    watchdog::start();
    watchdog::step("opening the GPUs");
    let (world, gpus) = options.which.open()?;
    let stopwatch = Stopwatch::new(&gpus)?;
    watchdog::compile_step("loading the kernels");
    let bench = Bench {
        options,
        world: &world,
        gpus: &gpus,
        stopwatch: &stopwatch,
        in_order: moe_dispatch_gemm_in_order::load(&world)?.with_tile(TILE)?,
        ready_first: moe_dispatch_gemm::load(&world)?.with_tile(TILE)?,
        second: moe_gemm_combine::load(&world)?,
    };
    let mut records = Vec::new();
    for &model in &options.models {
        watchdog::compile_step(format!("making the experts of {model}"));
        let experts = Experts::new(&world, model.widths())?;
        for &tokens in &options.tokens {
            let name = format!("{model}, {tokens} tokens");
            watchdog::compile_step(name.as_str());
            records.extend(bench.case(&experts, Shape { model, tokens }).context(name)?);
            write_records(&options.out, &records)?;
        }
    }
    println!("{}", table(&records));
    Ok(())
}

impl Bench<'_> {
    /// The rank whose rows are late.
    fn late_rank(&self) -> usize {
        self.world.ranks() - 1
    }

    /// Makes the kernel's next launch one in which rows are late.
    fn delay<K: KernelType>(&self, kernel: &Kernel<K>, by: Duration) -> Result<()> {
        if !by.is_zero() {
            kernel.inject(Injection::LateRows { rank: self.late_rank(), by })?;
        }
        Ok(())
    }

    /// Launches of the first half, so many and so late: in a fixed order, and as rows come.
    fn batches<'b>(&'b self, layers: &'b mut [Layer<'_>; 2], calls: usize, by: Duration) -> [Batch<'b>; 2] {
        let [fixed, ready] = layers;
        let streams = &self.gpus.streams;
        let in_order = move || {
            let launch = |_| {
                self.delay(&self.in_order, by)?;
                Ok(self.in_order.launch_on(streams, fixed.first_half_in_order())?)
            };
            (0..calls).map(launch).collect()
        };
        let ready_first = move || {
            let launch = |_| {
                self.delay(&self.ready_first, by)?;
                Ok(self.ready_first.launch_on(streams, ready.first_half())?)
            };
            (0..calls).map(launch).collect()
        };
        [Box::new(in_order), Box::new(ready_first)]
    }

    /// Median and spread of both orders' times with rows so late, in µs.
    fn times(&self, layers: &mut [Layer<'_>; 2], calls: usize, by: Duration) -> Result<[(f64, f64); 2]> {
        let [in_order, ready_first] = self.batches(layers, calls, by);
        let mut turns = [self.stopwatch.turn(calls, in_order)?, self.stopwatch.turn(calls, ready_first)?];
        let times = self.stopwatch.compare(&mut turns, Regime::Burst, Timing::Eager, self.options.repeats)?;
        Ok([median_and_spread(&times[0]), median_and_spread(&times[1])])
    }

    /// Measures one layer: a record for each delay.
    fn case(&self, experts: &Experts, shape: Shape) -> Result<Vec<Record>> {
        let layer = || Layer::new(self.world, experts, shape.tokens);
        let mut layers = [layer()?, layer()?];
        for mut batch in self.batches(&mut layers, 1, CHECKED_BY) {
            self.stopwatch.run(&mut batch)?;
        }
        let mut error = 0.0f64;
        for layer in &mut layers {
            self.second.launch(layer.second_half())?.wait()?;
            error = error.max(layer.error(self.world)?);
        }
        ensure!(error < TOLERANCE, "with rows late, it is off by {error}");

        let [_, (undelayed_us, _)] = self.times(&mut layers, REHEARSED, Duration::ZERO)?;
        let mut records = Vec::new();
        for percent in &self.options.late {
            let late_us = undelayed_us * f64::from(*percent) / 100.0;
            let calls = calls_of_batch(undelayed_us + late_us, 1, Timing::Eager);
            let by = Duration::from_nanos((1e3 * late_us) as u64);
            let [(in_order_us, in_order_spread), (ready_first_us, ready_first_spread)] =
                self.times(&mut layers, calls, by)?;
            records.push(Record {
                op: "moe_dispatch_gemm",
                dtype: "bf16",
                world: self.world.ranks(),
                shape,
                regime: Regime::Burst,
                timing: Timing::Eager,
                late_rank: self.late_rank(),
                late_us,
                in_order_us,
                ready_first_us,
                in_order_spread,
                ready_first_spread,
                error,
                date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
                device: self.gpus.name()?,
                driver: gpus::driver()?,
            });
        }
        Ok(records)
    }
}

fn table(records: &[Record]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADINGS).add_rows(records.iter().map(|record| {
        [
            record.shape.model.to_string(),
            record.shape.tokens.to_string(),
            format!("{:.0}", record.late_us),
            format!("{:.0}", record.in_order_us),
            format!("{:.0}", record.ready_first_us),
            format!("{:.2}", record.in_order_us / record.ready_first_us),
        ]
    }));
    right_align(&mut table, &TEXT_COLUMNS);
    table
}
