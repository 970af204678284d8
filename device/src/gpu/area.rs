//! Where the rows of a tile or a panel lie, in pieces of 16 bytes: in a matrix, or in the boxes of a slot.

use crate::element::Element;
use crate::layout::ROW;
use crate::place::MatrixPlace;
use crate::ptx::*;

/// Bytes of a piece.
pub(super) const PIECE: u32 = 16;
/// Pieces of a row of a box.
pub(super) const PIECES: u32 = ROW / PIECE;

/// Rows in memory. Those of a matrix are boxes, too: boxes whose rows lie far apart, and which follow each other closely.
#[derive(Clone, Copy)]
pub(super) struct Area {
    /// Address of the first row.
    pub start: u64,
    /// Bytes from a row of a box to the next.
    pub row_stride: u32,
    /// Bytes from a box to the next.
    pub box_stride: u32,
    /// The bits of a row's index that its pieces are swizzled by.
    pub swizzle: u32,
    /// Rows that there are.
    pub rows: u32,
    /// Bytes that there are of each row.
    pub bytes: u32,
}

impl Area {
    /// The rows and columns of a matrix from a place on.
    #[inline(always)]
    pub fn matrix<E: Element>(place: &MatrixPlace) -> Self {
        let matrix = &place.matrix;
        let row = place.part as u64 * matrix.part_rows as u64 + place.row as u64;
        Area {
            start: matrix.data + row * matrix.pitch + (place.column * E::SIZE) as u64,
            row_stride: matrix.pitch as u32,
            box_stride: ROW,
            swizzle: 0,
            rows: place.part_rows().saturating_sub(place.row),
            bytes: matrix.columns.saturating_sub(place.column) * E::SIZE,
        }
    }

    /// The boxes of a slot, `rows` tall. All of them are sent: held against how many there are, loops over them did not unroll.
    #[inline(always)]
    pub fn slot(start: u64, rows: usize) -> Self {
        let rows = rows as u32;
        Area { start, row_stride: ROW, box_stride: rows * ROW, swizzle: PIECES - 1, rows, bytes: u32::MAX }
    }

    /// The address of a row of the first box.
    #[inline(always)]
    pub fn row(&self, row: u32) -> u64 {
        self.start + row as u64 * self.row_stride as u64
    }

    /// From the start of a row to the piece that holds the byte at `byte`, a multiple of 16.
    #[inline(always)]
    pub fn offset(&self, row: u32, byte: u32) -> u64 {
        let within = (byte % ROW) ^ ((row & self.swizzle) * PIECE);
        (byte / ROW) as u64 * self.box_stride as u64 + within as u64
    }

    /// How many of the 16 bytes at `byte` there are in a row.
    #[inline(always)]
    pub fn valid(&self, row: u32, byte: u32) -> u32 {
        if row < self.rows { self.bytes.saturating_sub(byte).min(PIECE) } else { 0 }
    }

    /// The 16 bytes at `byte` of a row; zeros for what there is not.
    ///
    /// # Safety
    /// What there is must be readable.
    #[inline(always)]
    pub unsafe fn load(&self, row: u32, byte: u32) -> [u32; 4] {
        let valid = self.valid(row, byte);
        if valid == 0 {
            return [0; 4];
        }
        // A row's last 16 bytes can be read whole: rows start at multiples of 16.
        let mut words = unsafe { load_global_16(self.row(row) + self.offset(row, byte)) };
        if valid < PIECE {
            for (index, word) in words.iter_mut().enumerate() {
                let bits = valid.saturating_sub(4 * index as u32).min(4) * 8;
                *word &= ((1u64 << bits) - 1) as u32;
            }
        }
        words
    }

    /// Stores the 16 bytes at `byte` of a row, as far as there is room for them.
    ///
    /// # Safety
    /// What there is must be writable.
    #[inline(always)]
    pub unsafe fn store(&self, row: u32, byte: u32, words: [u32; 4]) {
        let valid = self.valid(row, byte);
        let to = self.row(row) + self.offset(row, byte);
        if valid == PIECE {
            unsafe { store_global_16(to, words) };
        } else {
            for half in 0..PIECE / 2 {
                if 2 * half < valid {
                    unsafe { store_global_half(to + 2 * half as u64, words[half as usize / 2] >> (half % 2 * 16)) };
                }
            }
        }
    }
}
