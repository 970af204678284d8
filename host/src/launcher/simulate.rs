//! Simulated ranks: the platform whose memory is this process's and whose CTAs are threads.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cudarc::driver::CudaContext;
use entwine_device::abi::MatrixArg;
use entwine_device::cpu::{Fabric, Launch};

use crate::error::Error;
use crate::host_memory::HostBlock;
use crate::platform::{GpuKind, Memory, Platform, Program, Replay, Run, Schedule, Work};
use crate::spec::{ElementType, KernelSpec, Target};

/// Ranks that share a fabric.
pub(crate) struct SimulatedRanks(Arc<Shared>);

struct Shared {
    ranks: usize,
    ctas: u32,
    fabric: Arc<Fabric>,
    running: Mutex<Vec<Weak<Running>>>,
}

impl SimulatedRanks {
    /// `ranks` ranks with `ctas` resident CTAs each.
    pub fn new(ranks: usize, ctas: u32) -> Self {
        let fabric = Fabric::new(ranks as u32);
        SimulatedRanks(Arc::new(Shared { ranks, ctas, fabric, running: Mutex::default() }))
    }
}

impl Shared {
    fn synchronize(&self) {
        let running: Vec<_> = self.running.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
        running.iter().for_each(|run| run.join());
    }
}

impl Platform for SimulatedRanks {
    fn ranks(&self) -> usize {
        self.0.ranks
    }

    fn context(&self, _rank: usize) -> Option<&Arc<CudaContext>> {
        None
    }

    fn gpus(&self) -> Option<GpuKind> {
        None
    }

    fn processors(&self) -> u32 {
        self.0.ctas
    }

    fn allocate(&self, rank: usize, bytes: usize) -> Result<Box<dyn Memory>, Error> {
        let block = HostBlock::zeroed(bytes).ok_or(Error::OutOfMemory { rank, bytes, detail: String::new() })?;
        Ok(Box::new(block))
    }

    fn allocate_shared(&self, bytes: usize) -> Result<Box<dyn Memory>, Error> {
        self.allocate(0, bytes)
    }

    unsafe fn adopt(&self, _rank: usize, address: u64) -> Result<Box<dyn Memory>, Error> {
        // SAFETY: as the caller promised.
        Ok(Box::new(unsafe { HostBlock::foreign(address as *mut u8) }))
    }

    fn describe(&self, _: usize, _: &MatrixArg, _: ElementType) -> Result<Option<Box<dyn Memory>>, Error> {
        Ok(None)
    }

    fn load(&self, spec: &'static KernelSpec, _logs: bool) -> Result<Arc<dyn Program>, Error> {
        Ok(Arc::new(SimulatedKernel { spec, ranks: self.0.clone() }))
    }

    fn delay(&self, rank: usize, by: Duration) -> Result<(), Error> {
        self.0.fabric.delay(rank as u32, by);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.0.synchronize();
        Ok(())
    }
}

struct SimulatedKernel {
    spec: &'static KernelSpec,
    ranks: Arc<Shared>,
}

impl Program for SimulatedKernel {
    fn target(&self) -> Option<Target> {
        None
    }

    fn resident(&self, _variant: usize) -> u32 {
        self.ranks.ctas
    }

    fn check(&self, streams: Option<&[crate::Stream]>) -> Result<(), Error> {
        if streams.is_some() { self.no_streams() } else { Ok(()) }
    }

    fn capture(
        &self,
        _streams: &[crate::Stream],
        _prepare: &mut dyn FnMut() -> Result<Work, Error>,
    ) -> Result<(), Error> {
        self.no_streams()
    }

    fn await_streams(&self, _streams: &[crate::Stream], _regions: &[u64]) -> Result<(), Error> {
        self.no_streams()
    }

    fn start(&self, work: Work, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error> {
        self.start_in_turns(&[work], 1, schedule)
    }

    fn record(self: Arc<Self>, turns: Vec<Work>, launches: u32) -> Result<Arc<dyn Replay>, Error> {
        Ok(Arc::new(SimulatedReplay { kernel: self, turns, launches }))
    }
}

struct SimulatedReplay {
    kernel: Arc<SimulatedKernel>,
    turns: Vec<Work>,
    launches: u32,
}

impl Replay for SimulatedReplay {
    fn start(self: Arc<Self>, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error> {
        self.kernel.start_in_turns(&self.turns, self.launches, schedule)
    }
}

impl SimulatedKernel {
    fn no_streams(&self) -> Result<(), Error> {
        let problem = "simulated ranks have no CUDA streams; use `launch`".into();
        Err(Error::Launch { kernel: self.spec.name, problem })
    }

    fn start_in_turns(&self, turns: &[Work], launches: u32, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error> {
        if schedule.fenced {
            self.ranks.synchronize();
        }
        let fabric = &self.ranks.fabric;
        let start = |work: &Work| {
            let simulate = self.spec.variants[work.variant].simulate;
            // SAFETY: the parameters are laid out for the kernel, and a launch in flight holds all that they point at.
            unsafe { fabric.launch(simulate, work.params.clone()) }
        };
        let launches = turns.iter().cycle().take(launches as usize).map(start).collect();
        let run = Arc::new(Running { launches: Mutex::new(launches) });
        let mut running = self.ranks.running.lock().unwrap();
        running.retain(|weak| weak.strong_count() > 0);
        running.push(Arc::downgrade(&run));
        Ok(run)
    }
}

struct Running {
    launches: Mutex<Vec<Launch>>,
}

impl Running {
    fn join(&self) {
        self.launches.lock().unwrap().drain(..).for_each(Launch::join);
    }
}

impl Run for Running {
    fn is_finished(&self) -> bool {
        self.launches.try_lock().is_ok_and(|launches| launches.iter().all(Launch::is_finished))
    }

    fn drain(&self) -> Result<(), Error> {
        self.join();
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.drain()
    }
}
