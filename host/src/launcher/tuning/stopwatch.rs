//! Times launches on GPUs: as replays of graphs, so that the host's part of a launch does not count.

use std::slice;
use std::sync::Arc;
use std::time::Instant;

use super::search::Stopwatch;
use crate::choice::Choice;
use crate::error::Error;
use crate::loaded::{BuiltGraph, Loaded};
use crate::request::Request;

/// How long a replay should take, so that its start does not count.
const REPLAY_US: f64 = 5_000.0;
const MOST_LAUNCHES: f64 = 500.0;

/// A stopwatch for launches that do the same, carried out in different ways.
pub(crate) struct GraphStopwatch<'a> {
    kernel: &'a Arc<Loaded>,
    request: &'a Request,
    launches: u32,
    contestants: Vec<Contestant>,
}

struct Contestant {
    request: Request,
    graph: Option<BuiltGraph>,
}

impl<'a> GraphStopwatch<'a> {
    /// For launches as `request` says, which are expected to take so long.
    pub fn new(kernel: &'a Arc<Loaded>, request: &'a Request, expected_us: f64) -> Self {
        let launches = (REPLAY_US / expected_us).clamp(1.0, MOST_LAUNCHES) as u32;
        GraphStopwatch { kernel, request, launches, contestants: Vec::new() }
    }
}

impl Stopwatch for GraphStopwatch<'_> {
    fn enter(&mut self, choice: &Choice) -> Result<(), Error> {
        let request = self.request.carried_out(choice)?;
        self.contestants.push(Contestant { request, graph: None });
        Ok(())
    }

    fn time(&mut self, contestant: usize) -> Result<f64, Error> {
        let Contestant { request, graph } = &mut self.contestants[contestant];
        let mut replay = || {
            let flight = self.kernel.launch_graph(slice::from_ref(request), self.launches, graph, None)?;
            self.kernel.settle(&flight)
        };
        // The first builds the graph, and waits for launches of another layout.
        replay()?;
        let start = Instant::now();
        replay()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / self.launches as f64)
    }
}
