//! Layers of experts in the sizes of known models: their routings and operands, and what results should be.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use entwine::{Tensor, World};
use entwine_kernels::probes::moe_dispatch_gemm_in_order;
use entwine_kernels::{moe_capacity, moe_dispatch_gemm, moe_gemm_combine, moe_layer};
use half::bf16;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Of the residual stream.
    pub columns: usize,
    /// Of an expert's inside.
    pub hidden: usize,
    pub experts: usize,
    pub choices: usize,
}

impl Model {
    /// What it gives its layers.
    pub fn widths(self) -> Widths {
        let (columns, hidden, experts, choices) = match self {
            Model::Mixtral => (4096, 14336, 8, 2),
            Model::Qwen2moe => (2048, 1408, 64, 4),
            Model::Dsv3ish => (7168, 2048, 64, 8),
        };
        Widths { columns, hidden, experts, choices }
    }
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

fn checksum(chosen: &[u32]) -> u32 {
    chosen.iter().fold(0, |sum: u32, expert| sum.wrapping_mul(31).wrapping_add(*expert))
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

/// The weights of a model's experts.
pub struct Experts {
    widths: Widths,
    gate_up: Tensor<bf16>,
    down: Tensor<bf16>,
}

impl Experts {
    /// # Errors
    /// They can't be split evenly, or memory ran out.
    pub fn new(world: &World, widths: Widths) -> Result<Self> {
        let Widths { columns, hidden, experts, .. } = widths;
        let ranks = world.ranks();
        ensure!(experts.is_multiple_of(ranks), "{experts} experts can't be split evenly over {ranks} ranks");
        let each = experts / ranks;
        let of_experts = |rank: usize, first: u64, count: usize, width: usize| {
            let experts = (rank * each) as u64..((rank + 1) * each) as u64;
            experts.flat_map(|expert| elements(first + expert, count, scale(width))).collect::<Vec<_>>()
        };
        let (up_rows, down_rows) = (each * 2 * hidden, each * columns);
        Ok(Experts {
            widths,
            gate_up: world
                .per_rank(|rank| ([up_rows, columns], of_experts(rank, GATE_UP, 2 * hidden * columns, columns)))?,
            down: world.per_rank(|rank| ([down_rows, hidden], of_experts(rank, DOWN, columns * hidden, hidden)))?,
        })
    }
}

/// A layer's tensors, with so many tokens on each rank.
pub struct Layer<'a> {
    experts: &'a Experts,
    widths: Widths,
    tokens: usize,
    chosen: Vec<u32>,
    weights: Vec<f32>,
    choices: Tensor<u32>,
    of_choices: Tensor<f32>,
    x: Tensor<bf16>,
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

impl<'a> Layer<'a> {
    /// # Errors
    /// Memory ran out.
    pub fn new(world: &World, experts: &'a Experts, tokens: usize) -> Result<Self> {
        let widths = experts.widths;
        let Widths { columns, hidden, experts: count, choices } = widths;
        let (all, each) = (tokens * world.ranks(), count / world.ranks());
        let (chosen, weights) = route(widths, all);
        let most = moe_capacity(all, choices, count, world.ranks());
        let capacity = most.min(likely_rows(all * choices, world.ranks(), each));
        Ok(Layer {
            choices: world.scatter([all, choices], &chosen)?,
            of_choices: world.scatter([all, choices], &weights)?,
            x: world.scatter([all, columns], &elements(X, all * columns, 12.0f32.sqrt()))?,
            rows: world.zeros([capacity, columns])?,
            hidden: world.zeros([capacity, hidden])?,
            outputs: world.zeros([capacity, columns])?,
            loads: world.zeros([1, count])?,
            y: world.filled([tokens, columns], bf16::NAN)?,
            experts,
            widths,
            tokens,
            chosen,
            weights,
        })
    }

    /// Those of `moe_layer`.
    pub fn args(&mut self) -> moe_layer::Args<'_> {
        moe_layer::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            x: &self.x,
            rows: &mut self.rows,
            gate_up: &self.experts.gate_up,
            hidden: &mut self.hidden,
            down: &self.experts.down,
            outputs: &mut self.outputs,
            y: &mut self.y,
        }
    }

    /// Those of `moe_dispatch_gemm`.
    pub fn first_half(&mut self) -> moe_dispatch_gemm::Args<'_> {
        moe_dispatch_gemm::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            x: &self.x,
            rows: &mut self.rows,
            gate_up: &self.experts.gate_up,
            hidden: &mut self.hidden,
        }
    }

    /// Those of `moe_dispatch_gemm_in_order`.
    pub fn first_half_in_order(&mut self) -> moe_dispatch_gemm_in_order::Args<'_> {
        let moe_dispatch_gemm::Args { choices, weights, loads, x, rows, gate_up, hidden } = self.first_half();
        moe_dispatch_gemm_in_order::Args { choices, weights, loads, x, rows, gate_up, hidden }
    }

    /// Those of `moe_gemm_combine`.
    pub fn second_half(&mut self) -> moe_gemm_combine::Args<'_> {
        moe_gemm_combine::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            hidden: &self.hidden,
            down: &self.experts.down,
            outputs: &mut self.outputs,
            y: &mut self.y,
        }
    }

    /// Of all choices in their order, as `peers/experts.py` finds it.
    pub fn routing(&self) -> u32 {
        checksum(&self.chosen)
    }

    /// The bytes that the busiest rank sends: each token once to each rank that it needs, and back from there.
    pub fn wire_bytes(&self, world: usize) -> usize {
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
    ///
    /// # Errors
    /// One of them is NaN, or the machine failed.
    pub fn error(&self, world: &World) -> Result<f64> {
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
fn likely_rows(chosen: usize, world: usize, experts: usize) -> usize {
    (chosen / world * 5 / 4).next_multiple_of(128) + experts * 128 + 1024
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
    fn pytorch_routes_in_the_same_way() {
        // What `peers/experts.py` finds for these sizes.
        for (experts, choices, tokens, found) in [(8, 2, 32, 1_532_617_195), (64, 4, 16, 1_640_201_492)] {
            let (chosen, _) = route(Widths { columns: 64, hidden: 32, experts, choices }, tokens);
            assert_eq!(checksum(&chosen), found);
        }
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
