//! Launches that are prepared once and started many times.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::launch::Launch;
use crate::loaded::{BuiltGraph, Loaded};
use crate::request::Request;

/// A number of launches in a row. It borrows their arguments, so that nothing else writes to what it writes to. For
/// launches among other work in a graph of your own, see [`Kernel::capture_on`](crate::Kernel::capture_on).
pub struct Graph<'a> {
    kernel: Arc<Loaded>,
    /// What its launches do, in turns: all the same, but for the matrices and scalars.
    requests: Vec<Request>,
    launches: u32,
    built: Mutex<Option<BuiltGraph>>,
    arguments: PhantomData<&'a mut ()>,
}

impl Graph<'_> {
    pub(crate) fn new(kernel: &Arc<Loaded>, requests: Vec<Request>, launches: u32) -> Result<Self, Error> {
        if let Some(problem) = Request::why_not_in_turns(&requests) {
            return Err(Error::Launch { kernel: kernel.name(), problem });
        }
        Ok(Graph { kernel: kernel.clone(), requests, launches, built: Mutex::default(), arguments: PhantomData })
    }

    /// Starts all its launches, in order, on every rank. The result is one launch in flight for all of them.
    ///
    /// # Errors
    /// As for [`Kernel::launch`](crate::Kernel::launch).
    pub fn launch(&self) -> Result<Launch, Error> {
        self.start(None)
    }

    /// As [`Graph::launch`], in the order of the user's own CUDA streams: one for each rank, on its GPU.
    ///
    /// # Errors
    /// As for [`Kernel::launch_on`](crate::Kernel::launch_on).
    pub fn launch_on(&self, streams: &[crate::Stream]) -> Result<Launch, Error> {
        self.start(Some(streams))
    }

    fn start(&self, streams: Option<&[crate::Stream]>) -> Result<Launch, Error> {
        let mut built = self.built.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let flight = self.kernel.launch_graph(&self.requests, self.launches, &mut built, streams)?;
        Ok(Launch::new(self.kernel.clone(), flight))
    }
}

impl fmt::Debug for Graph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("launches", &self.launches).finish_non_exhaustive()
    }
}
