//! The suite on this machine's GPUs, without cargo: one line for each case, and the count at the end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::Parser;
use entwine::World;
use entwine::spec::Target;
use entwine_tests::suite::{self, Case, Ranks};

/// Runs the suite on the GPUs of this machine.
#[derive(Parser)]
#[command(name = "gpu-suite")]
struct Options {
    /// Only cases with this in their names; those of `large` need minutes, and run only if it starts like that
    filter: Option<String>,
    /// Worlds of so many GPUs, the first ones; may be repeated [default: one of all GPUs]
    #[arg(long)]
    ranks: Vec<usize>,
    /// All ranks on the first GPU, each with a part of it
    #[arg(long, requires = "ranks", conflicts_with = "simulated")]
    share: bool,
    /// Device code for this target, sm_90a or sm_80, in place of what suits the GPUs best
    #[arg(long)]
    target: Option<Target>,
    /// Simulated ranks in place of GPUs
    #[arg(long)]
    simulated: bool,
    /// Show the cases' names and run none
    #[arg(long)]
    list: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let cases = cases(&options);
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(ExitCode::SUCCESS);
    }
    let (mut passed, mut failed) = (0, 0);
    for ranks in worlds(&options)? {
        for case in cases.iter().filter(|case| case.ranks <= ranks.count()) {
            let begun = Instant::now();
            let outcome = run(case, &ranks);
            let seconds = begun.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => passed += 1,
                Err(_) => failed += 1,
            }
            let verdict = if outcome.is_ok() { "ok  " } else { "FAIL" };
            println!("{verdict} {ranks} {} {seconds:.2} s", case.name);
            if let Err(error) = outcome {
                println!("     {error:#}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cases(options: &Options) -> Vec<Case> {
    let filter = options.filter.as_deref().unwrap_or_default();
    let mut cases = suite::everywhere();
    if !options.simulated {
        cases.extend(suite::gpus());
        if !options.share {
            cases.extend(suite::apart());
        }
    }
    if filter.starts_with("large") {
        cases.extend(suite::large());
    }
    cases.retain(|case| case.name.contains(filter));
    cases
}

fn worlds(options: &Options) -> Result<Vec<Ranks>> {
    let ranks = |count| match options {
        Options { simulated: true, .. } => Ranks::simulated(count, 2),
        Options { share: true, target, .. } => Ranks::on_one_gpu(count, *target),
        Options { target, .. } => Ranks::gpus(count, *target),
    };
    let counts = match &*options.ranks {
        [] if options.simulated => vec![4],
        [] => vec![World::open()?.ranks()],
        counts => counts.to_vec(),
    };
    Ok(counts.into_iter().map(ranks).collect())
}

/// Runs a case; a panic is a failure like others.
fn run(case: &Case, ranks: &Ranks) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| (case.run)(ranks))).unwrap_or_else(|panic| Err(anyhow!("{}", text(&*panic))))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}
