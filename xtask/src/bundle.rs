//! A folder that runs on a GPU machine without compilers: release binaries, with their PTX inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use crate::cargo::{EXAMPLES, cargo, demo_binary, messages, with_device_code};

const TESTS: &str = "entwine-tests";
const BENCH: &str = "entwine-bench";

/// The program with the tests that need GPUs.
const GPU_TESTS: &str = "gpu-suite";

/// The most bytes that a bundle may have.
const LIMIT: u64 = 60_000_000;

/// Fills `directory` with `run` and the programs it starts.
pub fn make(directory: &Path) -> Result<()> {
    let binaries = directory.join("bin");
    if binaries.exists() {
        fs::remove_dir_all(&binaries)?;
    }
    fs::create_dir_all(&binaries)?;

    let demo = demo_binary()?;
    let release = ["--release", "--config", "profile.release.strip=true"];
    let mut programs = cargo(&["build", "--bin", &demo, "--bin", BENCH, "--bin", GPU_TESTS]);
    programs.args(["--package", EXAMPLES, "--package", BENCH, "--package", TESTS]);
    copy_executables(programs.args(release), &binaries)?;

    let script = directory.join("run");
    fs::write(&script, run_script(&demo))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let size = size(&binaries)?;
    println!("{}: {:.1} MB", directory.display(), size as f64 / 1e6);
    ensure!(size < LIMIT, "the bundle has {size} bytes, more than the {LIMIT} that it may have");
    Ok(())
}

fn copy_executables(build: &mut std::process::Command, to: &Path) -> Result<()> {
    for message in messages(with_device_code(build))? {
        if let Message::CompilerArtifact(artifact) = message
            && let Some(executable) = artifact.executable
            && !artifact.target.is_custom_build()
        {
            fs::copy(&executable, to.join(&artifact.target.name)).with_context(|| executable.to_string())?;
        }
    }
    Ok(())
}

fn run_script(demo: &str) -> String {
    format!(
        "#!/bin/sh
# usage: run demo|test|bench [what to pass on]
cd \"$(dirname \"$0\")\" || exit
chore=$1
[ $# -gt 0 ] && shift
case $chore in
    demo) exec bin/{demo} \"$@\" ;;
    bench) exec bin/{BENCH} \"$@\" ;;
    test) exec bin/{GPU_TESTS} \"$@\" ;;
    *) sed -n 2p \"$0\" >&2; exit 2 ;;
esac
"
    )
}

fn size(directory: &Path) -> Result<u64> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
