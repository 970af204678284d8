//! One rank's GPU, and its links to the others.

use std::ffi::c_void;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};

use super::driver::During;
use super::events::Events;
use super::gate::Gate;
use crate::error::Error;

/// The GPU of one rank.
pub(super) struct Device {
    pub rank: usize,
    pub ordinal: usize,
    /// As the driver has it.
    model: String,
    pub context: Arc<CudaContext>,
    /// Its compute capability, `(major, minor)`.
    pub capability: (i32, i32),
    /// Launches go here, unless the user has streams of their own.
    pub launches: Arc<CudaStream>,
    /// Copies go here: they pass by a running launch.
    pub copies: Arc<CudaStream>,
    /// For the ends of launches.
    pub events: Events,
    /// Ranks that are on the same GPU, this one among them.
    pub sharers: u32,
    /// SMs of this rank.
    pub processors: u32,
    /// The same for all of a world.
    pub gate: Arc<Gate>,
}

impl Device {
    /// Opens a GPU that kernels can run on, for one of its `sharers`.
    pub fn open(rank: usize, ordinal: usize, sharers: u32, gate: Arc<Gate>) -> Result<Self, Error> {
        let context = CudaContext::new(ordinal).during(ordinal, "open it")?;
        let capability = context.compute_capability().during(ordinal, "ask for its compute capability")?;
        if capability < (8, 0) {
            let (major, minor) = capability;
            return Err(Error::UnsupportedGpu { device: ordinal, major, minor });
        }
        let processors = context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        Ok(Device {
            rank,
            ordinal,
            capability,
            launches: context.new_stream().during(ordinal, "make a stream")?,
            copies: context.new_stream().during(ordinal, "make a stream")?,
            model: context.name().during(ordinal, "ask for its name")?,
            sharers,
            processors: processors.during(ordinal, "count its SMs")? as u32 / sharers,
            events: Events::default(),
            context,
            gate,
        })
    }

    /// As the driver has it, and into how many parts it is divided.
    pub fn name(&self) -> String {
        if self.sharers > 1 { format!("1/{} {}", self.sharers, self.model) } else { self.model.clone() }
    }

    /// Calls the driver with this GPU current.
    pub fn with<T>(&self, action: &'static str, call: impl FnOnce() -> Result<T, DriverError>) -> Result<T, Error> {
        self.context.bind_to_thread().and_then(|()| call()).during(self.ordinal, action)
    }

    /// An event that nobody else holds.
    pub fn unused_event(&self) -> Result<Arc<CudaEvent>, Error> {
        self.events.unused(&self.context).during(self.ordinal, "make an event")
    }

    /// Enqueues copies, and waits for them.
    pub fn copy(
        &self,
        action: &'static str,
        enqueue: impl FnOnce(sys::CUstream) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        self.with(action, || {
            enqueue(self.copies.cu_stream())?;
            self.copies.synchronize()
        })
    }

    /// Whether what is put on a stream of this GPU is captured.
    pub fn is_capturing(&self, stream: &CudaStream) -> Result<bool, Error> {
        // SAFETY: the stream is alive.
        let status = self.with("look at a stream", || unsafe { result::stream::is_capturing(stream.cu_stream()) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Holds its own stream of launches up.
    pub fn delay(&self, by: Duration) -> Result<(), Error> {
        unsafe extern "C" fn sleep(by: *mut c_void) {
            // SAFETY: the pointer is the box below, and a host function is called once.
            thread::sleep(*unsafe { Box::from_raw(by.cast::<Duration>()) });
        }
        let by = Box::into_raw(Box::new(by)).cast();
        // SAFETY: the stream is alive, and the function owns what it is given.
        self.with("hold a stream up", || unsafe {
            result::stream::launch_host_function(self.launches.cu_stream(), sleep, by)
        })
    }

    /// Lets this GPU write to the other one's memory, with atomics.
    pub fn reach(&self, other: &Device) -> Result<(), Error> {
        let missing = |what| Error::NoPeerAccess { from: self.ordinal, to: other.ordinal, what };
        let (from, to) = (self.context.cu_device(), other.context.cu_device());
        let (mut access, mut atomics) = (0, 0);
        self.with("ask for its links", || unsafe {
            // SAFETY: each call writes one integer.
            sys::cuDeviceCanAccessPeer(&mut access, from, to).result()?;
            let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
            sys::cuDeviceGetP2PAttribute(&mut atomics, attribute, from, to).result()
        })?;
        if access == 0 {
            return Err(missing("peer access to"));
        }
        if atomics == 0 {
            return Err(missing("native atomics on the memory of"));
        }
        // SAFETY: both contexts are alive.
        self.with("enable peer access", || match unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => result.result(),
        })
    }
}

/// The ordinals of the GPUs that a world is made of, by rank; several ranks may `share` one.
pub(super) fn ordinals(named: Option<&[usize]>, share: bool) -> Result<Vec<usize>, Error> {
    let count = result::device::get_count().during(0, "count the GPUs")? as usize;
    let ordinals = named.map_or_else(|| (0..count).collect(), <[usize]>::to_vec);
    for (index, &device) in ordinals.iter().enumerate() {
        if device >= count {
            return Err(Error::NoSuchGpu { device, count });
        }
        if !share && ordinals[..index].contains(&device) {
            return Err(Error::SharedGpu(device));
        }
    }
    Ok(ordinals)
}
