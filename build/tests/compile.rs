//! `compile()` as a kernel crate's build script sees it: a small workspace is built, edited, broken and mended.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A copy of the workspace in `tests/fixture`, with a target folder of its own.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Workspace {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&root);
        let this_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
        copy(&this_crate.join("tests/fixture"), &root);
        fs::copy(this_crate.join("../Cargo.lock"), root.join("Cargo.lock")).unwrap();
        let workspace = Workspace(root);
        for member in ["kernels/Cargo.toml", "tables/Cargo.toml"] {
            workspace.edit(member, "@entwine-build@", this_crate.to_str().unwrap());
        }
        workspace
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.0.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no `{from}`");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// `cargo run` of the kernel crate, which prints its PTX for Hopper; it is compiled for that alone unless the settings
    /// say otherwise.
    fn cargo_run(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--offline", "--package=fixture-kernels"]).args(arguments);
        cargo.current_dir(&self.0);
        for variable in ["CARGO_TARGET_DIR", "ENTWINE_REQUIRE_DEVICE", "ENTWINE_TIMELINE"] {
            cargo.env_remove(variable);
        }
        cargo.env("ENTWINE_TARGETS", "sm_90a");
        cargo.envs(settings.iter().copied()).output().unwrap()
    }

    /// What the compiler wrote of all PTX.
    fn assembly(&self) -> Vec<PathBuf> {
        let entries = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let paths = entries(&self.0.join("target/entwine")).flat_map(|code| entries(&code));
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "s")).collect()
    }

    /// The PTX of a build that must succeed, and the time it took.
    fn ptx(&self, arguments: &[&str]) -> (String, Duration) {
        let start = Instant::now();
        let output = self.cargo_run(arguments, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), start.elapsed())
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (source, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_kernel_crate_is_compiled_and_kept_up_to_date() {
    let workspace = Workspace::new("up-to-date");
    let (ptx, cold) = workspace.ptx(&[]);
    if ptx == "none" {
        assert!(env::var_os("ENTWINE_REQUIRE_DEVICE").is_none(), "no compiler for the device");
        eprintln!("skipped: no compiler for the device");
        return;
    }
    assert!(ptx.contains(".maxntid 384\n.minnctapersm 1\n{"), "{ptx}");
    assert!(ptx.contains("40961"), "the other crate's function is linked in: {ptx}");
    assert!(!ptx.contains("shift") && !ptx.contains("tabulate"), "{ptx}");

    let first = newest_assembly(&workspace);
    workspace.ptx(&[]);
    assert_eq!(newest_assembly(&workspace), first, "nothing was changed, and yet it was compiled again");

    workspace.edit("tables/src/lib.rs", "40_961", "40_963");
    let (edited, warm) = workspace.ptx(&[]);
    assert!(edited.contains("40963"), "{edited}");
    assert!(2 * warm < cold, "a build after an edit took {warm:?}, the first one {cold:?}");

    let (features, _) = workspace.ptx(&["--no-default-features", "--features=second-kernel"]);
    assert!(features.contains(".maxntid 128\n.minnctapersm 2\n{"), "{features}");
    assert_eq!(workspace.ptx(&[]).0, edited, "each set of features has its own PTX");

    let recording = workspace.cargo_run(&[], &[("ENTWINE_TIMELINE", "1")]);
    assert!(recording.status.success(), "{}", text(&recording.stderr));
    let recording = text(&recording.stdout);
    assert!(recording.contains(".entry record(") && recording.contains(".entry scale("), "{recording}");
    assert_eq!(workspace.ptx(&[]).0, edited, "what records a timeline is made on request alone, and beside the other");

    let elsewhere = text(&workspace.cargo_run(&[], &[("ENTWINE_TARGETS", "sm_90a, sm_70")]).stderr);
    assert!(elsewhere.contains("ENTWINE_TARGETS lists `sm_70`; expected some of sm_90a, sm_80"), "{elsewhere}");
    let everywhere = workspace.cargo_run(&[], &[("ENTWINE_TARGETS", "")]);
    assert_eq!(text(&everywhere.stdout), edited, "code for every target is made beside the other");
    let for_ampere = |path: &PathBuf| text(&fs::read(path).unwrap()).contains(".target sm_80");
    assert!(workspace.assembly().iter().any(for_ampere), "no code for Ampere");
    let all = newest_assembly(&workspace);
    workspace.ptx(&[]);
    assert!(workspace.cargo_run(&[], &[("ENTWINE_TARGETS", ""), ("ENTWINE_TIMELINE", "1")]).status.success());
    assert_eq!(newest_assembly(&workspace), all, "one code was compiled again after another");

    workspace.edit("kernels/src/lib.rs", "*data *= tables::factor(row)", "*data *= tables::factor(row, 1)");
    let broken = workspace.cargo_run(&[], &[]);
    assert!(!broken.status.success());
    let errors = text(&broken.stderr);
    assert!(errors.contains("kernels/src/lib.rs:21:27"), "{errors}");
    assert_eq!(errors.matches("error[E0061]").count(), 1, "{errors}");
    assert!(errors.contains("the device code of `fixture-kernels` doesn't compile"), "{errors}");
    assert!(!errors.contains("unstable feature"), "{errors}");

    workspace.edit("kernels/src/lib.rs", "tables::factor(row, 1)", "tables::factor(row)");
    workspace.edit("kernels/src/lib.rs", "entry scale maxntid", "entry scales maxntid");
    let unmarked = text(&workspace.cargo_run(&[], &[]).stderr);
    assert!(unmarked.contains("the entry `scale` doesn't say its launch bounds"), "{unmarked}");
}

#[test]
fn a_crate_without_a_library_is_told_where_kernels_go() {
    let workspace = Workspace::new("no-library");
    if env::var_os("ENTWINE_REQUIRE_DEVICE").is_none() && entwine_build::device_compiler().is_err() {
        eprintln!("skipped: no compiler for the device");
        return;
    }
    workspace.edit("kernels/Cargo.toml", "[lib]\ncrate-type = [\"rlib\"]\n", "");
    fs::rename(workspace.0.join("kernels/src/lib.rs"), workspace.0.join("kernels/src/elsewhere.rs")).unwrap();
    let errors = text(&workspace.cargo_run(&[], &[]).stderr);
    assert!(errors.contains("`fixture-kernels` has no library: put its kernels in `src/lib.rs`"), "{errors}");
}

/// When the compiler last wrote PTX.
fn newest_assembly(workspace: &Workspace) -> std::time::SystemTime {
    let assembly = workspace.assembly().into_iter();
    assembly.map(|path| path.metadata().unwrap().modified().unwrap()).max().expect("there is PTX")
}

#[test]
fn without_a_compiler_for_the_device_the_host_side_still_builds() {
    let workspace = Workspace::new("no-compiler");
    let absent = ("ENTWINE_RUSTC", "/nowhere/rustc");
    let output = workspace.cargo_run(&[], &[absent]);
    assert_eq!(text(&output.stdout), "none");
    let warnings = text(&output.stderr);
    for expected in ["no compiler for the device", "rust-src", "rustc-web", "`/nowhere/rustc`: No such file"] {
        assert!(warnings.contains(expected), "{warnings}");
    }

    let required = workspace.cargo_run(&[], &[absent, ("ENTWINE_REQUIRE_DEVICE", "1")]);
    assert!(!required.status.success());
    assert!(text(&required.stderr).contains("ENTWINE_RUSTC"), "{}", text(&required.stderr));
}
