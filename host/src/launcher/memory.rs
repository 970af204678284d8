//! Allocations on the ranks of a world, with guard bytes around them where a test asks for them.

use std::sync::{Arc, Mutex, Weak};

use crate::error::Error;
use crate::platform::{Area, Memory, Platform};

/// Bytes on either side of a guarded allocation.
const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0xa5;

/// A block of one rank's memory, which tensors, regions and launches share.
pub(crate) struct Allocation {
    memory: Box<dyn Memory>,
    guard: usize,
    bytes: usize,
}

impl Allocation {
    /// Memory without guards, `bytes` long.
    pub fn plain(memory: Box<dyn Memory>, bytes: usize) -> Self {
        Allocation { memory, guard: 0, bytes }
    }

    /// Its address, as the rank sees it.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.guard as u64
    }

    /// See [`Memory::write`].
    pub fn write(&self, area: Area, data: &[u8]) -> Result<(), Error> {
        assert_eq!(area.bytes(), data.len());
        self.memory.write(self.within(area), data)
    }

    /// See [`Memory::read`].
    pub fn read(&self, area: Area, data: &mut [u8]) -> Result<(), Error> {
        assert_eq!(area.bytes(), data.len());
        self.memory.read(self.within(area), data)
    }

    /// See [`Memory::fill`].
    pub fn fill(&self, area: Area, pattern: &[u8]) -> Result<(), Error> {
        self.memory.fill(self.within(area), pattern)
    }

    fn within(&self, area: Area) -> Area {
        let end = if area.rows == 0 { 0 } else { area.offset + area.pitch * (area.rows - 1) + area.row };
        assert!(end <= self.bytes, "{area:?} ends beyond the allocation's {} bytes", self.bytes);
        Area { offset: area.offset + self.guard, ..area }
    }

    fn guards(&self) -> [Area; 2] {
        [Area::flat(0, self.guard), Area::flat(self.guard + self.bytes, self.guard)]
    }
}

/// Allocates, and keeps track of guards.
pub(crate) struct Allocator {
    guarded: Option<Mutex<Vec<Weak<Allocation>>>>,
}

impl Allocator {
    /// An allocator that surrounds what it allocates with guard bytes, or not.
    pub fn new(guards: bool) -> Self {
        Allocator { guarded: guards.then(Mutex::default) }
    }

    /// `bytes` zeroed bytes of a rank's memory, 256-byte aligned.
    pub fn allocate(&self, platform: &dyn Platform, rank: usize, bytes: usize) -> Result<Arc<Allocation>, Error> {
        let Some(guarded) = &self.guarded else {
            return Ok(Arc::new(Allocation::plain(platform.allocate(rank, bytes)?, bytes)));
        };
        let memory = platform.allocate(rank, bytes.saturating_add(2 * GUARD))?;
        let allocation = Arc::new(Allocation { memory, guard: GUARD, bytes });
        for area in allocation.guards() {
            allocation.memory.fill(area, &[GUARD_BYTE])?;
        }
        let mut guarded = guarded.lock().unwrap();
        guarded.retain(|weak| weak.strong_count() > 0);
        guarded.push(Arc::downgrade(&allocation));
        Ok(allocation)
    }

    /// Whether nothing was written outside the live allocations.
    pub fn guards_intact(&self) -> Result<bool, Error> {
        let Some(guarded) = &self.guarded else { return Ok(true) };
        let live: Vec<_> = guarded.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
        let mut bytes = [0; GUARD];
        for allocation in live {
            for area in allocation.guards() {
                allocation.memory.read(area, &mut bytes)?;
                if bytes != [GUARD_BYTE; GUARD] {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::SimulatedRanks;

    #[test]
    fn a_byte_out_of_bounds_is_noticed() {
        let platform = SimulatedRanks::new(1, 1);
        for offset in [-1, 100] {
            let allocator = Allocator::new(true);
            let allocation = allocator.allocate(&platform, 0, 100).unwrap();
            allocation.fill(Area::flat(0, 100), &[1]).unwrap();
            assert!(allocator.guards_intact().unwrap());
            // SAFETY: the guards are part of the block that was allocated.
            unsafe { *(allocation.address() as *mut u8).offset(offset) = 0 };
            assert!(!allocator.guards_intact().unwrap());
        }
    }
}
