//! Launches in CUDA graphs of the user's own.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::launch::FaultBoard;
use crate::loaded::Loaded;
use crate::region::{Layout, Region};
use crate::tensor::RankMatrix;
use crate::world::World;

/// A launch that is part of CUDA graphs of the user's own: it keeps alive what their replays use, and tells what became
/// of them.
#[must_use = "the graphs' replays use what this keeps alive"]
pub struct Captured {
    kernel: Arc<Loaded>,
    pinned: Arc<Pinned>,
    _matrices: Vec<Arc<RankMatrix>>,
}

impl Captured {
    pub(crate) fn new(kernel: Arc<Loaded>, pinned: Arc<Pinned>, matrices: Vec<Arc<RankMatrix>>) -> Self {
        Captured { kernel, pinned, _matrices: matrices }
    }

    /// Waits until all replays that were started on these streams, one for each rank, have ended.
    ///
    /// Of the kernel's captured launches whose channels have the same extents, no replay may run elsewhere: they fail
    /// together, which the first of these calls reports for all. Replays that are started after it work again.
    ///
    /// # Errors
    /// A launch was given up: [`Error::Fault`] says what was missing, [`Error::NotStarted`] on which rank the graph was
    /// not replayed, twice the world's start limit after it was on another. Streams of other GPUs than the ranks'; the
    /// machine failed.
    pub fn wait(&self, streams: &[crate::Stream]) -> Result<(), Error> {
        self.kernel.wait_captured(&self.pinned, streams)
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("kernel", &self.kernel.name()).finish_non_exhaustive()
    }
}

/// What captured launches with one layout share, and no others: it stays where it is.
pub(crate) struct Pinned {
    pub layout: Layout,
    pub region: Region,
    pub faults: FaultBoard,
}

impl Pinned {
    /// A region for launches with this layout.
    pub fn new(world: &World, layout: &Layout) -> Result<Self, Error> {
        Ok(Pinned {
            layout: layout.clone(),
            region: Region::new(world, layout.need(), world.first_epoch())?,
            faults: FaultBoard::new(world)?,
        })
    }

    /// After a failure: puts every rank at one epoch again. No replay may be running.
    pub fn recover(&self) -> Result<(), Error> {
        self.faults.clear()?;
        self.region.reset(self.region.epoch()?.wrapping_add(1))
    }
}
