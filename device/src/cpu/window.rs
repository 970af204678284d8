//! What a tile or a panel covers of the memory it lies in.

use core::marker::PhantomData;
use std::vec::Vec;

use crate::element::Element;
use crate::place::MatrixPlace;

/// Rows of memory, as far as a tile or a panel has a part in them.
pub(super) struct Window<E> {
    origin: u64,
    pitch: u64,
    rows: usize,
    columns: usize,
    element: PhantomData<E>,
}

impl<E: Element> Window<E> {
    /// From a place in a matrix to the edges of its part.
    pub(super) fn matrix(place: &MatrixPlace) -> Self {
        let matrix = &place.matrix;
        let row = place.part as u64 * matrix.part_rows as u64 + place.row as u64;
        Window {
            origin: matrix.data + row * matrix.pitch + place.column as u64 * E::SIZE as u64,
            pitch: matrix.pitch,
            rows: place.part_rows().saturating_sub(place.row) as usize,
            columns: matrix.columns.saturating_sub(place.column) as usize,
            element: PhantomData,
        }
    }

    /// A slot's data, row after row.
    pub(super) fn slot(data: u64, rows: usize, columns: usize) -> Self {
        let pitch = columns as u64 * E::SIZE as u64;
        Window { origin: data, pitch, rows, columns, element: PhantomData }
    }

    /// The part of it from column `first` on.
    pub(super) fn beyond_column(self, first: usize) -> Self {
        let origin = self.origin + first as u64 * E::SIZE as u64;
        Window { origin, columns: self.columns.saturating_sub(first), ..self }
    }

    /// `rows` rows of the `columns` columns from column `first` on. Columns beyond the edge read as zero.
    /// Rows beyond it read as NaN, since tile functions must not use them.
    pub(super) fn read(&self, rows: usize, first: usize, columns: usize) -> Vec<E> {
        let valid = self.columns.saturating_sub(first).min(columns);
        let mut block = std::vec![E::from_f32(0.0); rows * columns];
        for (row, into) in block.chunks_exact_mut(columns.max(1)).enumerate() {
            if row < self.rows {
                // SAFETY: the row and `valid` columns lie in the memory that the window is of.
                unsafe { self.at(row, first).copy_to_nonoverlapping(into.as_mut_ptr(), valid) };
            } else {
                into.fill(E::from_f32(f32::NAN));
            }
        }
        block
    }

    /// Stores rows of `columns` columns, as far as they lie within the edges.
    pub(super) fn write(&self, block: &[E], columns: usize) {
        for (row, from) in block.chunks_exact(columns.max(1)).enumerate().take(self.rows) {
            // SAFETY: the row and the columns stored lie in the memory that the window is of.
            unsafe { self.at(row, 0).copy_from_nonoverlapping(from.as_ptr(), columns.min(self.columns)) };
        }
    }

    fn at(&self, row: usize, column: usize) -> *mut E {
        (self.origin + row as u64 * self.pitch + column as u64 * E::SIZE as u64) as *mut E
    }
}
