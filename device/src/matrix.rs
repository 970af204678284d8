//! Matrices, their panels and their tiles.

use core::marker::PhantomData;
use core::ops::Deref;

use crate::abi::MatrixArg;
use crate::channel::Incoming;
use crate::element::{Element, MatmulElement};
use crate::memory::word;
use crate::place::{MatrixPlace, PanelPlace, Place, part_rows};
use crate::role::Role;
use crate::shape::{Shape, TileShape};
use crate::tile::{Columns, Storable, Tile};

/// A row-major matrix in this rank's memory. In a tile function the role `R` is left out: `&Matrix<bf16>`.
///
/// No dimension needs to be a multiple of a tile's: what a tile has beyond the edge reads as anything in
/// rows, as zero in columns, and is not stored.
pub struct Matrix<'c, E, R: Role> {
    pub(crate) role: &'c R,
    pub(crate) arg: MatrixArg,
    pub(crate) part: u32,
    element: PhantomData<E>,
}

impl<'c, E, R: Role> Matrix<'c, E, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn woven(role: &'c R, arg: &MatrixArg) -> Self {
        Matrix { role, arg: *arg, part: 0, element: PhantomData }
    }

    /// Rows.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        part_rows(&self.arg, self.part)
    }

    /// Columns.
    #[inline(always)]
    pub fn columns(&self) -> u32 {
        self.arg.columns
    }

    /// The address of a row.
    #[inline(always)]
    pub(crate) fn row(&self, row: u32) -> u64 {
        self.arg.data + (self.part as u64 * self.arg.part_rows as u64 + row as u64) * self.arg.pitch
    }

    /// Its rows as a matrix that has no others, for whoever goes by addresses: tensor maps are still the whole one's.
    #[inline(always)]
    pub(crate) fn alone(&self) -> MatrixArg {
        let rows = self.rows();
        MatrixArg { data: self.row(0), rows, part_rows: rows, parts: 1, ..self.arg }
    }
}

impl<R: Role> Matrix<'_, u32, R> {
    /// The number in a row and a column, for control flow and coordinates.
    ///
    /// # Panics
    /// There is no such place in the matrix.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn at(&self, [row, column]: [u32; 2]) -> u32 {
        check!(
            row < self.rows() && column < self.columns(),
            "there is no row {row}, column {column} in a matrix of {} rows and {} columns",
            self.rows(),
            self.columns()
        );
        word(self.arg.data + row as u64 * self.arg.pitch + 4 * column as u64)
    }
}

impl<'c, E: Element, R: Role> Matrix<'c, E, R> {
    /// All columns of the `M` rows from row `index · M` on.
    #[inline(always)]
    pub fn row_panel<const M: usize>(&self, index: u32) -> Panel<'c, E, M, R> {
        let place = MatrixPlace { matrix: self.arg, part: self.part, row: first(index, M), column: 0 };
        Panel { role: self.role, place: PanelPlace::Matrix(place), element: PhantomData }
    }

    /// The tile at `[row, column]` of the grid of `M × N` tiles that covers this matrix, to be read.
    #[inline(always)]
    pub fn load<const M: usize, const N: usize>(&self, [row, column]: [u32; 2]) -> Incoming<'c, E, M, N, R> {
        Incoming { role: self.role, place: Place::Matrix(self.place::<M, N>(row, column)), element: PhantomData }
    }

    /// The tile at `[row, column]` of the grid of tiles that covers this matrix, to be stored to. The
    /// grid's tiles have the shape of what is stored.
    ///
    /// # Faults
    /// On simulated ranks: a tile is stored that lies wholly outside. If the rows are a share of all ranks', the grid covers
    /// the largest share. On GPUs such a tile is stored nowhere.
    #[inline(always)]
    pub fn tile(&mut self, index: [u32; 2]) -> TileMut<E> {
        TileMut { arg: self.arg, part: self.part, index, element: PhantomData }
    }

    /// A value for each of the `N` columns of a tile, to be combined with its elements by
    /// [`zip_columns`](Tile::zip_columns): the elements of row `row` from column `index · N` on. A bias for each column of a
    /// product is a matrix of one row, `bias.column_values([0, j])`.
    ///
    /// Nothing is read yet. Beyond the last column the values are zero.
    ///
    /// # Faults
    /// On simulated ranks: values are used that lie wholly outside. On GPUs they are zero.
    #[inline(always)]
    pub fn column_values<const N: usize>(&self, [row, index]: [u32; 2]) -> Columns<E, N> {
        Columns { place: self.place::<1, N>(row, index), element: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn place<const M: usize, const N: usize>(&self, row: u32, column: u32) -> MatrixPlace {
        MatrixPlace { matrix: self.arg, part: self.part, row: first(row, M), column: first(column, N) }
    }
}

/// The first row or column of a tile. On simulated ranks one that can't be counted is as far outside as can be; on GPUs, which have no
/// register for it, it is taken for another.
#[inline(always)]
pub(crate) fn first(index: u32, size: usize) -> u32 {
    if cfg!(target_arch = "nvptx64") { index.wrapping_mul(size as u32) } else { index.saturating_mul(size as u32) }
}

/// A matrix in this rank's memory whose rows are split evenly over the ranks: rank `r` owns the
/// `⌈rows / world⌉` rows from `r · ⌈rows / world⌉` on (the last ranks may own fewer, or none).
/// In a tile function the role `R` is left out: `&Sharded<bf16>`.
pub struct Sharded<'c, E: Element, R: Role> {
    role: &'c R,
    arg: MatrixArg,
    element: PhantomData<E>,
}

impl<'c, E: Element, R: Role> Sharded<'c, E, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn woven(role: &'c R, arg: &MatrixArg) -> Self {
        Sharded { role, arg: *arg, element: PhantomData }
    }

    /// The rows that `owner` owns, as a matrix of their own.
    ///
    /// # Faults
    /// On simulated ranks: there is no such rank. On GPUs it owns nothing.
    #[inline(always)]
    pub fn shard(&self, owner: u32) -> Shard<'c, E, R> {
        self.role.check_part(&self.arg, owner);
        Shard(Matrix { role: self.role, arg: self.arg, part: owner, element: PhantomData })
    }

    /// The rows that `owner` owns, to be stored to.
    #[inline(always)]
    pub fn shard_mut(&mut self, owner: u32) -> Matrix<'c, E, R> {
        self.shard(owner).0
    }
}

/// One rank's rows of a [`Sharded`] matrix, or one group's of a [`Grouped`] one, to be read.
pub struct Shard<'c, E: Element, R: Role>(Matrix<'c, E, R>);

impl<'c, E: Element, R: Role> Deref for Shard<'c, E, R> {
    type Target = Matrix<'c, E, R>;
    #[inline(always)]
    fn deref(&self) -> &Matrix<'c, E, R> {
        &self.0
    }
}

/// A matrix in this rank's memory that is a row of smaller ones, one below the other: the weights of experts, say.
/// In a tile function the role `R` is left out: `&Grouped<bf16>`.
pub struct Grouped<'c, E: Element, R: Role> {
    role: &'c R,
    arg: MatrixArg,
    element: PhantomData<E>,
}

impl<'c, E: Element, R: Role> Grouped<'c, E, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn woven(role: &'c R, arg: &MatrixArg) -> Self {
        Grouped { role, arg: *arg, element: PhantomData }
    }

    /// The matrix of this group.
    ///
    /// # Faults
    /// On simulated ranks: there is no such group. On GPUs it has no rows.
    #[inline(always)]
    pub fn group(&self, index: u32) -> Shard<'c, E, R> {
        self.role.check_part(&self.arg, index);
        Shard(Matrix { role: self.role, arg: self.arg, part: index, element: PhantomData })
    }
}

/// A tile's place in a matrix that is written.
pub struct TileMut<E: Element> {
    arg: MatrixArg,
    part: u32,
    index: [u32; 2],
    element: PhantomData<E>,
}

impl<E: Element> TileMut<E> {
    /// Stores `tile`, as far as it lies in the matrix.
    #[inline(always)]
    pub fn store<const M: usize, const N: usize, R: Role>(self, tile: impl Storable<E, M, N, R>)
    where
        Shape<M, N>: TileShape,
    {
        let [row, column] = self.index;
        tile.store_at(&Place::Matrix(MatrixPlace {
            matrix: self.arg,
            part: self.part,
            row: first(row, M),
            column: first(column, N),
        }));
    }
}

/// `M` rows of a matrix, or of a channel's slot, with all their columns: an operand of [`matmul`].
pub struct Panel<'c, E: Element, const M: usize, R: Role> {
    pub(crate) role: &'c R,
    pub(crate) place: PanelPlace,
    pub(crate) element: PhantomData<E>,
}

impl<E: Element, const M: usize, R: Role> Clone for Panel<'_, E, M, R> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Element, const M: usize, R: Role> Copy for Panel<'_, E, M, R> {}

/// `A·Bᵀ`: every row of `a` times every row of `b`, over all their columns, accumulated in `f32`.
///
/// # Panics
/// On simulated ranks: they have different numbers of columns. On GPUs those of `a` count.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn matmul<'c, E: MatmulElement, const M: usize, const N: usize, R: Role>(
    a: Panel<'c, E, M, R>,
    b: Panel<'c, E, N, R>,
) -> Tile<'c, f32, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[cfg(not(target_arch = "nvptx64"))]
    assert_eq!(a.place.columns(), b.place.columns(), "both operands of a product have the same number of columns");
    Tile::from_fragment(a.role, a.role.matmul::<E, M, N>(&a.place, &b.place))
}
