//! Why there is no PTX.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::code::Target;
use crate::ptx::Fault;
use crate::toolchain::Rejected;

#[derive(Debug)]
pub enum Error {
    /// `ENTWINE_TARGETS` lists what is no target.
    NoSuchTarget(String),
    /// No compiler for the device was found; each that was looked at, and what it lacks.
    NoToolchain(Vec<Rejected>),
    /// The package has no library, which is where kernels are looked for.
    NoLibrary(String),
    /// The package's device code doesn't compile.
    Compile { package: String, diagnostics: Diagnostics },
    /// The package's PTX is not fit for use.
    Ptx(String, Vec<Fault>),
    /// A program couldn't be started.
    Start(PathBuf, io::Error),
    /// A file couldn't be read or written.
    File(PathBuf, io::Error),
}

/// What a compiler said.
#[derive(Debug)]
pub struct Diagnostics {
    /// Its errors, as it renders them.
    pub text: String,
    /// Whether they are all of a kind that no target is spared: of macros, and of the syntax.
    pub of_any_target: bool,
    /// Whether the crate has `entwine`, with whose kernels its own compilation can report them.
    pub woven: bool,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoToolchain(rejected) => {
                writeln!(f, "no compiler for the device: simulated ranks work, GPU launches will be refused.")?;
                writeln!(f, "Install the sources of the compiler in use (`rustup component add rust-src`),")?;
                writeln!(f, "or Debian's packages `rustc-web` and `rust-web-src`,")?;
                write!(f, "or set ENTWINE_RUSTC to a rustc that has its library sources.")?;
                rejected.iter().try_for_each(|candidate| write!(f, "\nlooked at {candidate}"))
            }
            Error::NoSuchTarget(name) => {
                let targets = Target::ALL.map(Target::processor).join(", ");
                write!(f, "error: ENTWINE_TARGETS lists `{name}`; expected some of {targets}, separated by commas")
            }
            Error::NoLibrary(package) => write!(
                f,
                "error: `{package}` has no library: put its kernels in `src/lib.rs`, and the program that launches them \
                 in `src/main.rs`"
            ),
            Error::Compile { package, diagnostics: Diagnostics { text, .. } } => {
                write!(f, "the device code of `{package}` doesn't compile\n\n{}", text.trim_end())?;
                if text.contains("can't find crate for `std`") {
                    let attribute = "#![cfg_attr(target_arch = \"nvptx64\", no_std)]";
                    write!(f, "\n\nhelp: the device has `core` alone: start `src/lib.rs` with `{attribute}`")?;
                }
                Ok(())
            }
            Error::Ptx(package, faults) => {
                write!(f, "error: the device code of `{package}` compiles, but its PTX can't be used")?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
            Error::Start(program, error) => write!(f, "error: couldn't start `{}`: {error}", program.display()),
            Error::File(path, error) => write!(f, "error: couldn't access `{}`: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}
