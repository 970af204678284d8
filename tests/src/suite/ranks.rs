//! The ranks that a case runs on.

use std::fmt;

use anyhow::{Result, ensure};
use entwine::{World, WorldBuilder};

/// Simulated ranks, or GPUs.
#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    count: usize,
    simulated: bool,
}

impl Ranks {
    /// `count` simulated ranks.
    pub fn simulated(count: usize) -> Self {
        Ranks { count, simulated: true }
    }

    /// The first `count` GPUs of this machine.
    pub fn gpus(count: usize) -> Self {
        Ranks { count, simulated: false }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// One of two values: simulated ranks are slow, and tests many of them.
    pub fn pick<V>(self, simulated: V, gpus: V) -> V {
        if self.simulated { simulated } else { gpus }
    }

    /// A world of them, whose allocations have guard bytes around them.
    pub fn world(self) -> Result<World> {
        Ok(self.builder().build()?)
    }

    /// A world of them with further settings.
    pub fn builder(self) -> WorldBuilder {
        let builder = World::builder().guards();
        if self.simulated {
            return builder.simulated(self.count);
        }
        builder.gpus(&(0..self.count).collect::<Vec<_>>())
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.count, self.pick("simulated", "GPUs"))
    }
}

/// Nothing was written outside what was allocated.
pub fn check_guards(world: &World) -> Result<()> {
    ensure!(world.guards_intact()?, "something was written outside of every allocation");
    Ok(())
}
