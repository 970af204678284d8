//! What a launch is expected to take, from what it has to do and what the GPU does in which time.
//!
//! CTAs visit their tiles in waves. Transfers cost what is left of them when nothing else is left to compute, and, while
//! something is, slow the products' loads. The constants were fitted to `docs/performance.md`; where the model is off,
//! it is off for all choices alike, which is what it is for.

use super::Choice;
use super::device::Device;
use super::workload::{Order, STEP_BYTES, StageWork, Transfer, Workload};
use crate::spec::Carriage;

/// The part of the time on the link by which transfers slow the products beside them: with and without a limit.
const PUSH_DRAG: [f64; 2] = [0.4, 0.9];
const PULL_DRAG: [f64; 2] = [0.28, 0.45];
/// What a tile takes longer that a receiver fetches after its signal, and one that waits for its share of the link.
const FETCH_US: f64 = 2.0;
const LIMITED_US: f64 = 1.0;
/// The part of the memory's time, as a part of the products', by which they are slower.
const MEMORY_DRAG: f64 = 0.2;
/// Rows of tiles that a wave goes through together, as the orders have them.
const GROUP: u32 = 16;

/// What a launch is expected to take on each rank, in µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Its tiles in waves, the start and the end: a launch without other ranks.
    pub compute_us: f64,
    /// Bytes on the wire at the link's rate.
    pub link_us: f64,
    /// Transfers that nothing hides.
    pub exposed_us: f64,
    /// By how much transfers and memory slow the products.
    pub drag_us: f64,
    /// What another launch for the transfers, after the one for the products, would add to it.
    pub apart_us: f64,
}

impl Prediction {
    /// In all.
    pub fn total_us(&self) -> f64 {
        self.limit_us().max(self.compute_us + self.exposed_us + self.drag_us)
    }

    /// If the transfers were a launch of their own, after the one that computes.
    pub fn unfused_us(&self) -> f64 {
        self.compute_us + self.apart_us
    }

    /// What nothing can be faster than: the products alone, or the bytes on the wire, whichever takes longer.
    pub fn limit_us(&self) -> f64 {
        self.compute_us.max(self.link_us)
    }
}

/// What a launch is expected to take.
pub(super) fn predict(workload: &Workload, choice: &Choice, device: &Device) -> Prediction {
    Model { workload, choice, device }.predict()
}

struct Model<'a> {
    workload: &'a Workload,
    choice: &'a Choice,
    device: &'a Device,
}

impl Model<'_> {
    fn predict(&self) -> Prediction {
        let products_us = self.compute_us();
        let (mut exposed_us, mut drag_us) = (0.0, self.memory_drag_us(products_us));
        for (index, transfer) in self.workload.transfers.iter().enumerate().filter(|(_, transfer)| transfer.bytes() > 0)
        {
            let exposed = self.exposed(index, transfer);
            exposed_us += exposed.us;
            drag_us += self.drag(index) * micros(transfer.bytes() as f64 * exposed.hidden, self.device.link_gbps);
        }
        let link_us = micros(self.workload.wire_bytes() as f64, self.device.link_gbps);
        let apart_us = if link_us > 0.0 { self.device.launch_us + self.device.signal_us + link_us } else { 0.0 };
        Prediction { compute_us: self.device.launch_us + products_us, link_us, exposed_us, drag_us, apart_us }
    }

    /// The CTAs that a stage has to itself.
    fn dedicated(&self, stage: &StageWork) -> Option<u32> {
        stage.ctas.filter(|_| self.choice.fused)
    }

    /// The CTAs that carry a stage.
    fn ctas(&self, stage: &StageWork) -> u32 {
        let processors = self.device.processors.max(1);
        let dedicated = self.workload.stages.iter().filter_map(|stage| self.dedicated(stage));
        let dedicated = dedicated.fold(0, u32::saturating_add);
        let shared = processors.saturating_sub(dedicated);
        let ctas = if stage.moved { processors } else { self.dedicated(stage).unwrap_or(shared) };
        ctas.clamp(1, processors)
    }

    fn waves(&self, stage: &StageWork) -> u32 {
        stage.tiles.div_ceil(self.ctas(stage))
    }

    /// All waves of a stage. Columns that few blocks of rows go through come from memory: a wave then takes at least as long as
    /// its CTAs take to read theirs, all together and each by itself.
    fn stage_us(&self, stage: &StageWork) -> f64 {
        let tile_us = self.tile_us(stage);
        if stage.steps == 0 || stage.sharers > 1.0 && !stage.routed {
            return self.waves(stage) as f64 * tile_us;
        }
        let (rows, columns) = self.workload.tile;
        let bytes_of = |panel: u32| panel as f64 * stage.steps as f64 * STEP_BYTES as f64;
        let alone_us = micros(bytes_of(rows + columns), self.device.stream_gbps);
        let wave_us = |tiles: u32| {
            let together_us =
                micros(tiles as f64 * bytes_of(columns) / stage.sharers.max(1.0), self.device.memory_gbps);
            if tiles > 0 { tile_us.max(self.device.tile_us + alone_us.max(together_us)) } else { 0.0 }
        };
        let ctas = self.ctas(stage);
        (stage.tiles / ctas) as f64 * wave_us(ctas) + wave_us(stage.tiles % ctas)
    }

    fn tile_us(&self, stage: &StageWork) -> f64 {
        let area = self.workload.tile.0 as f64 * self.workload.tile.1 as f64 / (128.0 * 128.0);
        let step = self.device.step_us + self.device.step_area_us * area;
        let bytes = if stage.steps > 0 { 0 } else { self.largest_slot() };
        self.device.tile_us + stage.steps as f64 * step + micros(bytes as f64, self.device.cta_gbps)
    }

    fn largest_slot(&self) -> u64 {
        self.workload.transfers.iter().map(|transfer| transfer.slot_bytes).max().unwrap_or(0)
    }

    /// All stages: those that share CTAs one after the other, those that have their own beside them.
    fn compute_us(&self) -> f64 {
        let (mut shared, mut longest) = (0.0, 0.0f64);
        for stage in self.workload.stages.iter().filter(|stage| !stage.moved) {
            let time = self.stage_us(stage);
            match self.dedicated(stage) {
                Some(_) => longest = longest.max(time),
                None => shared += time,
            }
        }
        let bytes = self.workload.streamed_bytes + self.workload.shared_bytes;
        // How much of the matrices a routing needs is not known.
        let memory_us = if self.routed() { 0.0 } else { micros(bytes as f64, self.device.memory_gbps) };
        longest.max(shared).max(memory_us)
    }

    fn routed(&self) -> bool {
        self.workload.stages.iter().any(|stage| stage.routed)
    }

    /// Memory slows products the more, the larger its part of the time is.
    fn memory_drag_us(&self, products_us: f64) -> f64 {
        let passes = self.workload.stages.iter().filter(|stage| stage.steps > 0).map(|stage| self.passes(stage)).max();
        let Some(passes) = passes.filter(|_| products_us > 0.0 && !self.routed()) else { return 0.0 };
        let bytes = self.workload.streamed_bytes + passes as u64 * self.workload.shared_bytes;
        let memory_us = micros(bytes as f64, self.device.memory_gbps);
        MEMORY_DRAG * memory_us * (memory_us / products_us).min(1.0)
    }

    /// How often a stage reads the operand that all its blocks share.
    fn passes(&self, stage: &StageWork) -> u32 {
        let groups = stage.rows.div_ceil(GROUP).max(1);
        let at_once = self.workload.shared_bytes <= self.device.cached_bytes || self.waves(stage) <= 1;
        match stage.order {
            Order::PeersFirst | Order::Ring if !at_once && !self.spanned(stage) => groups * self.workload.world,
            _ => groups,
        }
    }

    /// Whether the stage goes through all blocks by some columns at a time.
    fn spanned(&self, stage: &StageWork) -> bool {
        let by_blocks = matches!(stage.order, Order::PeersFirst | Order::Ring);
        by_blocks && self.choice.span != 0 && self.choice.span < stage.columns
    }

    fn drag(&self, channel: usize) -> f64 {
        let unlimited = (self.choice.link_limit == 0) as usize;
        match self.choice.carriages[channel] {
            Carriage::Push => PUSH_DRAG[unlimited],
            Carriage::Pull => PULL_DRAG[unlimited],
        }
    }

    /// From the end of a store until what was stored can be used, less its time on the link.
    fn latency_us(&self, channel: usize) -> f64 {
        let fetch = if self.choice.carriages[channel] == Carriage::Pull { FETCH_US } else { 0.0 };
        let limited = if self.choice.link_limit != 0 { LIMITED_US } else { 0.0 };
        self.device.signal_us + fetch + limited
    }

    fn exposed(&self, channel: usize, transfer: &Transfer) -> Exposed {
        let (Some(sender), Some(receiver)) = (transfer.sender, transfer.receiver) else { return Exposed::NOTHING };
        let (from, to) = (&self.workload.stages[sender], &self.workload.stages[receiver]);
        if from.steps > 0 {
            self.exposed_of_computed(channel, transfer, from, sender == receiver)
        } else {
            self.exposed_of_moved(channel, transfer, from, to)
        }
    }

    /// What is computed travels while later waves compute; what the last wave computes travels alone.
    fn exposed_of_computed(&self, channel: usize, transfer: &Transfer, stage: &StageWork, same: bool) -> Exposed {
        let last = stage.tiles - self.waves(stage).saturating_sub(1) * self.ctas(stage);
        let before = (stage.tiles - last) as f64;
        let (tiles, slots) = (stage.tiles.max(1) as f64, transfer.slots.min(stage.tiles.into()) as f64);
        let world = self.workload.world as u64;
        // A rank's own tiles are one block, those of its peers the others.
        let of_own = !same && transfer.slots * world <= stage.tiles as u64;
        let of_peers = same || transfer.slots * world == stage.tiles as u64 * (world - 1);
        let in_last = match stage.order {
            _ if self.spanned(stage) => slots * last as f64 / tiles,
            Order::PeersFirst if of_own => slots.min(last as f64),
            Order::PeersFirst if of_peers => (slots - before).max(0.0),
            Order::Ring if of_own => (slots - before).max(0.0),
            Order::Ring if of_peers => slots.min(last as f64),
            _ => slots * last as f64 / tiles,
        };
        if same && in_last == 0.0 {
            return Exposed::NOTHING;
        }
        let bytes = in_last * transfer.receivers as f64 * transfer.slot_bytes as f64;
        let us = self.latency_us(channel) + micros(bytes, self.device.link_gbps);
        Exposed { us, hidden: 1.0 - bytes / transfer.bytes() as f64 }
    }

    /// What is only moved travels while the receiver computes what needs none of it.
    fn exposed_of_moved(&self, channel: usize, transfer: &Transfer, from: &StageWork, to: &StageWork) -> Exposed {
        let carriers = self.ctas(from).min(from.tiles).max(1);
        let rate = self.device.link_gbps.min(if from.moved {
            let limit = if self.choice.link_limit == 0 { carriers } else { self.choice.link_limit };
            limit.min(carriers) as f64 * self.device.mover_gbps
        } else {
            carriers as f64 * self.device.cta_gbps
        });
        let transfer_us = self.latency_us(channel) + micros(transfer.bytes() as f64, rate);
        // Tiles that a rank computes from its own rows before it needs any others.
        let own = match to.order {
            Order::Ring if self.spanned(to) => to.rows * self.choice.span,
            Order::Ring | Order::ReadyFirst => to.tiles / self.workload.world,
            Order::PeersFirst | Order::Other => 0,
        };
        let before_us = if self.choice.fused { 0.0 } else { self.waves(from) as f64 * self.tile_us(from) };
        let hidden_us = before_us + (own / self.ctas(to)) as f64 * self.tile_us(to);
        // Where slots are cut, the first tiles begin with the first pieces and go on while the others arrive.
        let part = 1.0 / transfer.pieces as f64;
        let first_us = self.latency_us(channel) + part * micros(transfer.bytes() as f64, rate);
        let us = (first_us.max(transfer_us - (1.0 - part) * self.tile_us(to)) - hidden_us).max(0.0);
        Exposed { us, hidden: 1.0 - us / transfer_us }
    }
}

/// How much of a transfer nothing hides.
struct Exposed {
    us: f64,
    /// The part of its bytes that travels while something is computed.
    hidden: f64,
}

impl Exposed {
    const NOTHING: Exposed = Exposed { us: 0.0, hidden: 1.0 };
}

/// The time of so many bytes.
fn micros(bytes: f64, gbps: f64) -> f64 {
    bytes / (gbps * 1e3)
}
