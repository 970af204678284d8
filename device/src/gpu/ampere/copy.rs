//! Tiles and panels on their way between memory, the staging buffer and registers, by all threads of a CTA.

use core::ops::Range;

use super::thread::{BLOCK_ROWS, Thread, block_columns};
use crate::element::Element;
use crate::gpu::area::{Area, PIECE, PIECES};
use crate::gpu::cta::Config;
use crate::layout::ROW;
use crate::layout::ampere::threads;
use crate::ptx::*;
use crate::shape::TileShape;

/// The most pieces that a thread loads before it stores them.
const BATCH: usize = 4;

/// A piece of a box: its row, the byte of the row that it starts at, and where it lies in a swizzled box.
#[derive(Clone, Copy)]
struct Piece {
    row: u32,
    byte: u32,
    swizzled: u32,
}

/// How many pieces of a box of `rows` rows fall to each of so many threads.
#[inline(always)]
fn share(rows: usize, threads: u32) -> usize {
    rows * PIECES as usize / threads as usize
}

/// The `index`-th of a thread's pieces of a box.
#[inline(always)]
fn piece(thread: Thread, threads: u32, index: usize) -> Piece {
    let piece = index as u32 * threads + thread.index;
    let (row, column) = (piece / PIECES, piece % PIECES);
    Piece { row, byte: column * PIECE, swizzled: row * ROW + (column ^ (row % PIECES)) * PIECE }
}

/// Copies boxes from one place in memory to another.
///
/// # Safety
/// The areas must be there, and all threads of the CTA take part.
#[inline(always)]
pub(in crate::gpu) unsafe fn pass<C: Config>(thread: Thread, rows: usize, boxes: Range<u32>, from: &Area, to: &Area) {
    let count = share(rows, threads(C::ROWS));
    for index in boxes {
        for first in (0..count).step_by(BATCH) {
            let mut words = [[0; 4]; BATCH];
            for (offset, words) in words.iter_mut().enumerate().take(count - first) {
                let Piece { row, byte, .. } = piece(thread, threads(C::ROWS), first + offset);
                *words = unsafe { from.load(row, index * ROW + byte) };
            }
            for (offset, words) in words.into_iter().enumerate().take(count - first) {
                let Piece { row, byte, .. } = piece(thread, threads(C::ROWS), first + offset);
                unsafe { to.store(row, index * ROW + byte, words) };
            }
        }
    }
}

/// Starts to copy a tile into the staging buffer.
#[inline(always)]
pub(super) unsafe fn fetch<E: Element, S: TileShape>(thread: Thread, staging: u32, from: &Area) {
    for index in 0..boxes::<E, S>() {
        for share in 0..share(S::ROWS, threads(S::ROWS)) {
            let piece = piece(thread, threads(S::ROWS), share);
            let byte = index * ROW + piece.byte;
            let address = from.row(piece.row) + from.offset(piece.row, byte);
            let to = staging + index * box_bytes::<S>() + piece.swizzled;
            unsafe { cp_async(to, address, from.valid(piece.row, byte)) };
        }
    }
    cp_async_commit();
}

/// Copies the tile in the staging buffer to memory.
#[inline(always)]
pub(super) unsafe fn put<E: Element, S: TileShape>(thread: Thread, staging: u32, to: &Area) {
    for index in 0..boxes::<E, S>() {
        for share in 0..share(S::ROWS, threads(S::ROWS)) {
            let piece = piece(thread, threads(S::ROWS), share);
            unsafe {
                let words = load_shared_16(staging + index * box_bytes::<S>() + piece.swizzled);
                to.store(piece.row, index * ROW + piece.byte, words);
            }
        }
    }
}

/// Calls `f` with the index and the value of each pair of the tile in the staging buffer that this thread holds.
#[inline(always)]
pub(super) unsafe fn read<E: Element, S: TileShape>(
    thread: Thread,
    staging: u32,
    mut f: impl FnMut(usize, (f32, f32)),
) {
    if const { E::SIZE == 2 } {
        for row in 0..BLOCK_ROWS {
            for column in (0..block_columns(S::COLUMNS)).step_by(2) {
                let from = staging + matrix::<S>(thread, row as u32, column as u32);
                let words = unsafe { ldmatrix_x4(from) };
                for (index, word) in words.into_iter().enumerate() {
                    f(2 * (row * block_columns(S::COLUMNS) + column) + index, E::unpack_pair(word));
                }
            }
        }
    } else {
        for index in 0..S::COLUMNS / 4 {
            f(index, unsafe { load_shared_f32x2(staging + pair::<E, S>(thread, index)) });
        }
    }
}

/// Writes what this thread holds of a tile into the staging buffer.
#[inline(always)]
pub(super) unsafe fn write<E: Element, S: TileShape>(thread: Thread, staging: u32, tile: &E::Held<S>) {
    for index in 0..S::COLUMNS / 4 {
        let (low, high) = E::pair::<S>(tile, index);
        let to = staging + pair::<E, S>(thread, index);
        unsafe {
            if const { E::SIZE == 2 } {
                store_shared(to, E::pack_pair((low, high)));
            } else {
                store_shared_f32x2(to, low, high);
            }
        }
    }
}

/// Boxes of a tile.
const fn boxes<E: Element, S: TileShape>() -> u32 {
    S::COLUMNS as u32 * E::SIZE / ROW
}

const fn box_bytes<S: TileShape>() -> u32 {
    S::ROWS as u32 * ROW
}

/// Where a pair of this thread lies in the staging buffer.
#[inline(always)]
fn pair<E: Element, S: TileShape>(thread: Thread, index: usize) -> u32 {
    let block = index / 2;
    let (block_row, block_column) = (block / block_columns(S::COLUMNS), block % block_columns(S::COLUMNS));
    let row = thread.row_of(2 * block_row + index % 2);
    let column = thread.first_column(S::COLUMNS) + block_column as u32 * 8;
    let byte = column * E::SIZE;
    byte / ROW * box_bytes::<S>() + row * ROW + ((byte % ROW) ^ (row % PIECES * PIECE))
}

/// Where the lane's row of two neighbouring blocks of 16-bit elements lies in the staging buffer, for `ldmatrix`.
#[inline(always)]
fn matrix<S: TileShape>(thread: Thread, block_row: u32, block_column: u32) -> u32 {
    let row = thread.row * 64 + block_row * 16 + thread.lane % 16;
    let column = thread.column * (S::COLUMNS / 4) as u32 + block_column * 8 + thread.lane / 16 * 8;
    let byte = column * 2;
    byte / ROW * box_bytes::<S>() + row * ROW + ((byte % ROW) ^ (row % PIECES * PIECE))
}
