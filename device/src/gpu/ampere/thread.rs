//! Who holds what of a tile.

use crate::ptx::thread_idx_x_anew;

/// A thread of a CTA.
///
/// A warp holds a quarter of the columns of 64 rows. Of each 16 × 8 of them (the *blocks*, row by row) a thread holds, in
/// rows `r` and `r + 8` (`r = lane / 4`), the columns `2·(lane % 4)` and the next: its pairs of one block follow each other.
#[derive(Clone, Copy)]
pub(in crate::gpu) struct Thread {
    pub index: u32,
    pub lane: u32,
    /// The warp's 64 rows.
    pub row: u32,
    /// The warp's quarter of the columns.
    pub column: u32,
}

/// Blocks in a warp's 64 rows.
pub(super) const BLOCK_ROWS: usize = 4;
/// Rows that a thread holds pairs of.
pub(super) const ROWS_HELD: usize = 2 * BLOCK_ROWS;

impl Thread {
    /// This thread.
    #[inline(always)]
    pub fn this() -> Self {
        let index = thread_idx_x_anew();
        let warp = index / 32;
        Thread { index, lane: index % 32, row: warp / 4, column: warp % 4 }
    }

    /// The row of a tile that this thread holds as its `held`-th.
    #[inline(always)]
    pub fn row_of(&self, held: usize) -> u32 {
        self.row * 64 + held as u32 * 8 + self.lane / 4
    }

    /// The first of so many columns that this thread holds.
    #[inline(always)]
    pub fn first_column(&self, columns: usize) -> u32 {
        self.column * (columns / 4) as u32 + self.lane % 4 * 2
    }
}

/// Blocks in a warp's quarter of so many columns.
#[inline(always)]
pub(super) const fn block_columns(columns: usize) -> usize {
    columns / 32
}
