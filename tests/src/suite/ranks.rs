//! The ranks that a case runs on.

use std::fmt;
use std::sync::Mutex;

use anyhow::{Result, ensure};
use entwine::spec::Target;
use entwine::{World, WorldBuilder};

/// Simulated ranks, or GPUs.
#[derive(Debug)]
pub struct Ranks {
    count: usize,
    /// The CTAs of a simulated rank.
    simulated: Option<u32>,
    /// What device code for GPUs is to be compiled for, if it is not to suit them best.
    target: Option<Target>,
    /// All on the first GPU.
    share: bool,
    /// A world of GPUs for all the cases that need none of their own: kernels are compiled once in a world.
    world: Mutex<Option<World>>,
}

impl Ranks {
    /// `count` simulated ranks of `ctas` CTAs.
    pub fn simulated(count: usize, ctas: u32) -> Self {
        Ranks { count, simulated: Some(ctas), target: None, share: false, world: Mutex::default() }
    }

    /// The first `count` GPUs of this machine, with device code for `target`, or for whatever suits them best.
    pub fn gpus(count: usize, target: Option<Target>) -> Self {
        Ranks { count, simulated: None, target, share: false, world: Mutex::default() }
    }

    /// The same on the first GPU alone, of which each has a part.
    pub fn on_one_gpu(count: usize, target: Option<Target>) -> Self {
        Ranks { share: true, ..Ranks::gpus(count, target) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether they are all on the first GPU.
    pub fn share(&self) -> bool {
        self.share
    }

    /// One of two values: simulated ranks are slow, and tests many of them.
    pub fn pick<V>(&self, simulated: V, gpus: V) -> V {
        if self.simulated.is_some() { simulated } else { gpus }
    }

    /// A world of them, whose allocations have guard bytes around them.
    pub fn world(&self) -> Result<World> {
        if self.simulated.is_some() {
            return self.own_world();
        }
        let mut world = self.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*world {
            Some(world) => Ok(world.clone()),
            None => Ok(world.insert(self.own_world()?).clone()),
        }
    }

    /// A world that no other case has used.
    pub fn own_world(&self) -> Result<World> {
        Ok(self.builder().build()?)
    }

    /// A world of their own with further settings.
    pub fn builder(&self) -> WorldBuilder {
        let builder = World::builder().guards();
        match self.simulated {
            Some(ctas) => builder.simulated(self.count).ctas(ctas),
            None => {
                let ordinals = (0..self.count).map(|rank| if self.share { 0 } else { rank });
                let builder = builder.gpus(&ordinals.collect::<Vec<_>>());
                let builder = if self.share { builder.share_gpus() } else { builder };
                self.target.into_iter().fold(builder, WorldBuilder::target)
            }
        }
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.simulated {
            Some(ctas) => write!(f, "{}_ranks_of_{ctas}_ctas", self.count),
            None => {
                let target = self.target.map(|target| format!("_{}", target.name()));
                let kind = if self.share { "ranks_of_a_gpu" } else { "gpus" };
                write!(f, "{}_{kind}{}", self.count, target.unwrap_or_default())
            }
        }
    }
}

/// Nothing was written outside what was allocated.
pub fn check_guards(world: &World) -> Result<()> {
    ensure!(world.guards_intact()?, "something was written outside of every allocation");
    Ok(())
}
