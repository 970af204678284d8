//! Arithmetic on what one thread holds of a tile: pairs of neighbours in a row, in an order that its role fixes, and
//! one value for each row that it holds pairs of.

use crate::element::Element;
use crate::ptx::shuffle_xor;
use crate::shape::TileShape;

/// The part of [`Role`](crate::Role) that deals with elements, for a role that holds `$rows` rows of a tile, the pair at
/// an index in the row `$row_of::<S>(index)` of them.
macro_rules! holds_fragments {
    (rows = $rows:literal, row_of = $row_of:ident) => {
        type Fragment<E: Element, S: TileShape> = E::Held<S>;
        type RowFragment<S: TileShape> = [f32; $rows];

        #[inline(always)]
        fn splat<E: Element, S: TileShape>(&self, value: f32) -> E::Held<S> {
            $crate::gpu::fragment::from_pairs::<E, S>(|_| (value, value))
        }
        #[inline(always)]
        fn map<E: Element, S: TileShape>(tile: E::Held<S>, f: impl Fn(f32) -> f32) -> E::Held<S> {
            $crate::gpu::fragment::change::<E, S>(tile, |_, (low, high)| (f(low), f(high)))
        }
        #[inline(always)]
        fn zip<E: Element, F: Element, S: TileShape>(
            left: E::Held<S>,
            right: &F::Held<S>,
            f: impl Fn(f32, f32) -> f32,
        ) -> E::Held<S> {
            $crate::gpu::fragment::change::<E, S>(left, |index, (low, high)| {
                let (other_low, other_high) = F::pair::<S>(right, index);
                (f(low, other_low), f(high, other_high))
            })
        }
        #[inline(always)]
        fn cast<E: Element, F: Element, S: TileShape>(tile: &E::Held<S>) -> F::Held<S> {
            $crate::gpu::fragment::from_pairs::<F, S>(|index| E::pair::<S>(tile, index))
        }
        #[inline(always)]
        fn zip_rows<E: Element, S: TileShape>(
            tile: E::Held<S>,
            rows: &[f32; $rows],
            f: impl Fn(f32, f32) -> f32,
        ) -> E::Held<S> {
            $crate::gpu::fragment::change::<E, S>(tile, |index, (low, high)| {
                // A role that holds fewer rows than there is room for has none for the pairs behind them.
                let value = rows.get($row_of::<S>(index)).copied().unwrap_or_default();
                (f(low, value), f(high, value))
            })
        }
        #[inline(always)]
        fn map_row_values<S: TileShape>(rows: [f32; $rows], f: impl Fn(f32) -> f32) -> [f32; $rows] {
            $crate::gpu::fragment::change_values(rows, |_, value| f(value))
        }
        #[inline(always)]
        fn zip_row_values<S: TileShape>(
            left: [f32; $rows],
            right: &[f32; $rows],
            f: impl Fn(f32, f32) -> f32,
        ) -> [f32; $rows] {
            $crate::gpu::fragment::change_values(left, |row, value| f(value, right[row]))
        }
    };
}
pub(super) use holds_fragments;

/// A fragment of these pairs.
#[inline(always)]
pub(super) fn from_pairs<E: Element, S: TileShape>(pair: impl Fn(usize) -> (f32, f32)) -> E::Held<S> {
    let mut tile = E::zeros::<S>();
    for index in 0..S::COLUMNS / 4 {
        E::set_pair::<S>(&mut tile, index, pair(index));
    }
    tile
}

/// A fragment of `f` of each pair.
#[inline(always)]
pub(super) fn change<E: Element, S: TileShape>(
    mut tile: E::Held<S>,
    f: impl Fn(usize, (f32, f32)) -> (f32, f32),
) -> E::Held<S> {
    for index in 0..S::COLUMNS / 4 {
        let pair = E::pair::<S>(&tile, index);
        E::set_pair::<S>(&mut tile, index, f(index, pair));
    }
    tile
}

/// `f` of each row's value.
#[inline(always)]
pub(super) fn change_values<const ROWS: usize>(mut rows: [f32; ROWS], f: impl Fn(usize, f32) -> f32) -> [f32; ROWS] {
    for (row, value) in rows.iter_mut().enumerate() {
        *value = f(row, *value);
    }
    rows
}

/// `f` over the elements of each row that lie in this warp: a thread's own in turn, then those of the four threads that
/// share the row, as a tree.
///
/// # Safety
/// All lanes of the warp must take part.
#[inline(always)]
pub(super) unsafe fn reduce_in_warp<E: Element, S: TileShape, const ROWS: usize>(
    tile: &E::Held<S>,
    row_of: impl Fn(usize) -> usize,
    f: impl Fn(f32, f32) -> f32,
) -> [f32; ROWS] {
    let mut rows = [0.0; ROWS];
    for (row, reduced) in rows.iter_mut().enumerate() {
        let mut value = None;
        // The filter of an iterator would keep the loop from being unrolled.
        for index in 0..S::COLUMNS / 4 {
            if row_of(index) == row {
                let (low, high) = E::pair::<S>(tile, index);
                value = Some(match value {
                    None => f(low, high),
                    Some(value) => f(f(value, low), high),
                });
            }
        }
        let value = value.unwrap_or(0.0);
        let value = f(value, unsafe { shuffle_xor(value, 1) });
        *reduced = f(value, unsafe { shuffle_xor(value, 2) });
    }
    rows
}
