//! A world: the ranks that the kernels of a program run on together.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use entwine_device::abi::{MAX_WORLD, MatrixArg};

use crate::error::Error;
use crate::memory::{Allocation, Allocator};
use crate::platform::{Memory, Platform};
use crate::simulate::SimulatedRanks;
use crate::spec::ElementType;

/// The ranks that kernels run on: GPUs of this machine, or simulated ones. A handle; clones are the same world.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    platform: Box<dyn Platform>,
    allocator: Allocator,
    first_epoch: u32,
    launching: Mutex<()>,
}

impl World {
    /// `ranks` simulated ranks, which compute the same as GPUs in threads of this process.
    ///
    /// # Errors
    /// No ranks, or more than [`MAX_WORLD`].
    pub fn simulated(ranks: usize) -> Result<Self, Error> {
        World::builder().simulated(ranks).build()
    }

    /// A world with other settings than the default ones.
    pub fn builder() -> WorldBuilder {
        WorldBuilder { ranks: 1, ctas: 2, guards: false, first_epoch: 0 }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.0.platform.ranks()
    }

    /// Waits until every launch on this world has ended. Their faults are reported by
    /// [`Launch::wait`](crate::Launch::wait) alone.
    ///
    /// # Errors
    /// The machine failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.0.platform.synchronize()
    }

    /// Whether nothing was written outside any live allocation of a world with guards.
    #[doc(hidden)]
    pub fn guards_intact(&self) -> Result<bool, Error> {
        self.synchronize()?;
        self.0.allocator.guards_intact()
    }

    pub(crate) fn platform(&self) -> &dyn Platform {
        &*self.0.platform
    }

    pub(crate) fn allocate(&self, rank: usize, bytes: usize) -> Result<Arc<Allocation>, Error> {
        let _between_launches = self.lock();
        self.0.allocator.allocate(self.platform(), rank, bytes)
    }

    pub(crate) fn allocate_shared(&self, bytes: usize) -> Result<Box<dyn Memory>, Error> {
        let _between_launches = self.lock();
        self.platform().allocate_shared(bytes)
    }

    pub(crate) fn describe(
        &self,
        rank: usize,
        matrix: &MatrixArg,
        element: ElementType,
    ) -> Result<Option<Box<dyn Memory>>, Error> {
        let _between_launches = self.lock();
        self.platform().describe(rank, matrix, element)
    }

    pub(crate) fn first_epoch(&self) -> u32 {
        self.0.first_epoch
    }

    /// Held while ranks are being started one after the other, and while memory is allocated: an allocation
    /// may block behind a rank that spins for one which has not been started yet.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.launching.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
    ranks: usize,
    ctas: u32,
    guards: bool,
    first_epoch: u32,
}

impl WorldBuilder {
    /// Simulated ranks.
    pub fn simulated(self, ranks: usize) -> Self {
        WorldBuilder { ranks, ..self }
    }

    /// How many CTAs are resident on a simulated rank, 1 or more, each of them a thread. Default: 2.
    pub fn ctas(self, ctas: u32) -> Self {
        WorldBuilder { ctas: ctas.max(1), ..self }
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

    /// Makes the world.
    ///
    /// # Errors
    /// See [`World::simulated`].
    pub fn build(self) -> Result<World, Error> {
        if !(1..=MAX_WORLD).contains(&self.ranks) {
            return Err(Error::WorldSize(self.ranks));
        }
        let platform = Box::new(SimulatedRanks::new(self.ranks, self.ctas));
        Ok(World(Arc::new(Inner {
            platform,
            allocator: Allocator::new(self.guards),
            first_epoch: self.first_epoch,
            launching: Mutex::new(()),
        })))
    }
}
