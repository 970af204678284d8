//! The GPUs of a world as the vendor's libraries know them: contexts, a stream for each, a way to start them at once.

use std::fs;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use clap::Args;
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use entwine::World;

/// The GPUs, by rank. Everything that is timed is enqueued on their streams.
pub struct Gpus {
    pub streams: Vec<Arc<CudaStream>>,
    /// All ranks are on the first one.
    shared: bool,
}

/// Which GPUs are measured
#[derive(Clone, Copy, Debug, Args)]
pub struct Which {
    /// So many ranks on the first GPU, each with its part of it: code can be compared with code, but nothing crosses a link
    #[arg(long, value_name = "RANKS")]
    sharing: Option<usize>,
}

impl Which {
    /// A world of all GPUs of the machine, or of ranks that share one.
    ///
    /// # Errors
    /// There are none, or they can't be shared by so many ranks.
    pub fn open(self) -> Result<(World, Gpus)> {
        let Some(ranks) = self.sharing else {
            let world = World::open()?;
            let gpus = Gpus::of(&world)?;
            return Ok((world, gpus));
        };
        ensure!(ranks > 0, "`--sharing` needs at least one rank");
        let world = World::builder().gpus(&vec![0; ranks]).share_gpus().build()?;
        let streams = (0..ranks).map(|_| Ok(CudaContext::new(0)?.new_stream()?)).collect::<Result<_>>();
        Ok((world, Gpus { streams: streams.context("couldn't open the GPU")?, shared: true }))
    }

    /// Whether ranks share a GPU.
    pub fn is_shared(self) -> bool {
        self.sharing.is_some()
    }
}

impl Gpus {
    /// Those of a world of all GPUs of the machine.
    ///
    /// # Errors
    /// The driver failed.
    pub fn of(world: &World) -> Result<Self> {
        let stream = |ordinal| Ok(CudaContext::new(ordinal)?.new_stream()?);
        let streams = (0..world.ranks()).map(stream).collect::<Result<_>>().context("couldn't open the GPUs")?;
        Ok(Gpus { streams, shared: false })
    }

    /// Makes a rank's GPU the current one, for libraries that go by it.
    ///
    /// # Errors
    /// The driver failed.
    pub fn make_current(&self, rank: usize) -> Result<()> {
        Ok(self.streams[rank].context().bind_to_thread()?)
    }

    /// Waits for everything on the streams.
    ///
    /// # Errors
    /// Something that was enqueued failed.
    pub fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| stream.synchronize()).context("work on a GPU failed")
    }

    /// The GPUs' name, and how many ranks share one.
    ///
    /// # Errors
    /// The driver failed.
    pub fn name(&self) -> Result<String> {
        let name = self.streams[0].context().name()?;
        Ok(if self.shared { format!("{name}, shared by {} ranks", self.streams.len()) } else { name })
    }
}

/// The driver's version, and that of the CUDA it brings.
///
/// # Errors
/// The driver failed.
pub fn driver() -> Result<String> {
    let mut version = 0;
    // SAFETY: the call writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    let kernel_module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let release = kernel_module.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    Ok(release.map_or_else(|| cuda.clone(), |release| format!("{release}, {cuda}")))
}

/// A gate that streams wait at until it is opened, so that all GPUs start at once and none waits for the host.
pub struct Gate {
    context: Arc<CudaContext>,
    /// In pinned memory, which every GPU sees at this address: how often the gate was opened.
    opened: *const AtomicU32,
}

/// A gate at which streams wait. It opens when this is dropped.
pub struct ClosedGate<'a>(&'a Gate);

impl Gate {
    /// A gate for these GPUs.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(gpus: &Gpus) -> Result<Self> {
        let context = gpus.streams[0].context().clone();
        context.bind_to_thread()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the allocation is large and aligned enough for one counter, which is initialised here.
        let opened = unsafe {
            let opened = result::malloc_host(size_of::<AtomicU32>(), flags)?.cast::<AtomicU32>();
            ptr::write(opened, AtomicU32::new(0));
            opened
        };
        Ok(Gate { context, opened })
    }

    /// Lets the streams wait for the gate.
    ///
    /// # Errors
    /// The driver failed.
    pub fn close(&self, gpus: &Gpus) -> Result<ClosedGate<'_>> {
        let closed = ClosedGate(self);
        let next = self.counter().load(Ordering::Relaxed).wrapping_add(1);
        let flags = sys::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32;
        for stream in &gpus.streams {
            stream.context().bind_to_thread()?;
            // SAFETY: the counter outlives all work on the streams, since its owner waits for that.
            unsafe { sys::cuStreamWaitValue32_v2(stream.cu_stream(), self.opened as u64, next, flags) }
                .result()
                .context("couldn't let a stream wait for the host")?;
        }
        Ok(closed)
    }

    fn counter(&self) -> &AtomicU32 {
        // SAFETY: allocated and initialised in `new`, and freed in `drop`.
        unsafe { &*self.opened }
    }
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.0.counter().fetch_add(1, Ordering::Release);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`. The process is about to end, and nothing can be done about a failure.
        let _ =
            self.context.bind_to_thread().and_then(|()| unsafe { result::free_host(self.opened.cast_mut().cast()) });
    }
}
