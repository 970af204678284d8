//! Times the fused kernels beside what they compete with, cuBLASLt and NCCL, and beside what nothing can beat.

mod budget;
mod cublaslt;
mod fused;
mod goals;
mod gpus;
mod latency;
mod library;
mod limit;
mod link;
mod measure;
mod memory;
mod moe;
mod nccl;
mod one_sided;
mod operands;
mod peers;
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

/// So that a run fits into the time that there is.
const TIME: &str = "\
Without a command, operations are measured. On two GPUs that is reckoned to take a minute to start, twice that where the driver
hasn't compiled the kernels before, and then for each operation, model and number of rows 5 s; 2 s more for a second regime, 5 s
more for --peers pytorch, 10 s more for --peers cublasmp. All 57 of them in one regime, without peers: 7 minutes. What each took is
printed; --within SECONDS leaves out what there is no time for, and --op, --model and -m choose.";

#[derive(Parser)]
#[command(about, before_help = TIME, args_conflicts_with_subcommands = true)]
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
        /// JSON files of this program, of products and of layers of experts
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Draw records as SVG plots
    Plot {
        /// JSON files of this program, of products
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
    /// Record one launch of each operation: what each CTA does when (a minute)
    Timeline(timeline::Options),
    /// Time embedding bags that are exchanged, and the rates that one-sided operations reach (2 minutes)
    OneSided(one_sided::Options),
    /// Time layers of experts beside the unfused ones (4 minutes; 15 s for each model and number of tokens)
    Moe(moe::Options),
    /// Time the first half of layers of experts while a rank's rows are late: in a fixed order, and as rows come
    LateRows(moe::late::Options),
    /// Measure the time from the call of a launch to the first CTA on each GPU (a minute)
    Latency(latency::Options),
}

fn main() -> Result<()> {
    let Cli { command, options } = Cli::parse();
    match command {
        Some(Command::Table { files }) => {
            let (records, of_experts) = record::load_all(&files)?;
            if !records.is_empty() {
                print!("{}", table::markdown(records));
            }
            if !of_experts.is_empty() {
                print!("\n### Layers of experts\n\n{}", moe::markdown(of_experts));
            }
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
        Some(Command::LateRows(options)) => moe::late::run(&options),
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
