//! The log of one launch: memory on each rank for what its roles note.

use std::sync::Arc;

use entwine_device::abi::Head;
use entwine_device::log::{self, Recorder};

use crate::error::Error;
use crate::memory::Allocation;
use crate::platform::Area;
use crate::world::World;

/// An entry, as it lies in memory.
pub(crate) type Entry = [u32; 4];

/// Each rank's log.
pub(crate) struct EventLog {
    ranks: Vec<Arc<Allocation>>,
    ctas: u32,
    capacity: u64,
}

/// What one role of a CTA noted.
pub(crate) struct Row {
    pub rank: u32,
    pub cta: u32,
    pub recorder: Recorder,
    pub entries: Vec<Entry>,
    /// How many more there would be, had there been room for them.
    pub dropped: u64,
}

impl EventLog {
    /// An empty log for `ctas` CTAs on each rank, with room for `capacity` entries in each row.
    pub fn new(world: &World, ctas: u32, capacity: u64) -> Result<Self, Error> {
        let bytes = usize::try_from(log::bytes(ctas, capacity)).expect("addresses have 64 bits");
        let ranks = (0..world.ranks()).map(|rank| world.allocate(rank, bytes)).collect::<Result<_, _>>()?;
        Ok(EventLog { ranks, ctas, capacity })
    }

    /// Whether it is such a log, too.
    pub fn is_for(&self, ctas: u32, capacity: u64) -> bool {
        (self.ctas, self.capacity) == (ctas, capacity)
    }

    /// Empties it. Nothing may be writing to it.
    pub fn clear(&self) -> Result<(), Error> {
        let bytes = log::bytes(self.ctas, self.capacity) as usize;
        self.ranks.iter().try_for_each(|memory| memory.fill(Area::flat(0, bytes), &[0]))
    }

    /// Lets a rank's launch write to it.
    pub fn apply(&self, rank: usize, head: &mut Head) {
        head.log = self.ranks[rank].address();
        head.log_capacity = self.capacity;
    }

    /// What was noted, by rank, CTA and role. Nothing may be writing to it.
    pub fn rows(&self) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for (rank, memory) in (0..).zip(&self.ranks) {
            let mut words: Vec<Entry> = vec![[0; 4]; (log::bytes(self.ctas, self.capacity) / log::ENTRY) as usize];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            memory.read(Area::flat(0, bytes.len()), bytes)?;
            let mut rest = words.chunks_exact(self.capacity as usize + 1);
            for (cta, recorder) in (0..self.ctas).flat_map(|cta| Recorder::ALL.map(|recorder| (cta, recorder))) {
                let row = rest.next().expect("a log has a row for each role of each CTA");
                let written = row[0][0] as u64;
                let kept = written.min(self.capacity);
                let entries = row[1..=kept as usize].to_vec();
                rows.push(Row { rank, cta, recorder, entries, dropped: written - kept });
            }
        }
        Ok(rows)
    }
}
