//! What can go wrong on the host's side, as one type.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::DriverError;
use entwine_device::abi::MAX_WORLD;

use crate::fault::Fault;

/// Why something was refused, or why a launch failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has no usable CUDA driver.
    #[error("{reason}; GPU ranks need NVIDIA's driver 570 or newer, simulated ranks (`World::simulated`) need nothing")]
    NoDriver {
        /// What was looked for and not found.
        reason: String,
    },
    /// A call into the CUDA driver failed.
    #[error("GPU {device}: could not {action}: {source}")]
    Cuda {
        /// The GPU's ordinal.
        device: usize,
        /// What was being done.
        action: &'static str,
        /// The driver's own report.
        source: DriverError,
    },
    /// A world of no ranks, or of too many.
    #[error("a world has 1 to {MAX_WORLD} ranks, not {0}")]
    WorldSize(usize),
    /// One GPU was to be two ranks, in a world whose ranks don't share GPUs.
    #[error(
        "GPU {0} is named twice; each rank needs a GPU of its own, since all of a launch's ranks run at once, or, to try \
         things out, a part of one (`WorldBuilder::share_gpus`)"
    )]
    SharedGpu(usize),
    /// A GPU that was named is not there.
    #[error("there is no GPU {device}: the driver shows {count} (`CUDA_VISIBLE_DEVICES` may hide others)")]
    NoSuchGpu {
        /// The ordinal that was named.
        device: usize,
        /// How many GPUs there are.
        count: usize,
    },
    /// A GPU that the kernels are not made for.
    #[error(
        "GPU {device} has compute capability {major}.{minor}; kernels are compiled for 8.0 and later, and at their best \
         for 9.0 (an H100, H200, H800 or GH200)"
    )]
    UnsupportedGpu {
        /// The GPU's ordinal.
        device: usize,
        /// Its compute capability, major.
        major: i32,
        /// Its compute capability, minor.
        minor: i32,
    },
    /// A target that there is not.
    #[error("`{0}` is no target of device code; expected `sm_90a` or `sm_80`")]
    NoSuchTarget(String),
    /// Two GPUs cannot reach each other's memory.
    #[error("GPU {from} has no {what} GPU {to}; the ranks of a world must be linked by NVLink, or by PCIe with P2P")]
    NoPeerAccess {
        /// The GPU that would write.
        from: usize,
        /// The GPU whose memory it would be.
        to: usize,
        /// What is missing.
        what: &'static str,
    },
    /// The environment makes launches wait for each other.
    #[error(
        "`CUDA_LAUNCH_BLOCKING=1` makes the launch on one rank wait for its end, while that rank waits for the others: \
         unset it to run {ranks} ranks"
    )]
    LaunchBlocking {
        /// The number of ranks.
        ranks: usize,
    },
    /// A kernel was built without code for GPUs.
    #[error(
        "kernel `{kernel}` was built without device code; call `entwine_build::compile()` in its crate's build.rs, and \
         build it with a rustc that has its `rust-src` (Debian's packages `rustc-web` and `rust-web-src`, say): the \
         build's warnings tell which were looked at"
    )]
    NoDeviceCode {
        /// The kernel.
        kernel: &'static str,
    },
    /// A kernel was built with code for other GPUs, or without the code that records a timeline.
    #[error(
        "kernel `{kernel}` has no {wanted} for these GPUs, of compute capability {}; it was built for {}; the \
         documentation of `entwine_build` says how to build others (`ENTWINE_TIMELINE=1` for those that record a timeline)",
        capabilities.join(", "), codes.join(", ")
    )]
    NoFittingCode {
        /// The kernel.
        kernel: &'static str,
        /// What was looked for.
        wanted: String,
        /// The compute capability of each rank's GPU.
        capabilities: Vec<String>,
        /// What there is.
        codes: Vec<String>,
    },
    /// The driver's compiler refused a kernel's PTX.
    #[error("GPU {device}: the driver could not compile kernel `{kernel}` ({source}):\n{log}")]
    Compile {
        /// The kernel.
        kernel: &'static str,
        /// The GPU's ordinal.
        device: usize,
        /// The driver's own report.
        source: DriverError,
        /// The compiler's log.
        log: String,
    },
    /// Not even one CTA per SM can be resident.
    #[error(
        "kernel `{kernel}`, tile {}×{}: a CTA of {threads} threads and {shared_bytes} bytes of shared memory does not \
         fit on an SM of GPU {device} (it allows {shared_limit} bytes); all CTAs of a launch must be resident",
        tile.0, tile.1
    )]
    NotResident {
        /// The kernel.
        kernel: &'static str,
        /// The variant's tile.
        tile: (u32, u32),
        /// The GPU's ordinal.
        device: usize,
        /// Threads of a CTA.
        threads: u32,
        /// Dynamic shared memory of a CTA, in bytes.
        shared_bytes: u32,
        /// The most dynamic shared memory that the GPU gives a CTA, in bytes.
        shared_limit: u32,
    },
    /// A kernel has no variant for what was asked.
    #[error("kernel `{kernel}` was not compiled for {wanted}; there is: {available}")]
    NoVariant {
        /// The kernel.
        kernel: &'static str,
        /// What was asked for.
        wanted: String,
        /// What was compiled.
        available: String,
    },
    /// A launch argument was refused.
    #[error("kernel `{kernel}`, argument `{argument}`: {problem}")]
    Argument {
        /// The kernel.
        kernel: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// What was expected and what was found.
        problem: String,
    },
    /// A launch as a whole was refused.
    #[error("kernel `{kernel}`: {problem}")]
    Launch {
        /// The kernel.
        kernel: &'static str,
        /// What was expected and what was found.
        problem: String,
    },
    /// A tuning file could not be used.
    #[error("tuning file {}: {problem}", path.display())]
    Tuning {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// A tensor could not be made, read or written as asked.
    #[error("{0}")]
    Tensor(String),
    /// Memory ran out.
    #[error("rank {rank}: could not allocate {bytes} bytes{detail}")]
    OutOfMemory {
        /// The rank.
        rank: usize,
        /// How many bytes were asked for.
        bytes: usize,
        /// How many there were, where it is known.
        detail: String,
    },
    /// A rank never began a launch.
    #[error(
        "kernel `{kernel}`: rank {rank} had not started {after:?} after its launch, so all ranks were stopped; another \
         program may occupy its SMs"
    )]
    NotStarted {
        /// The kernel.
        kernel: &'static str,
        /// The rank.
        rank: usize,
        /// How long it was waited for.
        after: Duration,
    },
    /// A launch ran and was given up.
    #[error(transparent)]
    Fault(Arc<Fault>),
}

/// The text for readers: it is what `main` and `unwrap` print.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
