//! A run: every operation and shape, fused and unfused, checked, timed and put on record.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use entwine::World;
use jiff::Timestamp;
use serde_json::json;

use crate::budget::Budget;
use crate::cublaslt::{CublasLt, Product};
use crate::fused::{Fused, FusedKernel, Variant};
use crate::gpus::{self, Gpus};
use crate::limit::{limit_us, median_and_spread, median_if_measured, overlap_efficiency, transfer_us};
use crate::nccl::Nccl;
use crate::operands::{Inputs, poison, relative_error};
use crate::peers::{self, About, Peer, Peers};
use crate::record::{self, Record, Regime, Timing};
use crate::shapes::{Model, Operation, Shape};
use crate::timing::{Contestant, Stopwatch, calls_of_batch};
use crate::unfused::{Unfused, collective};
use crate::{link, memory, table, watchdog};

/// The most that a result may differ from the vendor's: both round partial sums to bf16.
const TOLERANCE: f64 = 0.01;
/// How the fastest of cuBLASLt's algorithms is found.
const ALGORITHM_CALLS: usize = 10;
const ALGORITHM_REPEATS: usize = 3;

/// What to measure. Without options: everything, on all GPUs
#[derive(Debug, Args)]
pub struct Options {
    /// Only these operations
    #[arg(long = "op", value_delimiter = ',')]
    operations: Vec<Operation>,
    /// Only these models' layers [default: all; the projection for decoding alone]
    #[arg(long = "model", value_delimiter = ',')]
    models: Vec<Model>,
    /// Rows in all
    #[arg(long = "rows", short = 'm', value_delimiter = ',', default_values_t = [1, 16, 64, 512, 2048, 8192])]
    rows: Vec<usize>,
    /// Variants of the fused kernels, as TILE[@LINK-LIMIT][+push|+pull][~SPAN]: `auto`, `128x256`, `auto@12+push~4`, …
    #[arg(long = "variant", value_delimiter = ',', default_value = "auto")]
    variants: Vec<Variant>,
    /// Only these regimes
    #[arg(long = "regime", value_delimiter = ',')]
    regimes: Vec<Regime>,
    /// How calls reach the GPUs
    #[arg(long, default_value = "graph")]
    timing: Timing,
    /// Repeats, of which the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Others to time in turns with all that: they need Python with PyTorch
    #[arg(long = "peers", value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Begin no measurement that would end after so many seconds, going by those before; what is left out is said
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// The file of tuned choices that the fused kernels use, and to which `--tune` adds
    #[arg(long)]
    tuning: Option<PathBuf>,
    /// Tune the fused kernels for each shape first
    #[arg(long)]
    tune: bool,
    /// Folders in which libcublasLt, libnccl and libcublasmp are looked for first
    #[arg(long = "library-path", value_name = "FOLDER", value_delimiter = ':')]
    searched: Vec<PathBuf>,
    /// The file to write [default: bench/results/<date>-<what>.json]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    fn complete(mut self) -> Result<Self> {
        fn all_if_none<T: ValueEnum + Clone>(named: &mut Vec<T>) {
            if named.is_empty() {
                *named = T::value_variants().to_vec();
            }
        }
        ensure!(self.repeats > 0, "there must be at least one repeat");
        all_if_none(&mut self.operations);
        all_if_none(&mut self.regimes);
        Ok(self)
    }

    fn file(&self, date: &str, world: usize) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let all = self.operations.len() == Operation::value_variants().len();
            let named: Vec<_> = self.operations.iter().map(Operation::to_string).collect();
            let what = if all { "all".into() } else { named.join("+") };
            PathBuf::from(format!("bench/results/{date}-{what}-tp{world}.json"))
        })
    }
}

/// What all measurements of a run share.
struct Bench<'a> {
    options: &'a Options,
    world: &'a World,
    gpus: &'a Gpus,
    cublas: &'a CublasLt,
    nccl: Option<&'a Nccl>,
    peers: Vec<(Peer, RefCell<Peers>)>,
    stopwatch: Stopwatch<'a>,
    machine: Machine,
}

/// What the records say of where they come from.
struct Machine {
    link_gbps: Option<f64>,
    /// For products that are bound by it.
    memory_gbps: Option<f64>,
    date: String,
    device: String,
    driver: String,
    libraries: String,
}

/// One operation on one shape.
#[derive(Clone, Copy)]
struct Case {
    operation: Operation,
    model: Model,
    shape: Shape,
}

/// Measures what the options say, prints it and writes the records, after each shape anew.
///
/// # Errors
/// The machine is not fit for it; or something failed or was wrong, after all the rest was measured.
pub fn run(options: Options) -> Result<()> {
    let options = options.complete()?;
    let budget = Budget::new(options.within.map(Duration::from_secs));
    watchdog::start();
    watchdog::step("opening the GPUs");
    let world = match &options.tuning {
        Some(file) => World::builder().tuning(file).build()?,
        None => World::open()?,
    };
    let gpus = Gpus::of(&world)?;
    let date = Timestamp::now().strftime("%Y-%m-%d").to_string();
    let file = options.file(&date, world.ranks());

    watchdog::step("starting cuBLASLt and NCCL");
    let cublas = CublasLt::open(&world, &gpus, &options.searched)?;
    let nccl = (world.ranks() > 1).then(|| Nccl::open(&gpus, &options.searched)).transpose()?;
    let mut libraries = format!("cuBLASLt {}", cublas.version());
    if let Some(nccl) = &nccl {
        libraries += &format!(", NCCL {}", nccl.version()?);
    }

    let mut peers = Vec::new();
    for &peer in &options.peers {
        let started = Peers::start(peer, world.ranks(), &options.searched)?;
        libraries += &format!(", {}", started.libraries);
        peers.push((peer, RefCell::new(started)));
    }

    watchdog::compile_step("measuring the link and the memory");
    let stopwatch = Stopwatch::new(&gpus)?;
    let link_gbps = link::gbps(&world, &gpus, &stopwatch)?;
    let reads = options.operations.contains(&Operation::GemvAllReduce);
    let memory_gbps = reads.then(|| memory::gbps(&world, &gpus, &stopwatch)).transpose()?;
    let machine = Machine { link_gbps, memory_gbps, date, device: gpus.name()?, driver: gpus::driver()?, libraries };
    let bench = Bench {
        options: &options,
        world: &world,
        gpus: &gpus,
        cublas: &cublas,
        nccl: nccl.as_ref(),
        peers,
        stopwatch,
        machine,
    };
    bench.measure(budget, |records| record::save(&file, records))
}

impl Bench<'_> {
    fn measure(&self, mut budget: Budget, save: impl Fn(&[Record]) -> Result<()>) -> Result<()> {
        let (mut records, mut failures, mut left_out) = (Vec::new(), 0, Vec::new());
        for &operation in &self.options.operations {
            let kernels = self.options.variants.iter().filter_map(|&variant| {
                watchdog::compile_step(format!("loading {operation}, {variant}"));
                let kernel = FusedKernel::load(self.world, operation, variant);
                kernel.inspect_err(|error| report(&mut failures, &format!("{operation}, {variant}"), error)).ok()
            });
            let kernels: Vec<_> = kernels.collect();
            if kernels.is_empty() {
                continue;
            }
            let named = &self.options.models;
            for model in if named.is_empty() { operation.models() } else { named.clone() } {
                for &rows in self.options.rows.iter().filter(|rows| operation.takes(**rows)) {
                    let name = format!("{operation}, {model}, {rows} rows");
                    if !budget.begin() {
                        left_out.push(name);
                        continue;
                    }
                    watchdog::step(name.as_str());
                    let measured = Shape::of(operation, model, rows, self.world.ranks())
                        .and_then(|shape| self.case(Case { operation, model, shape }, &kernels, &mut failures));
                    match measured {
                        Ok(measured) => records.extend(measured),
                        Err(error) => report(&mut failures, &name, &error),
                    }
                    eprintln!("{name}: {:.1} s", budget.end().as_secs_f64());
                    save(&records)?;
                }
            }
        }
        println!("{}", table::terminal(&records));
        if failures > 0 {
            bail!("{failures} measurements failed or were wrong, as said above");
        }
        ensure!(left_out.is_empty(), "there was no time for {} more: {}", left_out.len(), left_out.join("; "));
        Ok(())
    }

    /// Measures one operation on one shape: a record for each kernel and regime.
    fn case(&self, case: Case, kernels: &[FusedKernel], failures: &mut usize) -> Result<Vec<Record>> {
        let Case { operation, shape, .. } = case;
        let sized = (operation, shape);
        let inputs = Inputs::in_turns(self.world, operation, shape)?;
        let unfused = |collective: Option<_>| {
            let exchanged = collective.is_some() && operation == Operation::GemmAllToAll;
            let blocks = if exchanged { self.world.ranks() } else { 1 };
            let product = Product::new(self.cublas, self.gpus, shape, blocks)?;
            Unfused::new(self.world, self.gpus, product, collective, sized, &inputs)
        };
        let mut alone = unfused(None)?;
        let algorithm = self.fastest_algorithm(&mut alone)?;
        alone.product().choose(algorithm);
        let mut pair = match (self.nccl, collective(operation)) {
            (Some(nccl), Some(collective)) => Some(unfused(Some((nccl, collective)))?),
            _ => None,
        };
        if let Some(pair) = &mut pair {
            let algorithm =
                if operation == Operation::GemmAllToAll { self.fastest_algorithm(pair)? } else { algorithm };
            pair.product().choose(algorithm);
        }

        let sets = inputs.len();
        let alone_calls = self.rehearse(&mut alone, sets).context("cuBLASLt alone")?;
        let pair_calls = match &mut pair {
            Some(pair) => Some(self.rehearse(pair, sets).context("cuBLASLt and NCCL")?),
            None => None,
        };
        let mut right = Vec::new();
        for kernel in kernels {
            let fused = Fused::new(self.world, self.gpus, kernel, sized, &inputs).and_then(|mut fused| {
                if self.options.tune {
                    eprintln!("{}", fused.tune()?);
                }
                Ok(fused)
            });
            match fused.and_then(|fused| self.rehearse_checked(fused, pair.as_mut().unwrap_or(&mut alone), sets)) {
                Ok(rehearsed) => right.push(rehearsed),
                Err(error) => report(failures, &kernel.variant.to_string(), &error),
            }
        }

        let mut there = Vec::new();
        for (peer, processes) in self.peers.iter().filter(|(peer, _)| peer.does(operation)) {
            let Shape { m, n, k } = shape;
            match processes.borrow_mut().prepare(&json!({ "op": operation, "m": m, "n": n, "k": k })) {
                Ok(prepared) => {
                    for About { name, timing, error } in prepared.contestants.values() {
                        eprintln!("{peer}: {name}, {timing}, off by {:.4}", error.unwrap_or(0.0));
                    }
                    there.push((*peer, processes));
                }
                Err(error) => report(failures, &format!("{operation} by {peer}"), &error),
            }
        }

        let Options { timing, repeats, .. } = *self.options;
        let mut turns = vec![self.stopwatch.turn(alone_calls, alone.batch(alone_calls, timing)?)?];
        for Rehearsed { fused, calls, .. } in &mut right {
            turns.push(self.stopwatch.turn(*calls, fused.batch(*calls, timing)?)?);
        }
        let first_peer = turns.len();
        turns.extend(there.iter().map(|(_, processes)| peers::turn(processes, peers::FASTEST)));
        if let Some((pair, calls)) = pair.as_mut().zip(pair_calls) {
            turns.push(self.stopwatch.turn(calls, pair.batch(calls, timing)?)?);
        }
        let compare = |&regime: &Regime| Ok((regime, self.stopwatch.compare(&mut turns, regime, timing, repeats)?));
        let compared = self.options.regimes.iter().map(compare).collect::<Result<Vec<_>>>()?;
        drop(turns);
        for (peer, processes) in &there {
            if let Err(error) = processes.borrow_mut().close() {
                report(failures, &format!("{operation} by {peer}"), &error);
            }
        }

        let mut records = Vec::new();
        for (index, Rehearsed { fused, error, .. }) in right.iter_mut().enumerate() {
            let variant = fused.variant();
            let error = match check(fused, pair.as_mut().unwrap_or(&mut alone)) {
                Ok(error_after) => error.max(error_after),
                Err(error) => {
                    report(failures, &format!("{variant}, after it was timed"), &error);
                    continue;
                }
            };
            for (regime, times) in &compared {
                let serial = pair_calls.and(times.last()).map(Vec::as_slice);
                let of = |wanted: Peer| {
                    let place = there.iter().position(|(peer, _)| *peer == wanted)?;
                    median_if_measured(&times[first_peer + place])
                };
                let peers = [Peer::PyTorch, Peer::CublasMp].map(of);
                let timed = Timed { gemm: &times[0], ours: &times[1 + index], serial, peers };
                records.push(self.record(case, variant, *regime, timed, error));
            }
        }
        Ok(records)
    }

    /// The fastest of the algorithms that cuBLASLt proposes.
    fn fastest_algorithm(&self, alone: &mut Unfused<'_>) -> Result<usize> {
        let mut fastest = (f64::INFINITY, alone.product().chosen());
        for algorithm in 0..alone.product().algorithms() {
            alone.product().choose(algorithm);
            let mut batch = alone.batch(ALGORITHM_CALLS, Timing::Eager)?;
            self.stopwatch.run(&mut batch)?;
            let times =
                (0..ALGORITHM_REPEATS).map(|_| self.stopwatch.time(&mut batch, 1)).collect::<Result<Vec<_>>>()?;
            let (median_us, _) = median_and_spread(&times);
            if median_us < fastest.0 {
                fastest = (median_us, algorithm);
            }
        }
        Ok(fastest.1)
    }

    /// Has a contestant write all its outputs, poisoned before, and finds how many of its calls make a batch.
    fn rehearse(&self, contestant: &mut impl Contestant, sets: usize) -> Result<usize> {
        let timing = self.options.timing;
        poison(contestant.outputs())?;
        let calls = 2 * sets;
        let mut batch = contestant.batch(calls, timing)?;
        self.stopwatch.run(&mut batch)?;
        let time_us = self.stopwatch.time(&mut batch, 1)?;
        Ok(calls_of_batch(time_us / calls as f64, sets, timing))
    }

    /// As [`Bench::rehearse`], and checks what was written.
    fn rehearse_checked<'a>(
        &self,
        mut fused: Fused<'a>,
        expected: &mut Unfused<'_>,
        sets: usize,
    ) -> Result<Rehearsed<'a>> {
        let calls = self.rehearse(&mut fused, sets)?;
        let error = check(&mut fused, expected)?;
        Ok(Rehearsed { fused, calls, error })
    }

    fn record(&self, case: Case, variant: Variant, regime: Regime, timed: Timed<'_>, error: f64) -> Record {
        let Case { operation, model, shape } = case;
        let world = self.world.ranks();
        let Machine { link_gbps, memory_gbps, date, device, driver, libraries } = &self.machine;
        let (ours_us, spread) = median_and_spread(timed.ours);
        let (gemm_us, _) = median_and_spread(timed.gemm);
        let serial_us = timed.serial.map(|serial| median_and_spread(serial).0);
        // A product of few rows is bound by reading the weights, which cuBLASLt may do more slowly than need be.
        let memory_gbps = memory_gbps.filter(|_| operation == Operation::GemvAllReduce);
        let alone_us = memory_gbps.map_or(gemm_us, |gbps| transfer_us(shape.weight_bytes(), gbps));
        let limit_us = limit_us(alone_us, shape.wire_bytes(operation, world), *link_gbps);
        let [torch_us, cublasmp_us] = timed.peers;
        Record {
            op: operation,
            model,
            dtype: "bf16".into(),
            world,
            m: shape.m,
            n: shape.n,
            k: shape.k,
            variant: variant.to_string(),
            regime,
            timing: self.options.timing,
            ours_us: Some(ours_us),
            gemm_us,
            serial_us,
            torch_us,
            cublasmp_us,
            limit_us: Some(limit_us),
            fraction: Some(limit_us / ours_us),
            efficiency: serial_us.and_then(|serial_us| overlap_efficiency(serial_us, ours_us, limit_us)),
            spread,
            link_gbps: *link_gbps,
            memory_gbps,
            error: Some(error),
            date: date.clone(),
            device: device.clone(),
            driver: driver.clone(),
            libraries: libraries.clone(),
        }
    }
}

/// A fused kernel that computes what it should.
struct Rehearsed<'a> {
    fused: Fused<'a>,
    /// The calls of one of its batches.
    calls: usize,
    error: f64,
}

/// The repeats of what belongs to one record, in µs per call.
struct Timed<'a> {
    gemm: &'a [f64],
    ours: &'a [f64],
    serial: Option<&'a [f64]>,
    /// The medians of PyTorch and of cuBLASMp, where they were timed.
    peers: [Option<f64>; 2],
}

/// The error of a fused kernel's outputs.
///
/// # Errors
/// It is too large.
fn check(fused: &mut Fused<'_>, expected: &mut Unfused<'_>) -> Result<f64> {
    let error = relative_error(fused.outputs(), expected.outputs())?;
    if error.is_nan() || error > TOLERANCE {
        bail!("wrong: the result is off by {error}, relative to what cuBLASLt and NCCL compute (at most {TOLERANCE})");
    }
    Ok(error)
}

/// Says what failed, and counts it.
pub fn report(failures: &mut usize, what: &str, error: &anyhow::Error) {
    *failures += 1;
    eprintln!("FAILED: {what}: {error:#}");
}
