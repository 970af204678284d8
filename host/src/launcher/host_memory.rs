//! Memory that the host's own instructions reach.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::{ptr, slice};

use crate::error::Error;
use crate::platform::{Area, Memory};

/// A block of memory of this process.
///
/// The ranks of a launch may access it from their threads, or a GPU by itself; the host accesses it only while no launch
/// that was given it is in flight.
pub(crate) struct HostBlock {
    start: *mut u8,
    release: Option<Box<dyn Fn(*mut u8) + Send + Sync>>,
}

// SAFETY: the block is plain memory, and who may access it when is up to the launches, as said above.
unsafe impl Send for HostBlock {}
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// Zeroed heap memory, 256-byte aligned; `None` if there is not enough.
    pub fn zeroed(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), 256).ok()?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        // SAFETY: called once, with what was allocated above.
        (!start.is_null()).then(|| unsafe { HostBlock::owned(start, move |start| dealloc(start, layout)) })
    }

    /// Memory that `release` frees.
    ///
    /// # Safety
    /// What is read and written through the result must be memory of this process, from `start` on, until
    /// `release` is called.
    pub unsafe fn owned(start: *mut u8, release: impl Fn(*mut u8) + Send + Sync + 'static) -> Self {
        HostBlock { start, release: Some(Box::new(release)) }
    }

    /// Memory that someone else frees.
    ///
    /// # Safety
    /// What is read and written through the result must be memory of this process, from `start` on.
    pub unsafe fn foreign(start: *mut u8) -> Self {
        HostBlock { start, release: None }
    }

    fn rows(&self, area: Area) -> impl Iterator<Item = *mut u8> + '_ {
        // SAFETY: `Allocation` keeps areas within the block.
        (0..area.rows).map(move |row| unsafe { self.start.add(area.offset + row * area.pitch) })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if let Some(release) = &self.release {
            release(self.start);
        }
    }
}

impl Memory for HostBlock {
    fn address(&self) -> u64 {
        self.start as u64
    }

    fn write(&self, area: Area, data: &[u8]) -> Result<(), Error> {
        for (row, data) in self.rows(area).zip(data.chunks_exact(area.row.max(1))) {
            // SAFETY: a row of the area, which nothing else accesses now.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), row, data.len()) };
        }
        Ok(())
    }

    fn read(&self, area: Area, data: &mut [u8]) -> Result<(), Error> {
        for (row, data) in self.rows(area).zip(data.chunks_exact_mut(area.row.max(1))) {
            // SAFETY: a row of the area, which nothing else writes now.
            unsafe { ptr::copy_nonoverlapping(row, data.as_mut_ptr(), data.len()) };
        }
        Ok(())
    }

    fn fill(&self, area: Area, pattern: &[u8]) -> Result<(), Error> {
        for row in self.rows(area) {
            // SAFETY: a row of the area, which nothing else accesses now.
            let row = unsafe { slice::from_raw_parts_mut(row, area.row) };
            row.chunks_exact_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(pattern));
        }
        Ok(())
    }
}
