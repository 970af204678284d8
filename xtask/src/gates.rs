//! Assembles the PTX of every kernel crate of the workspace and holds it against what full speed asks for.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use entwine_build::{Code, assembler};
use rayon::prelude::*;

use crate::cargo::{messages, metadata, root, with_device_code};

/// Reports on every entry of every kernel crate that a cargo command builds.
pub fn check_all(build: &mut Command) -> Result<()> {
    let cubins = root().join("target/cubins");
    fs::create_dir_all(&cubins)?;
    let crates = kernel_crates(build)?;
    ensure!(!crates.is_empty(), "none of the crates has PTX");
    let assembled = crates.iter().flat_map(|krate| krate.1.target.assembled_for().iter().map(move |on| (krate, *on)));
    let assembled: Vec<_> = assembled.collect();
    let reports = assembled.par_iter().map(|((package, code, ptx), processor)| {
        let name = format!("{package} for {}, on {processor}", code.name());
        let cubin = cubins.join(format!("{package}-{}-{processor}.cubin", code.name()));
        let report = assembler::assemble(processor, ptx, &cubin).context(name.clone())?;
        println!("{name}\n{report}");
        for fault in report.faults() {
            eprintln!("error: {name}: {fault}");
        }
        anyhow::Ok(report.faults().len())
    });
    let faulty: usize = reports.collect::<Result<Vec<_>>>()?.into_iter().sum();
    if faulty > 0 {
        bail!("{faulty} faults in the PTX");
    }
    Ok(())
}

/// The packages whose build scripts made PTX, what it is for and where it is.
fn kernel_crates(build: &mut Command) -> Result<Vec<(String, Code, PathBuf)>> {
    let metadata = metadata()?;
    let mut crates = Vec::new();
    for message in messages(with_device_code(build))? {
        let Message::BuildScriptExecuted(script) = message else { continue };
        for (name, path) in script.env {
            if let Some(code) = Code::all().find(|code| code.variable() == name) {
                crates.push((metadata[&script.package_id].name.to_string(), code, path.into()));
            }
        }
    }
    Ok(crates)
}
