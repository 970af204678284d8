//! Layers of experts, with routings of many kinds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use entwine::cudarc::driver::result;
use entwine::device::abi::FaultKind;
use entwine::device::{Scalar, bf16};
use entwine::{Error, Injection, Kernel, RawMatrix, Stream, Tensor, TensorElement, World};
use entwine_kernels::probes::moe_dispatch_gemm_in_order;
use entwine_kernels::{moe_capacity, moe_dispatch_gemm, moe_gemm_combine, moe_layer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::graphs::streams;
use super::number::{self, Number};
use super::ranks::{Ranks, check_guards};

/// The sizes of a layer.
#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: usize,
    choices: usize,
    experts: usize,
    columns: usize,
    hidden: usize,
}

/// Who chooses whom.
#[derive(Debug, Clone, Copy)]
enum Routing {
    /// Every expert as often as the others, more or less.
    Uniform,
    /// The first experts much more often than the last.
    Zipf,
    /// Every token the same expert, and others.
    Hot,
    /// All tokens nearly the same.
    Alike,
    /// Some tokens none at all, by numbers that no expert has.
    Nowhere,
}

const ROUTINGS: [Routing; 5] = [Routing::Uniform, Routing::Zipf, Routing::Hot, Routing::Alike, Routing::Nowhere];

impl Routing {
    /// The experts that each token chooses, all of them others.
    fn choose(self, size: Size, generator: &mut SmallRng) -> Vec<u32> {
        let Size { tokens, choices, experts, .. } = size;
        let favourite = generator.random_range(0..experts.max(1) as u32);
        let alike = some(experts, choices, generator);
        let choose = |_| match self {
            Routing::Uniform => some(experts, choices, generator),
            Routing::Zipf => by_weight(experts, choices, generator),
            Routing::Hot => {
                let mut chosen = some(experts, choices, generator);
                if !chosen.contains(&favourite) {
                    chosen[0] = favourite;
                }
                chosen
            }
            Routing::Alike if generator.random_bool(0.95) => alike.clone(),
            Routing::Alike => some(experts, choices, generator),
            Routing::Nowhere => {
                let nowhere = [u32::MAX, experts as u32, 1 << 31];
                let mut chosen = some(experts, choices, generator);
                for choice in &mut chosen {
                    if generator.random_bool(0.5) {
                        *choice = nowhere[generator.random_range(0..nowhere.len())];
                    }
                }
                chosen
            }
        };
        (0..tokens).flat_map(choose).collect()
    }
}

/// So many of the experts, in any order.
fn some(experts: usize, choices: usize, generator: &mut SmallRng) -> Vec<u32> {
    let mut all: Vec<_> = (0..experts as u32).collect();
    all.partial_shuffle(generator, choices).0.to_vec()
}

/// So many of the experts, the `i`-th with a probability of about `1 / i`.
fn by_weight(experts: usize, choices: usize, generator: &mut SmallRng) -> Vec<u32> {
    let mut keyed: Vec<_> =
        (0..experts).map(|expert| (generator.random::<f64>().powi(1 + expert as i32), expert)).collect();
    keyed.sort_by(|one, other| other.0.total_cmp(&one.0));
    keyed[..choices].iter().map(|(_, expert)| *expert as u32).collect()
}

/// A layer's tensors, with what they hold.
struct Problem<T> {
    size: Size,
    chosen: Vec<u32>,
    weights: Vec<f32>,
    tokens: Vec<T>,
    /// Of each expert, rows of G and of U.
    gate: Vec<T>,
    up: Vec<T>,
    down: Vec<T>,
    x: Tensor<T>,
    choices: Tensor<u32>,
    of_choices: Tensor<f32>,
    gate_up: Tensor<T>,
    of_down: Tensor<T>,
    rows: Tensor<T>,
    activated: Tensor<T>,
    outputs: Tensor<T>,
    loads: Tensor<u32>,
    y: Tensor<T>,
}

impl<T: Number> Problem<T> {
    /// Random operands, and results that are NaN throughout.
    fn random(world: &World, size: Size, routing: Routing, capacity: usize, seed: u64) -> Result<Self> {
        let generator = &mut SmallRng::seed_from_u64(seed);
        let Size { tokens, choices, experts, columns, hidden } = size;
        let chosen = routing.choose(size, generator);
        let weights: Vec<_> = (0..tokens * choices).map(|_| generator.random_range(-1.0..1.0)).collect();
        let x = number::random(generator, tokens * columns);
        let gate = number::random(generator, experts * hidden * columns);
        let up = number::random(generator, experts * hidden * columns);
        let down = number::random(generator, experts * columns * hidden);
        let each = experts.div_ceil(world.ranks());
        let of_rank = |rank: usize, of_expert: &dyn Fn(usize) -> Vec<T>, length: usize| {
            let experts = (rank * each..(rank + 1) * each).map(|expert| match expert < experts {
                true => of_expert(expert),
                false => vec![T::from_f32(f32::NAN); length],
            });
            experts.flatten().collect::<Vec<_>>()
        };
        // Eight rows of G and eight of U by turns; what there is not is anything.
        let both = 2 * hidden.next_multiple_of(8);
        let interleaved = |expert: usize| {
            let rows = (0..both).flat_map(|row| {
                let (matrix, index) = (if row % 16 < 8 { &gate } else { &up }, row / 16 * 8 + row % 8);
                let first = (expert * hidden + index) * columns;
                match index < hidden {
                    true => matrix[first..first + columns].to_vec(),
                    false => vec![T::from_f32(f32::NAN); columns],
                }
            });
            rows.collect()
        };
        let of_down = |expert: usize| down[expert * columns * hidden..(expert + 1) * columns * hidden].to_vec();
        let nan = T::from_f32(f32::NAN);
        let (all_up, all_down) = (both * columns, columns * hidden);
        let mut y = world.zeros_scattered([tokens, columns])?;
        y.fill(nan)?;
        Ok(Problem {
            x: world.scatter([tokens, columns], &x)?,
            choices: world.scatter([tokens, choices], &chosen)?,
            of_choices: world.scatter([tokens, choices], &weights)?,
            gate_up: world.per_rank(|rank| ([each * both, columns], of_rank(rank, &interleaved, all_up)))?,
            of_down: world.per_rank(|rank| ([each * columns, hidden], of_rank(rank, &of_down, all_down)))?,
            rows: world.filled([capacity, columns], nan)?,
            activated: world.filled([capacity, hidden], nan)?,
            outputs: world.filled([capacity, columns], nan)?,
            loads: world.filled([1, experts], u32::MAX)?,
            y,
            size,
            chosen,
            weights,
            tokens: x,
            gate,
            up,
            down,
        })
    }

    /// With room for whatever is chosen.
    fn roomy(world: &World, size: Size, routing: Routing, seed: u64) -> Result<Self> {
        let capacity = moe_capacity(size.tokens, size.choices, size.experts, world.ranks());
        Self::random(world, size, routing, capacity, seed)
    }

    fn args(&mut self) -> moe_layer::Args<'_, T> {
        moe_layer::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            x: &self.x,
            rows: &mut self.rows,
            gate_up: &self.gate_up,
            hidden: &mut self.activated,
            down: &self.of_down,
            outputs: &mut self.outputs,
            y: &mut self.y,
        }
    }

    fn first_half(&mut self) -> moe_dispatch_gemm::Args<'_, T> {
        moe_dispatch_gemm::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            x: &self.x,
            rows: &mut self.rows,
            gate_up: &self.gate_up,
            hidden: &mut self.activated,
        }
    }

    fn second_half(&mut self) -> moe_gemm_combine::Args<'_, T> {
        moe_gemm_combine::Args {
            choices: &self.choices,
            weights: &self.of_choices,
            loads: &mut self.loads,
            hidden: &self.activated,
            down: &self.of_down,
            outputs: &mut self.outputs,
            y: &mut self.y,
        }
    }

    /// Where what a launch reads lies.
    fn inputs(&self) -> Vec<Vec<RawMatrix>> {
        let weights = [raw(&self.x), raw(&self.gate_up), raw(&self.of_down)];
        weights.into_iter().chain([raw(&self.choices), raw(&self.of_choices)]).collect()
    }

    /// Where what is checked lies.
    fn results(&self) -> Vec<Vec<RawMatrix>> {
        vec![raw(&self.loads), raw(&self.y)]
    }

    /// Makes the results NaN again.
    fn poison(&mut self) -> Result<()> {
        let nan = T::from_f32(f32::NAN);
        self.loads.fill(u32::MAX)?;
        for results in [&mut self.rows, &mut self.activated, &mut self.outputs, &mut self.y] {
            results.fill(nan)?;
        }
        Ok(())
    }

    /// What an expert makes of a token, and the sum of the absolute values that it is made of.
    fn expert(&self, expert: usize, token: usize) -> Vec<(f64, f64)> {
        let Size { columns, hidden, .. } = self.size;
        let x = &self.tokens[token * columns..][..columns];
        let dot = |matrix: &[T], row: usize| -> f64 {
            let row = &matrix[row * columns..][..columns];
            row.iter().zip(x).map(|(a, b)| a.value() * b.value()).sum()
        };
        let activated = (expert * hidden..(expert + 1) * hidden).map(|row| {
            let [gate, up] = [&self.gate, &self.up].map(|matrix| dot(matrix, row) as f32);
            T::from_f32(gate * Scalar::sigmoid(gate) * up).value()
        });
        let activated: Vec<_> = activated.collect();
        let output = |row: usize| {
            let row = &self.down[(expert * columns + row) * hidden..][..hidden];
            let parts = row.iter().zip(&activated).map(|(a, b)| a.value() * b);
            parts.fold((0.0, 0.0), |(sum, size), part| (sum + part, size + part.abs()))
        };
        (0..columns).map(output).collect()
    }

    /// Holds the results against a plain layer.
    fn check(&self) -> Result<()> {
        let Size { tokens, choices, experts, columns, .. } = self.size;
        let loads: Vec<_> = (0..experts)
            .map(|expert| self.chosen.iter().filter(|chosen| **chosen == expert as u32).count() as u32)
            .collect();
        for rank in 0..self.loads.world().ranks() {
            ensure!(self.loads.to_vec(rank)? == loads, "loads on rank {rank}: {:?}", self.loads.to_vec(rank)?);
        }
        let y = self.y.gather()?;
        for token in 0..tokens {
            let mut wanted = vec![(0.0, 0.0); columns];
            for choice in 0..choices {
                let (expert, weight) = (self.chosen[token * choices + choice], self.weights[token * choices + choice]);
                if (expert as usize) < experts {
                    for (wanted, (sum, size)) in wanted.iter_mut().zip(self.expert(expert as usize, token)) {
                        wanted.0 += weight as f64 * sum;
                        wanted.1 += (weight as f64).abs() * size;
                    }
                }
            }
            for (column, (wanted, size)) in wanted.into_iter().enumerate() {
                let found = y[token * columns + column].value();
                let tolerance = 4.0 * T::ROUNDOFF * size + T::SMALLEST;
                ensure!(
                    (found - wanted).abs() <= tolerance,
                    "token {token}, column {column}: {found}, expected {wanted} ± {tolerance}"
                );
            }
        }
        Ok(())
    }
}

impl Problem<bf16> {
    /// As [`first_half`](Problem::first_half), with the products in a fixed order.
    fn first_half_in_order(&mut self) -> moe_dispatch_gemm_in_order::Args<'_> {
        let moe_dispatch_gemm::Args { choices, weights, loads, x, rows, gate_up, hidden } = self.first_half();
        moe_dispatch_gemm_in_order::Args { choices, weights, loads, x, rows, gate_up, hidden }
    }
}

/// Where a tensor lies on each rank.
fn raw<E: TensorElement>(tensor: &Tensor<E>) -> Vec<RawMatrix> {
    (0..tensor.world().ranks()).map(|rank| tensor.raw(rank)).collect()
}

fn sizes(experts: usize) -> impl Strategy<Value = (Size, Routing, u64)> {
    let routings = proptest::sample::select(&ROUTINGS[..]);
    (0..300usize, 1..=experts, 1..=experts, 1..=12usize, 1..=6usize, routings, any::<u64>()).prop_map(
        |(tokens, experts, choices, columns, hidden, routing, seed)| {
            let size =
                Size { tokens, choices: choices.min(experts), experts, columns: 8 * columns, hidden: 5 * hidden };
            (size, routing, seed)
        },
    )
}

/// Case 20: any routing, any sizes, tokens that choose all experts, experts that nobody chooses, ranks without either.
pub fn routings<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    // Small layers are all given the lowest tile otherwise.
    let of_tile = |tile| Kernel::<moe_layer::Woven>::load(&world)?.with_tile(tile);
    let tiles = Kernel::<moe_layer::Woven>::load(&world)?.tiles().into_iter();
    let kernels = tiles.map(of_tile).collect::<Result<Vec<_>, _>>()?;
    let config = Config { cases: ranks.pick(6, 60), failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&sizes(11), |(size, routing, seed)| {
        let run = || {
            let mut problem = Problem::<T>::roomy(&world, size, routing, seed)?;
            kernels[seed as usize % kernels.len()].launch(problem.args())?.wait()?;
            problem.check()
        };
        run().map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
    outcome.map_err(|error| anyhow::anyhow!("{error}"))?;
    check_guards(&world)
}

/// So many choices that several CTAs make a rank's table, each warp of which goes through its part in several steps.
pub fn many_choices<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel: Kernel<moe_layer::Woven> = Kernel::load(&world)?;
    for (routing, tokens) in [(Routing::Zipf, 7000), (Routing::Nowhere, 6001), (Routing::Uniform, 700)] {
        let size = Size { tokens, choices: 9, experts: 40, columns: 136, hidden: 24 };
        let mut problem = Problem::<T>::roomy(&world, size, routing, 17)?;
        for _ in 0..3 {
            kernel.launch(problem.args())?.wait()?;
            problem.check().with_context(|| format!("{routing:?}, {tokens} tokens"))?;
            problem.poison()?;
        }
    }
    Ok(())
}

/// Layers without tokens, columns, hidden values, choices or experts: whatever there is of the results is zero, and nobody waits.
pub fn of_nothing<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let (whole, first, second) = (Kernel::load(&world)?, Kernel::load(&world)?, Kernel::load(&world)?);
    let size = Size { tokens: 70, choices: 2, experts: 5, columns: 24, hidden: 40 };
    let sizes = [
        Size { tokens: 0, ..size },
        Size { columns: 0, ..size },
        Size { hidden: 0, ..size },
        Size { choices: 0, ..size },
        Size { columns: 0, hidden: 0, ..size },
        Size { choices: 0, experts: 0, ..size },
        Size { tokens: 1, choices: 1, experts: 1, columns: 8, hidden: 1 },
    ];
    for size in sizes {
        let mut problem = Problem::<T>::roomy(&world, size, Routing::Uniform, 7)?;
        for _ in 0..2 {
            whole.launch(problem.args())?.wait().with_context(|| format!("{size:?}"))?;
            problem.check().with_context(|| format!("{size:?}"))?;
        }
        problem.poison()?;
        first.launch(problem.first_half())?.wait().with_context(|| format!("the first half of {size:?}"))?;
        second.launch(problem.second_half())?.wait().with_context(|| format!("the second half of {size:?}"))?;
        problem.check().with_context(|| format!("{size:?} in halves"))?;
    }
    check_guards(&world)
}

/// Cases 1 and 3: layers in a row whose routings change, the same bits whenever one is repeated.
pub fn back_to_back<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?;
    let size = Size { tokens: 150, choices: 2, experts: 5, columns: 40, hidden: 24 };
    let problems = ROUTINGS.iter().zip(0..).map(|(routing, seed)| Problem::<T>::roomy(&world, size, *routing, seed));
    let mut problems = problems.collect::<Result<Vec<_>>>()?;
    let mut first = Vec::new();
    for round in 0..ranks.pick(2, 200) {
        let launches = problems.iter_mut().map(|problem| kernel.launch(problem.args()));
        for launch in launches.collect::<Result<Vec<_>, _>>()? {
            launch.wait()?;
        }
        for (index, problem) in problems.iter_mut().enumerate() {
            let bits = number::bits(&problem.y.gather()?);
            if round == 0 {
                problem.check().with_context(|| format!("{:?}", ROUTINGS[index]))?;
                first.push(bits);
            } else {
                ensure!(bits == first[index], "round {round} of {:?} has other bits", ROUTINGS[index]);
            }
            problem.y.fill(T::from_f32(f32::NAN))?;
        }
    }
    check_guards(&world)
}

/// A layer in two launches has the same bits as in one.
pub fn in_halves<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let whole = Kernel::load(&world)?;
    let (first, second) = (Kernel::load(&world)?, Kernel::load(&world)?);
    let size = Size { tokens: 260, choices: 3, experts: 7, columns: 72, hidden: 40 };
    for (seed, routing) in (0..).zip(ROUTINGS) {
        let mut problem = Problem::<T>::roomy(&world, size, routing, seed)?;
        whole.launch(problem.args())?.wait()?;
        let wanted = number::bits(&problem.y.gather()?);
        problem.poison()?;
        first.launch(problem.first_half())?.wait()?;
        second.launch(problem.second_half())?.wait()?;
        problem.check()?;
        ensure!(number::bits(&problem.y.gather()?) == wanted, "{routing:?}: other bits in two launches");
    }
    check_guards(&world)
}

/// Case 12, of rows alone: whichever rank's are late, and whatever the order of the products, they come, and bits are the same.
pub fn late_rows(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let whole: Kernel<moe_layer::Woven> = Kernel::load(&world)?;
    let ready_first: Kernel<moe_dispatch_gemm::Woven> = Kernel::load(&world)?;
    let in_order: Kernel<moe_dispatch_gemm_in_order::Woven> = Kernel::load(&world)?;
    let second = Kernel::load(&world)?;
    // Rows that several groups of a rank choose, blocks with rows of one rank and of several, and rows that take two steps.
    let size = Size { tokens: 330, choices: 3, experts: 4, columns: ranks.pick(40, 8_200), hidden: 40 };
    let by = Duration::from_millis(30);
    for (seed, routing) in (0..).zip(ROUTINGS) {
        let mut problem = Problem::<bf16>::roomy(&world, size, routing, seed)?;
        whole.launch(problem.args())?.wait()?;
        problem.check().with_context(|| format!("{routing:?}, nothing late"))?;
        let wanted = number::bits(&problem.y.gather()?);
        for rank in 0..ranks.count() {
            let late = Injection::LateRows { rank, by };
            for way in ["whole", "ready first", "in order"] {
                problem.poison()?;
                let begun = Instant::now();
                match way {
                    "whole" => {
                        whole.inject(late)?;
                        whole.launch(problem.args())?.wait()?;
                    }
                    "ready first" => {
                        ready_first.inject(late)?;
                        ready_first.launch(problem.first_half())?.wait()?;
                    }
                    _ => {
                        in_order.inject(late)?;
                        in_order.launch(problem.first_half_in_order())?.wait()?;
                    }
                }
                ensure!(begun.elapsed() >= by, "{routing:?}, {way}: rank {rank} was not late");
                if way != "whole" {
                    second.launch(problem.second_half())?.wait()?;
                }
                let found = number::bits(&problem.y.gather()?);
                ensure!(found == wanted, "{routing:?}, {way}: other bits with rank {rank} late");
            }
        }
    }
    check_guards(&world)
}

/// Case 15, of rows: what is missing is named, be it the rank or a block, and the next launch is right.
pub fn missing_rows(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let deadline = Duration::from_secs(1);
    let first = Kernel::<moe_dispatch_gemm::Woven>::load(&world)?.with_deadline(deadline);
    let second = Kernel::load(&world)?;
    let size = Size { tokens: 300, choices: 2, experts: 4, columns: 64, hidden: 16 };
    let mut problem = Problem::<bf16>::roomy(&world, size, Routing::Uniform, 8)?;
    let late = ranks.count() - 1;
    first.inject(Injection::LateRows { rank: late, by: 4 * deadline })?;
    match first.launch(problem.first_half())?.wait() {
        Err(Error::Fault(fault)) => {
            let rank = fault.kind == FaultKind::NotAcknowledged
                && fault.stage == Some("dispatch")
                && fault.peer == Some(late as u32);
            let block = fault.kind == FaultKind::MissingSignal
                && fault.stage == Some("activate")
                && fault.channel == Some("Arrived");
            ensure!(rank || block, "found {fault}");
        }
        other => bail!("expected an error over rows that never come, found {other:?}"),
    }
    first.launch(problem.first_half())?.wait()?;
    second.launch(problem.second_half())?.wait()?;
    problem.check()?;
    check_guards(&world)
}

/// On simulated ranks, whatever signal of a layer is dropped is the one that is named, though all of what comes after waits, too.
pub fn missing_signals(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::<moe_layer::Woven>::load(&world)?.with_deadline(Duration::from_secs(20));
    let size = Size { tokens: 40, choices: 2, experts: 4, columns: 64, hidden: 16 };
    let mut problem = Problem::<bf16>::roomy(&world, size, Routing::Uniform, 8)?;
    let gates: [(&'static str, &'static [u32], &str); 3] =
        [("Arrived", &[0], "activate"), ("Activated", &[0], "compute"), ("Computed", &[0], "combine")];
    for (channel, slot, stage) in gates {
        kernel.inject(Injection::DropSignal { rank: 0, channel, slot })?;
        match kernel.launch(problem.args())?.wait() {
            Err(Error::Fault(fault)) => {
                let stages = [Some(stage), if channel == "Computed" { Some("send") } else { None }];
                let named = (fault.rank, fault.channel, &*fault.slot) == (0, Some(channel), slot);
                ensure!(named && stages.contains(&fault.stage), "{channel}: {fault}");
            }
            other => bail!("expected an error over {channel}, found {other:?}"),
        }
    }
    if ranks.count() > 1 {
        kernel.inject(Injection::DropSignal { rank: 0, channel: "Partial", slot: &[0, 0, 0] })?;
        match kernel.launch(problem.args())?.wait() {
            Err(Error::Fault(fault)) => {
                let named = (fault.channel, &*fault.slot, fault.peer) == (Some("Partial"), &[0, 0, 0][..], Some(0));
                ensure!(named && fault.rank != 0 && fault.stage == Some("combine"), "{fault}");
            }
            other => bail!("expected an error over a partial sum, found {other:?}"),
        }
    }
    problem.poison()?;
    kernel.launch(problem.args())?.wait()?;
    problem.check()?;
    check_guards(&world)
}

/// Cases 3 and 4: two shapes in turn, while the epochs pass from the positive to the negative numbers, or wrap.
pub fn epochs_wrap<T: Number>(ranks: &Ranks) -> Result<()> {
    for first_epoch in [(1 << 31) - 2, u32::MAX - 1] {
        let world = ranks.builder().first_epoch(first_epoch).build()?;
        let kernel = Kernel::load(&world)?;
        for round in 0..8 {
            let tokens = if round % 2 == 0 { 200 } else { 70 };
            let size = Size { tokens, choices: 2, experts: 3, columns: 40, hidden: 16 };
            let mut problem = Problem::<T>::roomy(&world, size, Routing::Uniform, round)?;
            kernel.launch(problem.args())?.wait()?;
            problem.check().with_context(|| format!("{round} launches from epoch {first_epoch}"))?;
        }
    }
    Ok(())
}

/// Cases 6 and 20: a graph of three layers, replayed while tokens and choices change.
pub fn replayed<T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let (kernel, streams) = (Kernel::load(&world)?, streams(&world)?);
    let size = Size { tokens: 300, choices: 2, experts: 6, columns: 64, hidden: 32 };
    let mut problem = Problem::<T>::roomy(&world, size, Routing::Uniform, 1)?;
    let others = ROUTINGS.iter().zip(2..).map(|(routing, seed)| Problem::<T>::roomy(&world, size, *routing, seed));
    let others = others.collect::<Result<Vec<_>>>()?;
    let (inputs, results) = (problem.inputs(), problem.results());
    let graph = kernel.graph(3, problem.args())?;
    for round in 0..1000 {
        let other = &others[round % others.len()];
        copy(&other.inputs(), &inputs, &streams)?;
        graph.launch_on(&streams)?.wait()?;
        copy(&results, &other.results(), &streams)?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        if round < 2 * others.len() || round % 100 < others.len() {
            other.check().with_context(|| format!("round {round}"))?;
        }
    }
    check_guards(&world)
}

/// Copies matrices, each rank's to the same rank's.
fn copy(from: &[Vec<RawMatrix>], to: &[Vec<RawMatrix>], streams: &[Stream]) -> Result<()> {
    for (from, to) in from.iter().zip(to) {
        for (rank, stream) in streams.iter().enumerate() {
            let bytes = from[rank].pitch * from[rank].rows;
            if bytes > 0 {
                stream.context().bind_to_thread()?;
                // SAFETY: both matrices have the same shape, and live until the streams have been synchronised.
                unsafe { result::memcpy_dtod_async(to[rank].address, from[rank].address, bytes, stream.cu_stream())? };
            }
        }
    }
    Ok(())
}

/// Case 20: more tokens than there is room for are an error on every rank, and nothing is written out of bounds.
pub fn overflow(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = Kernel::load(&world)?.with_tile((128, 128))?;
    let size = Size { tokens: 300, choices: 2, experts: 4, columns: 64, hidden: 16 };
    for capacity in [0, 100, 128, 255] {
        let mut problem = Problem::<bf16>::random(&world, size, Routing::Hot, capacity, 5)?;
        match kernel.launch(problem.args())?.wait() {
            Err(Error::Fault(fault)) if fault.kind == FaultKind::Capacity => {
                ensure!(fault.expected == capacity as u32 / 128 && fault.seen > fault.expected, "{fault}");
            }
            other => bail!("expected an error over a capacity of {capacity}, found {other:?}"),
        }
    }
    let mut problem = Problem::<bf16>::roomy(&world, size, Routing::Hot, 6)?;
    kernel.launch(problem.args())?.wait()?;
    problem.check()?;
    check_guards(&world)
}
