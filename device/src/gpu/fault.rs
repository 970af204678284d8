//! How a launch is given up: what went wrong is recorded for the host, every rank is told, and the thread ends.
//!
//! A thread of its own (the loader, the communication thread) ends on the spot, so that nothing after a
//! wait needs to ask whether it succeeded. The math warpgroups, whose instructions need all threads of a
//! warp, run to their end with waits that no longer wait.

use core::mem::offset_of;
use core::panic::PanicInfo;

use super::cta::{GIVEN_UP, HEAD, LOADER_ENDED, LOADING_THREAD, SINCE, SITE, SITES};
use crate::abi::{Control, FaultKind, FaultRecord, Head, MAX_AXES, NONE};
use crate::place::SlotPlace;
use crate::ptx::*;
use crate::routing::{Misfit, RoutingPlace};
use crate::together::WordPlace;
use crate::word::Comparison;

/// Roles that note what they are at, in the order of their sites in the header.
pub(super) const LOADER: u32 = 0;
pub(super) const COMMUNICATION: u32 = 1;
pub(super) const MOVER: u32 = 2;
pub(super) const POLLER: u32 = 3;
/// The only role there, where there is no other.
pub(super) const COLLECTIVE: u32 = 0;

/// What a copy under way may take to land. A CTA must not end before.
const LANDING_NS: u64 = 100_000;

/// Leaves in shared memory what is needed to report a fault: a panic gets no context, and others would
/// carry it along in registers.
#[inline(always)]
pub(super) unsafe fn prepare(shared: u32, head: &Head, region: u64) {
    let words = [
        region as u32,
        (region >> 32) as u32,
        head.regions as u32,
        (head.regions >> 32) as u32,
        head.fault as u32,
        (head.fault >> 32) as u32,
        head.rank,
        head.world,
    ];
    for (index, word) in words.into_iter().enumerate() {
        unsafe { store_shared(shared + HEAD + 4 * index as u32, word) };
    }
    unsafe {
        store_shared(shared + GIVEN_UP, 0);
        store_shared(shared + LOADER_ENDED, 0);
    }
    for role in [LOADER, COMMUNICATION, MOVER, POLLER] {
        unsafe {
            note(shared, role, NONE, [NONE; MAX_AXES]);
            store_shared_u64(shared + SINCE + 8 * role, 0);
        }
    }
}

/// Notes what a role is at.
#[inline(always)]
pub(super) unsafe fn note(shared: u32, role: u32, stage: u32, tile: [u32; MAX_AXES]) {
    let site = shared + SITES + role * SITE;
    unsafe {
        store_shared(site, stage);
        for axis in 0..MAX_AXES {
            store_shared(site + 4 + 4 * axis as u32, tile[axis]);
        }
    }
}

/// Gives the launch up over a piece of a slot, or, with [`NONE`], over a slot.
#[inline(always)]
pub(super) fn fault(kind: FaultKind, slot: &SlotPlace, piece: u32, peer: u32, expected: u32, seen: u32) -> ! {
    let axis = |axis: u32| if axis < slot.axes { slot.index[axis as usize] } else { NONE };
    // A tenth argument would be passed in local memory.
    unsafe { store_shared(piece_of_thread(), slot.named_piece(piece)) };
    report_slot(kind as u32, slot.channel, axis(0), axis(1), axis(2), axis(3), peer, expected, seen);
    exit()
}

/// Gives the launch up over a word of a symmetric matrix on a rank: what was expected of it, and what was seen.
#[inline(always)]
pub(super) fn word_fault(
    kind: FaultKind,
    argument: u32,
    [row, column]: [u32; 2],
    rank: u32,
    [expected, seen]: [u64; 2],
) -> ! {
    report_word(kind as u32, argument, row, column, rank, 0, expected, seen);
    exit()
}

/// Gives the launch up while it waits for a word.
#[inline(always)]
pub(super) fn missed_word(place: &WordPlace, comparison: Comparison, [expected, seen]: [u64; 2]) -> ! {
    let kind = FaultKind::NotHeld as u32;
    report_word(kind, place.argument, place.row, place.column, place.rank, comparison as u32, expected, seen);
    exit()
}

/// Gives the launch up over an index of a bag: its list and position, itself, and the rows that there are.
#[inline(always)]
pub(super) fn bad_index([list, position]: [u32; 2], index: u32, rows: u32) -> ! {
    report_word(FaultKind::BadIndex as u32, NONE, list, position, NONE, 0, rows as u64, index as u64);
    exit()
}

/// Gives the launch up over where a bag begins or ends: the list and the number of the offset, itself, and the indices that
/// there are.
#[inline(always)]
pub(super) fn bad_offset([list, number]: [u32; 2], offset: u32, indices: u32) -> ! {
    report_word(FaultKind::BadOffset as u32, NONE, list, number, NONE, 0, indices as u64, offset as u64);
    exit()
}

#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn report_word(kind: u32, argument: u32, row: u32, column: u32, rank: u32, comparison: u32, expected: u64, seen: u64) {
    report(|record| unsafe {
        (*record).kind = kind;
        (*record).channel = NONE;
        (*record).argument = argument;
        (*record).word = [row, column];
        (*record).comparison = comparison;
        (*record).peer = rank;
        ((*record).expected, (*record).seen) = (expected as u32, seen as u32);
        (*record).high = [(expected >> 32) as u32, (seen >> 32) as u32];
    })
}

/// Gives the launch up over what is not as large as a routing says.
#[inline(always)]
pub(super) fn misfit(routing: &RoutingPlace, misfit: &Misfit) -> ! {
    let Misfit { operand, need, needed, found, .. } = *misfit;
    report_misfit(routing.channel, operand as u32, need as u32, needed, found);
    exit()
}

/// Gives the launch up over another rank that there is not.
#[inline(always)]
pub(super) fn no_rank(rank: u32) -> ! {
    report_misfit(NONE, NONE, NONE, NONE, rank);
    exit()
}

/// With few arguments, for the sake of roles whose registers are all in use. Without an operand: over a rank that there is not.
#[cold]
#[inline(never)]
fn report_misfit(channel: u32, operand: u32, need: u32, needed: u32, found: u32) {
    let (kind, peer) = if operand == NONE { (FaultKind::OutOfRange, found) } else { (FaultKind::Misfit, NONE) };
    report(|record| unsafe {
        (*record).kind = kind as u32;
        (*record).channel = channel;
        (*record).argument = NONE;
        (*record).word = [NONE; 2];
        (*record).slot = [operand, need, NONE, NONE];
        (*record).piece = NONE;
        (*record).peer = peer;
        (*record).expected = needed;
        (*record).seen = found;
    })
}

/// Gives the launch up over another rank.
#[inline(always)]
pub(super) fn fault_of(kind: FaultKind, peer: u32, expected: u32, seen: u32) -> ! {
    unsafe { store_shared(piece_of_thread(), NONE) };
    report_slot(kind as u32, NONE, NONE, NONE, NONE, NONE, peer, expected, seen);
    exit()
}

/// Where a thread of its own leaves the piece that its fault is about: behind its site.
#[inline(always)]
fn piece_of_thread() -> u32 {
    shared_base() + SITES + thread_idx_x() / 32 * SITE + 4 + 4 * MAX_AXES as u32
}

/// Out of line and in words, since it is called where registers are few. Its callers exit, since PTX can't say that a
/// function doesn't return: the assembler would keep registers for what happens to stand behind the call.
#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn report_slot(kind: u32, channel: u32, s0: u32, s1: u32, s2: u32, s3: u32, peer: u32, expected: u32, seen: u32) {
    report(|record| unsafe {
        (*record).kind = kind;
        (*record).channel = channel;
        (*record).argument = NONE;
        (*record).word = [NONE; 2];
        (*record).slot = [s0, s1, s2, s3];
        (*record).piece = load_shared(piece_of_thread());
        (*record).peer = peer;
        (*record).expected = expected;
        (*record).seen = seen;
    })
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    report(|record| unsafe {
        (*record).kind = FaultKind::Panic as u32;
        let Some(location) = info.location() else { return };
        (*record).line = location.line();
        let file = location.file().as_bytes();
        let start = file.len().saturating_sub((*record).file.len());
        (*record).file_length = (file.len() - start) as u32;
        let text = &raw mut (*record).file as *mut u8;
        for index in start..file.len() {
            *text.add(index - start) = *file.as_ptr().add(index);
        }
    });
    exit()
}

/// Records a fault, unless this rank has one, and gives the launch up on every rank. The thread must exit then.
#[inline(always)]
fn report(write: impl FnOnce(*mut FaultRecord)) {
    let shared = shared_base();
    let word = |index: u32| unsafe { load_shared(shared + HEAD + 4 * index) };
    let address = |index: u32| word(index) as u64 | (word(index + 1) as u64) << 32;
    let (region, regions, record) = (address(0), address(2), address(4) as *mut FaultRecord);
    let site_of = |role: u32, word: u32| unsafe { load_shared(shared + SITES + role * SITE + 4 * word) };
    // The math warpgroups note nothing: they are close to the communication thread or, before that has begun, to the
    // loader.
    let role = match thread_idx_x() {
        _ if cfg!(entwine_sm_80) => COLLECTIVE,
        0..32 => LOADER,
        64..96 if site_of(MOVER, 0) != NONE => MOVER,
        96..128 if site_of(POLLER, 0) != NONE => POLLER,
        _ if site_of(COMMUNICATION, 0) == NONE => LOADER,
        _ => COMMUNICATION,
    };
    let site = |word: u32| site_of(role, word);
    unsafe {
        if exchange_relaxed_sys(region + offset_of!(Control, faulted) as u64, 1) == 0 {
            (*record).rank = word(6);
            (*record).stage = site(0);
            (*record).tile = [site(1), site(2), site(3), site(4)];
            write(record);
        }
        fence_acq_rel_sys();
        for rank in 0..word(7) {
            let peer = load_constant_u64(regions + 8 * rank as u64);
            store_relaxed_sys(peer + offset_of!(Control, abort) as u64, 1);
        }
    }
    let_copies_land();
}

/// Ends a thread of a launch that is given up.
#[inline(always)]
pub(super) fn end_thread() -> ! {
    let_copies_land();
    exit()
}

#[cold]
#[inline(never)]
fn let_copies_land() {
    unsafe {
        store_shared(shared_base() + GIVEN_UP, 1);
        if thread_idx_x() == LOADING_THREAD {
            store_release_shared(shared_base() + LOADER_ENDED, 1);
        }
    }
    let now = globaltimer();
    while globaltimer().wrapping_sub(now) < LANDING_NS {}
}
