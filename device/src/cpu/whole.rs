//! The one role of a simulated rank: it does all of every operation, on elements in host memory.

use std::vec::Vec;

use super::fault::Panicked;
use super::protocol::Cta;
use super::window::Window;
use crate::abi::{Head, MAX_AXES, MatrixArg};
use crate::element::{Element, MatmulElement};
use crate::log::EventKind;
use crate::place::{PanelPlace, Place, SlotPlace};
use crate::role::Role;
use crate::shape::{Shape, TileShape};

/// One CTA of a simulated rank.
pub struct Whole {
    cta: Cta,
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
                    None => Window::slot(data, S::ROWS, S::COLUMNS),
                }
            }
        }
    }

    /// The panel of `rows` rows at `place`, once it is there.
    fn panel_window<E: Element>(&self, place: &PanelPlace, rows: usize) -> Window<E> {
        match place {
            PanelPlace::Matrix(place) => Window::matrix(place),
            PanelPlace::Slot(slot) => Window::slot(self.cta.receive(slot), rows, slot.arg.columns as usize),
        }
    }
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
fn on_rank(matrix: &MatrixArg, rank: u32) -> MatrixArg {
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

    fn begin(&self, stage: u32, tile: [u32; MAX_AXES]) {
        self.cta.begin(stage, tile);
    }

    fn first_ready(&self, candidates: u64, slot: impl Fn(u32) -> Option<SlotPlace>) -> u32 {
        self.cta.first_ready(candidates, slot)
    }

    fn matmul<E: MatmulElement, const M: usize, const N: usize>(&self, a: &PanelPlace, b: &PanelPlace) -> Vec<f32>
    where
        Shape<M, N>: TileShape,
    {
        let depth = a.columns() as usize;
        let (a, b) = (self.panel_window::<E>(a, M), self.panel_window::<E>(b, N));
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
                self.cta.event(EventKind::Store);
                Window::matrix(place).write(tile, S::COLUMNS);
                self.cta.event(EventKind::Stored);
            }
            Place::Slot(slot) => self.cta.send(slot, |receiver, data| {
                let window = match slot.into {
                    Some(matrix) => Window::matrix(&slot.within(on_rank(&matrix, receiver), S::ROWS, S::COLUMNS)),
                    None => Window::slot(data, S::ROWS, S::COLUMNS),
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
        let columns = to.arg.columns as usize;
        let panel = self.panel_window::<E>(from, M).read(M, 0, columns);
        self.cta.send(to, |_, data| Window::slot(data, M, columns).write(&panel, columns));
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

    fn map_row_values<S: TileShape>(mut rows: Vec<f32>, f: impl Fn(f32) -> f32) -> Vec<f32> {
        rows.iter_mut().for_each(|value| *value = f(*value));
        rows
    }

    fn zip_row_values<S: TileShape>(mut left: Vec<f32>, right: &Vec<f32>, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
        left.iter_mut().zip(right).for_each(|(value, other)| *value = f(*value, *other));
        left
    }
}
