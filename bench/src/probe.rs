//! A GPU's clock, as the host's clock shows it.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cudarc::driver::{CudaContext, CudaStream, result, sys};

/// Answers each request with the GPU's clock, and ends after the last request, or if the next is late.
const PTX: &str = r#"
.version 7.0
.target sm_70
.address_size 64

.visible .entry answer(.param .u64 mailbox, .param .u64 requests, .param .u64 patience)
{
    .reg .u64 %box, %last, %patience, %next, %seen, %now, %since;
    .reg .pred %p;
    ld.param.u64 %box, [mailbox];
    ld.param.u64 %last, [requests];
    ld.param.u64 %patience, [patience];
    mov.u64 %next, 1;
NEXT:
    mov.u64 %since, %globaltimer;
POLL:
    mov.u64 %now, %globaltimer;
    ld.acquire.sys.global.u64 %seen, [%box];
    setp.ge.u64 %p, %seen, %next;
    @%p bra ANSWER;
    sub.u64 %now, %now, %since;
    setp.gt.u64 %p, %now, %patience;
    @%p bra DONE;
    bra POLL;
ANSWER:
    mov.u64 %now, %globaltimer;
    st.relaxed.sys.global.u64 [%box+8], %now;
    st.release.sys.global.u64 [%box+16], %next;
    add.u64 %next, %next, 1;
    setp.le.u64 %p, %next, %last;
    @%p bra NEXT;
DONE:
    ret;
}
"#;

/// Requests of one reading, of which the fastest counts.
const REQUESTS: u64 = 64;
/// How long the GPU waits for a request, and the host for an answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// A GPU that tells its time.
pub struct Probe {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    /// In pinned memory: the request, the time, and which request it answers.
    mailbox: *const [AtomicU64; 3],
}

/// What a GPU's clock showed at a time of the host's.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub host: Instant,
    pub gpu_ns: u64,
    /// How far `host` may be off, to either side.
    pub uncertainty: Duration,
}

impl Probe {
    /// # Errors
    /// The driver failed.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        let context = stream.context().clone();
        context.bind_to_thread()?;
        let ptx = CString::new(PTX).expect("PTX has no NUL");
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the PTX ends with NUL; the allocation is large and aligned enough for the words, which are initialised.
        unsafe {
            let module = result::module::load_data(ptx.as_ptr().cast()).context("couldn't load the probe")?;
            let function = result::module::get_function(module, c"answer".into())?;
            // As the kernels have it, so that the SMs need not be set anew between the two.
            let carveout = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            sys::cuFuncSetAttribute(function, carveout, 100).result()?;
            let mailbox = result::malloc_host(size_of::<[AtomicU64; 3]>(), flags)?.cast::<[AtomicU64; 3]>();
            ptr::write(mailbox, Default::default());
            Ok(Probe { context, stream: stream.clone(), module, function, mailbox })
        }
    }

    /// The GPU's clock now. Nothing else should run on it.
    ///
    /// # Errors
    /// The driver failed, or the GPU doesn't answer.
    pub fn read(&self) -> Result<Reading> {
        self.words().iter().for_each(|word| word.store(0, Ordering::Release));
        self.start(REQUESTS)?;
        let [request, time, answered] = self.words();
        let mut best: Option<Reading> = None;
        for number in 1..=REQUESTS {
            let asked = Instant::now();
            request.store(number, Ordering::Release);
            while answered.load(Ordering::Acquire) != number {
                if asked.elapsed() > PATIENCE {
                    bail!("a GPU didn't tell its time within {PATIENCE:?}");
                }
            }
            let uncertainty = asked.elapsed() / 2;
            if best.is_none_or(|best| uncertainty < best.uncertainty) {
                best = Some(Reading { host: asked + uncertainty, gpu_ns: time.load(Ordering::Relaxed), uncertainty });
            }
        }
        self.stream.synchronize()?;
        best.context("the clock was not read")
    }

    /// How long the driver takes to launch a kernel that does nothing.
    ///
    /// # Errors
    /// The driver failed.
    pub fn launch_time(&self) -> Result<Duration> {
        self.stream.synchronize()?;
        self.words()[0].store(1, Ordering::Release);
        let begun = Instant::now();
        self.start(1)?;
        let time = begun.elapsed();
        self.stream.synchronize()?;
        Ok(time)
    }

    fn start(&self, requests: u64) -> Result<()> {
        self.context.bind_to_thread()?;
        let patience = PATIENCE.as_nanos() as u64;
        let (mut mailbox, mut requests, mut patience) = (self.mailbox as u64, requests, patience);
        let parameters = &mut [&raw mut mailbox, &raw mut requests, &raw mut patience].map(|word| word.cast());
        let stream = self.stream.cu_stream();
        // SAFETY: the kernel takes these three words, and the mailbox outlives it, since its owner waits for it.
        unsafe { result::launch_kernel(self.function, (1, 1, 1), (1, 1, 1), 0, stream, parameters) }
            .context("couldn't start the probe")
    }

    fn words(&self) -> &[AtomicU64; 3] {
        // SAFETY: allocated and initialised in `new`, and freed in `drop`.
        unsafe { &*self.mailbox }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: both were made in `new`. The process is about to end, and nothing can be done about a failure.
        let _ = self.stream.synchronize().and_then(|()| unsafe {
            result::module::unload(self.module)?;
            result::free_host(self.mailbox.cast_mut().cast())
        });
    }
}

/// The host's time of a GPU's, between two readings of its clock.
pub fn on_host(gpu_ns: u64, before: &Reading, after: &Reading) -> Instant {
    let share = (gpu_ns.saturating_sub(before.gpu_ns)) as f64 / (after.gpu_ns - before.gpu_ns).max(1) as f64;
    before.host + (after.host - before.host).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_interpolated_between_readings() {
        let host = Instant::now();
        let reading = |gpu_ns, after| Reading { host: host + after, gpu_ns, uncertainty: Duration::ZERO };
        let (before, after) = (reading(5_000, Duration::ZERO), reading(15_000, Duration::from_nanos(10_100)));
        assert_eq!(on_host(5_000, &before, &after), host);
        assert_eq!(on_host(10_000, &before, &after), host + Duration::from_nanos(5_050));
    }
}
