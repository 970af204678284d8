//! Tiles, and what can be done with their elements.

use core::marker::PhantomData;
use core::ops::{Add, AddAssign};

use crate::channel::Incoming;
use crate::element::Element;
use crate::place::{MatrixPlace, Place};
use crate::role::Role;
use crate::shape::{Shape, TileShape};

/// `M` rows and `N` columns of elements, held by the CTA.
///
/// Elements are reached through [`map`](Tile::map), [`zip`](Tile::zip) and
/// [`reduce_rows`](Tile::reduce_rows) alone; what a tile function does next can't depend on them.
/// In a tile function the role `R` is left out: `Tile<bf16, 128, 256>`.
pub struct Tile<'c, E: Element, const M: usize, const N: usize, R: Role>
where
    Shape<M, N>: TileShape,
{
    role: &'c R,
    fragment: R::Fragment<E, Shape<M, N>>,
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Clone for Tile<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    fn clone(&self) -> Self {
        Tile { role: self.role, fragment: self.fragment.clone() }
    }
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Tile<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    pub(crate) fn from_fragment(role: &'c R, fragment: R::Fragment<E, Shape<M, N>>) -> Self {
        Tile { role, fragment }
    }

    #[inline(always)]
    pub(crate) fn fragment(&self) -> &R::Fragment<E, Shape<M, N>> {
        &self.fragment
    }

    /// A tile of zeros, of the shape of this one, in `f32`.
    #[inline(always)]
    pub fn zeros_like(&self) -> Tile<'c, f32, M, N, R> {
        Tile { role: self.role, fragment: self.role.splat(0.0) }
    }

    /// `f(x)` for each element.
    #[inline(always)]
    pub fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Tile { role: self.role, fragment: R::map::<E, Shape<M, N>>(self.fragment, f) }
    }

    /// `f(x, y)` for each element and the element of `other` in its place.
    #[inline(always)]
    pub fn zip<F: Element>(self, other: &Tile<'c, F, M, N, R>, f: impl Fn(f32, f32) -> f32) -> Self {
        Tile { role: self.role, fragment: R::zip::<E, F, Shape<M, N>>(self.fragment, &other.fragment, f) }
    }

    /// `f(x, y)` for each pair of elements that are eight columns apart: of every sixteen columns, the first eight with
    /// the last eight. The tile is half as wide, `H = N / 2`.
    #[inline(always)]
    pub fn fold<const H: usize>(self, f: impl Fn(f32, f32) -> f32) -> Tile<'c, E, M, H, R>
    where
        Shape<M, H>: TileShape,
    {
        const { assert!(2 * H == N, "a folded tile is half as wide") };
        Tile { role: self.role, fragment: R::fold::<E, Shape<M, N>, Shape<M, H>>(&self.fragment, f) }
    }

    /// The same values as another element type, to the nearest, ties to even.
    #[inline(always)]
    pub fn cast<F: Element>(&self) -> Tile<'c, F, M, N, R> {
        Tile { role: self.role, fragment: R::cast::<E, F, Shape<M, N>>(&self.fragment) }
    }

    /// `f` over the elements of each row; `f` must be associative up to rounding.
    #[inline(always)]
    pub fn reduce_rows(&self, f: impl Fn(f32, f32) -> f32) -> Rows<M, N, R> {
        Rows { values: R::reduce_rows::<E, Shape<M, N>>(&self.fragment, f) }
    }

    /// `f(x, r)` for each element, with the value `r` of its row.
    #[inline(always)]
    pub fn zip_rows(self, rows: &Rows<M, N, R>, f: impl Fn(f32, f32) -> f32) -> Self {
        Tile { role: self.role, fragment: R::zip_rows::<E, Shape<M, N>>(self.fragment, &rows.values, f) }
    }

    /// `f(x, c)` for each element, with the value `c` of its column.
    ///
    /// The values are read here, and nothing is computed meanwhile: on GPUs that takes about a microsecond, though they mostly
    /// lie in a cache. With more than two of these in a tile nothing is loaded ahead for the next one.
    #[inline(always)]
    pub fn zip_columns<F: Element>(self, columns: &Columns<F, N>, f: impl Fn(f32, f32) -> f32) -> Self {
        let zipped = self.role.zip_columns::<E, F, Shape<M, N>>(self.fragment, &columns.place, f);
        Tile { role: self.role, fragment: zipped }
    }
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Add<&Tile<'c, E, M, N, R>> for Tile<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    type Output = Self;
    #[inline(always)]
    fn add(self, other: &Self) -> Self {
        self.zip(other, |x, y| x + y)
    }
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> AddAssign<&Tile<'c, E, M, N, R>>
    for Tile<'c, f32, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    fn add_assign(&mut self, other: &Tile<'c, E, M, N, R>) {
        self.fragment = R::zip::<f32, E, Shape<M, N>>(self.fragment.clone(), &other.fragment, |x, y| x + y);
    }
}

/// Adds a tile as it comes in. It goes through no register fragment and no memory of its own: it is
/// fetched into shared memory while the CTA computes, and added from there.
impl<'c, E: Element, const M: usize, const N: usize, R: Role> AddAssign<Incoming<'c, E, M, N, R>>
    for Tile<'c, f32, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    fn add_assign(&mut self, incoming: Incoming<'c, E, M, N, R>) {
        self.role.accumulate::<E, Shape<M, N>>(&mut self.fragment, &incoming.place);
    }
}

/// One `f32` for each row of a tile.
pub struct Rows<const M: usize, const N: usize, R: Role>
where
    Shape<M, N>: TileShape,
{
    values: R::RowFragment<Shape<M, N>>,
}

impl<const M: usize, const N: usize, R: Role> Rows<M, N, R>
where
    Shape<M, N>: TileShape,
{
    /// `f(r)` for each row's value.
    #[inline(always)]
    pub fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Rows { values: R::map_row_values::<Shape<M, N>>(self.values, f) }
    }

    /// `f(r, s)` for each row's value and that of `other`.
    #[inline(always)]
    pub fn zip(self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Rows { values: R::zip_row_values::<Shape<M, N>>(self.values, &other.values, f) }
    }
}

/// A value for each of a tile's `N` columns, where it lies in a matrix:
/// [`Matrix::column_values`](crate::Matrix::column_values). [`Tile::zip_columns`] reads it.
#[derive(Clone, Copy, Debug)]
pub struct Columns<E: Element, const N: usize> {
    pub(crate) place: MatrixPlace,
    pub(crate) element: PhantomData<E>,
}

/// What can be stored where a tile of `E` belongs: a computed [`Tile`], or an [`Incoming`] one, which is
/// then moved without passing through registers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be stored where a tile of `{E}`, {M} by {N}, belongs",
    note = "`.cast()` gives a tile of another element type; the shape must be the same"
)]
pub trait Storable<E: Element, const M: usize, const N: usize, R: Role> {
    #[doc(hidden)]
    fn store_at(self, place: &Place);
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Storable<E, M, N, R> for Tile<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    fn store_at(self, place: &Place) {
        self.role.store::<E, Shape<M, N>>(&self.fragment, place);
    }
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Storable<E, M, N, R> for &Tile<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    fn store_at(self, place: &Place) {
        self.role.store::<E, Shape<M, N>>(&self.fragment, place);
    }
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Storable<E, M, N, R> for Incoming<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    #[inline(always)]
    fn store_at(self, place: &Place) {
        self.role.transfer::<E, Shape<M, N>>(&self.place, place);
    }
}
