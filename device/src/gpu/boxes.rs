//! Boxes, in which tiles and panels are copied: 128 bytes of each of their rows.

use super::cta::Config;
use super::signals::Signals;
use crate::element::Element;
use crate::layout::{ROW, box_column};
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::shape::TileShape;

/// Where a panel's or a tile's boxes are loaded from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// The first `columns` columns of a matrix from a place on: boxes by tensor map. An empty matrix has no maps and no boxes;
    /// what is read of it is anything.
    Matrix { maps: u64, column: u32, row: u32, part: u32, columns: u32 },
    /// A slot: boxes one after the other, of which `rows` rows are filled, over the link with `limited` others.
    Slot { address: u64, rows: u32, limited: bool },
}

impl Source {
    /// Where a panel comes from, each box of it once it has [`arrived`].
    #[inline(always)]
    pub fn panel<C: Config>(signals: &Signals<'_, '_, C>, place: &PanelPlace) -> Source {
        match place {
            PanelPlace::Matrix(place) => Source::matrix(place, u32::MAX),
            PanelPlace::Slot(slot) => Source::slot(signals, slot, signals.incoming(slot)),
        }
    }

    /// Where a tile comes from, once it is there.
    #[inline(always)]
    pub fn tile<C: Config, S: TileShape>(signals: &Signals<'_, '_, C>, place: &Place) -> Source {
        match place {
            Place::Matrix(place) => Source::matrix(place, S::COLUMNS as u32),
            Place::Slot(slot) => match slot.into {
                Some(matrix) => {
                    signals.receive(slot);
                    Source::matrix(&slot.within(matrix, S::ROWS, S::COLUMNS), S::COLUMNS as u32)
                }
                None => Source::slot(signals, slot, signals.receive(slot)),
            },
        }
    }

    #[inline(always)]
    fn matrix(place: &MatrixPlace, columns: u32) -> Source {
        Source::Matrix { maps: place.matrix.maps, column: place.column, row: place.row, part: place.part, columns }
    }

    #[inline(always)]
    fn slot<C: Config>(signals: &Signals<'_, '_, C>, slot: &SlotPlace, address: u64) -> Source {
        Source::Slot { address, rows: slot.arg.rows, limited: signals.limits_load(slot) }
    }

    /// Whether loading takes a share of the link.
    #[inline(always)]
    pub fn limited(self) -> bool {
        matches!(self, Source::Slot { limited: true, .. })
    }

    /// Bytes that loading a box of `rows` rows brings.
    #[inline(always)]
    pub fn bytes(self, rows: usize) -> u32 {
        match self {
            Source::Matrix { maps, .. } if is_empty(maps) => 0,
            Source::Matrix { .. } => rows as u32 * ROW,
            Source::Slot { rows: filled, .. } => filled.min(rows as u32) * ROW,
        }
    }

    /// Loads the box at `index`, `rows` tall, to `to`; completes on `barrier`.
    #[inline(always)]
    pub fn load<E: Element>(self, index: u32, rows: usize, to: u32, barrier: u32) {
        unsafe {
            match self {
                Source::Matrix { maps, .. } if is_empty(maps) => {}
                Source::Matrix { maps, column, row, part, columns } => {
                    let x = column + box_column(index, columns, E::SIZE);
                    for_maps(rows, |map, y| tensor_load(to + y * ROW, maps + map, x, row + y, part, barrier));
                }
                Source::Slot { address, .. } => {
                    let offset = index as u64 * (rows as u32 * ROW) as u64;
                    bulk_load(to, address + offset, self.bytes(rows), barrier);
                }
            }
        }
    }
}

/// Whether a matrix without tensor maps is meant, which has no elements. Asked where it matters: the answers for all matrices
/// of a kernel would take a register from its start to its end.
#[inline(always)]
fn is_empty(maps: u64) -> bool {
    anew((maps >> 32) as u32 | maps as u32) == 0
}

/// Waits for the box at `first` of a panel. The first box behind those that are known to have arrived; a matrix's are
/// all there.
#[inline(always)]
pub(super) fn arrived<C: Config>(signals: &Signals<'_, '_, C>, place: &PanelPlace, first: u32) -> u32 {
    match place {
        PanelPlace::Matrix(_) => u32::MAX,
        PanelPlace::Slot(slot) => signals.receive_boxes(slot, first),
    }
}

/// Waits for `count` boxes of a panel from the one at `first` on.
#[inline(always)]
pub(super) fn await_boxes<C: Config>(signals: &Signals<'_, '_, C>, place: &PanelPlace, first: u32, count: u32) {
    let mut next = first;
    while next < first + count {
        next = arrived(signals, place, next);
    }
}

/// Stores `count` boxes of a tile of this shape that lie at `from` one after the other, from the one at `first` on, into a
/// matrix.
#[inline(always)]
pub(super) fn put_in_matrix<E: Element>(to: &MatrixPlace, shape: (usize, usize), first: u32, count: u32, from: u32) {
    let (rows, columns) = shape;
    if is_empty(to.matrix.maps) {
        return;
    }
    for index in 0..count {
        let x = to.column + box_column(first + index, columns as u32, E::SIZE);
        let from = from + index * rows as u32 * ROW;
        for_maps(rows, |map, y| unsafe { tensor_store(to.matrix.maps + map, x, to.row + y, to.part, from + y * ROW) });
    }
}

/// Rows that a matrix's first tensor map brings; each of the others brings twice as many as the one before.
const LEAST_ROWS: usize = 8;
/// Tensor maps of a matrix, and bytes of one.
const MAPS: usize = 6;
const MAP_BYTES: u64 = 128;

/// Calls `each` with the tensor maps that cover a box of `rows` rows, each by its offset among a matrix's maps, and with the
/// first row that it brings.
#[inline(always)]
pub(super) fn for_maps(rows: usize, mut each: impl FnMut(u64, u32)) {
    let mut row = 0;
    for map in (0..MAPS).rev() {
        let height = LEAST_ROWS << map;
        if rows & height != 0 {
            each(map as u64 * MAP_BYTES, row);
            row += height as u32;
        }
    }
}
