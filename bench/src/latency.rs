//! How long it takes from the call of a launch on the host to the first CTA on each GPU.

use std::fs;
use std::hint;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use entwine::{Timeline, World};
use serde::Serialize;

use crate::fused::{FusedKernel, Variant, output};
use crate::gpus::Gpus;
use crate::operands::Inputs;
use crate::probe::{Probe, Reading, on_host};
use crate::shapes::{Model, Operation, Shape};
use crate::watchdog;

/// Time between launches: longer than any call of the driver may still work on the last one. The host's thread is busy
/// meanwhile, as that of a program is which launches all the time: a core that slept is slow at first.
const IDLE: Duration = Duration::from_millis(2);
const WARM_UP: usize = 20;

/// What to launch, on all GPUs
#[derive(Debug, Args)]
pub struct Options {
    /// The operation
    #[arg(long = "op", default_value = "gemm_reduce_scatter")]
    operation: Operation,
    /// The model whose layer it is
    #[arg(long, default_value = "llama7b")]
    model: Model,
    /// Rows in all
    #[arg(long, short = 'm', default_value_t = 512)]
    rows: usize,
    /// The fused kernel's variant
    #[arg(long, default_value = "auto")]
    variant: Variant,
    /// Launches of each kind
    #[arg(long, default_value_t = 200)]
    repeats: usize,
    /// The JSON file to write
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Median and 95th percentile, in µs.
#[derive(Debug, Clone, Copy, Serialize)]
struct Quantiles {
    median_us: f64,
    p95_us: f64,
}

impl Quantiles {
    fn of(times: impl IntoIterator<Item = f64>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        Quantiles { median_us: at(0.5), p95_us: at(0.95) }
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Latency {
    op: Operation,
    model: Model,
    m: usize,
    world: usize,
    repeats: usize,
    /// From the call to the first CTA, by rank.
    first_cta: Vec<Quantiles>,
    /// How far a rank's clock may be off from the host's, the median by rank.
    clock_uncertainty_us: Vec<f64>,
    /// From the first rank's first CTA to the last rank's, on one clock.
    spread: Quantiles,
    /// How far that may be off.
    spread_uncertainty_us: f64,
    /// How long the call takes, for all ranks together.
    call: Quantiles,
    /// How long the driver takes to launch an empty kernel on one rank.
    driver: Quantiles,
}

/// Measures what the options say, prints it and writes it to a file.
///
/// # Errors
/// The machine is not fit for it, a launch failed, or the file can't be written.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.repeats > 0, "there must be at least one repeat");
    watchdog::start();
    watchdog::compile_step("loading the kernel");
    let world = World::open()?;
    let latency = measure(options, &world)?;
    let line = |name: &str, Quantiles { median_us, p95_us }: Quantiles| {
        println!("{name:42} {median_us:8.2} µs median {p95_us:8.2} µs 95 %");
    };
    for (rank, (times, apart)) in latency.first_cta.iter().zip(&latency.clock_uncertainty_us).enumerate() {
        line(&format!("call to first CTA, rank {rank} (±{apart:.2} µs)"), *times);
    }
    line(&format!("between the ranks (±{:.2} µs)", latency.spread_uncertainty_us), latency.spread);
    line("the call", latency.call);
    line("the driver, an empty kernel on one rank", latency.driver);
    if let Some(file) = &options.out {
        let text = serde_json::to_string_pretty(&latency)? + "\n";
        fs::write(file, text).with_context(|| format!("couldn't write {}", file.display()))?;
    }
    Ok(())
}

fn measure(options: &Options, world: &World) -> Result<Latency> {
    let &Options { operation, model, rows, variant, repeats, .. } = options;
    let gpus = Gpus::of(world)?;
    let probes = gpus.streams.iter().map(Probe::new).collect::<Result<Vec<_>>>()?;
    let shape = Shape::of(operation, model, rows, world.ranks())?;
    let kernel = FusedKernel::load(world, operation, variant)?;
    let inputs = Inputs::in_turns(world, operation, shape)?;
    let mut output = output(world, operation, shape)?;

    let mut calls = Vec::new();
    for repeat in 0..WARM_UP + repeats {
        pass(IDLE);
        let begun = Instant::now();
        let launch = kernel.launch(&inputs[repeat % inputs.len()], &mut output)?;
        let time = begun.elapsed();
        launch.wait()?;
        if repeat >= WARM_UP {
            calls.push(micros(time));
        }
    }
    let mut recorded = Vec::new();
    for repeat in 0..WARM_UP.min(3) + repeats {
        let read = || probes.iter().map(Probe::read).collect::<Result<Vec<_>>>();
        let before = read()?;
        pass(IDLE);
        let timeline = kernel.record(&inputs[repeat % inputs.len()], &mut output)?;
        let after = read()?;
        if repeat >= WARM_UP.min(3) {
            recorded.push((timeline, before, after));
        }
        watchdog::progress();
    }
    let driver = (0..repeats).map(|_| Ok(micros(probes[0].launch_time()?))).collect::<Result<Vec<_>>>()?;

    let of_rank = |rank| recorded.iter().map(move |record| first_cta(record, rank));
    let apart = |rank: usize| {
        recorded.iter().map(move |(_, before, after)| micros(before[rank].uncertainty.max(after[rank].uncertainty)))
    };
    let clock = |timeline: &Timeline| {
        timeline.clocks().iter().filter_map(|clock| clock.uncertainty_ns).max().unwrap_or(0) as f64 / 1e3
    };
    Ok(Latency {
        op: operation,
        model,
        m: rows,
        world: world.ranks(),
        repeats,
        first_cta: (0..world.ranks()).map(|rank| Quantiles::of(of_rank(rank))).collect(),
        clock_uncertainty_us: (0..world.ranks()).map(|rank| Quantiles::of(apart(rank)).median_us).collect(),
        spread: Quantiles::of(recorded.iter().map(|(timeline, ..)| spread(timeline))),
        spread_uncertainty_us: Quantiles::of(recorded.iter().map(|(timeline, ..)| clock(timeline))).median_us,
        call: Quantiles::of(calls),
        driver: Quantiles::of(driver),
    })
}

/// From the call of a recorded launch to a rank's first CTA, in µs.
fn first_cta((timeline, before, after): &(Timeline, Vec<Reading>, Vec<Reading>), rank: usize) -> f64 {
    let events = timeline.events().iter().filter(|event| event.rank as usize == rank);
    let first = events.map(|event| timeline.on_own_clock(event)).min().expect("every rank has CTAs");
    let at = on_host(first, &before[rank], &after[rank]);
    micros(at.saturating_duration_since(timeline.called()))
}

/// From the first rank's first event to the last rank's, in µs.
fn spread(timeline: &Timeline) -> f64 {
    let events = timeline.events().chunk_by(|a, b| a.rank == b.rank);
    let firsts: Vec<_> = events.filter_map(|rank| rank.iter().map(|event| event.at).min()).collect();
    let last = firsts.iter().max().copied().unwrap_or(0);
    (last - firsts.iter().min().copied().unwrap_or(0)) as f64 / 1e3
}

/// Lets time pass.
fn pass(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        hint::spin_loop();
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let Quantiles { median_us, p95_us } = Quantiles::of((0..=100).rev().map(f64::from));
        assert_eq!((median_us, p95_us), (50.0, 95.0));
    }
}
