//! Cargo, and what it knows of this workspace.

use std::env;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Message, Metadata, MetadataCommand};

pub const EXAMPLES: &str = "entwine-examples";

/// The example that `demo` runs.
const DEMO_PREFIX: &str = "02_";

pub fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(program());
    cargo.args(arguments).current_dir(root());
    cargo
}

fn program() -> PathBuf {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into()
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace was here at compile time")
}

pub fn metadata() -> Result<Metadata> {
    Ok(MetadataCommand::new().cargo_path(program()).current_dir(root()).no_deps().exec()?)
}

pub fn demo_binary() -> Result<String> {
    let metadata = metadata()?;
    let package = metadata.packages.iter().find(|package| package.name.as_str() == EXAMPLES);
    let targets = &package.with_context(|| format!("the workspace has no package `{EXAMPLES}`"))?.targets;
    let demo = targets.iter().find(|target| target.is_bin() && target.name.starts_with(DEMO_PREFIX));
    Ok(demo.with_context(|| format!("{EXAMPLES} has no binary `{DEMO_PREFIX}…`"))?.name.clone())
}

/// Lets a cargo command compile kernels in all their forms, and fail where it can't.
pub fn with_device_code(cargo: &mut Command) -> &mut Command {
    cargo.envs([("ENTWINE_REQUIRE_DEVICE", "1"), ("ENTWINE_TIMELINE", "1")])
}

/// Runs a command that must succeed, its output passed through.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("couldn't start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// What a cargo command reports that builds something; its diagnostics are passed through.
pub fn messages(command: &mut Command) -> Result<Vec<Message>> {
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut cargo = command.spawn().with_context(|| format!("couldn't start {command:?}"))?;
    let output = BufReader::new(cargo.stdout.take().expect("it is piped"));
    let messages = Message::parse_stream(output).collect::<Result<Vec<_>, _>>()?;
    let status = cargo.wait()?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(messages)
}
