//! A layer of experts with a router: softmax over random logits, the two best experts for each token. The layer is one
//! fused launch; its result is held against a plain one. The picture shows how many tokens each expert gets, and how
//! the ranks compute and communicate.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use entwine::device::bf16;
use entwine::{Timeline, World};
use entwine_examples::matrices::{elements, error, random};
use entwine_kernels::{moe_capacity, moe_layer};
use ndarray::{Array1, Array2, ArrayView1, Axis};

const TOKENS: usize = 600;
const WIDTH: usize = 128;
const HIDDEN: usize = 64;
const EXPERTS: usize = 8;
const CHOICES: usize = 2;

/// Runs a layer of experts on simulated ranks.
#[derive(Parser)]
struct Options {
    /// How many ranks
    #[arg(long, default_value_t = 4)]
    ranks: usize,
    /// The file to draw the picture (SVG) into
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// The experts' weights: rows of `gate` and `up` make hidden values of a token, rows of `down` its outputs.
struct Expert {
    gate: Array2<f32>,
    up: Array2<f32>,
    down: Array2<f32>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let world = World::simulated(options.ranks)?;
    let x = random([TOKENS, WIDTH], 1.0, 1);
    let experts: Vec<_> = (0..EXPERTS as u64).map(Expert::random).collect();
    let (choices, weights) = route(&x.dot(&random([EXPERTS, WIDTH], 0.2, 2).t()));

    let each = EXPERTS.div_ceil(world.ranks());
    let of_rank = |rank: usize| experts.iter().skip(rank * each).take(each);
    let stacked = |rank: usize, rows: usize, columns: usize, of: &dyn Fn(&Expert) -> Array2<f32>| {
        let mut all: Vec<_> = of_rank(rank).flat_map(|expert| elements(&of(expert))).collect();
        all.resize(each * rows * columns, bf16::ZERO);
        ([each * rows, columns], all)
    };
    let choices_there = world.scatter([TOKENS, CHOICES], &choices)?;
    let weights_there = world.scatter([TOKENS, CHOICES], &weights)?;
    let x_there = world.scatter([TOKENS, WIDTH], &elements(&x))?;
    let gate_up = world.per_rank(|rank| stacked(rank, 2 * HIDDEN, WIDTH, &Expert::gate_up))?;
    let down = world.per_rank(|rank| stacked(rank, WIDTH, HIDDEN, &|expert| expert.down.clone()))?;
    // Room for whatever the tokens choose.
    let capacity = moe_capacity(TOKENS, CHOICES, EXPERTS, world.ranks());
    let mut rows = world.zeros([capacity, WIDTH])?;
    let mut hidden = world.zeros([capacity, HIDDEN])?;
    let mut outputs = world.zeros([capacity, WIDTH])?;
    let mut loads = world.zeros([1, EXPERTS])?;
    let mut y = world.zeros_scattered([TOKENS, WIDTH])?;

    let kernel = moe_layer::load(&world)?;
    let timeline = kernel.record(moe_layer::Args {
        choices: &choices_there,
        weights: &weights_there,
        loads: &mut loads,
        x: &x_there,
        rows: &mut rows,
        gate_up: &gate_up,
        hidden: &mut hidden,
        down: &down,
        outputs: &mut outputs,
        y: &mut y,
    })?;

    let error = error(&y.gather()?, &plain(&x, &experts, &choices, &weights))?;
    println!("{TOKENS} tokens choose {CHOICES} of {EXPERTS} experts on {} ranks", world.ranks());
    println!("right: largest error {:.2} % of the largest element\n", error * 100.0);
    let loads = loads.to_vec(0)?;
    for (expert, load) in loads.iter().enumerate() {
        println!("  expert {expert} on rank {}: {load:4} {}", expert / each, "█".repeat(*load as usize / 8));
    }
    print!("\n{timeline}");
    if let Some(file) = options.svg {
        fs::write(&file, picture(&loads, each, &timeline)).with_context(|| format!("{}", file.display()))?;
    }
    Ok(())
}

/// For each token the experts with the largest logits, and the softmax over these.
fn route(logits: &Array2<f32>) -> (Vec<u32>, Vec<f32>) {
    let of_token = |logits: ArrayView1<f32>| {
        let mut order: Vec<_> = (0..EXPERTS).collect();
        order.sort_by(|one, other| logits[*other].total_cmp(&logits[*one]));
        let exp: Vec<_> = order[..CHOICES].iter().map(|expert| logits[*expert].exp()).collect();
        let sum: f32 = exp.iter().sum();
        order.into_iter().zip(exp).map(|(expert, exp)| (expert as u32, exp / sum)).collect::<Vec<_>>()
    };
    logits.axis_iter(Axis(0)).flat_map(of_token).unzip()
}

/// What the layer should make of the tokens.
fn plain(x: &Array2<f32>, experts: &[Expert], choices: &[u32], weights: &[f32]) -> Array2<f32> {
    let mut y = Array2::zeros([TOKENS, WIDTH]);
    for (choice, (expert, weight)) in choices.iter().zip(weights).enumerate() {
        let token = choice / CHOICES;
        let part = experts[*expert as usize].apply(&x.row(token));
        y.row_mut(token).scaled_add(*weight, &part);
    }
    y
}

impl Expert {
    fn random(index: u64) -> Self {
        Expert {
            gate: random([HIDDEN, WIDTH], 0.1, 10 + index),
            up: random([HIDDEN, WIDTH], 0.1, 30 + index),
            down: random([WIDTH, HIDDEN], 0.2, 50 + index),
        }
    }

    /// Rows of both as the layer takes them, eight of each in turns.
    fn gate_up(&self) -> Array2<f32> {
        let mut both = Array2::zeros([2 * HIDDEN, WIDTH]);
        for row in 0..2 * HIDDEN {
            let from = if row % 16 < 8 { &self.gate } else { &self.up };
            both.row_mut(row).assign(&from.row(row / 16 * 8 + row % 8));
        }
        both
    }

    fn apply(&self, x: &ArrayView1<f32>) -> Array1<f32> {
        let activated = self.gate.dot(x).mapv(|gate| gate / (1.0 + (-gate).exp())) * self.up.dot(x);
        self.down.dot(&activated)
    }
}

/// The loads as bars, and below them what the ranks did when.
fn picture(loads: &[u32], each: usize, timeline: &Timeline) -> String {
    const ROW: usize = 22;
    let most = loads.iter().copied().max().unwrap_or(1).max(1);
    let (top, below) = (50 + ROW * loads.len(), timeline.to_svg());
    let height = top as f64 + height(&below);
    let mut bars = String::new();
    for (expert, load) in loads.iter().enumerate() {
        let (y, width) = (40 + ROW * expert, 700 * load / most);
        let _ = write!(
            bars,
            "<text x=\"84\" y=\"{}\">expert {expert}, rank {}</text><rect x=\"210\" y=\"{y}\" width=\"{width}\" \
             height=\"16\" fill=\"#0072b2\"/><text x=\"{}\" y=\"{}\">{load}</text>",
            y + 13,
            expert / each,
            218 + width,
            y + 13
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 {height}\" font-family=\"sans-serif\" \
         font-size=\"13\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/><g fill=\"#24292f\"><text x=\"84\" \
         y=\"24\" font-size=\"15\" font-weight=\"bold\">Tokens of each expert</text>{bars}</g><svg \
         y=\"{top}\">{below}</svg></svg>\n"
    )
}

/// The height that a picture says it has.
fn height(svg: &str) -> f64 {
    let after = svg.split_once("height=\"").map_or("", |(_, after)| after);
    after.split_once('"').and_then(|(height, _)| height.parse().ok()).unwrap_or(1000.0)
}
