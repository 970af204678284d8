//! Compiles a crate of Entwine kernels to PTX. In `main` of the kernel crate's `build.rs`:
//!
//! ```no_run
//! entwine_build::compile();
//! ```
//!
//! # What a kernel crate looks like
//!
//! The crate is compiled twice: as an ordinary library for the host, and for `nvptx64-nvidia-cuda`, which
//! has `core` and nothing more. So
//!
//! * kernels lie in the crate's library; programs that launch them are its binaries, or crates that depend on it;
//! * `lib.rs` starts with `#![no_std]`, or with `#![cfg_attr(target_arch = "nvptx64", no_std)]` if the host
//!   side uses `std`;
//! * modules for the host alone are gated by `#[cfg(not(target_arch = "nvptx64"))]`;
//! * dependencies for the host alone stand in the manifest under
//!   `[target.'cfg(not(target_arch = "nvptx64"))'.dependencies]`;
//! * it depends on `entwine`, which brings the panic handler of the device side.
//!
//! Nothing else is asked of the manifest: crate types, profiles, feature gates and flags are set here. The
//! crate's enabled features are those of the device side too. Items that belong in the PTX of the crate
//! being compiled, but not in that of a crate that depends on it, are gated by `#[cfg(entwine_entries)]`.
//!
//! # What comes out
//!
//! Environment variables of the crate's own compilation: `ENTWINE_PTX_SM_90A`, the path of its PTX for Hopper,
//! `ENTWINE_PTX_SM_80`, that of its PTX for other GPUs from Ampere on, and `ENTWINE_PTX_SM_90A_TIMELINE`, that of the PTX
//! whose kernels record what they do when. None is set if no compiler for the device was found, and a warning says what
//! to install. `ENTWINE_DEVICE_ERRORS` is the path of what the compiler for the device said, if it refused the crate.
//!
//! # Settings
//!
//! * `ENTWINE_RUSTC`: the compiler for the device, in place of a search for one.
//! * `ENTWINE_REQUIRE_DEVICE=1`: no compiler for the device is an error.
//! * `ENTWINE_TARGETS=sm_90a`: kernels are compiled for these targets alone, separated by commas, which halves the time
//!   that it takes. Default: `sm_90a,sm_80`.
//! * `ENTWINE_TIMELINE=1`: kernels are also compiled in the form that `Kernel::record` needs on GPUs. It takes as long
//!   again and makes programs larger, so it is left out otherwise.

pub mod assembler;
mod code;
mod error;
mod nested;
pub mod ptx;
mod toolchain;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

pub use code::{Code, Target};
use error::{Diagnostics, Error};
use nested::Package;
use toolchain::{Search, Toolchain};

const TARGET: &str = "nvptx64-nvidia-cuda";

/// Compiles the crate whose build script calls this to PTX, and sets `ENTWINE_PTX_…` to the PTX's path.
///
/// If the device code doesn't compile, neither does the crate. Of one that depends on `entwine`, its own compilation finds most
/// of the errors, too, and reports them where editors look for them; with the first of its kernels it says what the compiler for the
/// device said.
pub fn compile() {
    if variable("TARGET") == TARGET {
        return; // This is the crate's compilation for the device, which runs the same build script.
    }
    println!("cargo::rustc-check-cfg=cfg(entwine_entries)");
    for setting in ["ENTWINE_RUSTC", "ENTWINE_REQUIRE_DEVICE", "ENTWINE_TARGETS", "ENTWINE_TIMELINE"] {
        println!("cargo::rerun-if-env-changed={setting}");
    }
    let search = Search::from_environment();
    let outcome = search.first_fit().map_err(Error::NoToolchain).and_then(|toolchain| {
        watch(&toolchain.rustc);
        Code::wanted()?.try_for_each(|code| compile_with(&toolchain, code))
    });
    match outcome {
        Ok(()) => {}
        Err(error @ Error::NoToolchain(_)) if !code::is_set("ENTWINE_REQUIRE_DEVICE") => {
            error.to_string().lines().for_each(|line| println!("cargo::warning={line}"));
            search.watched().iter().for_each(|path| watch(path));
            watch(&Package::from_environment().manifest);
        }
        Err(Error::Compile { package, diagnostics }) if diagnostics.woven => {
            leave_to_the_crate(package, diagnostics).unwrap_or_else(|error| fail(&error));
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) {
    if let Error::NoToolchain(_) = error {
        eprintln!("error: ENTWINE_REQUIRE_DEVICE is set, and there is");
    }
    eprintln!("{error}");
    process::exit(1);
}

/// Has the crate's own compilation fail with these errors, if it wouldn't find them all itself.
fn leave_to_the_crate(package: String, diagnostics: Diagnostics) -> Result<(), Error> {
    println!("cargo::warning=the device code of `{package}` doesn't compile");
    let path = PathBuf::from(variable("OUT_DIR")).join("device-errors.txt");
    if !diagnostics.of_any_target || code::is_set("ENTWINE_REQUIRE_DEVICE") {
        write(&path, &Error::Compile { package, diagnostics }.to_string())?;
        println!("cargo::rustc-env=ENTWINE_DEVICE_ERRORS={}", path.display());
    }
    // Nobody knows what it depends on, so it is tried again each time: cargo takes a file that isn't there for changed.
    watch(&path.with_extension("none"));
    Ok(())
}

/// The compiler for the device that [`compile`] would use.
///
/// # Errors
///
/// There is none; the error's text says what to install.
pub fn device_compiler() -> Result<PathBuf, impl std::error::Error> {
    Search::from_environment().first_fit().map(|toolchain| toolchain.rustc).map_err(Error::NoToolchain)
}

fn compile_with(toolchain: &Toolchain, code: Code) -> Result<(), Error> {
    let package = Package::from_environment();
    let output = nested::compile(toolchain, &package, code)?;
    output.sources.iter().for_each(|path| watch(path));

    let text = read(&output.assembly)?;
    let module = ptx::Module::from_compiler(&text).map_err(|faults| Error::Ptx(package.name.clone(), faults))?;
    for function in module.functions_with_local_memory() {
        println!(
            "cargo::warning=`{function}` keeps variables in local memory, which is slow: index arrays by constants, \
             and see that every loop over them unrolls"
        );
    }

    let path = PathBuf::from(variable("OUT_DIR")).join(format!("{}.ptx", code.name()));
    write(&path, module.text())?;
    for (kernel, module) in module.by_kernel() {
        write(&PathBuf::from(format!("{}.{kernel}", path.display())), module.text())?;
    }
    println!("cargo::rustc-env={}={}", code.variable(), path.display());
    Ok(())
}

/// Writes a file. An equal one is left alone, so that what includes it stays fresh.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    if fs::read_to_string(path).ok().as_deref() == Some(text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| Error::File(path.to_owned(), error))
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::File(path.to_owned(), error))
}

/// A variable that cargo sets for every build script.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("`{name}` is not set: call `entwine_build::compile` from a build script"))
}
