//! Assembles the PTX of every kernel crate of the workspace and holds it against what full speed asks for.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use entwine_build::assembler;

use crate::cargo::{messages, metadata, root};

/// Reports on every entry of every kernel crate that a cargo command builds.
pub fn check_all(build: &mut Command) -> Result<()> {
    let cubins = root().join("target/cubins");
    fs::create_dir_all(&cubins)?;
    let crates = kernel_crates(build)?;
    ensure!(!crates.is_empty(), "none of the crates has PTX");
    let mut faulty = 0;
    for (package, ptx) in crates {
        let report = assembler::assemble(&ptx, &cubins.join(format!("{package}.cubin"))).context(package.clone())?;
        println!("{package}\n{report}");
        for fault in report.faults() {
            eprintln!("error: {package}: {fault}");
            faulty += 1;
        }
    }
    if faulty > 0 {
        bail!("{faulty} faults in the PTX");
    }
    Ok(())
}

/// The packages whose build scripts made PTX, and where it is.
fn kernel_crates(build: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    let metadata = metadata()?;
    let crates = messages(build.env("ENTWINE_REQUIRE_DEVICE", "1"))?.into_iter().filter_map(|message| {
        let Message::BuildScriptExecuted(script) = message else { return None };
        let (_, path) = script.env.into_iter().find(|(name, _)| name == "ENTWINE_PTX")?;
        Some((metadata[&script.package_id].name.to_string(), path.into()))
    });
    Ok(crates.collect())
}
