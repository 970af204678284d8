//! What a world's ranks run on, GPUs or threads of this process: the few things that differ between them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaContext;
use entwine_device::abi::MatrixArg;

use crate::error::Error;
use crate::spec::{ElementType, KernelSpec, Target};

/// The machines behind a world's ranks.
pub(crate) trait Platform: Send + Sync {
    /// The number of ranks.
    fn ranks(&self) -> usize;

    /// The CUDA context of a rank; `None` on simulated ranks.
    fn context(&self, rank: usize) -> Option<&Arc<CudaContext>>;

    /// The kind of the GPUs; `None` on simulated ranks.
    fn gpus(&self) -> Option<GpuKind>;

    /// How many tiles a rank works on at a time: its SMs.
    fn processors(&self) -> u32;

    /// Memory of one rank, 256-byte aligned and zeroed, which every rank can reach.
    fn allocate(&self, rank: usize, bytes: usize) -> Result<Box<dyn Memory>, Error>;

    /// Memory that the host and every rank reach at any time and at the same address, also during a launch, zeroed.
    fn allocate_shared(&self, bytes: usize) -> Result<Box<dyn Memory>, Error>;

    /// Memory of one rank that is not this world's to free.
    ///
    /// # Safety
    /// What is read and written through the result must be memory of the rank, from `address` on.
    unsafe fn adopt(&self, rank: usize, address: u64) -> Result<Box<dyn Memory>, Error>;

    /// The descriptors that [`MatrixArg::maps`] points at; `None` where there are none.
    fn describe(&self, rank: usize, matrix: &MatrixArg, element: ElementType)
    -> Result<Option<Box<dyn Memory>>, Error>;

    /// Makes every variant of a kernel ready to start on every rank: in the form that keeps a log, or in the one that
    /// doesn't.
    fn load(&self, spec: &'static KernelSpec, logs: bool) -> Result<Arc<dyn Program>, Error>;

    /// Holds a rank up: what is started from now on begins there `by` late.
    fn delay(&self, rank: usize, by: Duration) -> Result<(), Error>;

    /// Waits for everything that was started.
    fn synchronize(&self) -> Result<(), Error>;
}

/// What GPUs are, as far as times depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuKind {
    /// The name that the driver gives them; if they differ, all names.
    pub name: String,
    /// The major version of the driver's CUDA.
    pub cuda: u32,
}

impl fmt::Display for GpuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with CUDA {}", self.name, self.cuda)
    }
}

/// A block of memory. Offsets are in bytes.
pub(crate) trait Memory: Send + Sync {
    /// Its address, as the rank sees it.
    fn address(&self) -> u64;

    /// Overwrites `area` with `data`, whose rows follow each other without gaps.
    fn write(&self, area: Area, data: &[u8]) -> Result<(), Error>;

    /// Copies `area` to `data`, whose rows follow each other without gaps.
    fn read(&self, area: Area, data: &mut [u8]) -> Result<(), Error>;

    /// Repeats `pattern`, as long as an element, over `area`.
    fn fill(&self, area: Area, pattern: &[u8]) -> Result<(), Error>;
}

/// `rows` rows of `row` bytes, `pitch` bytes from one to the next, from `offset` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    pub offset: usize,
    pub pitch: usize,
    pub row: usize,
    pub rows: usize,
}

impl Area {
    /// Whether its rows follow each other without gaps.
    pub fn is_flat(&self) -> bool {
        self.rows <= 1 || self.pitch == self.row
    }

    /// `bytes` bytes from `offset` on.
    pub fn flat(offset: usize, bytes: usize) -> Self {
        Area { offset, pitch: bytes, row: bytes, rows: 1 }
    }

    /// Bytes in all its rows.
    pub fn bytes(&self) -> usize {
        self.row * self.rows
    }
}

/// A loaded kernel.
pub(crate) trait Program: Send + Sync {
    /// What its device code is for; `None` on simulated ranks.
    fn target(&self) -> Option<Target>;

    /// How many CTAs of a variant are resident at once on each rank. There must be code for its tile.
    fn resident(&self, variant: usize) -> u32;

    /// Refuses streams that work can't be started on.
    fn check(&self, streams: Option<&[crate::Stream]>) -> Result<(), Error>;

    /// Starts work on every rank, on each after all that was started on it before. Nothing in here allocates,
    /// frees or blocks once the first rank has begun. What [`Program::check`] refuses must not come here: after an error,
    /// it is not known what has begun.
    fn start(&self, work: Work, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error>;

    /// Adds the work that `prepare` returns to what the user's streams capture, one for each rank. `prepare` may allocate.
    fn capture(&self, streams: &[crate::Stream], prepare: &mut dyn FnMut() -> Result<Work, Error>)
    -> Result<(), Error>;

    /// Waits until the streams, one for each rank, have done all that was put on them. A captured launch on these
    /// regions that a rank has not begun, twice the world's start limit after another one has, is stopped and an error.
    fn await_streams(&self, streams: &[crate::Stream], regions: &[u64]) -> Result<(), Error>;

    /// Prepares `launches` launches in a row, to be started many times. They do these works in turns, which differ
    /// in their parameters only.
    fn record(self: Arc<Self>, turns: Vec<Work>, launches: u32) -> Result<Arc<dyn Replay>, Error>;
}

/// Prepared work.
pub(crate) trait Replay: Send + Sync {
    /// See [`Program::start`].
    fn start(self: Arc<Self>, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error>;
}

/// What a launch does.
pub(crate) struct Work {
    /// The variant's index.
    pub variant: usize,
    /// Each rank's parameters, laid out as `abi::Params`.
    pub params: Vec<Box<[u64]>>,
    /// Address of each rank's region.
    pub regions: Vec<u64>,
    /// CTAs of each rank.
    pub ctas: u32,
    /// How long its waits wait.
    pub deadline: Duration,
}

/// When a launch does it.
#[derive(Clone, Copy)]
pub(crate) struct Schedule<'a> {
    /// No rank begins before every rank has ended all that was started before.
    pub fenced: bool,
    /// The streams to start on, one per rank, if they are the user's own.
    pub streams: Option<&'a [crate::Stream]>,
}

/// A started kernel.
pub(crate) trait Run: Send + Sync {
    /// Whether every rank has ended.
    fn is_finished(&self) -> bool;

    /// Waits until every rank has ended. A rank that has not begun within the world's start limit is an error, and the
    /// others are stopped.
    fn finish(&self) -> Result<(), Error>;

    /// Waits until every rank has ended, however long it takes.
    fn drain(&self) -> Result<(), Error>;
}
