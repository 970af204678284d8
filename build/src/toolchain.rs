//! The compiler for the device: a rustc that has the nvptx64 backend and its own library sources.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TARGET;
use crate::code::Target;

/// A compiler that can build `core` and kernels for the device.
#[derive(Debug)]
pub struct Toolchain {
    pub rustc: PathBuf,
}

/// A compiler that can't.
#[derive(Debug)]
pub struct Rejected {
    rustc: PathBuf,
    reason: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.rustc.display(), self.reason)
    }
}

/// The compilers to look at, the preferred one first.
#[derive(Debug)]
pub struct Search {
    candidates: Vec<PathBuf>,
}

impl Search {
    /// `ENTWINE_RUSTC` alone if it is set; else the compiler in use, installed nightlies, and the distribution's.
    pub fn from_environment() -> Search {
        if let Some(explicit) = env::var_os("ENTWINE_RUSTC").filter(|value| !value.is_empty()) {
            return Search { candidates: vec![explicit.into()] };
        }
        let in_use = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into();
        Search { candidates: [in_use].into_iter().chain(nightlies()).chain(["/usr/bin/rustc".into()]).collect() }
    }

    /// The first candidate that is fit, or what each of them lacks.
    pub fn first_fit(&self) -> Result<Toolchain, Vec<Rejected>> {
        let mut rejected = Vec::new();
        for rustc in &self.candidates {
            match judge(rustc) {
                Ok(toolchain) => return Ok(toolchain),
                Err(reason) => rejected.push(Rejected { rustc: rustc.clone(), reason }),
            }
        }
        Err(rejected)
    }

    /// Files that change when something is installed that may make a candidate fit.
    pub fn watched(&self) -> Vec<PathBuf> {
        let components = self.candidates.iter().filter_map(|rustc| Some(sysroot(rustc).ok()?.join(COMPONENTS)));
        let installed = [rustup_home().join("update-hashes"), "/var/lib/dpkg/status".into()];
        components.chain(installed).filter(|path| path.exists()).collect()
    }
}

/// Rustup's list of a toolchain's components, below its sysroot.
const COMPONENTS: &str = "lib/rustlib/components";

fn nightlies() -> Vec<PathBuf> {
    let installed = fs::read_dir(rustup_home().join("toolchains")).into_iter().flatten().flatten();
    let nightly = installed.filter(|entry| entry.file_name().to_string_lossy().starts_with("nightly"));
    let mut compilers: Vec<_> = nightly.map(|entry| entry.path().join("bin/rustc")).collect();
    compilers.sort();
    compilers
}

fn rustup_home() -> PathBuf {
    let at_home = || env::home_dir().unwrap_or_default().join(".rustup");
    env::var_os("RUSTUP_HOME").map(PathBuf::from).unwrap_or_else(at_home)
}

/// The toolchain of `rustc`, or what it lacks.
fn judge(rustc: &Path) -> Result<Toolchain, String> {
    let sysroot = sysroot(rustc)?;
    let library = sysroot.join("lib/rustlib/src/rust/library");
    if !library.join("core/Cargo.toml").is_file() || !library.join("Cargo.lock").is_file() {
        return Err(format!("no library sources (rust-src) at `{}`", library.display()));
    }
    let processors = print(rustc, &["target-cpus", "--target", TARGET]);
    let processors = processors.map_err(|_| format!("no backend for {TARGET}"))?;
    if let Some(unknown) = Target::ALL.iter().find(|target| !processors.contains(target.processor())) {
        return Err(format!("its backend for {TARGET} doesn't know {}", unknown.processor()));
    }
    let version = answer(rustc, &["--version", "--verbose"])?;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: ")).unwrap_or("unknown");
    if llvm.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_none_or(|major| major < OLDEST_LLVM) {
        return Err(format!("its LLVM is {llvm}, and {OLDEST_LLVM} or later is needed"));
    }
    // `rustc` may be rustup's stand-in, which would choose again.
    let itself = sysroot.join("bin/rustc");
    Ok(Toolchain { rustc: if itself.is_file() { itself } else { rustc.to_owned() } })
}

/// The first LLVM that has the intrinsics of the device library.
const OLDEST_LLVM: u32 = 21;

fn sysroot(rustc: &Path) -> Result<PathBuf, String> {
    Ok(print(rustc, &["sysroot"])?.trim().into())
}

fn print(rustc: &Path, what: &[&str]) -> Result<String, String> {
    answer(rustc, &[&["--print"], what].concat())
}

fn answer(rustc: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(rustc).args(arguments).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("`{}` failed ({})", arguments.join(" "), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| "it doesn't answer like a rustc".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A script that answers like a rustc with the given LLVM, sysroot and target processors.
    fn stand_in(directory: &Path, llvm: u32, processors: &str) -> PathBuf {
        let rustc = directory.join("rustc");
        let script = format!(
            "#!/bin/sh\ncase \"$2\" in sysroot) echo '{}';; --verbose) echo 'LLVM version: {llvm}.1.0';; *) {processors};; esac\n",
            directory.display(),
        );
        fs::create_dir_all(directory).unwrap();
        fs::write(&rustc, script).unwrap();
        fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
        rustc
    }

    fn with_sources(directory: &Path) {
        let library = directory.join("lib/rustlib/src/rust/library");
        fs::create_dir_all(library.join("core")).unwrap();
        fs::write(library.join("core/Cargo.toml"), "").unwrap();
        fs::write(library.join("Cargo.lock"), "").unwrap();
    }

    fn scratch(name: &str) -> PathBuf {
        let directory = env::temp_dir().join(format!("entwine-toolchain-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn takes_the_first_fit_and_says_what_the_others_lack() {
        let root = scratch("search");
        let absent = root.join("absent/rustc");
        let sourceless = stand_in(&root.join("sourceless"), 22, "echo sm_80; echo sm_90a");
        let old = stand_in(&root.join("old"), 22, "echo sm_70");
        with_sources(&root.join("old"));
        let hostonly = stand_in(&root.join("hostonly"), 22, "exit 1");
        with_sources(&root.join("hostonly"));
        let early = stand_in(&root.join("early"), 20, "echo sm_80; echo sm_90a");
        with_sources(&root.join("early"));
        let fit = stand_in(&root.join("fit"), 22, "echo sm_80; echo sm_90; echo sm_90a");
        with_sources(&root.join("fit"));

        let unfit = vec![absent, sourceless, old, hostonly, early];
        let reasons: Vec<_> = Search { candidates: unfit.clone() }.first_fit().unwrap_err();
        let expected = ["No such file", "no library sources", "doesn't know sm_90a", "no backend", "LLVM is 20.1.0"];
        for (rejected, expected) in reasons.iter().zip(expected) {
            assert!(rejected.to_string().contains(expected), "{rejected}");
        }
        assert_eq!(reasons.len(), 5);

        let found = Search { candidates: unfit.into_iter().chain([fit.clone()]).collect() }.first_fit().unwrap();
        assert_eq!(found.rustc, fit, "a compiler outside its sysroot's bin/ is used as it is");
        fs::remove_dir_all(root).unwrap();
    }
}
