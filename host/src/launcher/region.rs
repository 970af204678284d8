//! The symmetric region: the same layout of control block, signals and slots in every rank's memory.

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use entwine_device::abi::{ChannelArg, Control, MAX_AXES, MAX_WORLD};
use entwine_device::layout::routing::{MAX_CHOICES, MAX_GROUPS, arrangement_bytes, counted_bytes, table_bytes};

use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::memory::Allocation;
use crate::platform::Area;
use crate::spec::{Carriage, ChannelSpec, ElementType, Extent, ItemSpec, KernelSpec};
use crate::world::World;

/// Channels' data and signals begin at multiples of this many bytes.
const LINE: u64 = 128;

/// What a launch's channels need, and where they lie: `Control`, then the signals of all channels, then the counters of
/// gates, then the channels' data for even epochs, then their data for odd ones.
///
/// The borders between these five depend on the region alone and not on the launch, so that launches of different
/// shapes on one region never take signals for data, nor one epoch's data for the next one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    channels: Vec<ChannelArg>,
    need: Capacity,
}

/// Bytes that a region has, or a layout needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    signals: u64,
    counters: u64,
    /// The data of one parity.
    data: u64,
}

impl Capacity {
    /// Room for either.
    pub fn union(self, other: Capacity) -> Self {
        Capacity {
            signals: self.signals.max(other.signals),
            counters: self.counters.max(other.counters),
            data: self.data.max(other.data),
        }
    }

    /// Bytes of a region; as many as can't be allocated, where they can't be counted.
    fn bytes(self) -> usize {
        let bytes =
            (size_of::<Control>() as u64 + self.signals + self.counters).saturating_add(self.data.saturating_mul(2));
        usize::try_from(bytes).expect("addresses have 64 bits")
    }
}

impl Layout {
    /// The layout of a kernel's channels in a launch of these sizes, with offsets counted from where the
    /// signals, or the data, begin.
    pub fn of(
        kernel: &'static KernelSpec,
        element: ElementType,
        sizes: &Sizes<'_>,
        carriages: &[Carriage],
    ) -> Result<Self, Error> {
        let mut layout = Layout { channels: Vec::new(), need: Capacity::default() };
        for (channel, carriage) in kernel.channels.iter().zip(carriages) {
            let refuse = || Error::Launch {
                kernel: kernel.name,
                problem: format!("channel `{}` has more slots, or larger ones, than can be addressed", channel.name),
            };
            let argument = layout.add(channel, *carriage, element, sizes).ok_or_else(refuse)?;
            layout.channels.push(argument);
        }
        Ok(layout)
    }

    /// The channels, in the order of their declarations, with offsets counted from where the signals, or the data, begin.
    pub fn channels(&self) -> &[ChannelArg] {
        &self.channels
    }

    /// The room that it takes.
    pub fn need(&self) -> Capacity {
        self.need
    }

    fn add(
        &mut self,
        channel: &ChannelSpec,
        carriage: Carriage,
        element: ElementType,
        sizes: &Sizes<'_>,
    ) -> Option<ChannelArg> {
        let mut slots = [1; MAX_AXES];
        for (axis, extent) in channel.slots.iter().enumerate() {
            slots[axis] = extent.value(sizes)?;
        }
        let count = extent::count(channel.slots, sizes)?;
        let ItemSize { columns, row, bytes: slot_bytes } = channel.item.size(element, sizes)?;
        let pieces = channel.pieces(sizes)?;
        let argument = ChannelArg {
            slots,
            data: self.need.data,
            parity_stride: 0,
            slot_bytes,
            signals: self.need.signals,
            columns,
            pull: (carriage == Carriage::Pull).into(),
            pieces,
            piece_boxes: (row / LINE).div_ceil(pieces.into()) as u32,
            rows: channel.height.value(sizes)?,
            by_rank: matches!(channel.slots.first(), Some(Extent::World)).into(),
            counters: self.need.counters,
        };
        if channel.into.is_none() {
            self.need.data = self.need.data.checked_add(slot_bytes.checked_mul(count.into())?)?;
        }
        if let ItemSpec::Gate | ItemSpec::Routing { .. } = channel.item {
            let counters = count as u64 * size_of::<u32>() as u64;
            self.need.counters = self.need.counters.checked_add(counters.checked_next_multiple_of(LINE)?)?;
        }
        let signals = (count as u64 * pieces as u64).checked_mul(size_of::<u32>() as u64)?;
        self.need.signals = self.need.signals.checked_add(signals.checked_next_multiple_of(LINE)?)?;
        Some(argument)
    }
}

impl ChannelSpec {
    /// The pieces that a slot is sent in: one at least, which may be empty.
    pub(crate) fn pieces(&self, sizes: &Sizes<'_>) -> Option<u32> {
        Some(self.pieces.value(sizes)?.max(1))
    }
}

impl ItemSpec {
    /// How large a slot is: each row is padded to whole lines.
    pub(crate) fn size(&self, variant: ElementType, sizes: &Sizes<'_>) -> Option<ItemSize> {
        let (element, rows, columns) = match self {
            ItemSpec::Tile { element, rows, columns } | ItemSpec::Panel { element, rows, columns } => {
                (element, rows, columns)
            }
            // What waits for a slot waits for nothing where there are no columns.
            ItemSpec::Gate => return Some(ItemSize { columns: 1, row: 0, bytes: 0 }),
            ItemSpec::Routing { rows, choices, groups, capacity } => {
                let value = |extent: &Extent| extent.value(sizes);
                let (rows, choices, groups, capacity) =
                    (value(rows)?, value(choices)?, value(groups)?, value(capacity)?);
                return routing_size(sizes, rows, choices, groups, capacity);
            }
        };
        let columns = columns.value(sizes)?;
        let row = (columns as u64 * element.resolve(variant).size() as u64).next_multiple_of(LINE);
        Some(ItemSize { columns, row, bytes: row.checked_mul(rows.value(sizes)?.into())? })
    }
}

/// How large the slots of a routing are, which have room for a table, an arrangement or what is counted for it; `None` if its
/// numbers have too few bits.
fn routing_size(sizes: &Sizes<'_>, rows: u32, choices: u32, groups: u32, capacity: u32) -> Option<ItemSize> {
    if groups > MAX_GROUPS || rows.checked_mul(choices)? >= MAX_CHOICES {
        return None;
    }
    let table = table_bytes(rows, choices, groups);
    let arrangement = arrangement_bytes(groups, sizes.world, capacity / sizes.tile.0);
    let bytes = table.max(arrangement).max(counted_bytes(groups)).next_multiple_of(LINE);
    // What waits for a slot waits for nothing where there are no columns.
    Some(ItemSize { columns: 1, row: bytes, bytes })
}

/// How large a slot is.
pub(crate) struct ItemSize {
    columns: u32,
    /// Bytes of a row.
    row: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// A kernel's region on every rank of a world.
pub(crate) struct Region {
    world: World,
    ranks: Vec<Arc<Allocation>>,
    /// On each rank, the table of all ranks' addresses.
    tables: Vec<Arc<Allocation>>,
    capacity: Capacity,
}

impl Region {
    /// A region of this capacity. All signals stand at `epoch`.
    pub fn new(world: &World, capacity: Capacity, epoch: u32) -> Result<Self, Error> {
        let bytes = capacity.bytes();
        let ranks: Vec<_> = (0..world.ranks()).map(|rank| world.allocate(rank, bytes)).collect::<Result<_, _>>()?;
        let addresses = addresses(&ranks);
        let table = |rank| {
            let memory = world.allocate(rank, size_of::<u64>() * MAX_WORLD)?;
            memory.write(Area::flat(0, size_of::<u64>() * addresses.len()), bytemuck::cast_slice(&addresses))?;
            Ok(memory)
        };
        let tables = (0..world.ranks()).map(table).collect::<Result<_, Error>>()?;
        let region = Region { world: world.clone(), ranks, tables, capacity };
        region.reset(epoch)?;
        Ok(region)
    }

    /// What it has room for.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Whether a launch with this layout fits.
    pub fn holds(&self, layout: &Layout) -> bool {
        self.capacity.union(layout.need) == self.capacity
    }

    /// The channels' places in this region.
    pub fn channels<'l>(&self, layout: &'l Layout) -> impl Iterator<Item = ChannelArg> + use<'l> {
        let signals = size_of::<Control>() as u64;
        let Capacity { signals: signal_bytes, counters: counter_bytes, data: parity_stride } = self.capacity;
        let counters = signals + signal_bytes;
        let data = counters + counter_bytes;
        layout.channels.iter().map(move |channel| ChannelArg {
            data: data + channel.data,
            signals: signals + channel.signals,
            counters: counters + channel.counters,
            parity_stride,
            ..*channel
        })
    }

    /// Address of each rank's region.
    pub fn addresses(&self) -> Vec<u64> {
        addresses(&self.ranks)
    }

    /// Address of a rank's table of regions.
    pub fn table(&self, rank: usize) -> u64 {
        self.tables[rank].address()
    }

    /// The latest epoch that any rank has finished. No launch may be in flight.
    pub fn epoch(&self) -> Result<u32, Error> {
        let mut latest = None;
        for memory in &self.ranks {
            let mut word = [0u32];
            memory.read(word_area(offset_of!(Control, epoch)), bytemuck::cast_slice_mut(&mut word))?;
            latest = Some(latest.map_or(word[0], |latest: u32| later(latest, word[0])));
        }
        Ok(latest.unwrap_or(0))
    }

    /// Every rank has finished `epoch`, every signal stands at it, and nothing is amiss. No launch may be in flight.
    pub fn reset(&self, epoch: u32) -> Result<(), Error> {
        for memory in &self.ranks {
            memory.fill(Area::flat(0, size_of::<Control>()), &[0])?;
            let set = |offset, words| memory.fill(Area::flat(offset, size_of::<u32>() * words), &epoch.to_ne_bytes());
            set(offset_of!(Control, epoch), 1)?;
            set(offset_of!(Control, started), self.world.ranks())?;
            set(offset_of!(Control, finished), self.world.ranks())?;
            set(offset_of!(Control, returned), self.world.ranks())?;
            let signals = self.capacity.signals as usize;
            set(size_of::<Control>(), signals / size_of::<u32>())?;
            memory.fill(Area::flat(size_of::<Control>() + signals, self.capacity.counters as usize), &[0])?;
        }
        Ok(())
    }
}

fn addresses(ranks: &[Arc<Allocation>]) -> Vec<u64> {
    ranks.iter().map(|memory| memory.address()).collect()
}

fn word_area(offset: usize) -> Area {
    Area::flat(offset, size_of::<u32>())
}

/// The later of two epochs, which may have wrapped between them.
fn later(one: u32, other: u32) -> u32 {
    if (one.wrapping_sub(other) as i32) < 0 { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    fn layout(m: u32, n: u32) -> Layout {
        let sizes = Sizes { dims: &[m, n], world: 2, tile: (64, 64) };
        Layout::of(&SPEC, ElementType::F32, &sizes, &[Carriage::Push]).unwrap()
    }

    #[test]
    fn slots_follow_the_extents() {
        let layout = layout(130, 70);
        let channel = layout.channels[0];
        assert_eq!(channel.slots, [2, 2, 2, 1]);
        assert_eq!((channel.columns, channel.slot_bytes), (64, 64 * 64 * 4));
        assert_eq!(layout.need, Capacity { signals: 128, counters: 0, data: 8 * 64 * 64 * 4 });
    }

    #[test]
    fn borders_depend_on_the_region_alone() {
        let world = World::simulated(2).unwrap();
        let (small, large) = (layout(64, 64), layout(1024, 640));
        let region = Region::new(&world, large.need, 5).unwrap();
        assert!(region.holds(&small));
        let [a, b] = [&small, &large].map(|layout| region.channels(layout).next().unwrap());
        assert_eq!((a.signals, a.data, a.parity_stride), (b.signals, b.data, b.parity_stride));
        assert!(b.data >= b.signals + 4 * b.slots.iter().product::<u32>() as u64);
        assert_eq!(b.data % 128, 0);
    }

    #[test]
    fn growth_keeps_the_epoch_and_what_there_was_room_for() {
        let world = World::simulated(2).unwrap();
        let region = Region::new(&world, layout(1024, 64).need, u32::MAX).unwrap();
        assert_eq!(region.epoch().unwrap(), u32::MAX);
        assert!(!region.holds(&layout(1024, 1024)));
        let capacity = region.capacity().union(layout(64, 1024).need);
        let grown = Region::new(&world, capacity, region.epoch().unwrap()).unwrap();
        assert!(grown.holds(&layout(1024, 64)));
        assert_eq!(grown.epoch().unwrap(), u32::MAX);
    }

    #[test]
    fn more_slots_than_words_can_count_are_refused() {
        let sizes = Sizes { dims: &[u32::MAX, u32::MAX], world: 2, tile: (1, 1) };
        let error = Layout::of(&SPEC, ElementType::F32, &sizes, &[Carriage::Push]).unwrap_err();
        assert!(error.to_string().contains("channel `Part` has more slots"), "{error}");
    }

    #[test]
    fn data_beyond_all_memory_is_refused() {
        let world = World::simulated(2).unwrap();
        for data in [1 << 62, 1 << 63, u64::MAX] {
            let error = Region::new(&world, Capacity { signals: 128, counters: 0, data }, 0)
                .err()
                .expect("there is not so much");
            assert!(matches!(error, Error::OutOfMemory { rank: 0, .. }), "{error}");
        }
    }

    #[test]
    fn later_epochs_are_told_across_the_wrap() {
        assert_eq!(later(u32::MAX, 1), 1);
        assert_eq!(later(3, 2), 3);
    }
}
