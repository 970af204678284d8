//! Launches that become nodes of the user's own CUDA graphs.

use std::thread;
use std::time::Instant;

use cudarc::driver::{DriverError, sys};

use super::launch::{GpuKernel, NAP, SPIN, abort, begun, last_to_begin};
use crate::error::Error;
use crate::platform::Work;

impl GpuKernel {
    /// Adds what `prepare` returns to what the streams capture.
    pub fn capture(
        &self,
        streams: &[crate::Stream],
        prepare: &mut dyn FnMut() -> Result<Work, Error>,
    ) -> Result<(), Error> {
        self.check_streams(streams)?;
        for (device, stream) in self.devices().iter().zip(streams) {
            if !device.is_capturing(stream)? {
                let problem = format!("the stream of rank {} is not being captured; use `launch_on`", device.rank);
                return Err(Error::Launch { kernel: self.spec().name, problem });
            }
        }
        let mut work = {
            let _relaxed = self.devices()[0].with("allow allocations in a capture", Relaxed::new)?;
            prepare()?
        };
        for (device, stream) in self.devices().iter().zip(streams) {
            self.enqueue(&mut work, device, stream)?;
        }
        Ok(())
    }

    /// Waits until the streams have done all that was put on them. If a rank has not begun a launch on these regions
    /// that another one has, twice the start limit long, that launch is stopped.
    pub fn await_streams(&self, streams: &[crate::Stream], regions: &[u64]) -> Result<(), Error> {
        self.check_streams(streams)?;
        let (called, start_limit) = (Instant::now(), self.start_limit());
        let (mut looked, mut before) = (called, None);
        while !self.are_idle(streams)? {
            if called.elapsed() < SPIN {
                thread::yield_now();
                continue;
            }
            thread::sleep(NAP);
            if !self.spec().communicates() || looked.elapsed() < start_limit {
                continue;
            }
            let now = begun(self.devices(), regions)?;
            if before.as_ref() == Some(&now)
                && let Some(rank) = last_to_begin(&now)
            {
                abort(self.devices(), regions);
                for (device, stream) in self.devices().iter().zip(streams) {
                    device.with("wait for a stream", || stream.synchronize())?;
                }
                return Err(Error::NotStarted { kernel: self.spec().name, rank, after: start_limit });
            }
            (looked, before) = (Instant::now(), Some(now));
        }
        Ok(())
    }

    /// Whether the streams have done all that was put on them.
    fn are_idle(&self, streams: &[crate::Stream]) -> Result<bool, Error> {
        for (device, stream) in self.devices().iter().zip(streams) {
            // SAFETY: the stream is alive.
            let idle = device.with("look at a stream", || match unsafe { sys::cuStreamQuery(stream.cu_stream()) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
                result => result.result().map(|()| true),
            })?;
            if !idle {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// While this lives, its thread may allocate and copy. Otherwise the driver takes that for a mistake, and ends the
/// capture, if this thread or another one captures in a mode that is not relaxed.
struct Relaxed(sys::CUstreamCaptureMode);

impl Relaxed {
    fn new() -> Result<Self, DriverError> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the call exchanges the thread's mode for this one.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result()?;
        Ok(Relaxed(mode))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above. It can't fail where it has not failed before.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.0) }.result();
    }
}
