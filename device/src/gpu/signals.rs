//! The protocol between ranks, as one thread carries it out: where slots lie, when they may be written and
//! read, how arrival is signalled, and what happens when it isn't.

use core::cell::Cell;
use core::mem::offset_of;

use super::cta::{Config, Cta};
use crate::abi::{Control, FaultKind, FaultRecord, MAX_AXES, NONE};
use crate::place::SlotPlace;
use crate::ptx::*;

/// Polls between two looks at the clock and at the abort word.
const POLLS: u32 = 32;

/// The tile that a role is at.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub stage: u32,
    pub tile: [u32; MAX_AXES],
}

/// One thread's end of the protocol.
pub(super) struct Signals<'c, 'p, C: Config> {
    cta: &'c Cta<'p, C>,
    epoch: u32,
    site: Cell<Site>,
    /// When this thread first saw that every rank had started; 0 before.
    since: Cell<u64>,
    /// The ranks (a bit each) whose slots are known to be free for this epoch.
    acknowledged: Cell<u32>,
}

impl<'c, 'p, C: Config> Signals<'c, 'p, C> {
    #[inline(always)]
    pub fn new(cta: &'c Cta<'p, C>) -> Self {
        Signals {
            cta,
            epoch: cta.epoch(),
            site: Cell::new(Site { stage: NONE, tile: [NONE; MAX_AXES] }),
            since: Cell::new(0),
            acknowledged: Cell::new(0),
        }
    }

    /// Tells every rank that this one has started.
    #[inline(always)]
    pub fn announce(&self) {
        unsafe { self.cta.tell_all(offset_of!(Control, started), self.epoch) };
    }

    #[inline(always)]
    pub fn at(&self, site: Site) {
        self.site.set(site);
    }

    /// Waits for a slot's signal. The address of what lies in it, or `None` if the launch is given up.
    #[inline(always)]
    pub fn receive(&self, slot: &SlotPlace) -> Option<u64> {
        let linear = self.linear(slot)?;
        let (home, position) = match slot.arg.pull {
            0 => (self.cta.head.rank, linear),
            _ => (slot.index[0], self.checked(slot, slot.outbox(self.cta.head.rank))?),
        };
        let signal = self.signal_address(slot, self.cta.head.rank, linear);
        if !self.poll(signal, self.epoch, |seen| {
            self.fault(FaultKind::MissingSignal, slot, self.sender(slot), self.epoch, seen)
        }) {
            return None;
        }
        fence_proxy_async();
        Some(self.data_address(slot, home, position))
    }

    /// Whether a slot's signal has arrived.
    #[inline(always)]
    pub fn arrived(&self, slot: &SlotPlace) -> bool {
        let Some(linear) = self.linear(slot) else { return true };
        let seen = unsafe { load_acquire_sys(self.signal_address(slot, self.cta.head.rank, linear)) };
        seen.wrapping_sub(self.epoch) as i32 >= 0
    }

    /// Waits until a slot may be written for `to`. The address to write to, or `None` if the launch is given up.
    #[inline(always)]
    pub fn reserve(&self, slot: &SlotPlace, to: u32) -> Option<u64> {
        let linear = self.linear(slot)?;
        if to >= self.cta.head.world || (slot.arg.pull != 0 && slot.index[0] != self.cta.head.rank) {
            self.fault(FaultKind::SlotOutOfRange, slot, to, 0, 0);
            return None;
        }
        if self.acknowledged.get() & (1 << to) == 0 {
            let finished = self.cta.region + (offset_of!(Control, finished) + 4 * to as usize) as u64;
            let wanted = self.epoch.wrapping_sub(2);
            if !self.poll(finished, wanted, |seen| self.fault(FaultKind::NotAcknowledged, slot, to, wanted, seen)) {
                return None;
            }
            self.acknowledged.set(self.acknowledged.get() | 1 << to);
        }
        Some(match slot.arg.pull {
            0 => self.data_address(slot, to, linear),
            _ => self.data_address(slot, self.cta.head.rank, self.checked(slot, slot.outbox(to))?),
        })
    }

    /// Signals `to` that a slot is filled. What filled it must be complete and released.
    #[inline(always)]
    pub fn signal(&self, slot: &SlotPlace, to: u32) {
        let Some(linear) = self.linear(slot) else { return };
        let head = self.cta.head;
        if head.drop_channel == slot.channel && head.drop_slot == linear {
            return;
        }
        unsafe { store_relaxed_sys(self.signal_address(slot, to, linear), self.epoch) };
    }

    /// Waits while more than the allowed number of CTAs drive the link; `false` if there is no limit.
    #[inline(always)]
    pub fn take_link(&self) -> bool {
        let width = self.cta.head.link_limit;
        if width == 0 {
            return false;
        }
        let ticket = unsafe { add_relaxed_gpu(self.cta.region + offset_of!(Control, link_taken) as u64, 1) };
        let returned = self.cta.region + offset_of!(Control, link_returned) as u64;
        let mut polls = 0u32;
        // Signed: later tickets may come back before this thread looks again.
        while ticket.wrapping_sub(unsafe { load_relaxed_gpu(returned) }) as i32 >= width as i32 {
            polls = polls.wrapping_add(1);
            if polls % POLLS == 0 && self.cta.look_for_abort() {
                break;
            }
        }
        true
    }

    /// Lets the next CTA drive the link.
    #[inline(always)]
    pub fn return_link(&self) {
        unsafe { add_relaxed_gpu(self.cta.region + offset_of!(Control, link_returned) as u64, 1) };
    }

    /// Waits until one of several things holds; `false` if the launch is given up. `report` is called
    /// when the deadline passes.
    #[inline(always)]
    pub fn poll_any(&self, mut holds: impl FnMut() -> bool, report: impl FnOnce()) -> bool {
        let mut polls = 0u32;
        while !holds() {
            polls = polls.wrapping_add(1);
            if polls % POLLS == 0 {
                if self.cta.look_for_abort() {
                    return false;
                }
                if self.late() {
                    report();
                    return false;
                }
            }
        }
        true
    }

    /// Records that the signal of `slot` is missing.
    #[inline(always)]
    pub fn missing(&self, slot: &SlotPlace) {
        let Some(linear) = self.linear(slot) else { return };
        let seen = unsafe { load_relaxed_sys(self.signal_address(slot, self.cta.head.rank, linear)) };
        self.fault(FaultKind::MissingSignal, slot, self.sender(slot), self.epoch, seen);
    }

    #[inline(always)]
    fn poll(&self, address: u64, wanted: u32, report: impl FnOnce(u32)) -> bool {
        let seen = Cell::new(0);
        self.poll_any(
            || {
                seen.set(unsafe { load_acquire_sys(address) });
                seen.get().wrapping_sub(wanted) as i32 >= 0
            },
            || report(seen.get()),
        )
    }

    /// Whether the deadline has passed. It runs from when this thread, waiting, sees that all ranks have started.
    #[inline(always)]
    fn late(&self) -> bool {
        let now = globaltimer();
        if self.since.get() != 0 {
            return now.wrapping_sub(self.since.get()) > self.cta.head.deadline_ns;
        }
        for rank in 0..self.cta.head.world {
            let address = self.cta.region + (offset_of!(Control, started) + 4 * rank as usize) as u64;
            if (unsafe { load_relaxed_sys(address) }.wrapping_sub(self.epoch) as i32) < 0 {
                return false;
            }
        }
        self.since.set(now);
        false
    }

    /// The rank that sends on a slot, where the channel's first axis tells.
    #[inline(always)]
    fn sender(&self, slot: &SlotPlace) -> u32 {
        if slot.arg.slots[0] == self.cta.head.world { slot.index[0] } else { NONE }
    }

    #[inline(always)]
    fn linear(&self, slot: &SlotPlace) -> Option<u32> {
        self.checked(slot, slot.linear())
    }

    #[inline(always)]
    fn checked(&self, slot: &SlotPlace, position: Option<u32>) -> Option<u32> {
        if position.is_none() {
            self.fault(FaultKind::SlotOutOfRange, slot, slot.to, 0, 0);
        }
        position
    }

    #[inline(always)]
    fn signal_address(&self, slot: &SlotPlace, rank: u32, linear: u32) -> u64 {
        self.cta.region_of(rank) + slot.arg.signals + 4 * linear as u64
    }

    #[inline(always)]
    fn data_address(&self, slot: &SlotPlace, rank: u32, position: u32) -> u64 {
        self.cta.region_of(rank)
            + slot.arg.data
            + (self.epoch & 1) as u64 * slot.arg.parity_stride
            + position as u64 * slot.arg.slot_bytes
    }

    #[inline(always)]
    fn fault(&self, kind: FaultKind, slot: &SlotPlace, peer: u32, expected: u32, seen: u32) {
        let (head, site) = (self.cta.head, self.site.get());
        unsafe {
            record_fault(self.cta.region, head.regions, head.world, head.fault, |record| {
                (*record).kind = kind as u32;
                (*record).rank = head.rank;
                (*record).stage = site.stage;
                (*record).tile = site.tile;
                (*record).channel = slot.channel;
                for axis in 0..MAX_AXES {
                    (*record).slot[axis] = if (axis as u32) < slot.axes { slot.index[axis] } else { NONE };
                }
                (*record).peer = peer;
                (*record).expected = expected;
                (*record).seen = seen;
            });
        }
        self.cta.abort();
    }
}

/// Lets `write` fill the rank's fault record, unless it has one, and gives the launch up on every rank.
#[inline(always)]
pub(super) unsafe fn record_fault(
    region: u64,
    regions: u64,
    world: u32,
    record: u64,
    write: impl FnOnce(*mut FaultRecord),
) {
    unsafe {
        if exchange_relaxed_sys(region + offset_of!(Control, faulted) as u64, 1) == 0 {
            write(record as *mut FaultRecord);
        }
        fence_acq_rel_sys();
        for rank in 0..world {
            let peer = load_constant_u64(regions + 8 * rank as u64);
            store_relaxed_sys(peer + offset_of!(Control, abort) as u64, 1);
        }
    }
}
