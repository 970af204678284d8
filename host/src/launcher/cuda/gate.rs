//! One launch at a time: the order of launches is the same on every GPU of a world.

use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::CudaEvent;

/// The end of each rank's last launch.
pub(super) type Last = Vec<Option<End>>;

/// The end of a rank's share of a launch.
#[derive(Clone)]
pub(super) struct End {
    pub event: Arc<CudaEvent>,
    /// On the rank's own stream, where whatever follows waits for it anyway.
    pub on_own_stream: bool,
}

/// Held while a launch is started on one rank after the other, so that all ranks see the same order; and while memory
/// is allocated or freed, be it for modules or graphs, which may block behind a rank that waits for one which has not
/// been started yet.
pub(super) struct Gate(Mutex<Last>);

impl Gate {
    /// The gate of a world in which nothing was launched.
    pub fn new(ranks: usize) -> Self {
        Gate(Mutex::new(vec![None; ranks]))
    }

    /// Keeps everyone else from starting, allocating and freeing.
    pub fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
