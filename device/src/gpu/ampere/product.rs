//! The matmul's main loop: both operands come step by step through a ring in shared memory into registers, and are
//! multiplied warp by warp.

use super::thread::{BLOCK_ROWS, Thread, block_columns};
use crate::element::{Element, MatmulElement};
use crate::gpu::area::{Area, PIECE};
use crate::layout::ampere::{DEPTH, STEP, ring_slot, threads};
use crate::order::tiles;
use crate::ptx::*;
use crate::shape::{Shape, TileShape};

/// Pieces of a row of a ring slot.
const STEP_PIECES: u32 = STEP / PIECE;
/// Bytes of the 16 columns that are multiplied at a time.
const SLICE: u32 = 32;

/// A thread's part in bringing an operand into the ring: a piece of every so many rows.
struct Feed<const ROWS: usize> {
    area: Area,
    /// The first of the rows.
    row: u32,
    /// From the first of the rows to the last that there is.
    last: u32,
    /// The piece's position in a step.
    byte: u32,
    /// Where in a ring slot it goes.
    to: u32,
}

impl<const ROWS: usize> Feed<ROWS> {
    #[inline(always)]
    fn new(thread: Thread, mut area: Area) -> Self {
        let (row, piece) = (thread.index / STEP_PIECES, thread.index % STEP_PIECES);
        if area.rows == 0 {
            area.bytes = 0;
        }
        let first = row.min(area.rows.saturating_sub(1));
        area.start = area.row(first);
        let last = area.rows.saturating_sub(1).saturating_sub(row);
        Feed { area, row, last, byte: piece * PIECE, to: swizzled(row, piece) }
    }

    /// Starts to bring a step into a ring slot. Rows beyond the edge are the last row again.
    #[inline(always)]
    unsafe fn load<const M: usize>(&self, step: u32, slot: u32) {
        let distance = threads(M) / STEP_PIECES;
        let byte = step * STEP + self.byte;
        let from = self.area.start + self.area.offset(self.row, byte);
        let valid = self.area.bytes.saturating_sub(byte).min(PIECE);
        // The rows' addresses would take the registers of fragments.
        let last = anew(self.last);
        for row in (0..ROWS as u32).step_by(distance as usize) {
            let from = from + row.min(last) as u64 * self.area.row_stride as u64;
            unsafe { cp_async(slot + self.to + row * STEP, from, valid) };
        }
    }
}

/// Where a piece of a row lies in an operand's part of a ring slot. Two rows share 128 bytes; a matrix of eight rows is
/// read without conflicts of banks.
#[inline(always)]
fn swizzled(row: u32, piece: u32) -> u32 {
    row * STEP + (piece ^ (row / 2 % STEP_PIECES)) * PIECE
}

/// What a lane holds of the slices of its warp's rows of A.
type A = [[u32; 4]; BLOCK_ROWS];
/// What a lane holds of the slices of its warp's rows of B, two blocks in each four words.
type B = [[u32; 4]; 4];

/// A warp's way from the ring to its registers.
struct Reader<const N: usize> {
    a: u32,
    b: u32,
}

impl<const N: usize> Reader<N> {
    #[inline(always)]
    fn new<const M: usize>(thread: Thread) -> Self {
        let Thread { lane, row, column, .. } = thread;
        let b_row = column * (N / 4) as u32 + lane / 16 * 8 + lane % 8;
        Reader { a: swizzled(row * 64 + lane % 16, lane / 16), b: M as u32 * STEP + swizzled(b_row, lane / 8 % 2) }
    }

    /// Reads 16 rows of A. A slice is two pieces, and the swizzle an exclusive or.
    #[inline(always)]
    unsafe fn read_a(&self, slot: u32, slice: u32, block: usize) -> [u32; 4] {
        unsafe { ldmatrix_x4(slot + (self.a ^ (slice * SLICE)) + block as u32 * 16 * STEP) }
    }

    #[inline(always)]
    unsafe fn read_b(&self, slot: u32, slice: u32) -> B {
        let mut read = [[0; 4]; 4];
        for (pair, words) in read.iter_mut().enumerate().take(block_columns(N) / 2) {
            *words = unsafe { ldmatrix_x4(slot + (self.b ^ (slice * SLICE)) + pair as u32 * 16 * STEP) };
        }
        read
    }

    /// Adds the product of a slice, and reads another one's rows of A in the place of those that are done with.
    #[inline(always)]
    unsafe fn multiply<E: MatmulElement>(&self, sum: &mut [f32], a: &mut A, b: &B, next: (u32, u32)) {
        for (row, a) in a.iter_mut().enumerate() {
            for column in 0..block_columns(N) {
                let first = 4 * (row * block_columns(N) + column);
                let (pair, half) = (b[column / 2], column % 2 * 2);
                let before = [sum[first], sum[first + 1], sum[first + 2], sum[first + 3]];
                let after = unsafe { E::mma(before, *a, [pair[half], pair[half + 1]]) };
                sum[first..first + 4].copy_from_slice(&after);
            }
            *a = unsafe { self.read_a(next.0, next.1, row) };
        }
    }
}

/// `A·Bᵀ` over all columns of A.
///
/// # Safety
/// All threads of the CTA must take part; the ring at `ring` must be theirs.
#[inline(always)]
pub(super) unsafe fn product<E: MatmulElement, const M: usize, const N: usize>(
    thread: Thread,
    ring: u32,
    a: Area,
    b: Area,
) -> <Shape<M, N> as TileShape>::Values
where
    Shape<M, N>: TileShape,
{
    use crate::ptx::Accumulator;

    let mut sum = f32::zeros::<Shape<M, N>>();
    let steps = tiles(a.bytes, STEP);
    if steps == 0 {
        return sum;
    }
    let (a, b) = (Feed::<M>::new(thread, a), Feed::<N>::new(thread, b));
    let slot = |step: u32| ring + step % DEPTH * ring_slot(M, N);
    let load = |step: u32| unsafe {
        if step < steps {
            a.load::<M>(step, slot(step));
            b.load::<M>(step, slot(step) + M as u32 * STEP);
        }
        cp_async_commit();
    };
    // The step before the last that was started is there, for all threads.
    let arrive = || unsafe {
        cp_async_wait::<{ DEPTH - 2 }>();
        sync_threads();
    };
    let reader = Reader::<N>::new::<M>(thread);

    (0..DEPTH - 1).for_each(load);
    arrive();
    unsafe {
        const { assert!(STEP == 2 * SLICE) };
        let mut read_a = [[0; 4]; BLOCK_ROWS];
        for (block, words) in read_a.iter_mut().enumerate() {
            *words = reader.read_a(slot(0), 0, block);
        }
        let mut first = reader.read_b(slot(0), 0);
        for step in 0..steps {
            let second = reader.read_b(slot(step), 1);
            load(step + DEPTH - 1);
            reader.multiply::<E>(sum.values_mut(), &mut read_a, &first, (slot(step), 1));
            arrive();
            first = reader.read_b(slot(step + 1), 0);
            reader.multiply::<E>(sum.values_mut(), &mut read_a, &second, (slot(step + 1), 0));
        }
    }
    sum
}
