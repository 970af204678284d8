//! Values for each column, on their way from memory to the threads that hold pairs of a tile. Each thread reads its own: they are so few
//! that they are not worth sharing out.

use super::area::Area;
use crate::element::Element;
use crate::place::MatrixPlace;
use crate::ptx::*;
use crate::shape::TileShape;

/// Columns of a block, of which a thread holds a pair in each of its rows.
const BLOCK: u32 = 8;
/// The most words that a thread has on their way: an accumulator leaves it no more registers.
const WORDS: usize = 32;

/// A fragment of `f(x, c)`, with the value `c` of each element's column. A thread holds pairs of so many blocks that lie side by side,
/// two of each before the next; those of the first block are in the columns from `first` on.
///
/// # Safety
/// What there is of the row at `from` must be readable.
#[inline(always)]
pub(super) unsafe fn zip<E: Element, F: Element, S: TileShape>(
    mut tile: E::Held<S>,
    from: &MatrixPlace,
    first: u32,
    blocks: usize,
    f: impl Fn(f32, f32) -> f32,
) -> E::Held<S> {
    let row = Row::new::<F>(from, first);
    let at_once = WORDS * 4 / (2 * F::SIZE as usize);
    for batch in (0..blocks).step_by(at_once) {
        // All are on their way before the first is needed.
        let mut loaded = [[0; 2]; WORDS];
        for offset in 0..at_once {
            if batch + offset < blocks {
                loaded[offset] = unsafe { row.load::<F>(batch + offset) };
            }
        }
        for pair in 0..S::COLUMNS / 4 {
            let block = pair / 2 % blocks;
            if block / at_once == batch / at_once {
                let (low, high) = E::pair::<S>(&tile, pair);
                let (left, right) = row.values::<F>(block, loaded[block % at_once]);
                E::set_pair::<S>(&mut tile, pair, (here(f(low, left)), here(f(high, right))));
            }
        }
    }
    tile
}

/// The same number, computed here: put off until it is used, perhaps behind a wait, it would keep what it is made of in registers.
#[inline(always)]
fn here(number: f32) -> f32 {
    f32::from_bits(anew(number.to_bits()))
}

/// A row of a matrix, from the first column on that a thread holds.
struct Row {
    start: u64,
    /// Bytes that there are of it.
    bytes: u32,
}

impl Row {
    #[inline(always)]
    fn new<F: Element>(from: &MatrixPlace, first: u32) -> Self {
        let (area, skipped) = (Area::matrix::<F>(from), first * F::SIZE);
        let bytes = if area.rows == 0 { 0 } else { area.bytes.saturating_sub(skipped) };
        Row { start: area.start + skipped as u64, bytes }
    }

    /// A block's pair of values as it lies in memory, in one word or two; zeros for what there is not. Behind an odd number of columns
    /// a row goes on, since its pitch is a multiple of 16.
    ///
    /// # Safety
    /// What there is must be readable.
    #[inline(always)]
    unsafe fn load<F: Element>(&self, block: usize) -> [u32; 2] {
        let byte = byte::<F>(block);
        let (address, there) = (self.start + byte as u64, byte < self.bytes);
        if const { F::SIZE == 4 } {
            unsafe { load_global_8_if(address, there) }
        } else {
            [unsafe { load_global_if(address, there) }, 0]
        }
    }

    /// The values of the pair that a block's words hold.
    #[inline(always)]
    fn values<F: Element>(&self, block: usize, [first, second]: [u32; 2]) -> (f32, f32) {
        let (low, high) = if const { F::SIZE == 4 } {
            (f32::from_bits(first), f32::from_bits(second))
        } else {
            F::unpack_pair(first)
        };
        (low, if byte::<F>(block) + F::SIZE < self.bytes { high } else { 0.0 })
    }
}

/// Bytes from the pair of the first block to that of another.
#[inline(always)]
const fn byte<F: Element>(block: usize) -> u32 {
    block as u32 * BLOCK * F::SIZE
}
