//! The one role of a simulated rank: it does all of every operation, on elements in host memory.

use core::ops::Range;
use std::vec::Vec;

use super::fault::Panicked;
use super::protocol::Cta;
use super::routing;
use super::window::Window;
use crate::abi::{Head, MAX_AXES, MatrixArg, NONE};
use crate::element::{Element, MatmulElement};
use crate::layout::ROW;
use crate::log::EventKind;
use crate::order::{Queue, tiles};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::role::Role;
use crate::routing::{RoutingPlace, Scattered};
use crate::shape::{Shape, TileShape};

/// One CTA of a simulated rank.
pub struct Whole {
    pub(super) cta: Cta,
}

/// Columns of the operands that are multiplied at a time.
const STEP: usize = 128;

impl Whole {
    pub(super) fn new(cta: Cta) -> Self {
        Whole { cta }
    }

    pub(super) fn leave(self, ended: Result<(), Panicked>) {
        self.cta.leave(ended);
    }

    /// The tile at `place`, once it is there.
    fn tile_window<E: Element, S: TileShape>(&self, place: &Place) -> Window<E> {
        match place {
            Place::Matrix(place) => Window::matrix(place),
            Place::Slot(slot) => {
                let data = self.cta.receive(slot);
                match slot.into {
                    Some(matrix) => Window::matrix(&slot.within(matrix, S::ROWS, S::COLUMNS)),
                    None => sent_part::<E, S>(slot, data),
                }
            }
        }
    }

    /// Gives up if a tile that is stored, or values for a tile's columns, lie wholly outside of their matrix. The first tile is let through,
    /// and so are the first values: where a rank has no rows, or there are no columns, nothing is lost.
    pub(super) fn check_inside(&self, place: &MatrixPlace) {
        self.check_part(&place.matrix, place.part);
        let MatrixPlace { matrix, row, column, .. } = *place;
        let rows = if matrix.parts > 1 { matrix.part_rows } else { matrix.rows.max(matrix.part_rows) };
        if row >= rows.max(1) || column >= matrix.columns.max(1) {
            self.cta.outside(place, rows);
        }
    }

    /// The panel of `rows` rows at `place`.
    fn panel<'p, E: Element>(&self, place: &'p PanelPlace, rows: usize) -> PanelReader<'_, 'p, E> {
        let (window, slot) = match place {
            PanelPlace::Matrix(place) => (Window::matrix(place), None),
            PanelPlace::Slot(slot) => {
                (Window::slot(self.cta.incoming(slot), rows, slot.arg.columns as usize), Some(slot))
            }
        };
        PanelReader { cta: &self.cta, window, slot, arrived: 0 }
    }
}

/// A panel that is read from its first column to its last, each piece once it is there.
struct PanelReader<'c, 'p, E> {
    cta: &'c Cta,
    window: Window<E>,
    slot: Option<&'p SlotPlace>,
    /// The first column behind the pieces that were waited for.
    arrived: usize,
}

impl<E: Element> PanelReader<'_, '_, E> {
    /// `rows` rows of the `columns` columns from column `first` on.
    fn read(&mut self, rows: usize, first: usize, columns: usize) -> Vec<E> {
        if let Some(slot) = self.slot {
            let end = (first + columns).min(slot.arg.columns as usize);
            self.arrived = self.arrived.max(first);
            while self.arrived < end {
                let piece = slot.at_piece(slot.piece_of(box_of::<E>(self.arrived)));
                self.cta.receive(&piece);
                self.arrived = columns_of::<E>(&piece, slot.arg.columns).end;
            }
        }
        self.window.read(rows, first, columns)
    }
}

/// The rows of a tile in a slot that are sent.
fn sent_part<E: Element, S: TileShape>(slot: &SlotPlace, data: u64) -> Window<E> {
    Window::slot(data, slot.rows(S::ROWS) as usize, S::COLUMNS)
}

/// The box that a column of a panel lies in.
fn box_of<E: Element>(column: usize) -> u32 {
    column as u32 * E::SIZE / ROW
}

/// The columns of a piece of a panel.
fn columns_of<E: Element>(piece: &SlotPlace, columns: u32) -> Range<usize> {
    let (first, count) = piece.boxes(tiles(columns * E::SIZE, ROW));
    let column = |index: u32| (index * (ROW / E::SIZE)).min(columns) as usize;
    column(first)..column(first + count)
}

/// `sum += A·Bᵀ`, of row-major blocks that are `depth` wide, one column after the other.
fn multiply_add(a: &[f32], b: &[f32], depth: usize, sum: &mut [f32]) {
    let columns = b.len() / depth;
    let mut transposed = std::vec![0.0; b.len()];
    for (column, row) in b.chunks_exact(depth).enumerate() {
        for (k, &value) in row.iter().enumerate() {
            transposed[k * columns + column] = value;
        }
    }
    for (a, sum) in a.chunks_exact(depth).zip(sum.chunks_exact_mut(columns)) {
        for (&a, b) in a.iter().zip(transposed.chunks_exact(columns)) {
            for (sum, &b) in sum.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
}

/// A matrix that a channel lies in, as `rank` has it.
pub(super) fn on_rank(matrix: &MatrixArg, rank: u32) -> MatrixArg {
    // SAFETY: the launcher gives such a matrix a table with an entry for each rank.
    unsafe { *(matrix.ranks as *const MatrixArg).add(rank as usize) }
}

fn widened<E: Element>(elements: &[E]) -> Vec<f32> {
    elements.iter().map(|element| element.to_f32()).collect()
}

impl Role for Whole {
    /// The elements, row-major.
    type Fragment<E: Element, S: TileShape> = Vec<E>;
    type RowFragment<S: TileShape> = Vec<f32>;

    fn head(&self) -> &Head {
        self.cta.head()
    }

    fn cta(&self) -> u32 {
        self.cta.index()
    }

    fn note(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.note(stage, tile);
    }

    fn check_part(&self, matrix: &MatrixArg, part: u32) {
        if part >= matrix.parts {
            self.cta.outside(&MatrixPlace { matrix: *matrix, part, row: NONE, column: NONE }, matrix.rows);
        }
    }

    fn begin(&self, stage: u32, tile: [u32; MAX_AXES], _: bool) {
        self.cta.begin(stage, tile);
    }

    fn take(&self, queue: &Queue, beside: bool, slot: impl Fn(u32) -> Option<SlotPlace>, note: impl Fn(u32)) -> u32 {
        self.cta.take(queue, beside, slot, note)
    }

    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, a: &PanelPlace, b: &PanelPlace) -> Vec<f32>
    where
        Shape<M, N>: TileShape,
    {
        let depth = a.columns() as usize;
        let (mut a, mut b) = (self.panel::<E>(a, M), self.panel::<E>(b, N));
        let mut sum = std::vec![0.0; M * N];
        self.cta.event(EventKind::Multiply);
        for first in (0..depth).step_by(STEP) {
            let step = STEP.min(depth - first);
            multiply_add(&widened(&a.read(M, first, step)), &widened(&b.read(N, first, step)), step, &mut sum);
        }
        self.cta.event(EventKind::Multiplied);
        sum
    }

    fn accumulate<E: Element, S: TileShape>(&self, sum: &mut Vec<f32>, from: &Place) {
        for (sum, element) in sum.iter_mut().zip(self.load::<E, S>(from)) {
            *sum += element.to_f32();
        }
    }

    fn load<E: Element, S: TileShape>(&self, from: &Place) -> Vec<E> {
        self.tile_window::<E, S>(from).read(S::ROWS, 0, S::COLUMNS)
    }

    fn store<E: Element, S: TileShape>(&self, tile: &Vec<E>, to: &Place) {
        match to {
            Place::Matrix(place) => {
                self.check_inside(place);
                self.cta.event(EventKind::Store);
                Window::matrix(place).write(tile, S::COLUMNS);
                self.cta.event(EventKind::Stored);
            }
            Place::Slot(slot) => self.cta.send(slot, |receiver, data| {
                if let Some(matrix) = slot.into {
                    self.check_inside(&slot.within(matrix, S::ROWS, S::COLUMNS));
                }
                let window = match slot.into {
                    Some(matrix) => Window::matrix(&slot.within(on_rank(&matrix, receiver), S::ROWS, S::COLUMNS)),
                    None => sent_part::<E, S>(slot, data),
                };
                window.write(tile, S::COLUMNS);
            }),
        }
    }

    fn transfer<E: Element, S: TileShape>(&self, from: &Place, to: &Place) {
        match from {
            Place::Slot(slot) if from.is_at(to, S::ROWS, S::COLUMNS) => {
                self.cta.receive(slot);
            }
            _ => self.store::<E, S>(&self.load::<E, S>(from), to),
        }
    }

    fn transfer_panel<E: Element, const M: usize>(&self, from: &PanelPlace, to: &SlotPlace) {
        let mut panel = self.panel::<E>(from, M);
        for piece in to.pieces().map(|index| to.at_piece(index)) {
            let columns = columns_of::<E>(&piece, to.arg.columns);
            let block = panel.read(M, columns.start, columns.len());
            let into = |data| Window::slot(data, M, to.arg.columns as usize).beyond_column(columns.start);
            self.cta.send(&piece, |_, data| into(data).write(&block, columns.len()));
        }
    }

    fn arrive(&self, gate: &SlotPlace, of: u32) {
        self.cta.arrive(gate, of);
    }

    fn pass(&self, gate: &SlotPlace) {
        self.cta.pass(gate);
    }

    fn arrange(&self, routing: &RoutingPlace, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) {
        if let Some(misfit) = routing.misfit(choices, weights, loads) {
            self.cta.misfit(routing, &misfit);
        }
        routing::arrange(&self.cta, routing, choices, weights, loads);
    }

    fn arranged(&self, routing: &RoutingPlace) -> u32 {
        self.cta.receive(&routing.arrangement(self.head()));
        routing.arranged(self.head()).blocks()
    }

    fn scatter<E: Element>(&self, routing: &RoutingPlace, rows: &Scattered) {
        routing::scatter::<E>(&self.cta, routing, rows);
    }

    fn weighted_sum<E: Element, S: TileShape>(
        &self,
        routing: &RoutingPlace,
        source: u32,
        row: u32,
        from: &MatrixPlace,
    ) -> Vec<f32> {
        routing::weighted_sum::<E, S>(&self.cta, routing, source, row, from)
    }

    fn reclaim(&self) {
        self.cta.reclaim();
    }

    fn fold<E: Element, S: TileShape, H: TileShape>(tile: &Vec<E>, f: impl Fn(f32, f32) -> f32) -> Vec<E> {
        let folded = tile.chunks_exact(16).flat_map(|columns| {
            let (first, last) = columns.split_at(8);
            first.iter().zip(last).map(|(x, y)| E::from_f32(f(x.to_f32(), y.to_f32())))
        });
        folded.collect()
    }

    fn splat<E: Element, S: TileShape>(&self, value: f32) -> Vec<E> {
        std::vec![E::from_f32(value); S::ROWS * S::COLUMNS]
    }

    fn map<E: Element, S: TileShape>(mut tile: Vec<E>, f: impl Fn(f32) -> f32) -> Vec<E> {
        tile.iter_mut().for_each(|element| *element = E::from_f32(f(element.to_f32())));
        tile
    }

    fn zip<E: Element, F: Element, S: TileShape>(
        mut left: Vec<E>,
        right: &Vec<F>,
        f: impl Fn(f32, f32) -> f32,
    ) -> Vec<E> {
        for (x, y) in left.iter_mut().zip(right) {
            *x = E::from_f32(f(x.to_f32(), y.to_f32()));
        }
        left
    }

    fn cast<E: Element, F: Element, S: TileShape>(tile: &Vec<E>) -> Vec<F> {
        tile.iter().map(|element| F::from_f32(element.to_f32())).collect()
    }

    fn reduce_rows<E: Element, S: TileShape>(tile: &Vec<E>, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
        let rows = tile.chunks_exact(S::COLUMNS);
        rows.map(|row| widened(row).into_iter().reduce(&f).expect("a tile has columns")).collect()
    }

    fn zip_rows<E: Element, S: TileShape>(mut tile: Vec<E>, rows: &Vec<f32>, f: impl Fn(f32, f32) -> f32) -> Vec<E> {
        for (row, &value) in tile.chunks_exact_mut(S::COLUMNS).zip(rows) {
            row.iter_mut().for_each(|element| *element = E::from_f32(f(element.to_f32(), value)));
        }
        tile
    }

    fn zip_columns<E: Element, F: Element, S: TileShape>(
        &self,
        mut tile: Vec<E>,
        from: &MatrixPlace,
        f: impl Fn(f32, f32) -> f32,
    ) -> Vec<E> {
        self.check_inside(from);
        let values = widened(&Window::<F>::matrix(from).read(1, 0, S::COLUMNS));
        for row in tile.chunks_exact_mut(S::COLUMNS) {
            for (element, &value) in row.iter_mut().zip(&values) {
                *element = E::from_f32(f(element.to_f32(), value));
            }
        }
        tile
    }

    fn map_row_values<S: TileShape>(mut rows: Vec<f32>, f: impl Fn(f32) -> f32) -> Vec<f32> {
        rows.iter_mut().for_each(|value| *value = f(*value));
        rows
    }

    fn zip_row_values<S: TileShape>(mut left: Vec<f32>, right: &Vec<f32>, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
        left.iter_mut().zip(right).for_each(|(value, other)| *value = f(*value, *other));
        left
    }
}
