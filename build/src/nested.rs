//! The nested cargo that compiles a package for the device.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::code::Code;
use crate::error::{Diagnostics, Error};
use crate::toolchain::Toolchain;
use crate::{TARGET, read, variable};

/// The package whose build script runs.
pub struct Package {
    pub name: String,
    pub manifest: PathBuf,
    /// Its enabled features, separated by commas.
    features: String,
}

impl Package {
    pub fn from_environment() -> Package {
        Package {
            name: variable("CARGO_PKG_NAME"),
            manifest: variable("CARGO_MANIFEST_PATH").into(),
            features: variable("CARGO_CFG_FEATURE"),
        }
    }
}

/// What the nested cargo made.
pub struct Compiled {
    /// The PTX as the compiler wrote it.
    pub assembly: PathBuf,
    /// Every file that it was made from, but for the sources of registry packages.
    pub sources: Vec<PathBuf>,
}

/// Flags for the kernel crate. Fragments stay in registers only if their loops are unrolled in full, and a
/// role's state only if nothing that takes it by reference stays a function, be it called ever so rarely. rustc's own pass that
/// copies code into the arms of a branch knows nothing of barriers and shuffles, which all lanes must come to together.
const FLAGS: [&str; 7] = [
    "-Cllvm-args=-unroll-threshold=20000",
    "-Cllvm-args=-inline-threshold=1000000",
    "-Cllvm-args=-inline-cold-callsite-threshold=1000000",
    "-Zmir-enable-passes=-JumpThreading",
    "-Zcrate-attr=feature(abi_ptx, asm_experimental_arch)",
    "--cfg",
    "entwine_entries",
];

/// What device code needs of its profile, whatever the workspace's manifest says.
const PROFILE: [&str; 8] = [
    "lto='fat'",
    "codegen-units=1",
    "opt-level=3",
    "panic='abort'",
    "debug=false",
    "debug-assertions=false",
    "overflow-checks=false",
    "incremental=false",
];

/// Stands in for a linker: with fat LTO the assembly is already one self-contained module, so all that is left
/// to do is to make the file that cargo expects.
const LINKER: &str = "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = -o ] && : > \"$2\"; shift; done\n";

/// Compiles `package` for the device.
pub fn compile(toolchain: &Toolchain, package: &Package, code: Code) -> Result<Compiled, Error> {
    let directory = target_directory(code);
    let assembly = directory.join(format!("{}-{:016x}.s", package.name, key(package)));
    let linker = directory.join("linker.sh");
    write_linker(&linker).map_err(|error| Error::File(linker.clone(), error))?;

    let mut cargo = cargo();
    cargo.args(["rustc", "--quiet", "--message-format=json", "--release", "--lib", "--crate-type=cdylib"]);
    cargo.args(["-Zbuild-std=core", "--target", TARGET, "--target-dir"]).arg(&directory);
    cargo.arg("--manifest-path").arg(&package.manifest);
    cargo.args(["--no-default-features", "--features", &package.features]);
    cargo.args(PROFILE.iter().flat_map(|setting| ["--config".to_owned(), format!("profile.release.{setting}")]));
    cargo.arg("--").arg(format!("--emit=asm={}", assembly.display())).args(FLAGS);
    if code.timeline {
        cargo.args(["--cfg", "entwine_timeline"]);
    }
    cargo.arg(format!("-Clinker={}", linker.display()));
    cargo.env("RUSTC", &toolchain.rustc);
    cargo.env("RUSTC_BOOTSTRAP", "1"); // -Zbuild-std and the feature gates on a release compiler
    let mut flags = vec![format!("-Ctarget-cpu={}", code.target.processor()), "-Ctarget-feature=+ptx85".to_owned()];
    flags.extend(code.target.cfg().map(|cfg| format!("--cfg={cfg}")));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")); // `core` and the device library too
    cargo.env("CARGO_BUILD_BUILD_DIR", &directory);

    let output = run(cargo)?;
    let messages = messages(&output.stdout);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("no library targets found") {
            return Err(Error::NoLibrary(package.name.clone()));
        }
        let unexplained = || Diagnostics { text: stderr.into_owned(), of_any_target: false, woven: false };
        let diagnostics = errors(&messages).unwrap_or_else(unexplained);
        return Err(Error::Compile { package: package.name.clone(), diagnostics });
    }
    let dep_info = artifact(&messages, &package.manifest).with_extension("d");
    let mut sources = prerequisites(&read(&dep_info)?);
    sources.extend(manifests(package)?);
    Ok(Compiled { assembly, sources })
}

/// One folder for all kernel crates of a workspace, so that they share `core` and the macros' libraries; and one for each code, as flags
/// differ: in the same folder, cargo would compile each anew after the others.
fn target_directory(code: Code) -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = out.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file()).unwrap_or(&out);
    target.join("entwine").join(code.name())
}

/// Tells apart what would otherwise be written to the same file.
fn key(package: &Package) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&package.manifest, &package.features).hash(&mut hasher);
    hasher.finish()
}

fn write_linker(path: &Path) -> std::io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|written| written == LINKER) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("the path was joined to a folder"))?;
    // Put in place whole: another crate's build may be running it.
    let draft = path.with_extension(std::process::id().to_string());
    fs::write(&draft, LINKER)?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755))?;
    fs::rename(draft, path)
}

/// The cargo that runs this build script, in an environment without what it set for the build script.
fn cargo() -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(set_for_this_build) {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn set_for_this_build(name: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "CARGO_PKG_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_MANIFEST_",
        "CARGO_BUILD_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_",
        "RUSTC",
    ];
    const NAMES: [&str; 5] = ["CARGO_ENCODED_RUSTFLAGS", "CARGO_INCREMENTAL", "RUSTFLAGS", "TARGET", "OUT_DIR"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

fn run(mut command: Command) -> Result<Output, Error> {
    command.output().map_err(|error| Error::Start(command.get_program().into(), error))
}

fn messages(stdout: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The compiler's errors as it renders them, each once; `None` if it reported none.
fn errors(messages: &[Value]) -> Option<Diagnostics> {
    let mut seen = BTreeSet::new();
    let reported = messages.iter().map(|message| &message["message"]);
    let errors = reported.filter(|message| message["level"].as_str().is_some_and(|level| level.starts_with("error")));
    let errors: Vec<_> = errors.collect();
    let of_any_target = errors.iter().all(|error| error["code"].is_null());
    let rendered = errors.into_iter().filter_map(|message| message["rendered"].as_str()).map(str::trim_end);
    let first_times = rendered.filter(|text| !text.starts_with("error: aborting due to") && seen.insert(*text));
    let text = first_times.collect::<Vec<_>>().join("\n\n");
    let woven = messages.iter().any(|message| message["target"]["name"] == "entwine");
    (!text.is_empty()).then_some(Diagnostics { text, of_any_target, woven })
}

/// The file that cargo made of the package's library.
fn artifact(messages: &[Value], manifest: &Path) -> PathBuf {
    let ours = |message: &&Value| {
        message["reason"] == "compiler-artifact"
            && message["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest)
            && message["target"]["crate_types"][0] == "cdylib"
    };
    let file = messages.iter().rfind(ours).and_then(|message| message["filenames"][0].as_str());
    file.expect("a cargo that succeeds names the file that it made").into()
}

/// What the rule of a dep-info file depends on.
fn prerequisites(dep_info: &str) -> Vec<PathBuf> {
    let Some((_, list)) = dep_info.lines().next().and_then(|rule| rule.split_once(": ")) else { return Vec::new() };
    let mut paths = vec![String::new()];
    let mut characters = list.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.next_if_eq(&' ').is_some() => paths.last_mut().unwrap().push(' '),
            ' ' => paths.push(String::new()),
            other => paths.last_mut().unwrap().push(other),
        }
    }
    paths.into_iter().filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// The manifests and the lock file that say what the package is compiled with.
fn manifests(package: &Package) -> Result<Vec<PathBuf>, Error> {
    let mut cargo = cargo();
    cargo.args(["locate-project", "--workspace", "--message-format=plain", "--manifest-path"]).arg(&package.manifest);
    let output = run(cargo)?;
    let root = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(vec![package.manifest.clone(), root.with_file_name("Cargo.lock"), root])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dep_info_may_hold_spaces() {
        let paths = prerequisites("/t/a.ptx: /s/src/lib.rs /s/with\\ space.rs\n\n/t/b: /no\n");
        assert_eq!(paths, [PathBuf::from("/s/src/lib.rs"), PathBuf::from("/s/with space.rs")]);
        assert!(prerequisites("").is_empty());
    }

    #[test]
    fn each_error_is_shown_once() {
        let message = |level: &str, rendered: &str| serde_json::json!({"reason": "compiler-message", "message": {"level": level, "rendered": rendered}});
        let all = [
            message("warning", "warning: unused"),
            message("error", "error[E0308]: mismatched types\n"),
            message("error", "error[E0308]: mismatched types\n"),
            message("error", "error: aborting due to 1 previous error"),
        ];
        assert_eq!(errors(&all).unwrap().text, "error[E0308]: mismatched types");
        assert!(errors(&all[..1]).is_none());
    }

    #[test]
    fn the_nested_cargo_keeps_the_users_settings_alone() {
        for kept in ["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_MINE_TOKEN", "PATH"] {
            assert!(!set_for_this_build(kept), "{kept}");
        }
        for dropped in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PKG_NAME", "CARGO_BUILD_TARGET"] {
            assert!(set_for_this_build(dropped), "{dropped}");
        }
    }
}
