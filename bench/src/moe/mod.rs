//! Layers of experts, in the sizes of known models: the fused layer, its results held against plain sums, in turns with the
//! unfused one and with the products alone, on the same routings.

pub mod late;
mod layer;
mod record;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use entwine::{Kernel, World};
use entwine_kernels::moe_layer;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::budget::Budget;
use crate::fused::Variant;
use crate::gpus::{self, Gpus, Which};
use crate::limit::{limit_us, median_and_spread, median_if_measured, transfer_us};
use crate::link;
use crate::measure::report;
use crate::peers::{self, About, Peers};
use crate::record::{Regime, Timing};
use crate::timing::{Batch, Stopwatch, calls_of_batch};
use crate::{timeline, watchdog};
use layer::{Experts, Layer, Model, Widths};

pub use record::{OP, Record, markdown};
use record::{Shape, terminal};

/// Ways to compute both grouped products alone, and to exchange tokens without fusing: as `peers/experts.py` names them.
const PRODUCTS: [&str; 3] = ["grouped", "one_by_one", "side_by_side"];
const UNFUSED: [&str; 2] = ["copies", "once"];
/// Launches that are recorded, of which the one that took the median time counts.
const RECORDS: usize = 5;
/// The most that a token may be off, relative to its norm.
const TOLERANCE: f64 = 0.02;

/// What to measure. Without options: everything, on all GPUs
#[derive(Debug, Args)]
pub struct Options {
    /// Only these models
    #[arg(long = "model", value_delimiter = ',', default_values_t = Model::value_variants().to_vec())]
    models: Vec<Model>,
    /// Tokens of each rank
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256, 1024, 4096])]
    tokens: Vec<usize>,
    /// Variants of the fused layer
    #[arg(long = "variant", value_delimiter = ',', default_value = "auto")]
    variants: Vec<Variant>,
    /// The regimes
    #[arg(long = "regime", value_delimiter = ',', default_value = "burst")]
    regimes: Vec<Regime>,
    /// Repeats, of which the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Measure the fused layer alone: the rest needs Python with PyTorch, and there is no limit without it
    #[arg(long)]
    no_peers: bool,
    #[command(flatten)]
    which: Which,
    /// Begin no measurement that would end after so many seconds, going by those before; what is left out is said
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Record one launch of each, and write `MODEL-TOKENS-VARIANT.svg`, `.json` and `.txt` to this folder
    #[arg(long)]
    timeline: Option<PathBuf>,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

struct Bench<'a> {
    options: &'a Options,
    world: &'a World,
    gpus: &'a Gpus,
    stopwatch: &'a Stopwatch<'a>,
    kernels: Vec<(Variant, Kernel<moe_layer::Woven>)>,
    peers: Option<RefCell<Peers>>,
    link_gbps: Option<f64>,
    /// What nothing can overlap with.
    apart_us: f64,
}

/// Measures what the options say, prints it and writes the records, after each layer anew.
///
/// # Errors
/// The machine is not fit for it; or something failed or was wrong, after all the rest was measured.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.repeats > 0, "there must be at least one repeat");
    let mut budget = Budget::new(options.within.map(Duration::from_secs));
    watchdog::start();
    watchdog::step("opening the GPUs");
    ensure!(
        options.no_peers || !options.which.is_shared(),
        "on a shared GPU the layer is measured alone: `--no-peers`"
    );
    let (world, gpus) = options.which.open()?;
    let peers = (!options.no_peers).then(|| Peers::start_experts(world.ranks())).transpose();
    let peers = peers.context("`--no-peers` measures the fused layer alone")?;
    watchdog::compile_step("measuring the link");
    let stopwatch = Stopwatch::new(&gpus)?;
    let (link_gbps, apart_us) = if world.ranks() == 1 || options.which.is_shared() {
        (None, 0.0)
    } else {
        (link::gbps(&world, &gpus, &stopwatch)?, link::round_trip_us(&world, &gpus, &stopwatch)?)
    };
    let kernels = options.variants.iter().map(|variant| {
        watchdog::compile_step(format!("loading moe_layer, {variant}"));
        Ok((*variant, variant.set(moe_layer::load(&world)?)?))
    });
    let kernels = kernels.collect::<Result<_>>()?;
    let bench = Bench {
        options,
        world: &world,
        gpus: &gpus,
        stopwatch: &stopwatch,
        kernels,
        peers: peers.map(RefCell::new),
        link_gbps,
        apart_us,
    };

    let (mut records, mut failures, mut left_out) = (Vec::new(), 0, Vec::new());
    for &model in &options.models {
        watchdog::compile_step(format!("making the experts of {model}"));
        let experts = Experts::new(&world, model.widths())?;
        for &tokens in &options.tokens {
            let name = format!("{model}, {tokens} tokens");
            if !budget.begin() {
                left_out.push(name);
                continue;
            }
            watchdog::compile_step(name.as_str());
            match bench.case(&experts, Shape { model, tokens }, &mut failures) {
                Ok(measured) => records.extend(measured),
                Err(error) => report(&mut failures, &name, &error),
            }
            eprintln!("{name}: {:.1} s", budget.end().as_secs_f64());
            write_records(&options.out, &records)?;
        }
    }
    println!("{}", terminal(&records));
    if failures > 0 {
        bail!("{failures} layers failed or were wrong, as said above");
    }
    ensure!(left_out.is_empty(), "there was no time for {} more: {}", left_out.len(), left_out.join("; "));
    Ok(())
}

fn write_records(file: &Path, records: &[impl Serialize]) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, serde_json::to_string_pretty(records)? + "\n")
        .with_context(|| format!("couldn't write {}", file.display()))
}

impl Bench<'_> {
    /// Measures one layer: a record for each variant and regime.
    fn case(&self, experts: &Experts, shape: Shape, failures: &mut usize) -> Result<Vec<Record>> {
        let Shape { model, tokens } = shape;
        let mut layers =
            (0..self.kernels.len()).map(|_| Layer::new(self.world, experts, tokens)).collect::<Result<Vec<_>>>()?;
        let mut errors = Vec::new();
        for ((variant, kernel), layer) in self.kernels.iter().zip(&mut layers) {
            kernel.launch(layer.args())?.wait().with_context(|| variant.to_string())?;
            let error = layer.error(self.world)?;
            ensure!(error < TOLERANCE, "{variant} is off by {error}");
            errors.push(error);
            if let Some(folder) = &self.options.timeline {
                record_timeline(folder, &format!("{model}-{tokens}-{variant}"), kernel, layer)?;
            }
            watchdog::progress();
        }
        let (wire_bytes, routing) = (layers[0].wire_bytes(self.world.ranks()), layers[0].routing());
        let prepare = |peers: &RefCell<Peers>| self.prepare(&mut peers.borrow_mut(), model.widths(), tokens, routing);
        let others = self.peers.as_ref().map_or_else(|| Ok(Vec::new()), prepare).unwrap_or_else(|error| {
            report(failures, &format!("{model}, {tokens} tokens, unfused"), &error);
            Vec::new()
        });

        let ours = self.kernels.len();
        let mut graphs = Vec::new();
        for ((_, kernel), layer) in self.kernels.iter().zip(&mut layers) {
            let calls = self.calls(kernel, layer)?;
            graphs.push((calls, kernel.graph_in_turns(calls as u32, [layer.args()])?));
        }
        let mut turns = Vec::new();
        for (calls, graph) in &graphs {
            let batch: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&self.gpus.streams)?]));
            turns.push(self.stopwatch.turn(*calls, batch)?);
        }
        if let Some(peers) = &self.peers {
            turns.extend(others.iter().map(|name| peers::turn(peers, name)));
        }
        let mut records = Vec::new();
        for &regime in &self.options.regimes {
            let times = self.stopwatch.compare(&mut turns, regime, Timing::Graph, self.options.repeats)?;
            let medians = others.iter().zip(&times[ours..]);
            let others: BTreeMap<_, _> =
                medians.filter_map(|(name, times)| Some((name.clone(), median_if_measured(times)?))).collect();
            for (index, times) in times[..ours].iter().enumerate() {
                let error = errors[index];
                records.push(self.record(shape, regime, index, Timed { times, error, others: &others, wire_bytes })?);
            }
        }
        drop(turns);
        if let Some(peers) = self.peers.as_ref().filter(|_| !others.is_empty())
            && let Err(error) = peers.borrow_mut().close()
        {
            report(failures, &format!("{model}, {tokens} tokens, unfused"), &error);
        }
        Ok(records)
    }

    /// Has PyTorch prepare the same layer. The names of what it can be timed at.
    fn prepare(&self, peers: &mut Peers, widths: Widths, tokens: usize, routing: u32) -> Result<Vec<String>> {
        let Widths { columns, hidden, experts, choices } = widths;
        let prepared = peers.prepare(&json!({
            "columns": columns, "hidden": hidden, "experts": experts, "choices": choices, "tokens": tokens,
        }))?;
        ensure!(
            prepared.routing == Some(routing),
            "the two programs route tokens differently: {routing} here, {:?} in PyTorch",
            prepared.routing
        );
        for name in PRODUCTS.iter().chain(&UNFUSED).filter(|name| !prepared.contestants.contains_key(**name)) {
            eprintln!("PyTorch: {name} could not be prepared, and is left out");
        }
        // What can't be captured is bound by its launches, and no measure of this layer's graphs.
        let captured = prepared.contestants.into_iter().filter(|(_, About { name, timing, error })| {
            let captured = timing == "graph";
            let left_out = if captured { "" } else { ", left out" };
            eprintln!("PyTorch: {name}, {timing}, off by {:.4}{left_out}", error.unwrap_or(0.0));
            captured
        });
        Ok(captured.map(|(name, _)| name).collect())
    }

    /// How many calls make a batch.
    fn calls(&self, kernel: &Kernel<moe_layer::Woven>, layer: &mut Layer<'_>) -> Result<usize> {
        const REHEARSED: usize = 2;
        let graph = kernel.graph_in_turns(REHEARSED as u32, [layer.args()])?;
        let mut turn = self.stopwatch.turn(REHEARSED, Box::new(|| Ok(vec![graph.launch_on(&self.gpus.streams)?])))?;
        Ok(calls_of_batch(turn(1)?, 1, Timing::Graph))
    }

    fn record(&self, shape: Shape, regime: Regime, kernel: usize, timed: Timed<'_>) -> Result<Record> {
        let Timed { times, error, others, wire_bytes } = timed;
        let (ours_us, spread) = median_and_spread(times);
        let fastest = |names: &[&str]| names.iter().filter_map(|name| others.get(*name).copied()).reduce(f64::min);
        let gemm_us = fastest(&PRODUCTS);
        let limit_us = gemm_us.map(|gemm_us| limit_us(gemm_us, wire_bytes, self.link_gbps) + self.apart_us);
        Ok(Record {
            op: OP.into(),
            dtype: "bf16".into(),
            world: self.world.ranks(),
            shape,
            variant: self.kernels[kernel].0.to_string(),
            regime,
            timing: Timing::Graph,
            ours_us: Some(ours_us),
            gemm_us,
            serial_us: fastest(&UNFUSED),
            wire_us: self.link_gbps.map(|gbps| transfer_us(wire_bytes, gbps)),
            apart_us: Some(self.apart_us),
            limit_us,
            fraction: limit_us.map(|limit_us| limit_us / ours_us),
            spread,
            others: others.clone(),
            link_gbps: self.link_gbps,
            error: Some(error),
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            device: self.gpus.name()?,
            driver: gpus::driver()?,
            libraries: self.peers.as_ref().map_or_else(String::new, |peers| peers.borrow().libraries.clone()),
        })
    }
}

/// What belongs to one record.
struct Timed<'a> {
    /// The repeats, in µs per call.
    times: &'a [f64],
    error: f64,
    others: &'a BTreeMap<String, f64>,
    wire_bytes: usize,
}

fn record_timeline(folder: &Path, name: &str, kernel: &Kernel<moe_layer::Woven>, layer: &mut Layer<'_>) -> Result<()> {
    fs::create_dir_all(folder)?;
    for _ in 0..timeline::WARM_UP {
        kernel.launch(layer.args())?.wait()?;
    }
    // The recording code is new to the GPUs, too.
    let records = (0..RECORDS).map(|_| kernel.record(layer.args())).collect::<Result<Vec<_>, _>>()?;
    let timeline = timeline::median(records);
    for extension in ["json", "svg"] {
        timeline.save(folder.join(format!("{name}.{extension}")))?;
    }
    Ok(fs::write(folder.join(format!("{name}.txt")), timeline.to_string())?)
}
