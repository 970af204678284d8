//! A panic in device code: recorded as a fault, so that every rank stops and the host can say where.

use core::panic::PanicInfo;

use super::cta::{PANIC_HEAD, PANIC_SITE, PANIC_SITES};
use super::signals::{Site, record_fault};
use crate::abi::{FaultKind, Head, MAX_AXES, NONE};
use crate::ptx::*;

/// Roles, in the order of their sites in the header.
pub(super) const LOADER: u32 = 0;
pub(super) const COMMUNICATION: u32 = 1;
pub(super) const MATH: u32 = 2;

/// Leaves in shared memory what the panic handler, which gets no context, must find.
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
        unsafe { store_shared(shared + PANIC_HEAD + 4 * index as u32, word) };
    }
    for role in 0..3 {
        for word in 0..1 + MAX_AXES as u32 {
            unsafe { store_shared(shared + PANIC_SITES + role * PANIC_SITE + 4 * word, NONE) };
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let shared = shared_base();
    let word = |index: u32| unsafe { load_shared(shared + PANIC_HEAD + 4 * index) };
    let address = |index: u32| word(index) as u64 | (word(index + 1) as u64) << 32;
    let role = match thread_idx_x() {
        0..32 => LOADER,
        32..128 => COMMUNICATION,
        _ => MATH,
    };
    let site = |word: u32| unsafe { load_shared(shared + PANIC_SITES + role * PANIC_SITE + 4 * word) };
    let at = Site { stage: site(0), tile: [site(1), site(2), site(3), site(4)] };
    unsafe {
        record_fault(address(0), address(2), word(7), address(4), |record| {
            (*record).kind = FaultKind::Panic as u32;
            (*record).rank = word(6);
            (*record).stage = at.stage;
            (*record).tile = at.tile;
            if let Some(location) = info.location() {
                (*record).line = location.line();
                let file = location.file().as_bytes();
                let room = (*record).file.len();
                let start = file.len().saturating_sub(room);
                (*record).file_length = (file.len() - start) as u32;
                let text = &raw mut (*record).file as *mut u8;
                for index in start..file.len() {
                    *text.add(index - start) = *file.as_ptr().add(index);
                }
            }
        });
    }
    exit()
}
