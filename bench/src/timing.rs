//! Times contestants against each other: the same clock, taking turns, cool or hot.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph};
use entwine::{Launch, Tensor};
use half::bf16;

use crate::gpus::{Gate, Gpus};
use crate::record::{Regime, Timing};
use crate::watchdog;

/// How long a batch should take.
const BATCH_US: f64 = 12_000.0;
/// The most calls that are queued one by one while the GPUs wait: the driver's queues have an end.
const MOST_QUEUED: usize = 64;
const MOST_IN_GRAPH: usize = 1024;
/// Idle time before each batch of a burst.
const IDLE: Duration = Duration::from_millis(50);
/// How often a graph is replayed in a batch under sustained load.
const SUSTAINED_REPLAYS: usize = 5;

/// Something that is timed.
pub trait Contestant {
    /// Prepares a number of calls that follow each other on the GPUs' streams, and take the operands in turns.
    ///
    /// # Errors
    /// A library or the driver failed.
    fn batch(&mut self, calls: usize, timing: Timing) -> Result<Batch<'_>>;

    /// What the calls wrote, by operand set.
    fn outputs(&mut self) -> &mut [Tensor<bf16>];
}

/// Enqueues a batch, and returns those of its launches that have an outcome of their own.
pub type Batch<'a> = Box<dyn FnMut() -> Result<Vec<Launch>> + 'a>;

/// One turn of a contestant, of so many replays of its batch: µs per call.
pub type Turn<'a> = Box<dyn FnMut(usize) -> Result<f64> + 'a>;

/// The calls that a batch should have of something that takes so long, a multiple of the number of operand sets.
pub fn calls_of_batch(call_us: f64, sets: usize, timing: Timing) -> usize {
    let most = match timing {
        Timing::Graph => MOST_IN_GRAPH,
        Timing::Eager => MOST_QUEUED,
    };
    let calls = ((BATCH_US / call_us) as usize).clamp(1, most);
    calls.next_multiple_of(sets)
}

/// Records what `enqueue` puts on the streams as a graph for each GPU.
///
/// # Errors
/// `enqueue` failed, or the driver.
pub fn capture(gpus: &Gpus, enqueue: impl FnOnce() -> Result<()>) -> Result<Vec<CudaGraph>> {
    for stream in &gpus.streams {
        stream
            .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
            .context("couldn't begin a capture")?;
    }
    let enqueued = enqueue();
    // Every capture is ended, also after a failure.
    let graphs: Vec<_> = gpus.streams.iter().map(|stream| stream.end_capture(CUgraphInstantiate_flags(0))).collect();
    enqueued?;
    graphs.into_iter().map(|graph| graph.context("couldn't capture a graph")?.context("the capture is empty")).collect()
}

/// A clock on every GPU.
pub struct Stopwatch<'a> {
    gpus: &'a Gpus,
    gate: Gate,
    spans: Vec<(CudaEvent, CudaEvent)>,
}

impl<'a> Stopwatch<'a> {
    /// # Errors
    /// The driver failed.
    pub fn new(gpus: &'a Gpus) -> Result<Self> {
        let span = |stream: &entwine::Stream| {
            let event = || stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            Ok((event()?, event()?))
        };
        let spans = gpus.streams.iter().map(span).collect::<Result<_>>()?;
        Ok(Stopwatch { gpus, gate: Gate::new(gpus)?, spans })
    }

    /// Runs a batch without timing it. The first run of a batch may set things up, and so cannot be timed.
    ///
    /// # Errors
    /// The batch failed.
    pub fn run(&self, batch: &mut Batch<'_>) -> Result<()> {
        let launches = batch()?;
        self.finish(launches)
    }

    /// Time in µs of `replays` runs of a batch, of the GPU that took longest. The first is queued while all GPUs wait,
    /// so that they begin at once; the others while it runs.
    ///
    /// # Errors
    /// The batch failed.
    pub fn time(&self, batch: &mut Batch<'_>, replays: usize) -> Result<f64> {
        Ok(self.times_by_rank(batch, replays)?.into_iter().fold(0.0, f64::max))
    }

    /// As [`Stopwatch::time`], of each GPU: from when all begin until its own end.
    ///
    /// # Errors
    /// The batch failed.
    pub fn times_by_rank(&self, batch: &mut Batch<'_>, replays: usize) -> Result<Vec<f64>> {
        let gate = self.gate.close(self.gpus)?;
        for (stream, (start, _)) in self.gpus.streams.iter().zip(&self.spans) {
            start.record(stream)?;
        }
        let mut launches = batch()?;
        drop(gate);
        for _ in 1..replays {
            launches.extend(batch()?);
        }
        for (stream, (_, end)) in self.gpus.streams.iter().zip(&self.spans) {
            end.record(stream)?;
        }
        self.finish(launches)?;
        self.spans.iter().map(|(start, end)| Ok(1e3 * f64::from(start.elapsed_ms(end)?))).collect()
    }

    /// Turns of a batch of `calls` calls. It is run once.
    ///
    /// # Errors
    /// The batch failed.
    pub fn turn<'b>(&'b self, calls: usize, mut batch: Batch<'b>) -> Result<Turn<'b>> {
        self.run(&mut batch)?;
        Ok(Box::new(move |replays| Ok(self.time(&mut batch, replays)? / (calls * replays) as f64)))
    }

    /// Times contestants against each other, in turns that begin with another one in every round. By contestant: µs per call
    /// of each repeat.
    ///
    /// # Errors
    /// A turn failed.
    pub fn compare(
        &self,
        contestants: &mut [Turn<'_>],
        regime: Regime,
        timing: Timing,
        repeats: usize,
    ) -> Result<Vec<Vec<f64>>> {
        let (idle, warm_up, replays) = match (regime, timing) {
            (Regime::Burst, _) => (Some(IDLE), 1, 1),
            (Regime::Sustained, Timing::Graph) => (None, 2, SUSTAINED_REPLAYS),
            (Regime::Sustained, Timing::Eager) => (None, 2, 1),
        };
        let mut times = vec![Vec::new(); contestants.len()];
        for round in 0..warm_up + repeats {
            for turn in 0..contestants.len() {
                let index = (round + turn) % contestants.len();
                if let Some(idle) = idle {
                    thread::sleep(idle);
                }
                let time = contestants[index](replays)?;
                if round >= warm_up {
                    times[index].push(time);
                }
            }
        }
        Ok(times)
    }

    fn finish(&self, launches: Vec<Launch>) -> Result<()> {
        for launch in launches {
            launch.wait()?;
        }
        self.gpus.synchronize()?;
        watchdog::progress();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fill_their_time_with_whole_turns() {
        assert_eq!(calls_of_batch(100.0, 1, Timing::Graph), 120);
        assert_eq!(calls_of_batch(100.0, 7, Timing::Graph), 126);
        assert_eq!(calls_of_batch(7000.0, 1, Timing::Graph), 1);
        assert_eq!(calls_of_batch(20_000.0, 3, Timing::Graph), 3);
        assert_eq!(calls_of_batch(1.0, 1, Timing::Graph), MOST_IN_GRAPH);
        assert_eq!(calls_of_batch(1.0, 3, Timing::Eager), 66);
    }
}
