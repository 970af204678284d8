//! Small tiles on their way from the registers of the math warpgroups straight to memory. With a tile or two on each CTA nothing is
//! computed meanwhile, and the way through the staging buffer only takes longer.

use super::area::{Area, PIECE};
use super::quad::{QUAD, transpose};
use crate::element::Element;
use crate::layout::boxes;
use crate::ptx::*;
use crate::shape::TileShape;

/// Whether a tile is one of them: a box of 64 rows, of 16-bit elements.
pub(super) const fn goes_straight<E: Element, S: TileShape>() -> bool {
    S::ROWS == 64 && E::SIZE == 2 && boxes(S::COLUMNS, E::SIZE) == 1
}

/// Stores what a lane of a math warpgroup holds of a tile. `first_row` is the first of its warp's rows.
///
/// # Safety
/// All lanes of a warp must come here together, and what there is of the area must be writable.
#[inline(always)]
pub(super) unsafe fn store<E: Element, S: TileShape>(tile: &E::Held<S>, to: &Area, first_row: u32, lane: u32) {
    let whole = to.rows >= S::ROWS as u32 && to.bytes >= S::COLUMNS as u32 * E::SIZE;
    if whole {
        each_piece::<E, S>(tile, first_row, lane, |row, byte, words| unsafe {
            store_global_16(to.row(row) + to.offset(row, byte), words);
        });
    } else {
        each_piece::<E, S>(tile, first_row, lane, |row, byte, words| unsafe { to.store(row, byte, words) });
    }
}

/// Calls `each` with the row, the first byte of the row, and the 16 bytes there, of those that this lane stores of a tile of 16-bit
/// elements: in fragments, each lane of a quad has four bytes of them.
#[inline(always)]
fn each_piece<E: Element, S: TileShape>(
    tile: &E::Held<S>,
    first_row: u32,
    lane: u32,
    each: impl Fn(u32, u32, [u32; 4]),
) {
    const COLUMNS: usize = PIECE as usize / 2;
    let (row, turn) = (first_row + lane / QUAD, lane % QUAD);
    let blocks = S::COLUMNS / COLUMNS;
    for half in 0..2 {
        for first in (0..blocks).step_by(QUAD as usize) {
            let mut words = [0; 4];
            for (block, word) in words.iter_mut().enumerate() {
                if first + block < blocks {
                    *word = E::word::<S>(tile, 2 * (first + block) + half);
                }
            }
            unsafe { transpose(&mut words, turn) };
            if first as u32 + turn < blocks as u32 {
                each(row + 8 * half as u32, (first as u32 + turn) * PIECE, words);
            }
        }
    }
}
