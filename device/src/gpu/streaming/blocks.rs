//! Copies of blocks, by all threads of a CTA.

use crate::ptx::*;
use crate::together::BlockPlace;
use crate::word::Word;

/// Bytes that a thread copies at a time.
const PIECE: u64 = 16;
/// Pieces that it has under way at once.
const BATCH: usize = 8;

/// Copies a block to another, a thread of `threads` its share.
///
/// # Safety
/// Both must be there, with the same rows and bytes.
#[inline(always)]
pub(super) unsafe fn copy<W: Word>(threads: u32, from: &BlockPlace, to: &BlockPlace) {
    let contiguous = from.pitch == from.bytes && to.pitch == to.bytes;
    let (from, to) = if contiguous { (from.flat(), to.flat()) } else { (*from, *to) };
    let aligned = (from.data | to.data | from.pitch | to.pitch | from.bytes) % PIECE == 0;
    let thread = thread_idx_x_anew() as u64;
    for row in 0..from.rows as u64 {
        let (from_row, to_row) = (from.data + row * from.pitch, to.data + row * to.pitch);
        if aligned {
            unsafe { copy_pieces(threads as u64, thread, from_row, to_row, from.bytes) };
        } else {
            let mut byte = thread * W::SIZE as u64;
            while byte < from.bytes {
                unsafe { copy_word::<W>(from_row + byte, to_row + byte) };
                byte += threads as u64 * W::SIZE as u64;
            }
        }
    }
}

#[inline(always)]
unsafe fn copy_pieces(threads: u64, thread: u64, from: u64, to: u64, bytes: u64) {
    let stride = threads * PIECE;
    let mut byte = thread * PIECE;
    while byte + (BATCH as u64 - 1) * stride < bytes {
        let mut pieces = [[0; 4]; BATCH];
        for (index, piece) in pieces.iter_mut().enumerate() {
            *piece = unsafe { load_global_16(from + byte + index as u64 * stride) };
        }
        for (index, piece) in pieces.into_iter().enumerate() {
            unsafe { store_global_16(to + byte + index as u64 * stride, piece) };
        }
        byte += BATCH as u64 * stride;
    }
    while byte < bytes {
        unsafe { store_global_16(to + byte, load_global_16(from + byte)) };
        byte += stride;
    }
}

#[inline(always)]
unsafe fn copy_word<W: Word>(from: u64, to: u64) {
    unsafe {
        match const { W::SIZE } {
            2 => store_global_half(to, load_global_half(from)),
            4 => store_global(to, load_global(from)),
            _ => store_global_8(to, load_global_8(from)),
        }
    }
}
