//! What a launch has to do on each rank, whatever way it is carried out in: its tiles, products and transfers.

use crate::dims;
use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::spec::{ArgumentKind, ChannelSpec, ElementType, Extent, ItemSpec, KernelSpec, Route, StageSpec};

/// Bytes of depth that a CTA multiplies at a time.
pub(super) const STEP_BYTES: u64 = 128;

/// What each rank has to do in a launch with a certain tile.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub world: u32,
    pub tile: (u32, u32),
    pub stages: Vec<StageWork>,
    /// By channel.
    pub transfers: Vec<Transfer>,
    /// Bytes of the matrices that are read or written once.
    pub streamed_bytes: u64,
    /// Bytes of the matrices that each block of a stage's tiles reads anew.
    pub shared_bytes: u64,
}

/// A stage's part of it.
#[derive(Debug, Clone)]
pub(crate) struct StageWork {
    pub name: &'static str,
    pub tiles: u32,
    /// Of these, along the last axis but one and the last.
    pub rows: u32,
    pub columns: u32,
    /// Blocks of rows that go through the same columns of products.
    pub sharers: f64,
    /// The blocks are those of a routing: as many as there are expected to be.
    pub routed: bool,
    /// Steps through its products, for each tile.
    pub steps: u32,
    /// The CTAs that it has to itself.
    pub ctas: Option<u32>,
    pub moved: bool,
    pub order: Order,
}

/// Which ranks' tiles a stage visits when, as far as it matters to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The peers' first; spans of columns apply.
    PeersFirst,
    /// This rank's own first; spans of columns apply.
    Ring,
    /// What needs nothing first.
    ReadyFirst,
    /// Not by ranks.
    Other,
}

/// What a rank sends on a channel. It receives as much.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub name: &'static str,
    /// Slots that it fills for others.
    pub slots: u64,
    /// The ranks that each goes to.
    pub receivers: u32,
    pub slot_bytes: u64,
    /// Pieces of a slot, each with a signal of its own.
    pub pieces: u32,
    pub sender: Option<usize>,
    pub receiver: Option<usize>,
}

impl Transfer {
    /// Bytes that leave the rank.
    pub fn bytes(&self) -> u64 {
        self.slots.saturating_mul(self.slot_bytes).saturating_mul(self.receivers.into())
    }

    /// Signals that leave the rank.
    pub fn signals(&self) -> u64 {
        self.slots.saturating_mul(self.receivers.into()).saturating_mul(self.pieces.into())
    }
}

impl Workload {
    /// What a launch of these sizes has to do.
    ///
    /// # Errors
    /// Kernels can't count its tiles, or its channels can't work.
    pub fn of(kernel: &'static KernelSpec, element: ElementType, sizes: &Sizes<'_>) -> Result<Self, Error> {
        dims::check_sizes(kernel, sizes)?;
        let refuse = |what: &str, name: &str| Error::Launch {
            kernel: kernel.name,
            problem: format!("{what} `{name}` has more tiles than can be counted in 32 bits"),
        };
        let stages = kernel
            .stages
            .iter()
            .map(|stage| StageWork::of(kernel, stage, element, sizes).ok_or_else(|| refuse("stage", stage.name)));
        let transfers = kernel.channels.iter().enumerate().map(|(index, channel)| {
            Transfer::of(kernel, index, channel, element, sizes).ok_or_else(|| refuse("channel", channel.name))
        });
        let mut workload = Workload {
            world: sizes.world,
            tile: sizes.tile,
            stages: stages.collect::<Result<_, _>>()?,
            transfers: transfers.collect::<Result<_, _>>()?,
            streamed_bytes: 0,
            shared_bytes: 0,
        };
        for argument in kernel.arguments {
            let ArgumentKind::Matrix { element: of, rows, columns, sharded, mutable, .. } = &argument.kind else {
                continue;
            };
            let size = |extent: &Extent| extent.value(sizes).unwrap_or(u32::MAX) as u64;
            let bytes = (size(rows) * of.resolve(element).size() as u64).saturating_mul(size(columns));
            let bytes_of = if *sharded || *mutable { &mut workload.streamed_bytes } else { &mut workload.shared_bytes };
            *bytes_of = bytes_of.saturating_add(bytes);
        }
        Ok(workload)
    }

    /// Bytes that leave each rank.
    pub fn wire_bytes(&self) -> u64 {
        self.transfers.iter().map(Transfer::bytes).fold(0, u64::saturating_add)
    }
}

impl StageWork {
    fn of(
        kernel: &'static KernelSpec,
        stage: &'static StageSpec,
        element: ElementType,
        sizes: &Sizes<'_>,
    ) -> Option<Self> {
        let axis = |from_last: usize| {
            let index = stage.grid.len().checked_sub(from_last)?;
            stage.grid[index].value(sizes)
        };
        let depth = |extent: &Extent| Some(extent.value(sizes)? as u64 * element.size() as u64);
        let depths = stage.products.iter().map(depth).collect::<Option<Vec<_>>>()?;
        let steps: u64 = depths.iter().map(|depth| depth.div_ceil(STEP_BYTES)).sum();
        let (mut tiles, mut rows) =
            (extent::count(stage.grid, sizes)?, if stage.grid.len() < 2 { 1 } else { axis(2)? });
        let mut sharers = tiles as f64 / axis(1)?.max(1) as f64;
        if let Some(routing) = stage.within
            && let Some(blocks) = Blocks::of(&kernel.channels[routing].item, sizes)
        {
            let room = stage.grid[0].value(sizes)?.max(1);
            let expected = blocks.expected().clamp(1.0, room as f64);
            tiles = (tiles as f64 / room as f64 * expected).ceil() as u32;
            rows = if stage.grid.len() == 2 { expected.ceil() as u32 } else { rows };
            sharers = expected / blocks.groups.max(1.0);
        }
        Some(StageWork {
            name: stage.name,
            tiles,
            rows,
            columns: axis(1)?,
            sharers,
            routed: stage.within.is_some(),
            steps: u32::try_from(steps).ok()?,
            ctas: stage.ctas,
            moved: stage.moved,
            order: match stage.order {
                "peers_first" => Order::PeersFirst,
                "ring" => Order::Ring,
                "ready_first" => Order::ReadyFirst,
                _ => Order::Other,
            },
        })
    }
}

/// The blocks that a routing is expected to make on a rank, if rows choose all groups alike.
struct Blocks {
    /// Groups of the rank.
    groups: f64,
    /// Rows that choose one of them.
    rows: f64,
    block_rows: f64,
}

impl Blocks {
    fn of(item: &ItemSpec, sizes: &Sizes<'_>) -> Option<Self> {
        let ItemSpec::Routing { rows, choices, groups, .. } = item else { return None };
        let value = |extent: &Extent| Some(extent.value(sizes)? as f64);
        let (world, groups) = (sizes.world as f64, value(groups)?);
        let rows = value(rows)? * world * value(choices)? / groups.max(1.0);
        Some(Blocks { groups: (groups / world).ceil(), rows, block_rows: sizes.tile.0.max(1) as f64 })
    }

    /// A group's rows vary as independent choices do. It has one block more than `n` if it has more rows than `n` blocks
    /// hold; how probable that is, is taken from the logistic distribution, which is close to the normal one.
    fn expected(&self) -> f64 {
        let deviation = self.rows.sqrt().max(1e-3);
        let more_than = |blocks: f64| {
            let beyond = (blocks * self.block_rows + 0.5 - self.rows) / deviation;
            1.0 / (1.0 + (1.7 * beyond).exp())
        };
        // All but a few vary around the mean; the blocks that are full whatever happens are counted at once.
        let full = ((self.rows - 8.0 * deviation) / self.block_rows).floor().max(0.0);
        let varying = (0..).map(|index| more_than(full + index as f64)).take_while(|probability| *probability > 1e-3);
        self.groups * (full + varying.sum::<f64>())
    }
}

impl Transfer {
    fn of(
        kernel: &'static KernelSpec,
        index: usize,
        channel: &'static ChannelSpec,
        element: ElementType,
        sizes: &Sizes<'_>,
    ) -> Option<Self> {
        let slots = match channel.item {
            ItemSpec::Gate => 0,
            _ => extent::count(channel.slots, sizes)? as u64,
        };
        let world = sizes.world as u64;
        let by_rank = matches!(channel.slots.first(), Some(Extent::World));
        let (slots, receivers) = match channel.route {
            Route::Peers | Route::All => (slots / world, sizes.world - 1),
            Route::One if by_rank => (slots / world * (world - 1), 1),
            // Any of them may be for another rank.
            Route::One => (if world > 1 { slots } else { 0 }, 1),
        };
        Some(Transfer {
            name: channel.name,
            slots,
            receivers,
            slot_bytes: channel.item.size(element, sizes)?.bytes,
            pieces: channel.pieces(sizes)?,
            sender: kernel.stages.iter().position(|stage| stage.sends.contains(&index)),
            receiver: kernel.stages.iter().position(|stage| stage.receives.contains(&index)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    #[test]
    fn a_group_has_as_many_blocks_as_its_rows_are_likely_to_need() {
        let blocks = |rows: f64| Blocks { groups: 10.0, rows, block_rows: 128.0 }.expected();
        for (rows, expected) in [(0.0, 0.0), (16.0, 10.0), (128.0, 15.0), (192.0, 20.0), (100_000.0, 7817.5)] {
            let found = blocks(rows);
            assert!((found - expected).abs() < 0.5, "{rows} rows for each group make {found} blocks");
        }
        assert!((0..1000).map(f64::from).map(blocks).is_sorted());
    }

    #[test]
    fn a_rank_fills_its_slots_of_all_others() {
        for (world, slots) in [(1, 0), (2, 4), (4, 3 * 4)] {
            let sizes = Sizes { dims: &[64 * 2 * world, 128], world, tile: (64, 64) };
            let workload = Workload::of(&SPEC, ElementType::F32, &sizes).unwrap();
            let part = &workload.transfers[0];
            assert_eq!((part.slots, part.signals()), (slots, slots), "world {world}");
            assert_eq!(workload.wire_bytes(), slots * 64 * 64 * 4);
            assert_eq!(workload.stages[0].tiles, 4 * world);
        }
    }
}
