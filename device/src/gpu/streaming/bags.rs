//! Pooling a table's rows by bag: a group of threads reads the rows of a bag, several at once.

use super::held::{self, Seat, rows_held};
use super::role::Streaming;
use crate::element::Element;
use crate::gpu::area::Area;
use crate::gpu::cta::Config;
use crate::gpu::fault::{bad_index, bad_offset};
use crate::memory::word;
use crate::place::MatrixPlace;
use crate::ptx::Accumulator;
use crate::shape::TileShape;
use crate::together::BagsPlace;

/// Rows of a bag that a thread has under way at once.
const BATCH: usize = 8;

impl<C: Config> Streaming<'_, '_, C> {
    /// As [`Together::pool`](crate::Together::pool).
    #[inline(always)]
    pub(super) fn pooled<E: Element, S: TileShape>(&self, table: &MatrixPlace, bags: &BagsPlace) -> S::Values {
        let (seat, area) = (Seat::this::<S>(), Area::matrix::<E>(table));
        let mut tile = S::Values::zeros();
        for held in 0..rows_held::<S>() {
            let row = seat.row + held as u32;
            if row < bags.count {
                let bag = bags.first + row;
                let [begin, end] = bags.range(bag);
                if !bags.holds([begin, end]) {
                    let (number, offset) = bags.wrong(bag, [begin, end]);
                    bad_offset([bags.list, number], offset, bags.indices.columns);
                }
                let sums = sum::<E>(&area, seat.byte::<E>(), bags, [begin, end]);
                let divisor = if bags.mean && end > begin { (end - begin) as f32 } else { 1.0 };
                held::set::<f32, S>(&mut tile, held, sums.map(|(low, high)| (low / divisor, high / divisor)));
            }
        }
        tile
    }
}

/// The sum of the quads at `byte` of one bag's rows, in their order.
#[inline(always)]
fn sum<E: Element>(area: &Area, byte: u32, bags: &BagsPlace, [begin, end]: [u32; 2]) -> [(f32, f32); 2] {
    let index_at =
        |position: u32| if position < end { word(bags.indices.data + 4 * position as u64) } else { u32::MAX };
    let mut next = [0; BATCH];
    for (offset, index) in next.iter_mut().enumerate() {
        *index = index_at(begin + offset as u32);
    }
    let mut sums = [(0.0, 0.0); 2];
    let mut position = begin;
    while position < end {
        let mut rows = [[0; 4]; BATCH];
        for (offset, quad) in rows.iter_mut().enumerate() {
            let (index, at) = (next[offset], position + offset as u32);
            // A table's rows are padded to 16 bytes, so that a quad can be read whole if it begins there.
            if index < area.rows && byte < area.bytes {
                *quad = unsafe { held::load_quad::<E>(area.row(index) + byte as u64) };
            }
            if index >= area.rows && at < end {
                bad_index([bags.list, at], index, area.rows);
            }
        }
        // While the rows are on their way.
        for (offset, index) in next.iter_mut().enumerate() {
            *index = index_at(position + (BATCH + offset) as u32);
        }
        for quad in rows {
            let [first, second] = held::values::<E>(quad);
            sums = [(sums[0].0 + first.0, sums[0].1 + first.1), (sums[1].0 + second.0, sums[1].1 + second.1)];
        }
        position += BATCH as u32;
    }
    sums
}
