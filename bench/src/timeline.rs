//! Timelines: one launch of an operation, recorded after others have warmed the GPUs up, as a trace, a picture and text.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use entwine::{Summary, Timeline, World};

use crate::fused::{FusedKernel, Variant, output};
use crate::operands::Inputs;
use crate::shapes::{Model, Operation, Shape};
use crate::watchdog;

/// Launches before those that are recorded.
pub const WARM_UP: usize = 20;

/// What to record, on all GPUs
#[derive(Debug, Args)]
pub struct Options {
    /// These operations
    #[arg(long = "op", value_delimiter = ',', required = true)]
    operations: Vec<Operation>,
    /// These models' layers
    #[arg(long = "model", value_delimiter = ',', required = true)]
    models: Vec<Model>,
    /// Rows in all
    #[arg(long = "rows", short = 'm', value_delimiter = ',', required = true)]
    rows: Vec<usize>,
    /// The fused kernels' variant
    #[arg(long, default_value = "auto")]
    variant: Variant,
    /// Launches to record, of which the one that took the median time counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// The folder to write `OPERATION-MODEL-ROWS.json`, `.svg` and `.txt` to
    #[arg(long)]
    out: PathBuf,
}

/// Records what the options say.
///
/// # Errors
/// The machine is not fit for it, a launch failed, or a file can't be written.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.repeats > 0, "there must be at least one repeat");
    fs::create_dir_all(&options.out).with_context(|| format!("couldn't make {}", options.out.display()))?;
    watchdog::start();
    watchdog::step("opening the GPUs");
    let world = World::open()?;
    for &operation in &options.operations {
        watchdog::compile_step(format!("loading {operation}"));
        let kernel = FusedKernel::load(&world, operation, options.variant)?;
        for &model in &options.models {
            for &rows in &options.rows {
                let name = format!("{operation}-{model}-{rows}");
                watchdog::compile_step(name.as_str());
                let shape = Shape::of(operation, model, rows, world.ranks())?;
                let timeline = record(&world, &kernel, operation, shape, options.repeats)?;
                let summary = summary(&timeline, world.ranks());
                println!("{name}\n{summary}");
                let file = |extension| options.out.join(format!("{name}.{extension}"));
                for extension in ["json", "svg"] {
                    timeline.save(file(extension)).with_context(|| format!("couldn't write {name}.{extension}"))?;
                }
                fs::write(file("txt"), format!("{summary}{timeline}")).context("couldn't write the summary")?;
            }
        }
    }
    Ok(())
}

/// The record of the median launch.
fn record(world: &World, kernel: &FusedKernel, operation: Operation, shape: Shape, repeats: usize) -> Result<Timeline> {
    let inputs = Inputs::in_turns(world, operation, shape)?;
    let mut output = output(world, operation, shape)?;
    for inputs in inputs.iter().cycle().take(WARM_UP) {
        kernel.launch(inputs, &mut output)?.wait()?;
    }
    let records = inputs.iter().cycle().take(repeats).map(|inputs| kernel.record(inputs, &mut output));
    Ok(median(records.collect::<Result<Vec<_>>>()?))
}

/// Of some recorded launches the one that took the median time.
pub fn median(mut records: Vec<Timeline>) -> Timeline {
    records.sort_by_key(Timeline::duration);
    records.swap_remove(records.len() / 2)
}

/// Where each rank's time went.
fn summary(timeline: &Timeline, ranks: usize) -> String {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let mut text = format!("{:.1} µs, of which the median CTA takes\n", micros(timeline.duration()));
    for (rank, clock) in (0..ranks as u32).zip(timeline.clocks()) {
        let Summary { start, multiply, between, end } = timeline.summary(rank);
        let [start, multiply, between, end] = [start, multiply, between, end].map(micros);
        let clock =
            clock.uncertainty_ns.map_or("not aligned".to_owned(), |nanos| format!("±{:.2} µs", nanos as f64 / 1e3));
        let _ = writeln!(
            text,
            "  rank {rank}: {start:.1} µs to start, {multiply:.1} to multiply, {between:.1} between products, {end:.1} after \
             the last (clock {clock})"
        );
    }
    text
}
