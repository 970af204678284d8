//! Launches on GPUs: started on every rank without a pause, then watched from the host.

use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaEvent, CudaStream, result, sys};
use entwine_device::abi::Control;

use super::device::Device;
use super::gate::{End, Last};
use super::graph::GpuGraph;
use super::module::{Function, Module};
use crate::error::Error;
use crate::platform::{Program, Replay, Run, Schedule, Work};
use crate::spec::{CtaSpec, KernelSpec, Target};

/// How long a host thread looks for the end of a launch without sleeping.
pub(super) const SPIN: Duration = Duration::from_micros(500);
/// How long it sleeps between looks after that.
pub(super) const NAP: Duration = Duration::from_micros(50);

/// A kernel on every GPU of a world.
pub(super) struct GpuKernel {
    spec: &'static KernelSpec,
    devices: Vec<Arc<Device>>,
    start_limit: Duration,
    variants: Vec<Variant>,
    target: Target,
    _modules: Arc<[Module]>,
}

struct Variant {
    /// Its entry on each rank; none where the target has no such tile.
    functions: Vec<Function>,
    /// CTAs that are resident at once on each rank.
    resident: u32,
}

impl GpuKernel {
    /// Prepares every variant on every GPU.
    pub fn prepare(
        spec: &'static KernelSpec,
        devices: &[Arc<Device>],
        modules: Arc<[Module]>,
        start_limit: Duration,
    ) -> Result<Self, Error> {
        let target = modules[0].target();
        let variants = spec.variants.iter().map(|variant| {
            if !target.has_tile(variant.tile) {
                return Ok(Variant { functions: Vec::new(), resident: 0 });
            }
            let mut prepared = Variant { functions: Vec::new(), resident: u32::MAX };
            for module in modules.iter() {
                let (function, resident) = module.variant(spec, variant)?;
                prepared.functions.push(function);
                prepared.resident = prepared.resident.min(resident);
            }
            Ok(prepared)
        });
        Ok(GpuKernel {
            spec,
            devices: devices.to_vec(),
            start_limit,
            variants: variants.collect::<Result<_, Error>>()?,
            target,
            _modules: modules,
        })
    }
}

impl Program for GpuKernel {
    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn resident(&self, variant: usize) -> u32 {
        self.variants[variant].resident
    }

    fn check(&self, streams: Option<&[crate::Stream]>) -> Result<(), Error> {
        let refuse = |problem| Err(Error::Launch { kernel: self.spec.name, problem });
        let Some(own) = streams else { return Ok(()) };
        self.check_streams(own)?;
        for (device, stream) in self.devices.iter().zip(own) {
            if device.is_capturing(stream)? {
                return refuse(format!("the stream of rank {} is being captured; use `capture_on`", device.rank));
            }
        }
        Ok(())
    }

    fn start(&self, mut work: Work, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error> {
        let waits = Waits::of(&work);
        // A launch in flight holds what its parameters point at.
        self.start_with(waits, schedule, None, |device, stream| self.enqueue(&mut work, device, stream))
    }

    fn capture(
        &self,
        streams: &[crate::Stream],
        prepare: &mut dyn FnMut() -> Result<Work, Error>,
    ) -> Result<(), Error> {
        self.capture(streams, prepare)
    }

    fn await_streams(&self, streams: &[crate::Stream], regions: &[u64]) -> Result<(), Error> {
        self.await_streams(streams, regions)
    }

    fn record(self: Arc<Self>, turns: Vec<Work>, launches: u32) -> Result<Arc<dyn Replay>, Error> {
        Ok(Arc::new(GpuGraph::new(self, turns, launches)?))
    }
}

/// Where, and for how long, the ranks of a launch wait for each other.
#[derive(Clone)]
pub(super) struct Waits {
    regions: Vec<u64>,
    deadline: Duration,
}

impl Waits {
    pub fn of(work: &Work) -> Self {
        Waits { regions: work.regions.clone(), deadline: work.deadline }
    }
}

/// How a kernel is launched.
pub(super) struct LaunchShape {
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared_bytes: u32,
    /// It may start before the launch that it follows has ended, and then waits for that itself.
    pub early: bool,
}

impl GpuKernel {
    /// The GPUs, by rank.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// A variant's entry on a rank.
    pub fn function(&self, variant: usize, rank: usize) -> sys::CUfunction {
        self.variants[variant].functions[rank].0
    }

    /// How `work` is launched on every rank.
    pub fn shape(&self, work: &Work) -> LaunchShape {
        let variant = &self.spec.variants[work.variant];
        let CtaSpec { threads, shared_bytes } = variant.cta(self.target);
        // On a GPU of several ranks it might take the SMs that another one needs for the launch that is followed.
        let early = self.target == Target::Sm90a && self.devices.iter().all(|device| device.sharers == 1);
        LaunchShape { grid: (work.ctas, 1, 1), block: (threads, 1, 1), shared_bytes, early }
    }

    /// Puts a rank's share of `work` on a stream.
    pub fn enqueue(&self, work: &mut Work, device: &Device, stream: &CudaStream) -> Result<(), Error> {
        let (function, shape) = (self.function(work.variant, device.rank), self.shape(work));
        let params = &mut [work.params[device.rank].as_mut_ptr().cast()];
        // SAFETY: the entry takes one parameter, of this size and layout, which the driver copies.
        device.with("launch a kernel", || unsafe {
            result::launch_kernel(function, shape.grid, shape.block, shape.shared_bytes, stream.cu_stream(), params)
        })
    }

    /// Refuses streams that are not one for each rank, on its GPU.
    pub fn check_streams(&self, streams: &[crate::Stream]) -> Result<(), Error> {
        let refuse = |problem| Err(Error::Launch { kernel: self.spec.name, problem });
        let (expected, found) = (self.devices.len(), streams.len());
        if found != expected {
            return refuse(format!("expected one stream for each of the {expected} ranks, found {found}"));
        }
        for (device, stream) in self.devices.iter().zip(streams) {
            let Device { rank, ordinal, .. } = **device;
            if stream.context().cu_ctx() != device.context.cu_ctx() {
                return refuse(format!(
                    "the stream of rank {rank} must belong to the primary context of GPU {ordinal}, and belongs to \
                     another one, of GPU {}",
                    stream.context().ordinal()
                ));
            }
        }
        Ok(())
    }

    /// How long a rank may take to begin.
    pub fn start_limit(&self) -> Duration {
        self.start_limit
    }

    /// What it was made from.
    pub fn spec(&self) -> &'static KernelSpec {
        self.spec
    }

    /// Starts on each rank what `launch` enqueues on its stream, after all that was started there before.
    pub fn start_with(
        &self,
        waits: Waits,
        schedule: Schedule<'_>,
        graph: Option<Arc<GpuGraph>>,
        mut launch: impl FnMut(&Device, &CudaStream) -> Result<(), Error>,
    ) -> Result<Arc<dyn Run>, Error> {
        let own = || self.devices.iter().map(|device| device.launches.clone()).collect();
        let streams = schedule.streams.map_or_else(own, <[_]>::to_vec);
        let on_own_stream = schedule.streams.is_none();
        let mut last = self.devices[0].gate.lock();
        let end = |device: &Arc<Device>| device.unused_event();
        let run = GpuRun {
            kernel: self.spec.name,
            devices: self.devices.clone(),
            ends: self.devices.iter().map(end).collect::<Result<_, _>>()?,
            before: last.clone(),
            regions: if self.spec.communicates() { waits.regions } else { Vec::new() },
            deadline: waits.deadline,
            start_limit: self.start_limit,
            _graph: graph,
        };
        for (device, stream) in self.devices.iter().zip(&streams) {
            for (rank, end) in last.iter().enumerate() {
                let (own, Some(end)) = (rank == device.rank, end) else { continue };
                let follows_anyway = own && on_own_stream && end.on_own_stream;
                if (own || schedule.fenced) && !follows_anyway {
                    device.with("put launches in order", || stream.wait(&end.event))?;
                }
            }
        }
        // The ends are marked when all ranks have begun: what is done between two ranks' starts keeps one waiting.
        let mut ranks = self.devices.iter().zip(&streams);
        let failed = ranks.find_map(|(device, stream)| launch(device, stream).err().map(|error| (device.rank, error)));
        let begun = failed.as_ref().map_or(self.devices.len(), |(rank, _)| *rank);
        let mut marked = Ok(());
        for (device, stream) in self.devices[..begun].iter().zip(&streams) {
            let event = run.ends[device.rank].clone();
            marked = marked.and(device.with("mark the end of a launch", || event.record(stream)));
            last[device.rank] = Some(End { event, on_own_stream });
        }
        if let Err(error) = failed.map_or(marked, |(_, error)| Err(error)) {
            // The ranks that have begun would wait for those that have not for ever.
            abort(&run.devices, &run.regions);
            run.drain()?;
            return Err(error);
        }
        Ok(Arc::new(run))
    }
}

/// Stops what runs on these regions, one of each rank.
pub(super) fn abort(devices: &[Arc<Device>], regions: &[u64]) {
    for (device, region) in devices.iter().zip(regions) {
        let word = region + offset_of!(Control, abort) as u64;
        // SAFETY: the word lies in the rank's region. It is copied and not set, since that would take an SM,
        // and the launch may hold them all. If the GPU fails, there is nothing to stop there.
        let _ = device.copy("stop a launch", |stream| unsafe { result::memcpy_htod_async(word, &[1u32], stream) });
    }
}

/// The epoch that each rank has begun last, on its region. May be asked at any time.
pub(super) fn begun(devices: &[Arc<Device>], regions: &[u64]) -> Result<Vec<u32>, Error> {
    let word = |(device, region): (&Arc<Device>, &u64)| {
        let mut word = [0];
        let started = region + (offset_of!(Control, started) + device.rank * size_of::<u32>()) as u64;
        // SAFETY: the word lies in the rank's region.
        device.copy("look whether a launch has begun", |stream| unsafe {
            result::memcpy_dtoh_async(&mut word, started, stream)
        })?;
        Ok(word[0])
    };
    devices.iter().zip(regions).map(word).collect()
}

/// The rank that has begun the earliest epoch, if not all have begun the same.
pub(super) fn last_to_begin(begun: &[u32]) -> Option<usize> {
    let behind = |one: usize, other: usize| (begun[one].wrapping_sub(begun[other]) as i32) < 0;
    let last = (0..begun.len()).reduce(|last, rank| if behind(rank, last) { rank } else { last })?;
    begun.iter().any(|&other| other != begun[last]).then_some(last)
}

struct GpuRun {
    kernel: &'static str,
    devices: Vec<Arc<Device>>,
    /// The end of this launch on each rank.
    ends: Vec<Arc<CudaEvent>>,
    /// The end of the launch before on each rank.
    before: Last,
    /// Address of each rank's region; empty for a kernel without channels, which leaves no trace in it.
    regions: Vec<u64>,
    start_limit: Duration,
    /// The longest that one of its waits takes.
    deadline: Duration,
    _graph: Option<Arc<GpuGraph>>,
}

impl GpuRun {
    /// Whether everything up to these events has ended.
    fn reached<'e>(&self, events: impl Iterator<Item = &'e Arc<CudaEvent>>) -> Result<bool, Error> {
        for (device, event) in self.devices.iter().zip(events) {
            if !device.with("look for the end of a launch", || event.try_is_complete())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn watch(&self) -> Result<(), Error> {
        let called = Instant::now();
        let mut turn = None;
        while !self.reached(self.ends.iter())? {
            if called.elapsed() < SPIN {
                thread::yield_now();
                continue;
            }
            thread::sleep(NAP);
            if turn.is_none() && self.reached(self.before.iter().flatten().map(|end| &end.event))? {
                turn = Some(Turn { begun: begun(&self.devices, &self.regions)?, since: Instant::now() });
            }
            if let Some(turn) = &mut turn
                && turn.since.elapsed() >= self.start_limit
            {
                self.check_begun(turn)?;
            }
        }
        Ok(())
    }

    /// Finds the rank that doesn't begin a launch. Where none is behind another, all have begun or none; if all have, they
    /// end by the deadline.
    fn check_begun(&self, turn: &mut Turn) -> Result<(), Error> {
        let begun = begun(&self.devices, &self.regions)?;
        if begun != turn.begun {
            *turn = Turn { begun, since: Instant::now() };
            return Ok(());
        }
        let waited = turn.since.elapsed();
        let overdue = waited >= self.start_limit.saturating_add(self.deadline) && !begun.is_empty();
        match last_to_begin(&begun).or(overdue.then_some(0)) {
            Some(rank) => Err(Error::NotStarted { kernel: self.kernel, rank, after: waited }),
            None => Ok(()),
        }
    }
}

/// Since when a launch could have begun without that the ranks have.
struct Turn {
    begun: Vec<u32>,
    since: Instant,
}

impl Run for GpuRun {
    fn is_finished(&self) -> bool {
        self.reached(self.ends.iter()).unwrap_or(true)
    }

    fn finish(&self) -> Result<(), Error> {
        self.watch().inspect_err(|_| abort(&self.devices, &self.regions))
    }

    fn drain(&self) -> Result<(), Error> {
        for (device, end) in self.devices.iter().zip(&self.ends) {
            device.with("wait for a launch", || end.synchronize())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_begin_is_found_across_the_wrap() {
        assert_eq!(last_to_begin(&[5, 4]), Some(1));
        assert_eq!(last_to_begin(&[5, 5, 5]), None);
        assert_eq!(last_to_begin(&[u32::MAX, 0, 0]), Some(0));
        assert_eq!(last_to_begin(&[]), None);
    }
}
