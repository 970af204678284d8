//! CUDA graphs, the launcher's and the user's own: replayed while inputs change, beside other launches, after faults.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use entwine::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use entwine::cudarc::driver::{CudaGraph, result};
use entwine::device::abi::FaultKind;
use entwine::device::bf16;
use entwine::{Error, Injection, Kernel, RawMatrix, Stream, World};

use super::number::Number;
use super::product::{AllReduce, Problem, Product, ReduceScatter, Size};
use super::ranks::{Ranks, check_guards};

/// Its rows have no padding, so that copies may take matrices as a whole.
const SIZE: Size = Size { m: 130, n: 136, k: 72 };
/// How many inputs take turns.
const VERSIONS: usize = 7;

/// Case 6: graphs of one launch and of nine in a row, 10 000 launches in all, each with other inputs than the one
/// before; epochs wrap meanwhile.
pub fn inputs_change<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.builder().first_epoch(u32::MAX - 5000).build()?;
    let (kernel, streams) = (Kernel::load(&world)?, streams(&world)?);
    let versions = versions::<P, T>(&world, &kernel, &streams)?;
    let mut problems = blank::<P, T>(&world, 10)?;
    let places: Vec<_> = problems.iter().map(|problem| Places::of(problem, ranks.count())).collect();
    let (first, others) = problems.split_first_mut().expect("there are several");
    let single = kernel.graph(1, first.args())?;
    let row = kernel.graph_in_turns(others.len() as u32, others.iter_mut().map(Problem::args))?;
    for round in 0..1000 {
        let turns = || places.iter().enumerate().map(|(index, places)| (places, &versions[(round + index) % VERSIONS]));
        for (places, version) in turns() {
            version.places.copy_inputs(places, &streams)?;
            places.poison(&streams)?;
        }
        let launches = [single.launch_on(&streams)?, row.launch_on(&streams)?];
        launches.into_iter().try_for_each(entwine::Launch::wait)?;
        for (index, (places, version)) in turns().enumerate() {
            version.check(places, &streams).with_context(|| format!("round {round}, launch {index}"))?;
        }
    }
    check_guards(&world)
}

/// Cases 5 and 6: launches that the user's streams capture together with copies, replayed while inputs change, epochs
/// wrap, and ordinary launches take turns with them, of which each needs a larger region than the one before.
pub fn captured<P: Product, T: Number>(ranks: &Ranks) -> Result<()> {
    let world = ranks.builder().first_epoch(u32::MAX - 1000).build()?;
    let (kernel, streams) = (Kernel::load(&world)?, streams(&world)?);
    let versions = versions::<P, T>(&world, &kernel, &streams)?;
    let inbox = Problem::<P, T>::random(&world, SIZE, 0)?;
    let inbox = (Places::of(&inbox, ranks.count()), inbox);
    let mut problems = blank::<P, T>(&world, 2)?;
    let places: Vec<_> = problems.iter().map(|problem| Places::of(problem, ranks.count())).collect();
    let mut captured = Vec::new();
    let graphs = capture(&streams, || {
        for (problem, places) in problems.iter_mut().zip(&places) {
            inbox.0.copy_inputs(places, &streams)?;
            places.poison(&streams)?;
            // SAFETY: it is kept until the last replay has ended; the tensors are accessed on these streams alone.
            captured.push(unsafe { kernel.capture_on(&streams, problem.args())? });
        }
        Ok(())
    })?;
    let replay_and_check = |round: usize, meanwhile: &mut dyn FnMut() -> Result<()>| {
        let version = &versions[round % VERSIONS];
        version.places.copy_inputs(&inbox.0, &streams)?;
        graphs.iter().try_for_each(CudaGraph::launch)?;
        meanwhile()?;
        captured[round % captured.len()].wait(&streams)?;
        places.iter().try_for_each(|places| version.check(places, &streams)).with_context(|| format!("replay {round}"))
    };
    for round in 0..1000 {
        let mut other = (round % 100 == 50).then(|| {
            let size = Size { m: SIZE.m + 2 * round, ..SIZE };
            Problem::<P, T>::random(&world, size, round as u64)
        });
        replay_and_check(round, &mut || match &mut other {
            Some(Ok(other)) => {
                kernel.launch_on(&streams, other.args())?.wait()?;
                other.check()
            }
            Some(Err(error)) => bail!("no other problem: {error:#}"),
            None => Ok(()),
        })?;
    }
    // The captured launches keep what they need.
    drop((kernel, problems));
    for round in 0..10 {
        replay_and_check(round, &mut || Ok(()))?;
    }
    check_guards(&world)
}

/// A fault in a replay is reported as that of a launch is, and neither later replays nor the kernel's other launches
/// suffer from it.
pub fn faults_in_replays(ranks: &Ranks) -> Result<()> {
    let world = ranks.own_world()?;
    let kernel = Kernel::load(&world)?.with_deadline(Duration::from_millis(300));
    let streams = streams(&world)?;
    let versions = versions::<ReduceScatter, bf16>(&world, &kernel, &streams)?;
    let mut problem = Problem::<ReduceScatter, bf16>::random(&world, SIZE, 1)?;
    let places = Places::of(&problem, ranks.count());
    let mut capture_one = || {
        let mut captured = None;
        let graphs = capture(&streams, || {
            // SAFETY: it is kept until the last replay has ended; the tensors are accessed on these streams alone.
            captured = Some(unsafe { kernel.capture_on(&streams, problem.args())? });
            Ok(())
        })?;
        Ok::<_, anyhow::Error>((captured.context("nothing was captured")?, graphs))
    };
    kernel.inject(Injection::DropSignal { rank: 1, channel: "Partial", slot: &[1, 0, 0] })?;
    let (faulty, faulty_graphs) = capture_one()?;
    let (right, right_graphs) = capture_one()?;
    for version in &versions[..3] {
        faulty_graphs.iter().try_for_each(CudaGraph::launch)?;
        match faulty.wait(&streams) {
            Err(Error::Fault(fault)) => {
                let named = fault.kind == FaultKind::MissingSignal && fault.slot == [1, 0, 0] && fault.peer == Some(1);
                ensure!(named, "found {fault:?}");
            }
            Err(error) => return Err(error).context("expected a fault"),
            Ok(()) => bail!("the replay succeeded without a signal"),
        }
        version.places.copy_inputs(&places, &streams)?;
        places.poison(&streams)?;
        right_graphs.iter().try_for_each(CudaGraph::launch)?;
        right.wait(&streams)?;
        version.check(&places, &streams)?;
        Problem::<ReduceScatter, bf16>::random(&world, SIZE, 2)?.run_and_check(&kernel)?;
    }
    check_guards(&world)
}

/// A graph that is replayed on one rank alone is stopped, and the error names the rank that is missing.
pub fn replayed_on_one_rank(ranks: &Ranks) -> Result<()> {
    let world = ranks.builder().start_limit(Duration::from_millis(300)).build()?;
    let (kernel, streams) = (Kernel::load(&world)?, streams(&world)?);
    let versions = versions::<AllReduce, bf16>(&world, &kernel, &streams)?;
    let mut problem = Problem::<AllReduce, bf16>::random(&world, SIZE, 1)?;
    let places = Places::of(&problem, ranks.count());
    let mut captured = None;
    let graphs = capture(&streams, || {
        // SAFETY: it is kept until the last replay has ended; the tensors are accessed on these streams alone.
        captured = Some(unsafe { kernel.capture_on(&streams, problem.args())? });
        Ok(())
    })?;
    let captured = captured.context("nothing was captured")?;
    for version in &versions[..2] {
        graphs[0].launch()?;
        match captured.wait(&streams) {
            Err(Error::NotStarted { rank: 1, .. }) => {}
            Err(error) => return Err(error).context("expected that rank 1 had not started"),
            Ok(()) => bail!("a replay on one rank succeeded"),
        }
        version.places.copy_inputs(&places, &streams)?;
        places.poison(&streams)?;
        graphs.iter().try_for_each(CudaGraph::launch)?;
        captured.wait(&streams)?;
        version.check(&places, &streams)?;
    }
    check_guards(&world)
}

/// Streams that are captured, or are not, where the other was expected.
pub fn wrong_streams(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let (kernel, streams) = (Kernel::load(&world)?, streams(&world)?);
    let mut problem = Problem::<ReduceScatter, bf16>::random(&world, SIZE, 1)?;
    let refused = |outcome: Result<(), Error>, words: &str| match outcome {
        Ok(()) => bail!("a launch was not refused that should be told: {words}"),
        Err(error) => {
            ensure!(error.to_string().contains(words), "the error lacks `{words}`: {error}");
            Ok(())
        }
    };
    // SAFETY: nothing is replayed.
    let capture_on = |streams: &[Stream], problem: &mut Problem<_, _>| {
        unsafe { kernel.capture_on(streams, problem.args()) }.map(drop)
    };
    refused(capture_on(&streams, &mut problem), "rank 0 is not being captured; use `launch_on`")?;
    refused(capture_on(&[], &mut problem), "one stream for each")?;
    let graphs = capture(&streams, || {
        refused(kernel.launch_on(&streams, problem.args()).map(drop), "rank 0 is being captured; use `capture_on`")?;
        Places::of(&problem, ranks.count()).poison(&streams)
    })?;
    ensure!(graphs.len() == ranks.count(), "the refusal ended the capture");
    problem.run_and_check(&kernel)
}

/// Inputs, with the results that belong to them.
struct Version<P, T> {
    places: Places,
    results: Vec<Vec<u16>>,
    _problem: Problem<P, T>,
}

/// Several inputs. What they give was checked.
fn versions<P: Product, T: Number>(
    world: &World,
    kernel: &Kernel<P::Kernel>,
    streams: &[Stream],
) -> Result<Vec<Version<P, T>>> {
    let version = |seed| {
        let mut problem = Problem::random(world, SIZE, seed)?;
        problem.run_and_check(kernel)?;
        let places = Places::of(&problem, world.ranks());
        Ok(Version { results: places.results(streams)?, places, _problem: problem })
    };
    (0..VERSIONS as u64).map(version).collect()
}

impl<P, T> Version<P, T> {
    /// Holds a result against this one's.
    fn check(&self, places: &Places, streams: &[Stream]) -> Result<()> {
        for (rank, (found, expected)) in places.results(streams)?.iter().zip(&self.results).enumerate() {
            let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
            ensure!(wrong == 0, "rank {rank}: {wrong} of {} elements are wrong", expected.len());
        }
        Ok(())
    }
}

/// Where a problem's matrices lie, by rank, for copies that no tensor knows of.
struct Places {
    inputs: Vec<[RawMatrix; 2]>,
    results: Vec<RawMatrix>,
}

impl Places {
    fn of<P: Product, T: Number>(problem: &Problem<P, T>, ranks: usize) -> Self {
        let raw = |rank| problem.raw(rank);
        Places {
            inputs: (0..ranks).map(raw).map(|[a, b, _]| [a, b]).collect(),
            results: (0..ranks).map(raw).map(|[_, _, c]| c).collect(),
        }
    }

    /// Copies the inputs to those of other matrices, in the streams' order.
    fn copy_inputs(&self, to: &Places, streams: &[Stream]) -> Result<()> {
        for (stream, (from, to)) in streams.iter().zip(self.inputs.iter().zip(&to.inputs)) {
            stream.context().bind_to_thread()?;
            for (from, to) in from.iter().zip(to) {
                // SAFETY: both matrices are alive, and equally large.
                unsafe { result::memcpy_dtod_async(to.address, from.address, bytes(from), stream.cu_stream())? };
            }
        }
        Ok(())
    }

    /// Fills the results with NaN, in the streams' order.
    fn poison(&self, streams: &[Stream]) -> Result<()> {
        for (stream, matrix) in streams.iter().zip(&self.results) {
            stream.context().bind_to_thread()?;
            // SAFETY: the matrix is alive.
            unsafe { result::memset_d8_async(matrix.address, 0xff, bytes(matrix), stream.cu_stream())? };
        }
        Ok(())
    }

    /// The bits of each rank's result.
    fn results(&self, streams: &[Stream]) -> Result<Vec<Vec<u16>>> {
        let read = |(stream, matrix): (&Stream, &RawMatrix)| {
            let mut bits = vec![0u16; bytes(matrix) / 2];
            stream.context().bind_to_thread()?;
            // SAFETY: the matrix is alive.
            unsafe { result::memcpy_dtoh_async(&mut bits, matrix.address, stream.cu_stream())? };
            stream.synchronize()?;
            Ok(bits)
        };
        streams.iter().zip(&self.results).map(read).collect()
    }
}

fn bytes(matrix: &RawMatrix) -> usize {
    matrix.rows * matrix.pitch
}

/// Problems whose inputs are to be replaced.
fn blank<P: Product, T: Number>(world: &World, count: u64) -> Result<Vec<Problem<P, T>>> {
    (0..count).map(|seed| Problem::random(world, SIZE, 100 + seed)).collect()
}

/// A stream of one's own on each rank.
pub(super) fn streams(world: &World) -> Result<Vec<Stream>> {
    let stream = |rank| Ok(world.cuda_context(rank).context("the rank is no GPU")?.new_stream()?);
    (0..world.ranks()).map(stream).collect()
}

/// A graph on each rank of what `enqueue` puts on the streams. The mode is relaxed, since one stream's graph is instantiated
/// while the others are still being captured.
fn capture(streams: &[Stream], enqueue: impl FnOnce() -> Result<()>) -> Result<Vec<CudaGraph>> {
    for stream in streams {
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    }
    let enqueued = enqueue();
    // Every capture is ended, also after a failure.
    let graphs: Vec<_> = streams.iter().map(|stream| stream.end_capture(CUgraphInstantiate_flags(0))).collect();
    enqueued?;
    graphs.into_iter().map(|graph| graph?.context("the capture is empty")).collect()
}
