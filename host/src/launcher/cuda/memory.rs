//! Memory of GPUs, and memory of the host that GPUs reach.

use std::ffi::c_void;
use std::sync::Arc;
use std::{mem, ptr};

use cudarc::driver::{DriverError, result, sys};

use super::device::Device;
use super::driver::During;
use crate::error::Error;
use crate::host_memory::HostBlock;
use crate::platform::{Area, Memory};

/// A block of a GPU's memory.
pub(super) struct DeviceBlock {
    device: Arc<Device>,
    address: sys::CUdeviceptr,
    owned: bool,
}

impl DeviceBlock {
    /// Zeroed memory, 256-byte aligned.
    pub fn zeroed(device: &Arc<Device>, bytes: usize) -> Result<Self, Error> {
        let address = {
            let _order = device.order.lock();
            device.context.bind_to_thread().during(device.ordinal, "use it")?;
            // SAFETY: the length isn't 0.
            match unsafe { result::malloc_sync(bytes.max(1)) } {
                Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                    let detail = result::mem_get_info()
                        .map_or_else(|_| String::new(), |(free, total)| format!(": {free} of {total} are free"));
                    return Err(Error::OutOfMemory { rank: device.rank, bytes, detail });
                }
                result => result.during(device.ordinal, "allocate memory")?,
            }
        };
        let block = DeviceBlock { device: device.clone(), address, owned: true };
        block.fill(Area::flat(0, bytes), &[0])?;
        Ok(block)
    }

    /// Memory that someone else frees.
    ///
    /// # Safety
    /// What is read and written through the result must be memory of the GPU, from `address` on.
    pub unsafe fn foreign(device: &Arc<Device>, address: u64) -> Self {
        DeviceBlock { device: device.clone(), address, owned: false }
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        if self.owned {
            let _order = self.device.order.lock();
            // SAFETY: allocated in `zeroed`; launches that use it hold it. A failure here is a failure of the
            // context, which the next call reports.
            let _ = self.device.with("free memory", || unsafe { result::free_sync(self.address) });
        }
    }
}

impl Memory for DeviceBlock {
    fn address(&self) -> u64 {
        self.address
    }

    fn write(&self, area: Area, data: &[u8]) -> Result<(), Error> {
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: data.as_ptr().cast(),
            srcPitch: area.row,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: self.address + area.offset as u64,
            dstPitch: area.pitch,
            ..rows(area)
        };
        self.copy("write memory", area, &copy)
    }

    fn read(&self, area: Area, data: &mut [u8]) -> Result<(), Error> {
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: self.address + area.offset as u64,
            srcPitch: area.pitch,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: data.as_mut_ptr().cast(),
            dstPitch: area.row,
            ..rows(area)
        };
        self.copy("read memory", area, &copy)
    }

    fn fill(&self, area: Area, pattern: &[u8]) -> Result<(), Error> {
        let Area { pitch, rows, .. } = area;
        let start = self.address + area.offset as u64;
        let width = area.row / pattern.len();
        if width == 0 || rows == 0 {
            return Ok(());
        }
        self.device.copy("fill memory", |stream| {
            // SAFETY: `Allocation` keeps areas within the block.
            let result = unsafe {
                match *pattern {
                    [a] => sys::cuMemsetD2D8Async(start, pitch, a, width, rows, stream),
                    [a, b] => sys::cuMemsetD2D16Async(start, pitch, u16::from_ne_bytes([a, b]), width, rows, stream),
                    [a, b, c, d] => {
                        sys::cuMemsetD2D32Async(start, pitch, u32::from_ne_bytes([a, b, c, d]), width, rows, stream)
                    }
                    _ => unreachable!("a pattern is 1, 2 or 4 bytes long"),
                }
            };
            result.result()
        })
    }
}

impl DeviceBlock {
    fn copy(&self, action: &'static str, area: Area, copy: &sys::CUDA_MEMCPY2D) -> Result<(), Error> {
        if area.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: `Allocation` keeps areas within the block, and the host's side is as long as the area.
        self.device.copy(action, |stream| unsafe { sys::cuMemcpy2DAsync_v2(copy, stream) }.result())
    }
}

/// A copy of an area's size, from and to nowhere yet.
fn rows(area: Area) -> sys::CUDA_MEMCPY2D {
    // SAFETY: zeros are a valid description, of a copy of nothing.
    sys::CUDA_MEMCPY2D { WidthInBytes: area.row, Height: area.rows, ..unsafe { mem::zeroed() } }
}

/// Zeroed memory of the host that every GPU reaches, at the same address.
pub(super) fn pinned(device: &Arc<Device>, bytes: usize) -> Result<HostBlock, Error> {
    let start = {
        let _order = device.order.lock();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the length isn't 0.
        device.with("allocate pinned memory", || unsafe { result::malloc_host(bytes.max(1), flags) })?
    };
    // SAFETY: the driver gave so much.
    unsafe { ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
    let device = device.clone();
    let release = move |start: *mut u8| {
        let _order = device.order.lock();
        // SAFETY: allocated above. A failure here is a failure of the context, which the next call reports.
        let _ = device.with("free pinned memory", || unsafe { result::free_host(start.cast::<c_void>()) });
    };
    // SAFETY: as long as the block is there.
    Ok(unsafe { HostBlock::owned(start.cast(), release) })
}
