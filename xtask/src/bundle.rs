//! A folder that runs on a GPU machine without compilers: release binaries, with their PTX inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use crate::cargo::{EXAMPLES, cargo, demo_binary, messages, metadata, targets};

const TESTS: &str = "entwine-tests";
const BENCH: &str = "entwine-bench";

/// Test programs that need GPUs have names that start like this.
const GPU_TESTS: &str = "gpu";

/// The most bytes that a bundle may have.
const LIMIT: u64 = 60_000_000;

/// Fills `directory` with `run` and the programs it starts.
pub fn make(directory: &Path) -> Result<()> {
    let binaries = directory.join("bin");
    if binaries.exists() {
        fs::remove_dir_all(&binaries)?;
    }
    fs::create_dir_all(&binaries)?;

    let release = ["--release", "--config", "profile.release.strip=true"];
    let mut programs = cargo(&["build", "--bins", "--package", EXAMPLES, "--package", BENCH]);
    copy_executables(programs.args(release), &binaries)?;
    let tests = targets(&metadata()?, TESTS, "test")?;
    let gpu_tests: Vec<_> = tests.iter().filter(|name| name.starts_with(GPU_TESTS)).collect();
    if !gpu_tests.is_empty() {
        let mut programs = cargo(&["test", "--no-run", "--package", TESTS]);
        let selected = gpu_tests.into_iter().flat_map(|name| ["--test", name]);
        copy_executables(programs.args(release).args(selected), &binaries)?;
    }

    let script = directory.join("run");
    fs::write(&script, run_script(&demo_binary()?))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let size = size(&binaries)?;
    println!("{}: {:.1} MB", directory.display(), size as f64 / 1e6);
    ensure!(size < LIMIT, "the bundle has {size} bytes, more than the {LIMIT} that it may have");
    Ok(())
}

fn copy_executables(build: &mut std::process::Command, to: &Path) -> Result<()> {
    build.env("ENTWINE_REQUIRE_DEVICE", "1");
    for message in messages(build)? {
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
    test)
        status=0
        for test in bin/{GPU_TESTS}*; do \"$test\" \"$@\" || status=1; done
        exit $status ;;
    *) sed -n 2p \"$0\" >&2; exit 2 ;;
esac
"
    )
}

fn size(directory: &Path) -> Result<u64> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
