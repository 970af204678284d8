//! Brings the compiler and the assembler for the device to this machine.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{root, succeed};

/// Debian's compiler with the nvptx64 backend, and the sources of its `core`.
const COMPILER: [&str; 2] = ["rustc-web", "rust-web-src"];

/// NVIDIA's `ptxas` and `nvdisasm`, as PyPI has them; the release that the checked figures belong to.
const ASSEMBLER: [&str; 2] = ["nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-nvdisasm==13.2.51"];

/// Sees to it that kernels can be compiled.
pub fn compiler() -> Result<()> {
    let Err(missing) = entwine_build::device_compiler() else { return Ok(()) };
    let packages = COMPILER.join(" ");
    let by_hand = format!("run as root: apt-get update && apt-get install --no-remove {packages}");
    if !is_root() {
        bail!("{missing}\n{by_hand}");
    }
    println!("Installing the compiler for the device: the system packages {packages}");
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    succeed(apt().args(["--quiet", "update"])).context(by_hand.clone())?;
    // Nothing may be removed: these packages take the place of the distribution's other rustc.
    succeed(apt().args(["--quiet", "install", "--yes", "--no-remove", "--no-install-recommends"]).args(COMPILER))
        .context(by_hand)?;
    entwine_build::device_compiler().map(drop).context("the compiler was installed, but it isn't fit")
}

/// Sees to it that `ptxas` and `nvdisasm` are on the search path of this process and of those it starts.
pub fn assembler() -> Result<()> {
    let tools = root().join("target/tools");
    let path = env::var_os("PATH").unwrap_or_default();
    let with_tools = env::join_paths([tools.join("nvidia/cu13/bin")].into_iter().chain(env::split_paths(&path)))?;
    // SAFETY: this process has one thread.
    unsafe { env::set_var("PATH", with_tools) };
    if entwine_build::assembler::is_installed() {
        return Ok(());
    }
    println!("Installing the assembler for the device into {}: {}", tools.display(), ASSEMBLER.join(" "));
    let mut pip = Command::new("python3");
    pip.env("PIP_ROOT_USER_ACTION", "ignore"); // A folder of its own can't break the system's Python.
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&tools).args(ASSEMBLER);
    succeed(&mut pip).context("Python 3 with pip is needed, or `ptxas` and `nvdisasm` on the search path")
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
