//! A simulated world with the regions of one kernel.

use std::mem::{size_of, zeroed};
use std::sync::Arc;
use std::time::Duration;

use entwine_device::abi::{ChannelArg, Control, FaultRecord, Head, MAX_AXES, MAX_DIMS, MAX_WORLD, NONE};
use entwine_device::cpu::{Fabric, Launch, Simulate};
use entwine_device::layout::ROW;
use entwine_device::log;

/// Signals that a channel has room for.
const SIGNALS: u64 = 1024;
/// Bytes that each of a channel's two data buffers has room for.
const BUFFER: u64 = 1 << 20;
/// Entries that a CTA has room for in a log.
const LOG_CAPACITY: u64 = 256;

/// An entry of a log.
pub type Entry = [u32; 4];

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u8; 128]);

/// What a launch says of a channel.
pub struct Slots {
    pub slots: [u32; MAX_AXES],
    pub rows: u32,
    pub columns: u32,
    pub element: u32,
    pub pull: bool,
    /// Pieces of a panel; 1 for slots that are sent as a whole.
    pub pieces: u32,
}

/// The ranks that a kernel with `CHANNELS` channels runs on.
pub struct Ranks<const CHANNELS: usize> {
    pub fabric: Arc<Fabric>,
    pub world: u32,
    pub ctas: u32,
    pub deadline: Duration,
    /// The rank, channel and slot whose signal gets lost.
    pub lost: Option<(u32, u32, u32)>,
    regions: Vec<Vec<Line>>,
    table: Vec<u64>,
    faults: Vec<FaultRecord>,
    logs: Vec<Vec<Entry>>,
}

impl<const CHANNELS: usize> Ranks<CHANNELS> {
    pub fn new(world: u32, ctas: u32) -> Self {
        let bytes = size_of::<Control>() as u64 + CHANNELS as u64 * (4 * SIGNALS + 2 * BUFFER);
        let regions: Vec<_> = (0..world).map(|_| vec![Line([0; 128]); bytes as usize / size_of::<Line>()]).collect();
        Ranks {
            fabric: Fabric::new(world),
            world,
            ctas,
            deadline: Duration::from_secs(60),
            lost: None,
            table: regions.iter().map(|region| region.as_ptr() as u64).collect(),
            regions,
            // SAFETY: a record is made of integers.
            faults: (0..world).map(|_| unsafe { zeroed() }).collect(),
            logs: Vec::new(),
        }
    }

    /// Lets launches keep a log.
    pub fn keep_logs(&mut self) {
        let entries = log::bytes(self.ctas, LOG_CAPACITY) / log::ENTRY;
        self.logs = (0..self.world).map(|_| vec![[0; 4]; entries as usize]).collect();
    }

    /// How many entries each row of a rank's log would have, had there been room for all.
    pub fn noted(&self, rank: u32) -> Vec<u32> {
        self.logs[rank as usize].chunks(LOG_CAPACITY as usize + 1).map(|row| row[0][0]).collect()
    }

    /// What the CTAs of a rank noted in a launch, all of which has been joined.
    pub fn log(&self, rank: u32) -> Vec<Vec<Entry>> {
        let rows = self.logs[rank as usize].chunks(LOG_CAPACITY as usize + 1);
        rows.map(|row| row[1..].iter().take(row[0][0] as usize).copied().collect()).collect()
    }

    /// As if `epoch` launches had gone before.
    pub fn set_epoch(&mut self, epoch: u32) {
        for region in &mut self.regions {
            let (control, rest) = region.split_at_mut(size_of::<Control>() / size_of::<Line>());
            // SAFETY: a region starts with a control block.
            let control = unsafe { &mut *control.as_mut_ptr().cast::<Control>() };
            control.epoch = epoch;
            control.started = [epoch; MAX_WORLD];
            control.finished = [epoch; MAX_WORLD];
            for line in &mut rest[..CHANNELS * SIGNALS as usize * 4 / size_of::<Line>()] {
                line.0.as_chunks_mut().0.iter_mut().for_each(|word| *word = epoch.to_ne_bytes());
            }
        }
    }

    pub fn epochs(&self) -> Vec<u32> {
        // SAFETY: a region starts with a control block.
        self.regions.iter().map(|region| unsafe { (*region.as_ptr().cast::<Control>()).epoch }).collect()
    }

    /// Launches a kernel with each rank's parameters, which `params` makes of a head and the channels.
    ///
    /// # Safety
    /// As for `Fabric::launch`.
    pub unsafe fn launch<P>(
        &self,
        simulate: Simulate,
        dims: &[usize],
        channels: [Slots; CHANNELS],
        params: impl Fn(Head, [ChannelArg; CHANNELS]) -> P,
    ) -> Launch {
        let channels = self.channels(channels);
        let params = (0..self.world).map(|rank| words(&params(self.head(rank, dims), channels))).collect();
        unsafe { self.fabric.launch(simulate, params) }
    }

    /// The fault records of the launches so far, all joined; the ranks are usable again.
    pub fn take_faults(&mut self) -> Vec<FaultRecord> {
        for region in &mut self.regions {
            // SAFETY: a region starts with a control block, and nothing is running.
            let control = unsafe { &mut *region.as_mut_ptr().cast::<Control>() };
            (control.abort, control.faulted) = (0, 0);
        }
        // SAFETY: a record is made of integers.
        let records = self.faults.iter_mut().map(|fault| std::mem::replace(fault, unsafe { zeroed() }));
        records.filter(|record| record.kind != 0).collect()
    }

    fn head(&self, rank: u32, dims: &[usize]) -> Head {
        let mut padded = [0; MAX_DIMS];
        padded.iter_mut().zip(dims).for_each(|(to, &dim)| *to = dim as u32);
        let lost = self.lost.filter(|&(sender, ..)| sender == rank);
        let (drop_channel, drop_slot) = lost.map_or((NONE, NONE), |(_, channel, slot)| (channel, slot));
        Head {
            rank,
            world: self.world,
            ctas: self.ctas,
            link_limit: 0,
            deadline_ns: self.deadline.as_nanos() as u64,
            region: self.table[rank as usize],
            regions: self.table.as_ptr() as u64,
            fault: &raw const self.faults[rank as usize] as u64,
            fabric: 0,
            log: self.logs.get(rank as usize).map_or(0, |log| log.as_ptr() as u64),
            log_capacity: LOG_CAPACITY,
            span: 0,
            in_turn: 0,
            drop_channel,
            drop_slot,
            late: 0,
            late_ns: 0,
            dims: padded,
        }
    }

    fn channels(&self, channels: [Slots; CHANNELS]) -> [ChannelArg; CHANNELS] {
        let (mut signals, first_buffer) =
            (size_of::<Control>() as u64, size_of::<Control>() as u64 + CHANNELS as u64 * 4 * SIGNALS);
        let mut data = first_buffer;
        channels.map(|channel| {
            let slot_bytes = (channel.rows * channel.columns * channel.element).next_multiple_of(128) as u64;
            let slots = channel.slots.iter().map(|&extent| extent as u64).product::<u64>();
            assert!(
                slots * channel.pieces as u64 <= SIGNALS && slots * slot_bytes <= BUFFER,
                "the channel is larger than its region"
            );
            let (slots, columns, pull) = (channel.slots, channel.columns, channel.pull as u32);
            let pieces = channel.pieces;
            let piece_boxes = (columns * channel.element).div_ceil(ROW).div_ceil(pieces);
            let arg = ChannelArg {
                slots,
                data,
                parity_stride: BUFFER,
                slot_bytes,
                signals,
                columns,
                pull,
                pieces,
                piece_boxes,
                rows: channel.rows,
                by_rank: 0,
                counters: 0,
            };
            signals += 4 * SIGNALS;
            data += 2 * BUFFER;
            arg
        })
    }
}

fn words<P>(params: &P) -> Box<[u64]> {
    // SAFETY: parameters are made of words, without padding.
    unsafe { std::slice::from_raw_parts((&raw const *params).cast(), size_of::<P>() / 8) }.into()
}
