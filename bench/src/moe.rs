//! Layers of experts, in the sizes of known models: the fused layer, its results held against plain sums.
//!
//! What it competes with, and its limit, are timed by `bench/moe_peers.py`, on the same routings.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use entwine::{Kernel, Tensor, World};
use entwine_kernels::{moe_capacity, moe_layer};
use half::bf16;
use jiff::Timestamp;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::fused::Variant;
use crate::gpus::{self, Gpus};
use crate::limit::{limit_us, median_and_spread};
use crate::link;
use crate::record::{Regime, Timing};
use crate::timing::{Batch, Stopwatch, calls_of_batch};
use crate::watchdog;

/// A transformer with layers of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    #[value(name = "mixtral")]
    Mixtral,
    #[value(name = "qwen2moe")]
    Qwen2moe,
    #[value(name = "dsv3ish")]
    Dsv3ish,
}

/// What a model gives a layer.
#[derive(Debug, Clone, Copy)]
struct Widths {
    /// Of the residual stream.
    columns: usize,
    /// Of an expert's inside.
    hidden: usize,
    experts: usize,
    choices: usize,
}

impl Model {
    fn widths(self) -> Widths {
        let (columns, hidden, experts, choices) = match self {
            Model::Mixtral => (4096, 14336, 8, 2),
            Model::Qwen2moe => (2048, 1408, 64, 4),
            Model::Dsv3ish => (7168, 2048, 64, 8),
        };
        Widths { columns, hidden, experts, choices }
    }
}

/// A layer's sizes, in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub model: Model,
    /// Tokens of each rank.
    pub tokens: usize,
}

/// One measured row, as `bench/src/record.rs` has them of other operations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub op: String,
    pub dtype: String,
    pub world: usize,
    pub shape: Shape,
    pub variant: String,
    pub regime: Regime,
    pub timing: Timing,
    /// The fused layer.
    pub ours_us: Option<f64>,
    /// Both grouped products alone.
    pub gemm_us: Option<f64>,
    /// The unfused layer.
    pub serial_us: Option<f64>,
    /// The longer of both products alone and the bytes that the busiest rank sends, at the link's rate.
    pub limit_us: Option<f64>,
    pub fraction: Option<f64>,
    pub spread: f64,
    pub link_gbps: Option<f64>,
    /// Largest error among the tokens looked at, relative to the norm of each.
    pub error: Option<f64>,
    pub date: String,
    pub device: String,
    pub driver: String,
    pub libraries: String,
}

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
    /// The regime
    #[arg(long, default_value = "burst")]
    regime: Regime,
    /// Repeats, of which the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Record one launch of each, and write `MODEL-TOKENS-VARIANT.svg`, `.json` and `.txt` to this folder
    #[arg(long)]
    timeline: Option<PathBuf>,
    /// A file that `bench/moe_peers.py` has written on this machine, just before: its times stand beside ours
    #[arg(long)]
    peers: Option<PathBuf>,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.to_possible_value().expect("no model is hidden").get_name())
    }
}

/// The choices of all ranks' tokens, and their weights: the experts with the largest of random logits, softmax over them.
fn route(widths: Widths, tokens: usize) -> (Vec<u32>, Vec<f32>) {
    let Widths { experts, choices, .. } = widths;
    let rows = (0..tokens as u64).into_par_iter().map(|token| {
        let mut logits: Vec<_> =
            (0..experts as u64).map(|expert| (random(token << 20 | expert), expert as u32)).collect();
        logits.sort_by(|one, other| other.cmp(one));
        let exp = |bits: u64| ((bits >> 40) as f32 / (1 << 22) as f32).exp();
        let chosen: Vec<_> = logits[..choices].iter().map(|(bits, expert)| (*expert, exp(*bits))).collect();
        let sum: f32 = chosen.iter().map(|(_, exp)| exp).sum();
        chosen.into_iter().map(move |(expert, exp)| (expert, exp / sum))
    });
    rows.flat_map_iter(|row| row).unzip()
}

/// The generator called SplitMix64, at a position.
fn random(position: u64) -> u64 {
    let mut bits = position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Elements of matrix `matrix`, from the one at `first` on: random, evenly from −0.5 to 0.5 times `scale`.
fn element(matrix: u64, index: usize, scale: f32) -> bf16 {
    // The pattern repeats after a million elements, in a place that no row begins at.
    let bits = random(matrix << 40 | (index % 1_000_003) as u64);
    bf16::from_f32(((bits >> 40) as f32 / (1 << 24) as f32 - 0.5) * scale)
}

fn elements(matrix: u64, count: usize, scale: f32) -> Vec<bf16> {
    let period: Vec<_> = (0..1_000_003.min(count)).into_par_iter().map(|index| element(matrix, index, scale)).collect();
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        all.extend_from_slice(&period[..period.len().min(count - all.len())]);
    }
    all
}

/// The matrices, by their numbers: those of experts have one each, from these on.
const X: u64 = 1;
const GATE_UP: u64 = 1 << 8;
const DOWN: u64 = 2 << 8;

/// A layer's tensors.
struct Layer {
    widths: Widths,
    tokens: usize,
    chosen: Vec<u32>,
    weights: Vec<f32>,
    choices: Tensor<u32>,
    of_choices: Tensor<f32>,
    x: Tensor<bf16>,
    gate_up: Tensor<bf16>,
    down: Tensor<bf16>,
    rows: Tensor<bf16>,
    hidden: Tensor<bf16>,
    outputs: Tensor<bf16>,
    loads: Tensor<u32>,
    y: Tensor<bf16>,
}

/// Weights are scaled so that values stay of the order of 1.
fn scale(width: usize) -> f32 {
    (12.0 / width as f32).sqrt()
}

impl Layer {
    fn new(world: &World, model: Model, tokens: usize) -> Result<Self> {
        let widths = model.widths();
        let Widths { columns, hidden, experts, choices } = widths;
        let (all, each) = (tokens * world.ranks(), experts / world.ranks());
        ensure!(experts.is_multiple_of(world.ranks()), "the experts of {model} can't be split over {}", world.ranks());
        let (chosen, weights) = route(widths, all);
        let of_experts = |rank: usize, first: u64, count: usize, width: usize| {
            let experts = (rank * each) as u64..((rank + 1) * each) as u64;
            experts.flat_map(|expert| elements(first + expert, count, scale(width))).collect::<Vec<_>>()
        };
        let capacity =
            moe_capacity(all, choices, experts, world.ranks()).min(moe_likely(all * choices, world.ranks(), each));
        let (up_rows, down_rows) = (each * 2 * hidden, each * columns);
        Ok(Layer {
            choices: world.scatter([all, choices], &chosen)?,
            of_choices: world.scatter([all, choices], &weights)?,
            x: world.scatter([all, columns], &elements(X, all * columns, 12.0f32.sqrt()))?,
            gate_up: world
                .per_rank(|rank| ([up_rows, columns], of_experts(rank, GATE_UP, 2 * hidden * columns, columns)))?,
            down: world.per_rank(|rank| ([down_rows, hidden], of_experts(rank, DOWN, columns * hidden, hidden)))?,
            rows: world.zeros([capacity, columns])?,
            hidden: world.zeros([capacity, hidden])?,
            outputs: world.zeros([capacity, columns])?,
            loads: world.zeros([1, experts])?,
            y: world.filled([tokens, columns], bf16::NAN)?,
            widths,
            tokens,
            chosen,
            weights,
        })
    }

    fn args(&mut self) -> moe_layer::Args<'_> {
        moe_layer::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            x: &self.x,
            rows: &mut self.rows,
            gate_up: &self.gate_up,
            hidden: &mut self.hidden,
            down: &self.down,
            outputs: &mut self.outputs,
            y: &mut self.y,
        }
    }

    /// The bytes that the busiest rank sends: each token once to each rank that it needs, and back from there.
    fn wire_bytes(&self, world: usize) -> usize {
        let Widths { columns, experts, choices, .. } = self.widths;
        let mut rows = vec![0; world];
        for (token, chosen) in self.chosen.chunks_exact(choices).enumerate() {
            let home = token / self.tokens;
            let needed = |rank: usize| chosen.iter().any(|expert| *expert as usize / (experts / world) == rank);
            for rank in (0..world).filter(|rank| *rank != home && needed(*rank)) {
                rows[home] += 1;
                rows[rank] += 1;
            }
        }
        rows.into_iter().max().unwrap_or(0) * columns * size_of::<bf16>()
    }

    /// The largest error of some tokens of each rank, relative to the norm of what they should be.
    fn error(&self, world: &World) -> Result<f64> {
        let mut worst = 0.0f64;
        for rank in 0..world.ranks() {
            let y = self.y.to_vec(rank)?;
            for token in [0, self.tokens / 3, self.tokens - 1] {
                let wanted = self.token(rank * self.tokens + token);
                let found = &y[token * self.widths.columns..][..self.widths.columns];
                let (mut difference, mut norm) = (0.0, 0.0);
                for (found, wanted) in found.iter().zip(&wanted) {
                    difference += (found.to_f64() - wanted).powi(2);
                    norm += wanted.powi(2);
                }
                worst = worst.max((difference / norm).sqrt());
                ensure!(!difference.is_nan(), "token {token} of rank {rank} has NaN in it");
            }
        }
        Ok(worst)
    }

    fn token(&self, token: usize) -> Vec<f64> {
        let Widths { columns, hidden, choices, .. } = self.widths;
        let dot = |matrix: u64, row: usize, scale: f32, with: &[f32]| -> f32 {
            with.iter().enumerate().map(|(at, x)| element(matrix, row * with.len() + at, scale).to_f32() * x).sum()
        };
        let x: Vec<_> = (0..columns).map(|at| element(X, token * columns + at, 12.0f32.sqrt()).to_f32()).collect();
        let mut sum = vec![0.0; columns];
        for choice in token * choices..(token + 1) * choices {
            let expert = self.chosen[choice] as u64;
            let activated = (0..hidden).into_par_iter().map(|at| {
                let row = at / 8 * 16 + at % 8;
                let [gate, up] = [row, row + 8].map(|row| dot(GATE_UP + expert, row, scale(columns), &x));
                bf16::from_f32(gate / (1.0 + (-gate).exp()) * up).to_f32()
            });
            let activated: Vec<_> = activated.collect();
            let outputs = (0..columns).into_par_iter().map(|row| dot(DOWN + expert, row, scale(hidden), &activated));
            let outputs: Vec<_> = outputs.collect();
            for (sum, output) in sum.iter_mut().zip(outputs) {
                *sum += (self.weights[choice] * output) as f64;
            }
        }
        sum
    }
}

/// Rows that are enough for choices that are spread evenly, with a margin.
fn moe_likely(chosen: usize, world: usize, experts: usize) -> usize {
    (chosen / world * 5 / 4).next_multiple_of(128) + experts * 128 + 1024
}

/// Measures what the options say, and writes the records.
///
/// # Errors
/// The machine is not fit for it, a launch failed, or a result is wrong.
pub fn run(options: &Options) -> Result<()> {
    watchdog::start();
    watchdog::step("opening the GPUs");
    let world = World::open()?;
    let gpus = Gpus::of(&world)?;
    let stopwatch = Stopwatch::new(&gpus)?;
    let link_gbps = link::gbps(&world, &gpus, &stopwatch)?;
    let kernels = options.variants.iter().map(|variant| {
        watchdog::compile_step(format!("loading moe_layer, {variant}"));
        Ok((*variant, variant.set(moe_layer::load(&world)?)?))
    });
    let kernels: Vec<(Variant, Kernel<moe_layer::Woven>)> = kernels.collect::<Result<_>>()?;
    let (date, driver) = (Timestamp::now().strftime("%Y-%m-%d").to_string(), gpus::driver()?);
    let peers: Vec<Record> = match &options.peers {
        Some(file) => serde_json::from_slice(&fs::read(file)?).with_context(|| format!("{}", file.display()))?,
        None => Vec::new(),
    };
    let mut records = Vec::new();
    for &model in &options.models {
        for &tokens in &options.tokens {
            watchdog::compile_step(format!("{model}, {tokens} tokens"));
            let mut layer = Layer::new(&world, model, tokens)?;
            for (variant, kernel) in &kernels {
                let first = kernel.launch(layer.args())?;
                first.wait().with_context(|| format!("{model}, {tokens} tokens, {variant}"))?;
                let error = layer.error(&world)?;
                watchdog::progress();
                let one = time(&stopwatch, &gpus, kernel, &mut layer, 2, 1, options.regime)?;
                let calls = calls_of_batch(one[0], 1, Timing::Graph);
                let times = time(&stopwatch, &gpus, kernel, &mut layer, calls, options.repeats, options.regime)?;
                let (ours_us, spread) = median_and_spread(&times);
                let same = |peer: &&Record| peer.shape == Shape { model, tokens } && peer.regime == options.regime;
                let peer = peers.iter().find(same);
                let (gemm_us, serial_us) = (peer.and_then(|peer| peer.gemm_us), peer.and_then(|peer| peer.serial_us));
                let limit_us = gemm_us.map(|gemm_us| limit_us(gemm_us, layer.wire_bytes(world.ranks()), link_gbps));
                let fraction = limit_us.map(|limit_us| limit_us / ours_us);
                println!(
                    "{model} T={tokens} {variant}: {ours_us:.1} us (spread {spread:.3}, error {error:.4}); unfused \
                     {:.2}, limit {:.2} of it",
                    serial_us.unwrap_or(f64::NAN) / ours_us,
                    fraction.unwrap_or(f64::NAN)
                );
                if let Some(folder) = &options.timeline {
                    fs::create_dir_all(folder)?;
                    let timeline = kernel.record(layer.args())?;
                    for extension in ["json", "svg"] {
                        timeline.save(folder.join(format!("{model}-{tokens}-{variant}.{extension}")))?;
                    }
                    fs::write(folder.join(format!("{model}-{tokens}-{variant}.txt")), timeline.to_string())?;
                }
                ensure!(error < 0.02, "{model}, {tokens} tokens, {variant}: off by {error}");
                records.push(Record {
                    op: "moe_layer".into(),
                    dtype: "bf16".into(),
                    world: world.ranks(),
                    shape: Shape { model, tokens },
                    variant: variant.to_string(),
                    regime: options.regime,
                    timing: Timing::Graph,
                    ours_us: Some(ours_us),
                    gemm_us,
                    serial_us,
                    limit_us,
                    fraction,
                    spread,
                    link_gbps,
                    error: Some(error),
                    date: date.clone(),
                    device: gpus.name()?,
                    driver: driver.clone(),
                    libraries: peer.map_or_else(String::new, |peer| peer.libraries.clone()),
                });
                fs::write(&options.out, serde_json::to_string_pretty(&records)? + "\n")?;
            }
        }
    }
    Ok(())
}

/// µs of a call, in each repeat.
fn time(
    stopwatch: &Stopwatch<'_>,
    gpus: &Gpus,
    kernel: &Kernel<moe_layer::Woven>,
    layer: &mut Layer,
    calls: usize,
    repeats: usize,
    regime: Regime,
) -> Result<Vec<f64>> {
    let graph = kernel.graph_in_turns(calls as u32, [layer.args()])?;
    let batch: Batch<'_> = Box::new(|| Ok(vec![graph.launch_on(&gpus.streams)?]));
    let mut batches = vec![(calls, batch)];
    Ok(stopwatch.compare(&mut batches, regime, Timing::Graph, repeats)?.remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_choose_different_experts_whose_weights_are_shares() {
        let widths = Model::Qwen2moe.widths();
        let (chosen, weights) = route(widths, 300);
        let mut loads = vec![0; widths.experts];
        for (chosen, weights) in chosen.chunks_exact(widths.choices).zip(weights.chunks_exact(widths.choices)) {
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            assert!(weights.is_sorted_by(|one, other| one >= other), "the largest logit first");
            for (index, expert) in chosen.iter().enumerate() {
                assert!(!chosen[..index].contains(expert));
                loads[*expert as usize] += 1;
            }
        }
        assert!(loads.iter().all(|load| (1..80).contains(load)), "{loads:?}");
    }

    #[test]
    fn elements_repeat_and_differ_by_matrix() {
        let found = elements(3, 1_000_010, 2.0);
        assert_eq!(found[1_000_003], found[0]);
        assert_eq!(found[7], element(3, 7, 2.0));
        assert_ne!(found[..9], elements(4, 9, 2.0));
        assert!(found.iter().all(|x| x.to_f32().abs() <= 1.0));
    }
}
