//! Small tiles on their way straight between the registers of the math warpgroups and memory. With a tile or two on each CTA nothing
//! is computed meanwhile, and the way through the staging buffer only takes longer.

use super::area::{Area, PIECE};
use super::quad::{QUAD, transpose};
use crate::element::Element;
use crate::layout::{ROW, boxes};
use crate::place::SlotPlace;
use crate::ptx::*;
use crate::shape::TileShape;

/// Whether a tile is one of them: a box of 64 rows, of 16-bit elements.
pub(super) const fn goes_straight<E: Element, S: TileShape>() -> bool {
    S::ROWS == 64 && E::SIZE == 2 && boxes(S::COLUMNS, E::SIZE) == 1
}

/// Fours of pieces that a quad holds of such a tile, at most: of each of its two rows, those of a box's row.
const FOURS: usize = 2 * (ROW / PIECE / QUAD) as usize;

/// Whether the same is true of what a slot holds: not where the link is limited, of which a share would be held for as long as the math
/// warpgroups compute.
#[inline(always)]
pub(super) fn passes_straight(slot: &SlotPlace, link_limit: u32) -> bool {
    slot.into.is_none() && link_limit == 0
}

/// Whether it is true of what a slot brings: not of what lies on another rank, nor right behind a product, while which the communication
/// thread fetches it.
#[inline(always)]
pub(super) fn comes_straight(slot: &SlotPlace, link_limit: u32, multiplies: bool) -> bool {
    passes_straight(slot, link_limit) && slot.arg.pull == 0 && !multiplies
}

/// Adds what a lane of a math warpgroup holds of a tile at `from` to its part of a sum.
///
/// # Safety
/// As [`store`], but that what there is must be readable.
#[inline(always)]
pub(super) unsafe fn add<E: Element, S: TileShape>(sum: &mut S::Values, from: &Area, first_row: u32, lane: u32) {
    // All are on their way before the first is needed.
    let mut loaded = [[0; 4]; FOURS];
    let mut four = 0;
    for_pieces::<S>(first_row, lane, |row, byte, _| {
        if let Some(byte) = byte {
            loaded[four] = unsafe { from.load(row, byte) };
        }
        four += 1;
    });
    four = 0;
    for_pieces::<S>(first_row, lane, |_, _, first| {
        let mut words = loaded[four];
        four += 1;
        unsafe { transpose(&mut words, lane % QUAD) };
        for (index, word) in words.into_iter().enumerate() {
            if let Some(pair) = pair_of::<S>(first, index) {
                let (low, high) = E::unpack_pair(word);
                let values = sum.values_mut();
                values[2 * pair] += low;
                values[2 * pair + 1] += high;
            }
        }
    });
}

/// Stores what a lane of a math warpgroup holds of a tile. `first_row` is the first of its warp's rows.
///
/// # Safety
/// All lanes of a warp must come here together, and what there is of the area must be writable.
#[inline(always)]
pub(super) unsafe fn store<E: Element, S: TileShape>(tile: &E::Held<S>, to: &Area, first_row: u32, lane: u32) {
    let whole = to.rows >= S::ROWS as u32 && to.bytes >= S::COLUMNS as u32 * E::SIZE;
    for_pieces::<S>(first_row, lane, |row, byte, first| {
        let word = |index| pair_of::<S>(first, index).map_or(0, |pair| E::word::<S>(tile, pair));
        let mut words = [word(0), word(1), word(2), word(3)];
        unsafe { transpose(&mut words, lane % QUAD) };
        match byte {
            Some(byte) if whole => unsafe { store_global_16(to.row(row) + to.offset(row, byte), words) },
            Some(byte) => unsafe { to.store(row, byte, words) },
            None => {}
        }
    });
}

/// Calls `each` for the pieces of 16 bytes that a quad of lanes holds of a tile of 16-bit elements, in fragments, four at a time: with
/// the row, with the first byte of this lane's piece, if there are so many, and with the pair that this lane holds of the first.
#[inline(always)]
fn for_pieces<S: TileShape>(first_row: u32, lane: u32, mut each: impl FnMut(u32, Option<u32>, usize)) {
    let (row, turn) = (first_row + lane / QUAD, lane % QUAD);
    for half in 0..2 {
        for first in (0..pieces::<S>()).step_by(QUAD as usize) {
            let piece = first as u32 + turn;
            let byte = (piece < pieces::<S>() as u32).then_some(piece * PIECE);
            each(row + 8 * half as u32, byte, 2 * first + half);
        }
    }
}

/// The pair that a lane holds of the piece that is `index` behind that of its pair `first`, if there are so many.
#[inline(always)]
fn pair_of<S: TileShape>(first: usize, index: usize) -> Option<usize> {
    let pair = first + 2 * index;
    (pair / 2 < pieces::<S>()).then_some(pair)
}

/// Pieces of a row.
const fn pieces<S: TileShape>() -> usize {
    S::COLUMNS * 2 / PIECE as usize
}
