//! The four lanes that hold a row of a fragment together.

use crate::ptx::*;

/// Lanes of a quad.
pub(super) const QUAD: u32 = 4;

/// Of four words of each lane, each lane gets those at its turn in the quad, in the order of the lanes.
///
/// # Safety
/// All lanes of a warp must come here together.
#[inline(always)]
pub(super) unsafe fn transpose(words: &mut [u32; 4], turn: u32) {
    unsafe {
        exchange(words, turn, 1);
        exchange(words, turn, 2);
    }
}

/// A step of a transposition: lanes whose turns differ by `distance` exchange the halves that are not on the diagonal.
#[inline(always)]
unsafe fn exchange(words: &mut [u32; 4], turn: u32, distance: usize) {
    let upper = turn & distance as u32 != 0;
    for low in 0..4 {
        if low & distance != 0 {
            continue;
        }
        let high = low + distance;
        let (one, other) = (f32::from_bits(words[low]), f32::from_bits(words[high]));
        let got = unsafe { shuffle_xor(select(upper, one, other), distance as u32) };
        words[low] = select(upper, got, one).to_bits();
        words[high] = select(upper, other, got).to_bits();
    }
}
