//! Memory of GPUs, and memory of the host that GPUs reach.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

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
            let _gate = device.gate.lock();
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
    pub unsafe fn foreign(device: &Arc<Device>, address: u64) -> Result<Self, Error> {
        let Device { rank, ordinal, .. } = **device;
        let mut home = -1;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        device.context.bind_to_thread().during(ordinal, "use it")?;
        // SAFETY: the attribute is an integer.
        let result =
            unsafe { sys::cuPointerGetAttribute(ptr::from_mut(&mut home).cast(), attribute, address) }.result();
        match result {
            Ok(()) if home == ordinal as i32 => Ok(DeviceBlock { device: device.clone(), address, owned: false }),
            Ok(()) => Err(Error::Tensor(format!(
                "the matrix of rank {rank} must lie on GPU {ordinal}, and {address:#x} is on GPU {home}"
            ))),
            Err(_) => Err(Error::Tensor(format!("the matrix of rank {rank}: {address:#x} is no memory of a GPU"))),
        }
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        if self.owned {
            let _gate = self.device.gate.lock();
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
        let start = self.address + area.offset as u64;
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: data.as_ptr().cast(),
            srcPitch: area.row,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: start,
            dstPitch: area.pitch,
            ..rows(area)
        };
        // SAFETY: `Allocation` keeps areas within the block, and `data` is as long as the area.
        self.copy("write memory", area, |stream| unsafe {
            match area.is_flat() {
                true => result::memcpy_htod_async(start, data, stream),
                false => sys::cuMemcpy2DAsync_v2(&copy, stream).result(),
            }
        })
    }

    fn read(&self, area: Area, data: &mut [u8]) -> Result<(), Error> {
        let start = self.address + area.offset as u64;
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: start,
            srcPitch: area.pitch,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: data.as_mut_ptr().cast(),
            dstPitch: area.row,
            ..rows(area)
        };
        // SAFETY: `Allocation` keeps areas within the block, and `data` is as long as the area.
        self.copy("read memory", area, |stream| unsafe {
            match area.is_flat() {
                true => result::memcpy_dtoh_async(data, start, stream),
                false => sys::cuMemcpy2DAsync_v2(&copy, stream).result(),
            }
        })
    }

    fn fill(&self, area: Area, pattern: &[u8]) -> Result<(), Error> {
        let start = self.address + area.offset as u64;
        let (width, height) = match area.is_flat() {
            true => (area.bytes() / pattern.len(), 1),
            false => (area.row / pattern.len(), area.rows),
        };
        if !matches!(pattern.len(), 1 | 2 | 4) {
            return self.write(area, &pattern.repeat(area.bytes() / pattern.len()));
        }
        let pitch = area.pitch;
        // SAFETY: `Allocation` keeps areas within the block.
        self.copy("fill memory", area, |stream| unsafe {
            match *pattern {
                [a] => sys::cuMemsetD2D8Async(start, pitch, a, width, height, stream),
                [a, b] => sys::cuMemsetD2D16Async(start, pitch, u16::from_ne_bytes([a, b]), width, height, stream),
                [a, b, c, d] => {
                    let word = u32::from_ne_bytes([a, b, c, d]);
                    sys::cuMemsetD2D32Async(start, pitch, word, width, height, stream)
                }
                _ => unreachable!("the driver has no other patterns"),
            }
            .result()
        })
    }
}

impl DeviceBlock {
    fn copy(
        &self,
        action: &'static str,
        area: Area,
        enqueue: impl FnOnce(sys::CUstream) -> Result<(), DriverError>,
    ) -> Result<(), Error> {
        if area.bytes() == 0 { Ok(()) } else { self.device.copy(action, enqueue) }
    }
}

/// A copy of an area's size, from and to nowhere yet. Not zeroed: 0 is no kind of memory.
fn rows(area: Area) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: area.row,
        Height: area.rows,
    }
}

/// Zeroed memory of the host that every GPU reaches, at the same address.
pub(super) fn pinned(device: &Arc<Device>, bytes: usize) -> Result<HostBlock, Error> {
    let start = {
        let _gate = device.gate.lock();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the length isn't 0.
        device.with("allocate pinned memory", || unsafe { result::malloc_host(bytes.max(1), flags) })?
    };
    // SAFETY: the driver gave so much.
    unsafe { ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
    let device = device.clone();
    let release = move |start: *mut u8| {
        let _gate = device.gate.lock();
        // SAFETY: allocated above. A failure here is a failure of the context, which the next call reports.
        let _ = device.with("free pinned memory", || unsafe { result::free_host(start.cast::<c_void>()) });
    };
    // SAFETY: as long as the block is there.
    Ok(unsafe { HostBlock::owned(start.cast(), release) })
}
