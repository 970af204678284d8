//! A world: the ranks that the kernels of a program run on together.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaContext;
use entwine_device::abi::MAX_WORLD;

use crate::choice::Device;
use crate::cuda::Gpus;
use crate::error::Error;
use crate::memory::{Allocation, Allocator};
use crate::platform::Platform;
use crate::simulate::SimulatedRanks;
use crate::spec::Target;
use crate::tuning::Tuning;

/// The ranks that kernels run on: GPUs of this machine, or simulated ones. A handle; clones are the same world.
///
/// ```
/// # fn main() -> Result<(), entwine::Error> {
/// let world = entwine::World::simulated(2)?;
/// let rows = world.scatter([3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(rows.to_vec(1)?, [5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    platform: Box<dyn Platform>,
    allocator: Allocator,
    tuning: Tuning,
    first_epoch: u32,
}

impl World {
    /// Every GPU of this machine, in the driver's order.
    ///
    /// # Errors
    /// No CUDA driver, no GPU, or GPUs that cannot run kernels together.
    pub fn open() -> Result<Self, Error> {
        World::builder().build()
    }

    /// These GPUs: the first is rank 0.
    ///
    /// # Errors
    /// No CUDA driver, a GPU that is not there or named twice, or GPUs that cannot run kernels together.
    pub fn gpus(ordinals: &[usize]) -> Result<Self, Error> {
        World::builder().gpus(ordinals).build()
    }

    /// `ranks` simulated ranks, which compute the same as GPUs in threads of this process.
    ///
    /// # Errors
    /// No ranks, or more than [`MAX_WORLD`].
    pub fn simulated(ranks: usize) -> Result<Self, Error> {
        World::builder().simulated(ranks).build()
    }

    /// A world with other settings than the default ones.
    pub fn builder() -> WorldBuilder {
        WorldBuilder {
            ranks: Ranks::AllGpus,
            ctas: 2,
            start_limit: Duration::from_secs(60),
            guards: false,
            tuning: None,
            first_epoch: 0,
            target: None,
            share_gpus: false,
        }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.0.platform.ranks()
    }

    /// The CUDA context of a rank's GPU, for streams and memory of the user's own; `None` on simulated ranks.
    ///
    /// # Panics
    /// There is no such rank.
    pub fn cuda_context(&self, rank: usize) -> Option<Arc<CudaContext>> {
        assert!(rank < self.ranks(), "there are {} ranks, and no rank {rank}", self.ranks());
        self.0.platform.context(rank).cloned()
    }

    /// Waits until every launch on this world has ended. Their faults are reported by
    /// [`Launch::wait`](crate::Launch::wait) alone.
    ///
    /// # Errors
    /// The machine failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.0.platform.synchronize()
    }

    /// Holds a rank up: the next launch begins there `by` late; on simulated ranks those after it too.
    #[doc(hidden)]
    pub fn delay(&self, rank: usize, by: Duration) -> Result<(), Error> {
        self.0.platform.delay(rank, by)
    }

    /// Whether nothing was written outside any live allocation of a world with guards.
    #[doc(hidden)]
    pub fn guards_intact(&self) -> Result<bool, Error> {
        self.synchronize()?;
        self.0.allocator.guards_intact()
    }

    /// The kind of its GPUs; `None` for simulated ranks.
    pub(crate) fn gpu(&self) -> Option<Device> {
        Some(Device::named(self.0.platform.gpus()?.name, self.0.platform.processors()))
    }

    /// What choices go by: the kind of its GPUs, or one with as many processors as a simulated rank.
    pub(crate) fn device(&self) -> Device {
        self.gpu().unwrap_or_else(|| Device::named("simulated".into(), self.0.platform.processors()))
    }

    /// What is remembered of measurements.
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.0.tuning
    }

    pub(crate) fn platform(&self) -> &dyn Platform {
        &*self.0.platform
    }

    pub(crate) fn allocate(&self, rank: usize, bytes: usize) -> Result<Arc<Allocation>, Error> {
        self.0.allocator.allocate(self.platform(), rank, bytes)
    }

    pub(crate) fn first_epoch(&self) -> u32 {
        self.0.first_epoch
    }
}

impl PartialEq for World {
    /// The same world, and not only an equal one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("ranks", &self.ranks()).finish_non_exhaustive()
    }
}

/// The settings of a [`World`].
#[derive(Debug, Clone)]
#[must_use = "`build` makes the world"]
pub struct WorldBuilder {
    ranks: Ranks,
    ctas: u32,
    start_limit: Duration,
    guards: bool,
    tuning: Option<PathBuf>,
    first_epoch: u32,
    target: Option<Target>,
    share_gpus: bool,
}

#[derive(Debug, Clone)]
enum Ranks {
    AllGpus,
    Gpus(Vec<usize>),
    Simulated(usize),
}

impl WorldBuilder {
    /// These GPUs: the first is rank 0. Default: all.
    pub fn gpus(self, ordinals: &[usize]) -> Self {
        WorldBuilder { ranks: Ranks::Gpus(ordinals.to_vec()), ..self }
    }

    /// Lets [`WorldBuilder::gpus`] name a GPU more than once: its ranks share it, each with an equal part of its SMs. So
    /// the code that GPUs run is tried out for more ranks than there are GPUs; speed says little then, since nothing
    /// crosses a link. Default: each rank needs a GPU of its own.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), entwine::Error> {
    /// let world = entwine::World::builder().gpus(&[0; 4]).share_gpus().build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn share_gpus(self) -> Self {
        WorldBuilder { share_gpus: true, ..self }
    }

    /// Simulated ranks.
    pub fn simulated(self, ranks: usize) -> Self {
        WorldBuilder { ranks: Ranks::Simulated(ranks), ..self }
    }

    /// How many CTAs are resident on a simulated rank, 1 or more, each of them a thread. Default: 2.
    pub fn ctas(self, ctas: u32) -> Self {
        WorldBuilder { ctas: ctas.max(1), ..self }
    }

    /// How long a GPU may take to begin with a launch. Default: 60 s.
    pub fn start_limit(self, start_limit: Duration) -> Self {
        WorldBuilder { start_limit, ..self }
    }

    /// The file in which [`Kernel::tune`](crate::Kernel::tune) remembers what it measured, and from which launches take
    /// it. It need not be there yet, programs may share it, and it may be shipped: what it holds of other GPUs, drivers,
    /// kernels or sizes is neither used nor lost. One that can't be used is ignored, with a warning in the log. Simulated
    /// ranks have no use for it.
    pub fn tuning(self, path: impl Into<PathBuf>) -> Self {
        WorldBuilder { tuning: Some(path.into()), ..self }
    }

    /// Guard bytes around every allocation, for [`World::guards_intact`].
    #[doc(hidden)]
    pub fn guards(self) -> Self {
        WorldBuilder { guards: true, ..self }
    }

    /// The epoch that kernels count from, so that a test can pass where counters wrap.
    #[doc(hidden)]
    pub fn first_epoch(self, first_epoch: u32) -> Self {
        WorldBuilder { first_epoch, ..self }
    }

    /// What the device code that runs on GPUs is to be compiled for. Default: what the variable `ENTWINE_TARGET` of the
    /// environment says, `sm_90a` or `sm_80`; if it is not set, what suits the GPUs best.
    pub fn target(self, target: Target) -> Self {
        WorldBuilder { target: Some(target), ..self }
    }

    /// Makes the world.
    ///
    /// # Errors
    /// See [`World::open`], [`World::gpus`] and [`World::simulated`].
    pub fn build(self) -> Result<World, Error> {
        let gpus = |ordinals: Option<&[usize]>| -> Result<Box<dyn Platform>, Error> {
            let target = self.target.map_or_else(target_of_environment, |target| Ok(Some(target)))?;
            Ok(Box::new(Gpus::open(ordinals, self.share_gpus, self.start_limit, target)?))
        };
        let platform: Box<dyn Platform> = match &self.ranks {
            Ranks::AllGpus => gpus(None)?,
            Ranks::Gpus(ordinals) => gpus(Some(ordinals))?,
            Ranks::Simulated(ranks) if (1..=MAX_WORLD).contains(ranks) => {
                Box::new(SimulatedRanks::new(*ranks, self.ctas))
            }
            Ranks::Simulated(ranks) => return Err(Error::WorldSize(*ranks)),
        };
        let tuning = Tuning::of(self.tuning, platform.gpus().as_ref());
        let allocator = Allocator::new(self.guards);
        Ok(World(Arc::new(Inner { platform, allocator, tuning, first_epoch: self.first_epoch })))
    }
}

/// The target that the environment names.
fn target_of_environment() -> Result<Option<Target>, Error> {
    match env::var("ENTWINE_TARGET") {
        Ok(name) if !name.is_empty() => name.parse().map(Some),
        _ => Ok(None),
    }
}
