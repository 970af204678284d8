//! What a launch has to do on each rank, whatever way it is carried out in: its tiles, products and transfers.

use crate::dims;
use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::spec::{ArgumentKind, ChannelSpec, ElementType, Extent, ItemSpec, KernelSpec, Route, StageSpec};

/// Bytes of depth that a CTA multiplies at a time.
const STEP_BYTES: u64 = 128;

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
            .map(|stage| StageWork::of(stage, element, sizes).ok_or_else(|| refuse("stage", stage.name)));
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
    fn of(stage: &'static StageSpec, element: ElementType, sizes: &Sizes<'_>) -> Option<Self> {
        let axis = |from_last: usize| {
            let index = stage.grid.len().checked_sub(from_last)?;
            stage.grid[index].value(sizes)
        };
        let depth = |extent: &Extent| Some(extent.value(sizes)? as u64 * element.size() as u64);
        let depths = stage.products.iter().map(depth).collect::<Option<Vec<_>>>()?;
        let steps: u64 = depths.iter().map(|depth| depth.div_ceil(STEP_BYTES)).sum();
        Some(StageWork {
            name: stage.name,
            tiles: extent::count(stage.grid, sizes)?,
            rows: if stage.grid.len() < 2 { 1 } else { axis(2)? },
            columns: axis(1)?,
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
