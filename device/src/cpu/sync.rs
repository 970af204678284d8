//! The threads that CTAs run on: the system's, or shuttle's inside an exploring run.
//!
//! Shuttle runs all its threads on one thread of the system and switches only where it is called, so a
//! system mutex that is never held across a call of this module serves both.

use std::time::Duration;

#[cfg(feature = "explore")]
fn exploring() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// A running thread.
pub(super) enum JoinHandle {
    System(std::thread::JoinHandle<()>),
    #[cfg(feature = "explore")]
    Explored(shuttle::thread::JoinHandle<()>),
}

impl JoinHandle {
    /// Waits until the thread has ended.
    pub(super) fn join(self) {
        let result = match self {
            JoinHandle::System(handle) => handle.join(),
            #[cfg(feature = "explore")]
            JoinHandle::Explored(handle) => handle.join(),
        };
        if let Err(payload) = result {
            std::panic::resume_unwind(payload);
        }
    }
}

/// A thread that may be parked.
#[derive(Clone)]
pub(super) enum Thread {
    System(std::thread::Thread),
    #[cfg(feature = "explore")]
    Explored(shuttle::thread::Thread),
}

impl Thread {
    /// The thread that calls.
    pub(super) fn current() -> Self {
        #[cfg(feature = "explore")]
        if exploring() {
            return Thread::Explored(shuttle::thread::current());
        }
        Thread::System(std::thread::current())
    }

    /// Whether it is the thread that calls.
    pub(super) fn is_current(&self) -> bool {
        match self {
            Thread::System(thread) => thread.id() == std::thread::current().id(),
            #[cfg(feature = "explore")]
            Thread::Explored(thread) => thread.id() == shuttle::thread::current().id(),
        }
    }

    /// Lets the thread's next or present [`park`] return.
    pub(super) fn unpark(&self) {
        match self {
            Thread::System(thread) => thread.unpark(),
            #[cfg(feature = "explore")]
            Thread::Explored(thread) => thread.unpark(),
        }
    }
}

/// Starts a thread.
pub(super) fn spawn(body: impl FnOnce() + Send + 'static) -> JoinHandle {
    #[cfg(feature = "explore")]
    if exploring() {
        return JoinHandle::Explored(shuttle::thread::spawn(body));
    }
    JoinHandle::System(std::thread::spawn(body))
}

/// Blocks until unparked, until `timeout` has passed, or for no reason. Exploring runs know no time.
pub(super) fn park(timeout: Option<Duration>) {
    #[cfg(feature = "explore")]
    if exploring() {
        return shuttle::thread::park();
    }
    match timeout {
        Some(timeout) => std::thread::park_timeout(timeout),
        None => std::thread::park(),
    }
}

/// A point at which an exploring run may go on with another thread.
pub(super) fn step() {
    #[cfg(feature = "explore")]
    if exploring() {
        shuttle::thread::yield_now();
    }
}

/// Runs `body` under `iterations` interleavings of its threads, picked at random. A panic of `body` ends
/// the run and prints the schedule that led to it.
#[cfg(feature = "explore")]
pub fn explore(iterations: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(iterations), config).run(body);
}
