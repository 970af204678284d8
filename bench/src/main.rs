//! Times the fused kernels beside what they compete with, cuBLASLt and NCCL, and beside what nothing can beat.

mod cublaslt;
mod fused;
mod goals;
mod gpus;
mod latency;
mod library;
mod limit;
mod link;
mod measure;
mod moe;
mod nccl;
mod one_sided;
mod operands;
mod plot;
mod probe;
mod record;
mod scaling;
mod shapes;
mod table;
mod timeline;
mod timing;
mod unfused;
mod watchdog;

use std::env;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// How NCCL is set unless the environment says otherwise: without multicast, which would be another link than the one
/// that is measured, and without what only programs need that mix graphs and single calls at the same time.
const NCCL_SETTINGS: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_GRAPH_MIXING_SUPPORT", "0")];

#[derive(Parser)]
#[command(about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: measure::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Print records as tables in Markdown
    Table {
        /// JSON files of this program, and of bench/peers.py
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Draw records as SVG plots
    Plot {
        /// JSON files of this program, and of bench/peers.py
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The folder to draw into
        #[arg(required = true)]
        folder: PathBuf,
    },
    /// Print what more GPUs would make of the same layers, by the launcher's model, in Markdown
    Scaling {
        /// JSON files of this program, for what was measured
        files: Vec<PathBuf>,
    },
    /// Record one launch of each operation: what each CTA does when
    Timeline(timeline::Options),
    /// Time embedding bags that are exchanged, and the rates that one-sided operations reach
    OneSided(one_sided::Options),
    /// Time layers of experts
    Moe(moe::Options),
    /// Measure the time from the call of a launch to the first CTA on each GPU
    Latency(latency::Options),
}

fn main() -> Result<()> {
    let Cli { command, options } = Cli::parse();
    match command {
        Some(Command::Table { files }) => {
            print!("{}", table::markdown(record::load(&files)?));
            Ok(())
        }
        Some(Command::Plot { files, folder }) => {
            for file in plot::draw(&record::merge_peers(record::latest(record::load(&files)?)), &folder)? {
                println!("{}", file.display());
            }
            Ok(())
        }
        Some(Command::Scaling { files }) => {
            print!("{}", scaling::markdown(record::load(&files)?)?);
            Ok(())
        }
        Some(Command::Timeline(options)) => timeline::run(&options),
        Some(Command::Latency(options)) => latency::run(&options),
        Some(Command::OneSided(options)) => one_sided::run(&options),
        Some(Command::Moe(options)) => moe::run(&options),
        None => {
            for (name, value) in NCCL_SETTINGS {
                if env::var_os(name).is_none() {
                    // SAFETY: no other thread has been started yet.
                    unsafe { env::set_var(name, value) };
                }
            }
            measure::run(options)
        }
    }
}
