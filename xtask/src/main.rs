//! Chores of this workspace, as `cargo xtask <chore>`.

mod bundle;
mod cargo;
mod check;
mod fatbin;
mod gates;
mod setup;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Chores of this workspace")]
enum Chore {
    /// Run the example of a fused kernel on simulated ranks, or on the GPUs of this machine
    Demo {
        /// What to pass on to the example
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install the compiler and the assembler for the device if they are missing, and check everything
    Test,
    /// Assemble every kernel crate's PTX; report registers, stack and spills of each entry, and fail on a bad one
    Ptx,
    /// Make a folder that runs on a GPU machine without compilers, as `run demo|test|bench`
    Bundle(bundle::Options),
}

fn main() -> Result<()> {
    match Chore::parse() {
        Chore::Demo { arguments } => demo(&arguments),
        Chore::Test => check::everything(),
        Chore::Ptx => {
            setup::assembler()?;
            gates::check_all(&mut cargo::cargo(&["check", "--workspace"]))
        }
        Chore::Bundle(options) => bundle::make(&options),
    }
}

fn demo(arguments: &[String]) -> Result<()> {
    let example = cargo::demo_binary()?;
    let mut run = cargo::cargo(&["run", "--release", "--package", cargo::EXAMPLES, "--bin", &example, "--"]);
    cargo::succeed(run.args(arguments))
}
