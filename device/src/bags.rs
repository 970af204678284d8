//! Bags: ragged lists of a table's rows, whose sums or means are pooled.

use core::marker::PhantomData;

use crate::abi::MatrixArg;
use crate::element::Element;
use crate::matrix::{self, Matrix};
use crate::place::MatrixPlace;
use crate::shape::{Shape, TileShape};
use crate::tile::Tile;
use crate::together::{BagsPlace, Together};

/// Ragged lists of a table's rows, as recommendation models have them: bag `i` of list `l` is the rows that `indices` names
/// from `offsets[l, i]` up to, and without, `offsets[l, i + 1]`. A bag may be empty, and name a row twice.
pub struct Bags<'c, R: Together> {
    place: BagsPlace,
    role: PhantomData<&'c R>,
}

impl<'c, R: Together> Bags<'c, R> {
    /// The bags of a list.
    ///
    /// # Panics
    /// There is no such list.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn new(offsets: &Matrix<'c, u32, R>, list: u32, indices: &Matrix<'c, u32, R>) -> Self {
        check!(list < offsets.rows(), "there is no list {list}: the offsets are those of {}", offsets.rows());
        let count = offsets.columns().saturating_sub(1);
        let (offsets, indices) = (offsets.arg, indices.arg);
        Bags { place: BagsPlace { offsets, indices, list, first: 0, count, mean: false }, role: PhantomData }
    }

    /// At most `count` of them, from `first` on.
    #[inline(always)]
    pub fn from(self, first: u32, count: u32) -> Self {
        let left = self.place.count.saturating_sub(first);
        let place = BagsPlace { first: self.place.first + first, count: count.min(left), ..self.place };
        Bags { place, role: PhantomData }
    }

    /// Whether their means are pooled, or else their sums.
    #[inline(always)]
    pub fn mean(self, mean: bool) -> Self {
        Bags { place: BagsPlace { mean, ..self.place }, role: PhantomData }
    }
}

impl<'c, E: Element, R: Together> Matrix<'c, E, R> {
    /// `count` of its rows from `first` on, as a matrix of their own.
    ///
    /// # Panics
    /// There are no such rows.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn rows_from(&self, first: u32, count: u32) -> Matrix<'c, E, R> {
        check!(
            first <= self.rows() && count <= self.rows() - first,
            "there are no {count} rows from row {first} on in a matrix of {} rows",
            self.rows()
        );
        let rows = MatrixArg { data: self.row(first), rows: count, part_rows: count, parts: 1, ..self.arg };
        Matrix::woven(self.role, &rows)
    }

    /// The sums, or means, of its rows by bag, added up in `f32` in the order of each bag: the tile at `[block, column]` of the
    /// grid that covers a row for each bag and as many columns as there are here. An empty bag's are zero.
    ///
    /// # Faults
    /// An index is not that of a row: the fault names its list and its position among the indices. A bag begins or ends beyond
    /// the indices, or ends before it begins: it names the list and the offset.
    #[inline(always)]
    pub fn pool<const M: usize, const N: usize>(
        &self,
        [block, column]: [u32; 2],
        bags: &Bags<'c, R>,
    ) -> Tile<'c, f32, M, N, R>
    where
        Shape<M, N>: TileShape,
    {
        let skipped = matrix::first(block, M);
        let place = &bags.place;
        let bags = BagsPlace {
            first: place.first.saturating_add(skipped),
            count: place.count.saturating_sub(skipped),
            ..*place
        };
        let table = MatrixPlace { matrix: self.arg, part: self.part, row: 0, column: matrix::first(column, N) };
        Tile::from_fragment(self.role, self.role.pool::<E, Shape<M, N>>(&table, &bags))
    }
}
