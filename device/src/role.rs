//! What one role does for each operation of a tile function.

use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::order::Queue;
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// A role: one of the threads of execution that together carry out a tile function.
///
/// All roles of a CTA walk the same tiles through the same control flow, so that they agree on every
/// hand-over; that is why an operation takes nothing that depends on a tile's elements. Operations that
/// are not a role's own do nothing in it.
pub trait Role: Sized {
    /// What this role holds of a tile: elements on a simulated rank and in the math warpgroups, nothing elsewhere.
    type Fragment<E: Element, S: TileShape>: Clone;

    /// What this role holds of one `f32` for each row of a tile.
    type RowFragment<S: TileShape>: Clone;

    /// The launch's parameters.
    fn head(&self) -> &Head;

    /// This CTA's index in the grid.
    fn cta(&self) -> u32;

    /// The tile to name if a fault is to be reported.
    fn note(&self, stage: u32, tile: [u32; MAX_AXES]);

    /// A part of a matrix is about to be used. Roles on GPUs leave it to the memory's bounds.
    #[inline(always)]
    fn check_part(&self, _: &MatrixArg, _: u32) {}

    /// Begins with a tile, perhaps the last of those that fall to the CTA in a stage: the following operations belong to it.
    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], last: bool);

    /// Takes the next tile from a queue whose slot's signal has arrived, or that waits for none, or [`Queue::BESIDE`] if that may be
    /// taken and is ready; [`Queue::EMPTY`] if none is left. Waits while none is ready, and has what is missing in the end `note`d;
    /// all roles of the CTA get the same answer.
    fn take(&self, queue: &Queue, beside: bool, slot: impl Fn(u32) -> Option<SlotPlace>, note: impl Fn(u32)) -> u32;

    /// `A·Bᵀ` with `f32` accumulation over all columns of both panels.
    fn matmul<E: MatmulElement, const M: usize, const N: usize>(
        &self,
        a: &PanelPlace,
        b: &PanelPlace,
    ) -> Self::Fragment<f32, Shape<M, N>>
    where
        Shape<M, N>: TileShape;

    /// Adds the tile at `from` (waiting for its signal, if it lies in a slot) to `sum`.
    fn accumulate<E: Element, S: TileShape>(&self, sum: &mut Self::Fragment<f32, S>, from: &Place);

    /// The tile at `from` (waiting for its signal, if it lies in a slot).
    fn load<E: Element, S: TileShape>(&self, from: &Place) -> Self::Fragment<E, S>;

    /// Stores a tile at `to`; if that is a slot, releases and signals it.
    fn store<E: Element, S: TileShape>(&self, tile: &Self::Fragment<E, S>, to: &Place);

    /// Moves a tile (waiting for its signal, if it lies in a slot) without computing on it.
    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place);

    /// Moves a panel of `M` rows into a slot, or a piece's columns of it, releases and signals what it moved.
    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace);

    /// Counts this tile in a gate's slot, with all that it has stored so far; the last of `of` signals the slot.
    fn arrive(&self, gate: &SlotPlace, of: u32);

    /// Waits for the signal of a gate's slot.
    fn pass(&self, gate: &SlotPlace);

    /// Arranges the rows of this rank's groups, as all ranks' `choices` and their `weights` say, and notes in `loads` how
    /// many rows each group of all ranks has.
    fn arrange(&self, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg);

    /// Waits for the arrangement. The number of its blocks.
    fn arranged(&self, routing: &RoutingPlace) -> u32;

    /// Whether this role visits its tiles of a stage once more, for the rows that it has passed by. Blocks until they may be
    /// read.
    #[inline(always)]
    fn comes_back(&self) -> bool {
        false
    }

    /// Copies rows of one rank to where the arrangement has them on this one, and counts each in the gate of its block.
    fn scatter<E: Element>(&self, routing: &RoutingPlace, rows: &Scattered);

    /// For each row of a rank, from `row` on, the weighted sum of what its groups on this rank made of it: rows of the
    /// matrix that `from` is a place in, whose columns are meant.
    fn weighted_sum<E: Element, S: TileShape>(
        &self,
        routing: &RoutingPlace,
        source: u32,
        row: u32,
        from: &MatrixPlace,
    ) -> Self::Fragment<f32, S>;

    /// Once this rank's roles are done with what others lend: tells them, and waits until all are done with what it lends.
    fn reclaim(&self);

    /// A tile of `f(x, y)`, half as wide, for each pair of elements that are eight columns apart in sixteen.
    fn fold<E: Element, S: TileShape, H: TileShape>(
        tile: &Self::Fragment<E, S>,
        f: impl Fn(f32, f32) -> f32,
    ) -> Self::Fragment<E, H>;

    /// A tile whose elements are all `value`.
    fn splat<E: Element, S: TileShape>(&self, value: f32) -> Self::Fragment<E, S>;

    /// A tile of `f(x)`, for each element.
    fn map<E: Element, S: TileShape>(tile: Self::Fragment<E, S>, f: impl Fn(f32) -> f32) -> Self::Fragment<E, S>;

    /// A tile of `f(x, y)`, for each pair of elements.
    fn zip<E: Element, F: Element, S: TileShape>(
        left: Self::Fragment<E, S>,
        right: &Self::Fragment<F, S>,
        f: impl Fn(f32, f32) -> f32,
    ) -> Self::Fragment<E, S>;

    /// The same values as another element type.
    fn cast<E: Element, F: Element, S: TileShape>(tile: &Self::Fragment<E, S>) -> Self::Fragment<F, S>;

    /// For each row, `f` over its elements, in an order fixed by the role; `f` is associative up to rounding.
    fn reduce_rows<E: Element, S: TileShape>(
        tile: &Self::Fragment<E, S>,
        f: impl Fn(f32, f32) -> f32,
    ) -> Self::RowFragment<S>;

    /// A tile of `f(x, r)`, with the value `r` of each element's row.
    fn zip_rows<E: Element, S: TileShape>(
        tile: Self::Fragment<E, S>,
        rows: &Self::RowFragment<S>,
        f: impl Fn(f32, f32) -> f32,
    ) -> Self::Fragment<E, S>;

    /// A tile of `f(x, c)`, with the value `c` of each element's column: those of the row at `from`, from the place on.
    fn zip_columns<E: Element, F: Element, S: TileShape>(
        &self,
        tile: Self::Fragment<E, S>,
        from: &MatrixPlace,
        f: impl Fn(f32, f32) -> f32,
    ) -> Self::Fragment<E, S>;

    /// Row values of `f(x)`.
    fn map_row_values<S: TileShape>(rows: Self::RowFragment<S>, f: impl Fn(f32) -> f32) -> Self::RowFragment<S>;

    /// Row values of `f(x, y)`, for each pair of them.
    fn zip_row_values<S: TileShape>(
        left: Self::RowFragment<S>,
        right: &Self::RowFragment<S>,
        f: impl Fn(f32, f32) -> f32,
    ) -> Self::RowFragment<S>;
}
