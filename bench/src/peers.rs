//! What PyTorch and cuBLASMp are timed by: scripts in processes of their own, one a GPU, which prepare contestants and time one
//! batch whenever they are asked to, so that theirs and ours take turns in one run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::shapes::Operation;
use crate::timing::Turn;
use crate::watchdog;

/// The scripts, so that this program runs wherever it is.
const SCRIPTS: [(&str, &str); 5] = [
    ("serving.py", include_str!("../peers/serving.py")),
    ("contestant.py", include_str!("../peers/contestant.py")),
    ("cublasmp.py", include_str!("../peers/cublasmp.py")),
    ("tensor_parallel.py", include_str!("../peers/tensor_parallel.py")),
    ("experts.py", include_str!("../peers/experts.py")),
];
/// How long a request may take, the start of the processes included.
const PATIENCE: Duration = Duration::from_secs(150);
/// How long a process may take to end that is told to, or to reply where another has failed.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long one rank is listened to before the next.
const LOOK: Duration = Duration::from_millis(20);
/// cuBLASMp, as its package names it.
const CUBLASMP: &str = "libcublasmp.so.0";

/// Others whose fused operations are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// PyTorch's operations in symmetric memory
    #[value(name = "pytorch")]
    PyTorch,
    /// cuBLASMp's products
    #[value(name = "cublasmp")]
    CublasMp,
}

/// What the contestant is called that is the fastest of a peer's ways to do an operation.
pub const FASTEST: &str = "fastest";

impl Peer {
    /// Whether it has an operation that takes the place of this one.
    pub fn does(self, operation: Operation) -> bool {
        match operation {
            Operation::GemmReduceScatter | Operation::GemmAllReduce | Operation::AllGatherGemm => true,
            Operation::GemvAllReduce => self == Peer::PyTorch,
            Operation::Gemm | Operation::GemmAllToAll => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Peer::PyTorch => "PyTorch",
            Peer::CublasMp => "cuBLASMp",
        })
    }
}

/// The processes, by rank.
pub struct Peers {
    name: &'static str,
    processes: Vec<Process>,
    folder: PathBuf,
    /// What they are made of, with versions.
    pub libraries: String,
}

struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    replies: Receiver<String>,
}

/// What there is to say of a contestant.
#[derive(Debug, Deserialize)]
pub struct About {
    pub name: String,
    pub timing: String,
    /// The largest error that its results were found to have, where they were checked.
    pub error: Option<f64>,
}

/// What a case's preparation found.
#[derive(Debug, Deserialize)]
pub struct Prepared {
    pub contestants: BTreeMap<String, About>,
    /// A checksum of the routing, where there is one.
    pub routing: Option<u32>,
}

#[derive(Deserialize)]
struct Greeting {
    libraries: String,
}

#[derive(Deserialize)]
struct Timed {
    us: f64,
}

impl Peers {
    /// Starts what times a peer's fused operations. cuBLASMp is looked for in `folders`, beside this program and among Python's
    /// packages.
    ///
    /// # Errors
    /// It isn't here, or does not start.
    pub fn start(peer: Peer, world: usize, folders: &[PathBuf]) -> Result<Self> {
        match peer {
            Peer::PyTorch => Peers::run("PyTorch", "tensor_parallel.py", world, &[], None),
            Peer::CublasMp => {
                let library = cublasmp(folders)?;
                let nccl = library.with_file_name("libnccl.so.2");
                let arguments = ["--cublasmp".into(), library.into_os_string()];
                Peers::run("cuBLASMp", "tensor_parallel.py", world, &arguments, nccl.exists().then_some(nccl))
            }
        }
    }

    /// Starts what times layers of experts.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_experts(world: usize) -> Result<Self> {
        Peers::run("PyTorch", "experts.py", world, &[], None)
    }

    fn run(
        name: &'static str,
        script: &str,
        world: usize,
        arguments: &[OsString],
        preload: Option<PathBuf>,
    ) -> Result<Self> {
        let folder = env::temp_dir().join(format!("entwine-bench-peers-{}-{name}", process::id()));
        fs::create_dir_all(&folder)?;
        for (name, text) in SCRIPTS {
            fs::write(folder.join(name), text)?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut peers = Peers { name, processes: Vec::new(), folder, libraries: String::new() };
        for rank in 0..world {
            let mut command = Command::new("python3");
            command.arg(peers.folder.join(script)).args(arguments);
            for (option, value) in [("--rank", rank), ("--world", world), ("--port", port.into())] {
                command.arg(option).arg(value.to_string());
            }
            if let Some(library) = &preload {
                command.env("LD_PRELOAD", library);
            }
            peers.processes.push(Process::start(&mut command)?);
        }
        let Greeting { libraries } = peers.hear()?;
        peers.libraries = libraries;
        Ok(peers)
    }

    /// Prepares a case, in place of the one before.
    ///
    /// # Errors
    /// The peer doesn't do it, or failed.
    pub fn prepare(&mut self, case: &Value) -> Result<Prepared> {
        self.ask(&json!({ "prepare": case }))
    }

    /// Gives up what was prepared, and its memory.
    ///
    /// # Errors
    /// The peer failed.
    pub fn close(&mut self) -> Result<()> {
        self.ask::<Value>(&json!({ "close": true })).map(drop)
    }

    fn time(&mut self, contestant: &str, replays: usize) -> Result<f64> {
        Ok(self.ask::<Timed>(&json!({ "time": contestant, "replays": replays }))?.us)
    }

    fn ask<T: for<'de> Deserialize<'de>>(&mut self, request: &Value) -> Result<T> {
        ensure!(!self.processes.is_empty(), "{} has failed before", self.name);
        for process in &mut self.processes {
            // What a process has to say of its end is heard below.
            let _ = writeln!(process.requests.as_mut().expect("it is open until the end"), "{request}");
        }
        self.hear()
    }

    /// The reply of rank 0, once all ranks have replied.
    fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T> {
        watchdog::patient_step(format!("waiting for {}", self.name), 2 * PATIENCE);
        let replies = self.replies().with_context(|| format!("{} failed", self.name));
        let replies = replies.inspect_err(|_| self.end(Duration::ZERO))?;
        watchdog::progress();
        if let Some(failure) = replies.iter().find_map(failure) {
            bail!("{}: {failure}", self.name);
        }
        serde_json::from_value(replies.into_iter().next().context("there are no ranks")?)
            .with_context(|| format!("{} gave a reply of another kind than was asked for", self.name))
    }

    /// Those of all ranks. Where one has ended, or has failed and leaves the others waiting for it, this doesn't wait for long.
    fn replies(&self) -> Result<Vec<Value>> {
        let mut until = Instant::now() + PATIENCE;
        let mut replies = vec![None; self.processes.len()];
        while replies.iter().any(Option::is_none) {
            for (rank, process) in self.processes.iter().enumerate() {
                if replies[rank].is_some() {
                    continue;
                }
                match process.replies.recv_timeout(LOOK) {
                    Ok(line) => {
                        let reply =
                            serde_json::from_str(&line).with_context(|| format!("rank {rank} said `{line}`"))?;
                        if failure(&reply).is_some() {
                            until = until.min(Instant::now() + FAREWELL);
                        }
                        replies[rank] = Some(reply);
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        bail!("the process of rank {rank} has ended; what it said is above")
                    }
                    Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                        match replies.iter().flatten().find_map(failure) {
                            Some(failure) => bail!("{failure}"),
                            None => bail!("rank {rank} didn't reply within {PATIENCE:?}"),
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        }
        Ok(replies.into_iter().flatten().collect())
    }

    /// Lets the processes end; ends those that take longer.
    fn end(&mut self, patience: Duration) {
        self.processes.iter_mut().for_each(|process| process.requests = None);
        let until = Instant::now() + patience;
        for process in &mut self.processes {
            while matches!(process.child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(20));
            }
            // It has ended already, or is to.
            let _ = process.child.kill().and_then(|()| process.child.wait());
        }
        self.processes.clear();
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.end(FAREWELL);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("couldn't start {}", command.get_program().display()))?;
        let requests = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Ok(Process { child, requests, replies })
    }
}

/// Why a request failed, if a reply says so.
fn failure(reply: &Value) -> Option<&str> {
    reply.get("failure").map(|failure| failure.as_str().unwrap_or("it doesn't say why"))
}

/// A turn of a contestant that was prepared. Once the peer has failed, which is said, its turns take no number of µs: what
/// else is measured counts all the same.
pub fn turn<'a>(peers: &'a RefCell<Peers>, contestant: &str) -> Turn<'a> {
    let (contestant, mut failed) = (contestant.to_owned(), false);
    Box::new(move |replays| {
        let timed = if failed { Ok(f64::NAN) } else { peers.borrow_mut().time(&contestant, replays) };
        Ok(timed.unwrap_or_else(|error| {
            eprintln!("FAILED: {error:#}");
            failed = true;
            f64::NAN
        }))
    })
}

/// Where cuBLASMp is: in one of the folders, in `lib` beside this program's folder, or in its Python package.
fn cublasmp(folders: &[PathBuf]) -> Result<PathBuf> {
    let program = env::current_exe().unwrap_or_default();
    let bundled = program.parent().and_then(Path::parent).map(|folder| folder.join("lib"));
    let packages = crate::library::python_folders();
    let packaged = packages.iter().map(|folder| folder.join("nvidia/cublasmp/cu13/lib"));
    let places: Vec<_> = folders.iter().cloned().chain(bundled).chain(packaged).collect();
    places.iter().map(|folder| folder.join(CUBLASMP)).find(|file| file.exists()).with_context(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!(
            "cuBLASMp isn't here: expected {CUBLASMP} in {}; `cargo xtask bundle --cublasmp` brings it along, and PyPI has it as \
             nvidia-cublasmp-cu13",
            places.join(" or ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    /// Contestants whose calls take as many µs as the case says. With −1 the last rank ends, and with −2 it fails, while the
    /// other waits.
    const STUB: &str = r#"
import os, sys, time
sys.path.insert(0, sys.argv[1])
from serving import Unsupported, replies, requests, serve

class Contestant:
    def __init__(self, us):
        self.us = us
    def about(self):
        return dict(name="stub", timing="graph", error=None)
    def time(self, replays):
        if self.us == -1 and sys.argv[2] == "1":
            os._exit(3)
        if self.us == -2 and sys.argv[2] == "1":
            raise ValueError("rank 1 has had enough")
        if self.us < 0:
            time.sleep(600)
        return self.us * replays

def prepare(case):
    print("this is no reply")
    if case["us"] == 0:
        raise Unsupported("nothing takes no time")
    return dict(fastest=Contestant(case["us"])), dict(routing=7), lambda: None

serve(requests(), replies(), "stub 1.0", prepare)
"#;

    fn stub(name: &'static str) -> Peers {
        let mut peers = Peers { name, processes: Vec::new(), folder: PathBuf::new(), libraries: String::new() };
        peers.folder = env::temp_dir().join(format!("entwine-bench-stub-{}-{name}", process::id()));
        fs::create_dir_all(&peers.folder).unwrap();
        fs::write(peers.folder.join("serving.py"), SCRIPTS[0].1).unwrap();
        for rank in ["0", "1"] {
            let folder = peers.folder.clone();
            let arguments: [&OsStr; 4] = ["-c".as_ref(), STUB.as_ref(), folder.as_ref(), rank.as_ref()];
            peers.processes.push(Process::start(Command::new("python3").args(arguments)).unwrap());
        }
        peers.libraries = peers.hear::<Greeting>().unwrap().libraries;
        peers
    }

    #[test]
    fn peers_prepare_and_take_turns() {
        let mut peers = stub("turns");
        assert_eq!(peers.libraries, "stub 1.0");
        let prepared = peers.prepare(&json!({ "us": 12.5 })).unwrap();
        assert_eq!((prepared.routing, prepared.contestants["fastest"].timing.as_str()), (Some(7), "graph"));
        let error = peers.prepare(&json!({ "us": 0 })).unwrap_err();
        assert_eq!(error.to_string(), "turns: nothing takes no time");
        peers.prepare(&json!({ "us": 2 })).unwrap();
        let peers = RefCell::new(peers);
        assert_eq!(turn(&peers, "fastest")(5).unwrap(), 10.0);
        peers.borrow_mut().close().unwrap();
        assert!(turn(&peers, "fastest")(1).unwrap().is_nan(), "nothing is prepared any more");
    }

    #[test]
    fn nobody_waits_for_a_process_that_has_ended_or_failed() {
        for (name, us, why) in [
            ("ends", -1, "the process of rank 1 has ended; what it said is above"),
            ("fails", -2, "rank 1 has had enough"),
        ] {
            let mut peers = stub(name);
            peers.prepare(&json!({ "us": us })).unwrap();
            let error = peers.time("fastest", 1).unwrap_err();
            assert_eq!(format!("{error:#}"), format!("{name} failed: {why}"));
            let error = peers.prepare(&json!({ "us": 1 })).unwrap_err();
            assert_eq!(error.to_string(), format!("{name} has failed before"));
        }
    }

    #[test]
    fn processes_end_with_whoever_started_them() {
        let mut peers = stub("left");
        peers.prepare(&json!({ "us": -1 })).unwrap();
        // Rank 0 is busy for minutes; rank 1 has nothing to do.
        let Process { child, requests, .. } = &mut peers.processes[0];
        writeln!(requests.as_mut().unwrap(), "{}", json!({ "time": "fastest", "replays": 1 })).unwrap();
        thread::sleep(Duration::from_millis(200));
        assert!(child.try_wait().unwrap().is_none());
        for process in &mut peers.processes {
            process.requests = None;
        }
        let until = Instant::now() + 2 * FAREWELL;
        for Process { child, .. } in &mut peers.processes {
            while child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < until, "it goes on");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Contestants on a GPU that is made of two clocks, in cycles: the host's, and when the GPU will be done with what is queued.
    /// Its queue has room for 40 calls.
    const CLOCKS: &str = r#"
import sys
from types import SimpleNamespace
from unittest import mock
sys.path.insert(0, sys.argv[1])
torch = mock.MagicMock()
for name in ["torch", "torch.distributed", "torch.distributed._symmetric_memory"]:
    sys.modules[name] = torch
import contestant
contestant.slowest = float

CALL, ROOM = 1_000_000, 40
host = gpu = 0
begins = []

class Event:
    def __init__(self, enable_timing):
        pass
    def record(self):
        self.at = max(host, gpu)
    def query(self):
        return self.at <= host
    def elapsed_time(self, end):
        return (end.at - self.at) / 1e3

def sleep(cycles):
    global gpu
    gpu = max(host, gpu) + cycles

def synchronize():
    global host
    host = max(host, gpu)

def calling(cycles):
    def call(*_):
        global host, gpu
        host += cycles
        if len(begins) >= ROOM:
            host = max(host, begins[-ROOM])
        begins.append(max(host, gpu))
        gpu = begins[-1] + CALL
    return call

def waits(*_):
    calling(1)()
    synchronize()

torch.cuda.Event, torch.cuda._sleep, torch.cuda.synchronize = Event, sleep, synchronize

def prepared(call):
    operands = SimpleNamespace(sets=[(None, None)] * 2, world=1)
    contestant.BATCH_US = 64 * CALL
    return contestant.Contestant("calls", call, operands, mock.MagicMock(), replays=False).prepare(checked=False)

quick = prepared(calling(1_000))
assert (quick.calls, quick.wait) == (32, contestant.QUEUEING_CALLS), (quick.calls, quick.wait)
assert quick.time(5) == CALL

slow = prepared(calling(900_000))
assert slow.wait == 4 * contestant.QUEUEING_CALLS, slow.wait
assert slow.time(1) == CALL

# A graph: each replay is queued while the one before runs, or else all wait for longer before the first.
for cycles, wait in [(900_000, 1), (1_100_000, 4)]:
    quick.graph, quick.wait = SimpleNamespace(replay=calling(cycles)), contestant.QUEUEING
    assert quick.time(5) == CALL / quick.calls
    assert quick.wait == wait * contestant.QUEUEING, quick.wait

try:
    raise SystemExit(f"what can't be queued took {prepared(waits).time(1)}")
except contestant.Unqueued as reason:
    assert str(reason) == "2 calls of calls can't be queued while the GPUs wait", reason
"#;

    #[test]
    fn no_batch_counts_that_begins_before_it_is_queued() {
        let folder = env::temp_dir().join(format!("entwine-bench-clocks-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("contestant.py"), SCRIPTS[1].1).unwrap();
        let ended = Command::new("python3").args(["-c", CLOCKS]).arg(&folder).output().unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    #[test]
    fn what_is_missing_is_said_with_what_brings_it() {
        let folder = env::temp_dir().join(format!("entwine-bench-cublasmp-{}", process::id()));
        let error = cublasmp(slice_of(&folder)).unwrap_err().to_string();
        assert!(
            error.starts_with("cuBLASMp isn't here: expected libcublasmp.so.0 in ") && error.contains("xtask bundle")
        );
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(CUBLASMP), "").unwrap();
        assert_eq!(cublasmp(slice_of(&folder)).unwrap(), folder.join(CUBLASMP));
        fs::remove_dir_all(folder).unwrap();
    }

    fn slice_of(folder: &PathBuf) -> &[PathBuf] {
        std::slice::from_ref(folder)
    }
}
