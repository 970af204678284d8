//! A folder that runs on a GPU machine without compilers: release binaries, with their PTX inside.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use clap::Args;

use crate::cargo::{EXAMPLES, cargo, demo_binary, messages, root, succeed, with_device_code};
use crate::fatbin;

const TESTS: &str = "entwine-tests";
const BENCH: &str = "entwine-bench";

/// The program with the tests that need GPUs.
const GPU_TESTS: &str = "gpu-suite";

/// Bytes of which more are warned about: GPU machines that are lent may take no more.
const MANY: u64 = 60 << 20;

/// cuBLASMp and the NCCL that it needs, as PyPI has them, and the libraries in them.
const CUBLASMP: [(&str, &str); 2] = [
    ("nvidia-cublasmp-cu13==0.10.0.3695", "nvidia/cublasmp/cu13/lib/libcublasmp.so.0"),
    ("nvidia-nccl-cu13==2.29.7", "nvidia/nccl/lib/libnccl.so.2"),
];
/// What machines with GPUs install packages as.
const PLATFORM: [&str; 8] = [
    "--python-version=3.12",
    "--implementation=cp",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_27_x86_64",
    "--platform=manylinux_2_18_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux2014_x86_64",
    "--only-binary=:all:",
];
/// The GPUs that the carried libraries keep their code for: H100 and H200.
const PROCESSOR: u32 = 90;

/// What goes into the folder
#[derive(Debug, Args)]
pub struct Options {
    /// The folder
    directory: PathBuf,
    /// Compress the programs with xz; `run` unpacks them when they are first used
    #[arg(long)]
    xz: bool,
    /// Bring along cuBLASMp and its NCCL, compressed, with their code for H100 and H200 alone
    #[arg(long)]
    cublasmp: bool,
}

/// Fills the folder with `run` and what it starts, and says how large it is.
pub fn make(options: &Options) -> Result<()> {
    let directory = &options.directory;
    let packs = Command::new("xz").arg("--version").stdout(Stdio::null()).status().is_ok();
    ensure!(packs || !(options.xz || options.cublasmp), "to compress takes `xz`, which Debian's package xz-utils has");
    let [binaries, libraries] = ["bin", "lib"].map(|name| directory.join(name));
    if binaries.exists() {
        fs::remove_dir_all(&binaries)?;
    }
    fs::create_dir_all(&binaries)?;
    for name in CUBLASMP.iter().filter_map(|(_, library)| Path::new(library).file_name()) {
        for earlier in [libraries.join(name), packed_as(&libraries.join(name))] {
            if earlier.exists() {
                fs::remove_file(earlier)?;
            }
        }
    }

    let demo = demo_binary()?;
    let release = ["--release", "--config", "profile.release.strip=true"];
    let mut programs = cargo(&["build", "--bin", &demo, "--bin", BENCH, "--bin", GPU_TESTS]);
    programs.args(["--package", EXAMPLES, "--package", BENCH, "--package", TESTS]);
    copy_executables(programs.args(release), &binaries)?;
    if options.cublasmp {
        carry_cublasmp(&libraries)?;
    }

    let script = directory.join("run");
    fs::write(&script, run_script(&demo))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    fs::write(directory.join("embedding.py"), include_str!("../../bench/embedding.py"))?;
    let uncompressed = size(&binaries)? + size(&libraries)?;
    let mut compressed = size(&libraries)?;
    if packs {
        for file in fs::read_dir(&binaries)?.collect::<Result<Vec<_>, _>>()? {
            let packed = compress(&file.path())?;
            compressed += packed.metadata()?.len();
            fs::remove_file(if options.xz { file.path() } else { packed })?;
        }
    }
    let carried = if options.xz { compressed } else { uncompressed };
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
    let would_be = if packs && !options.xz { format!(", {} compressed", mib(compressed)) } else { String::new() };
    println!("{}: {}{would_be}", directory.display(), mib(carried));
    if carried > MANY {
        let help = if options.xz { "" } else { "; `--xz` makes it smaller" };
        eprintln!("warning: {} is more than the {} that some machines take{help}", mib(carried), mib(MANY));
    }
    Ok(())
}

fn copy_executables(build: &mut Command, to: &Path) -> Result<()> {
    for message in messages(with_device_code(build))? {
        if let Message::CompilerArtifact(artifact) = message
            && let Some(executable) = artifact.executable
            && !artifact.target.is_custom_build()
        {
            fs::copy(&executable, to.join(&artifact.target.name)).with_context(|| executable.to_string())?;
        }
    }
    Ok(())
}

/// Fetches cuBLASMp's packages, and packs what is needed of their libraries into a folder.
fn carry_cublasmp(folder: &Path) -> Result<()> {
    let packages = root().join("target/cublasmp");
    if CUBLASMP.iter().any(|(_, library)| !packages.join(library).exists()) {
        println!("Fetching {}", CUBLASMP.map(|(package, _)| package).join(" "));
        let mut pip = Command::new("python3");
        pip.env("PIP_ROOT_USER_ACTION", "ignore"); // A folder of its own can't break the system's Python.
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"]).arg(&packages);
        succeed(pip.args(PLATFORM).args(CUBLASMP.map(|(package, _)| package)))
            .context("Python 3 with pip is needed to fetch cuBLASMp")?;
    }
    fs::create_dir_all(folder)?;
    for (package, library) in CUBLASMP {
        let library = packages.join(library);
        let mut code = fs::read(&library).with_context(|| format!("{package} has no {}", library.display()))?;
        fatbin::keep(&mut code, PROCESSOR).with_context(|| library.display().to_string())?;
        let file = folder.join(library.file_name().context("a library has a name")?);
        fs::write(&file, code)?;
        compress(&file)?;
        fs::remove_file(file)?;
    }
    Ok(())
}

/// Compresses a file into one beside it, `….xz`.
fn compress(file: &Path) -> Result<PathBuf> {
    let packed = packed_as(file);
    let output = Stdio::from(File::create(&packed)?);
    let status = Command::new("xz").args(["-6", "--threads=0", "--stdout"]).arg(file).stdout(output).status();
    let status = status.context("couldn't start `xz`")?;
    ensure!(status.success(), "couldn't compress {}: xz ended with {status}", file.display());
    Ok(packed)
}

fn packed_as(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".xz");
    name.into()
}

fn run_script(demo: &str) -> String {
    format!(
        "#!/bin/sh
# usage: run demo|test|bench [what to pass on]
cd \"$(dirname \"$0\")\" || exit
chore=$1
[ $# -gt 0 ] && shift
case $chore in
    demo) program=bin/{demo} ;;
    bench) program=bin/{BENCH} ;;
    test) program=bin/{GPU_TESTS} ;;
    *) sed -n 2p \"$0\" >&2; exit 2 ;;
esac
decompress() {{
    if command -v xz >/dev/null; then
        xz --decompress --stdout \"$1\"
    else
        python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' \"$1\"
    fi
}}
for file in \"$program\" lib/libcublasmp.so.0 lib/libnccl.so.2; do
    if [ ! -e \"$file\" ] && [ -e \"$file.xz\" ]; then
        decompress \"$file.xz\" >\"$file.part\" && chmod +x \"$file.part\" && mv \"$file.part\" \"$file\" || exit
    fi
done
exec \"$program\" \"$@\"
"
    )
}

fn size(directory: &Path) -> Result<u64> {
    if !directory.exists() {
        return Ok(0);
    }
    fs::read_dir(directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_run() {
        let folder = std::env::temp_dir().join(format!("entwine-bundle-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let program = folder.join("bin/entwine-bench");
        fs::write(&program, "#!/bin/sh\necho \"measured $*\"\n").unwrap();
        compress(&program).unwrap();
        fs::remove_file(&program).unwrap();
        fs::write(folder.join("run"), run_script("demo")).unwrap();
        let run = |chore: &str| Command::new("sh").arg(folder.join("run")).args([chore, "moe"]).output().unwrap();
        assert_eq!(run("bench").stdout, b"measured moe\n");
        assert!(program.exists(), "the next run needs not unpack it");
        assert_eq!(run("bench").stdout, b"measured moe\n");
        let refused = run("dance");
        assert_eq!(
            (refused.status.code(), refused.stderr),
            (Some(2), b"# usage: run demo|test|bench [what to pass on]\n".to_vec())
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
