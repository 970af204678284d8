//! Boxes, in which tiles and panels are copied: 128 bytes of each of their rows.

use super::cta::Config;
use super::signals::Signals;
use crate::element::Element;
use crate::layout::ROW;
use crate::place::{MatrixPlace, PanelPlace, Place, SlotPlace};
use crate::ptx::*;
use crate::shape::TileShape;

/// Where a panel's or a tile's boxes are loaded from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A matrix: boxes by tensor map. An empty matrix has no maps and no boxes; what is read of it is anything.
    Matrix { maps: u64, column: u32, row: u32, part: u32 },
    /// A slot: boxes one after the other, over the link with `limited` others.
    Slot { address: u64, limited: bool },
}

impl Source {
    /// Where a panel comes from, each box of it once it has [`arrived`].
    #[inline(always)]
    pub fn panel<C: Config>(signals: &Signals<'_, '_, C>, place: &PanelPlace) -> Source {
        match place {
            PanelPlace::Matrix(place) => Source::matrix(place),
            PanelPlace::Slot(slot) => Source::slot(signals, slot, signals.incoming(slot)),
        }
    }

    /// Where a tile comes from, once it is there.
    #[inline(always)]
    pub fn tile<C: Config, S: TileShape>(signals: &Signals<'_, '_, C>, place: &Place) -> Source {
        match place {
            Place::Matrix(place) => Source::matrix(place),
            Place::Slot(slot) => match slot.into {
                Some(matrix) => {
                    signals.receive(slot);
                    Source::matrix(&slot.within(matrix, S::ROWS, S::COLUMNS))
                }
                None => Source::slot(signals, slot, signals.receive(slot)),
            },
        }
    }

    #[inline(always)]
    fn matrix(place: &MatrixPlace) -> Source {
        Source::Matrix { maps: place.matrix.maps, column: place.column, row: place.row, part: place.part }
    }

    #[inline(always)]
    fn slot<C: Config>(signals: &Signals<'_, '_, C>, slot: &SlotPlace, address: u64) -> Source {
        Source::Slot { address, limited: signals.limits_load(slot) }
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
            Source::Matrix { maps: 0, .. } => 0,
            _ => rows as u32 * ROW,
        }
    }

    /// Loads the box at `index`, `rows` tall, to `to`; completes on `barrier`.
    #[inline(always)]
    pub fn load<E: Element>(self, index: u32, rows: usize, to: u32, barrier: u32) {
        unsafe {
            match self {
                Source::Matrix { maps: 0, .. } => {}
                Source::Matrix { maps, column, row, part } => {
                    let x = column + index * (ROW / E::SIZE);
                    for (map, y, offset) in maps_of(rows) {
                        tensor_load(to + offset, maps + map, x, row + y, part, barrier);
                    }
                }
                Source::Slot { address, .. } => {
                    let bytes = rows as u32 * ROW;
                    bulk_load(to, address + index as u64 * bytes as u64, bytes, barrier);
                }
            }
        }
    }
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

/// Stores `count` boxes that lie at `from` one after the other, from the one at `first` on, into a matrix.
#[inline(always)]
pub(super) fn put_in_matrix<E: Element>(to: &MatrixPlace, rows: usize, first: u32, count: u32, from: u32) {
    if to.matrix.maps == 0 {
        return;
    }
    for index in 0..count {
        let x = to.column + (first + index) * (ROW / E::SIZE);
        for (map, y, offset) in maps_of(rows) {
            let from = from + index * rows as u32 * ROW + offset;
            unsafe { tensor_store(to.matrix.maps + map, x, to.row + y, to.part, from) };
        }
    }
}

/// The tensor maps that cover a box of `rows` rows: a map's offset in a matrix's three, the first row it
/// brings, and where that lies in the box.
#[inline(always)]
fn maps_of(rows: usize) -> impl Iterator<Item = (u64, u32, u32)> {
    let (map, height) = match rows {
        256 => (256, 256),
        128 => (128, 128),
        _ => (0, 64),
    };
    (0..rows as u32 / height).map(move |index| (map, index * height, index * height * ROW))
}
