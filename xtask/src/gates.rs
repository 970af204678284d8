//! Assembles the PTX of every kernel crate of the workspace and holds it against what full speed asks for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use entwine_build::{Code, Target, assembler};
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
        let lost = lost_products(code.target, ptx, &cubin).context(name.clone())?;
        let faults: Vec<_> = report.faults().into_iter().chain(lost).collect();
        for fault in &faults {
            eprintln!("error: {name}: {fault}");
        }
        anyhow::Ok(faults.len())
    });
    let faulty: usize = reports.collect::<Result<Vec<_>>>()?.into_iter().sum();
    if faulty > 0 {
        bail!("{faulty} faults in the PTX");
    }
    Ok(())
}

/// What is wrong if machine code has fewer matrix instructions than the PTX that it was made of.
fn lost_products(target: Target, ptx: &Path, cubin: &Path) -> Result<Option<String>> {
    let (virtual_name, machine_name) = match target {
        Target::Sm90a => ("wgmma.mma_async.", "HGMMA."),
        Target::Sm80 => ("mma.sync.", "HMMA."),
    };
    let in_ptx = fs::read_to_string(ptx)?.matches(virtual_name).count();
    let in_machine_code = assembler::disassemble(cubin)?.matches(machine_name).count();
    let lost = format!("{in_machine_code} matrix instructions in machine code, {in_ptx} in PTX");
    Ok((in_machine_code < in_ptx).then_some(lost))
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
