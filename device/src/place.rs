//! Where a tile or a panel lies: in a matrix, or in a channel's slot. What roles are told.

use core::ops::Range;

use crate::abi::{ChannelArg, MAX_AXES, MatrixArg, NONE};
use crate::channel::Route;

/// A place in a matrix: the rows of one part from `row` on, the columns from `column` on. What lies
/// beyond the part's edge reads as anything and is not stored.
#[derive(Clone, Copy, Debug)]
pub struct MatrixPlace {
    /// The matrix.
    pub matrix: MatrixArg,
    /// The part.
    pub part: u32,
    /// First row, counted in the part.
    pub row: u32,
    /// First column.
    pub column: u32,
}

impl MatrixPlace {
    /// The number of valid rows of the part, from its first.
    #[inline(always)]
    pub fn part_rows(&self) -> u32 {
        part_rows(&self.matrix, self.part)
    }
}

/// The number of rows that part `part` of a matrix has: the last parts may be short or empty.
#[inline(always)]
pub fn part_rows(matrix: &MatrixArg, part: u32) -> u32 {
    let before = part as u64 * matrix.part_rows as u64;
    let left = (matrix.rows as u64).saturating_sub(before);
    if left < matrix.part_rows as u64 { left as u32 } else { matrix.part_rows }
}

/// A slot of a channel.
#[derive(Clone, Copy, Debug)]
pub struct SlotPlace {
    /// The channel's index in the kernel.
    pub channel: u32,
    /// Its place in the symmetric region.
    pub arg: ChannelArg,
    /// The slot's coordinates; 0 beyond the arity.
    pub index: [u32; MAX_AXES],
    /// The number of coordinates.
    pub axes: u32,
    /// The piece that is meant, of a panel; [`NONE`]: all of the slot.
    pub piece: u32,
    /// Who receives what is stored.
    pub route: Route,
    /// It is stored to only once its receiver is done with what it held.
    pub acknowledged: bool,
    /// The rank that is sent to, where the route names one.
    pub to: u32,
    /// The matrix whose tiles the slots are, where the channel lies in one.
    pub into: Option<MatrixArg>,
}

impl SlotPlace {
    /// The slot's position among the channel's slots; `None` if a coordinate, or the piece, is out of range.
    #[inline(always)]
    pub fn linear(&self) -> Option<u32> {
        if self.piece != NONE && self.piece >= self.arg.pieces {
            return None;
        }
        self.linear_of(self.index)
    }

    /// The position of another slot of the same channel.
    #[inline(always)]
    pub fn linear_of(&self, index: [u32; MAX_AXES]) -> Option<u32> {
        let s = self.arg.slots;
        if index[0] >= s[0] || index[1] >= s[1] || index[2] >= s[2] || index[3] >= s[3] {
            return None;
        }
        Some(((index[0] * s[1] + index[1]) * s[2] + index[2]) * s[3] + index[3])
    }

    /// The slot as a tile of `matrix`, which is what the channel lies in as some rank has it. The coordinates are the
    /// tile's, after the part's where there are three.
    #[inline(always)]
    pub fn within(&self, matrix: MatrixArg, rows: usize, columns: usize) -> MatrixPlace {
        let [first, second, third, _] = self.index;
        let (part, row, column) = if self.axes == 3 { (first, second, third) } else { (0, first, second) };
        MatrixPlace { matrix, part, row: row * rows as u32, column: column * columns as u32 }
    }

    /// The position, in the *sender's* region, at which a pulled tile lies: for a route to one rank
    /// the slot whose first coordinate is the receiver instead of the sender; for a broadcast the slot itself.
    #[inline(always)]
    pub fn outbox(&self, receiver: u32) -> Option<u32> {
        match self.route {
            Route::Peers | Route::All => self.linear(),
            Route::One => self.linear_of([receiver, self.index[1], self.index[2], self.index[3]]),
        }
    }

    /// The offset, in a region, of the data at a position in the buffer of an epoch.
    #[inline(always)]
    pub fn data_offset(&self, position: u32, epoch: u32) -> u64 {
        let buffer = self.arg.data + (epoch & 1) as u64 * self.arg.parity_stride;
        buffer + position as u64 * self.arg.slot_bytes
    }

    /// The offset, in the receiver's region, of the signal of a piece of the slot at a position.
    #[inline(always)]
    pub fn signal_offset(&self, position: u32, piece: u32) -> u64 {
        self.arg.signals + 4 * (position as u64 * self.arg.pieces as u64 + piece as u64)
    }

    /// The offset, in this rank's region, of the counter of the slot at a position, for a channel of gates.
    #[inline(always)]
    pub fn counter_offset(&self, position: u32) -> u64 {
        self.arg.counters + 4 * position as u64
    }

    /// The position of that signal among the channel's, for a timeline.
    #[inline(always)]
    pub fn signal(&self, piece: u32) -> u32 {
        self.linear().unwrap_or(0).wrapping_mul(self.arg.pieces).wrapping_add(piece)
    }

    /// The first of the pieces that are meant.
    #[inline(always)]
    pub fn first_piece(&self) -> u32 {
        if self.piece == NONE { 0 } else { self.piece }
    }

    /// The piece at this index.
    #[inline(always)]
    pub fn at_piece(&self, piece: u32) -> SlotPlace {
        SlotPlace { piece, ..*self }
    }

    /// Whether it is a gate's, which holds nothing.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn is_gate(&self) -> bool {
        self.into.is_none() && self.arg.slot_bytes == 0 && self.arg.columns > 0
    }

    /// How many of the rows of what it holds are sent.
    #[inline(always)]
    pub fn rows(&self, rows: usize) -> u32 {
        self.arg.rows.min(rows as u32)
    }

    /// The pieces that are meant.
    #[inline(always)]
    pub fn pieces(&self) -> Range<u32> {
        if self.piece == NONE { 0..self.arg.pieces } else { self.piece..self.piece.saturating_add(1) }
    }

    /// The boxes of what is meant, of the `total` that the slot has: the first, and their number.
    #[inline(always)]
    pub fn boxes(&self, total: u32) -> (u32, u32) {
        if self.piece == NONE { (0, total) } else { self.boxes_of(self.piece, total) }
    }

    /// The boxes of a piece, of the `total` that the slot has: the first, and their number.
    #[inline(always)]
    pub fn boxes_of(&self, piece: u32, total: u32) -> (u32, u32) {
        let first = piece.saturating_mul(self.arg.piece_boxes).min(total);
        (first, self.arg.piece_boxes.min(total - first))
    }

    /// The piece that the box at `index` belongs to.
    #[inline(always)]
    pub fn piece_of(&self, index: u32) -> u32 {
        index.checked_div(self.arg.piece_boxes).unwrap_or(0)
    }

    /// A piece, for a report: [`NONE`] where slots are sent as a whole.
    #[inline(always)]
    pub fn named_piece(&self, piece: u32) -> u32 {
        if self.arg.pieces > 1 { piece } else { NONE }
    }

    /// The rank that sends on the slot, or [`NONE`] where the channel's first axis is not the ranks.
    #[inline(always)]
    pub fn sender(&self, world: u32) -> u32 {
        if self.arg.slots[0] == world { self.index[0] } else { NONE }
    }
}

/// Where a tile lies.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// In a matrix.
    Matrix(MatrixPlace),
    /// In a channel's slot.
    Slot(SlotPlace),
}

impl Place {
    /// Whether a tile that arrives here is thereby at `to`, since the channel lies in that matrix.
    #[inline(always)]
    pub fn is_at(&self, to: &Place, rows: usize, columns: usize) -> bool {
        let (Place::Slot(slot), Place::Matrix(to)) = (self, to) else { return false };
        slot.into.is_some_and(|matrix| {
            let place = slot.within(matrix, rows, columns);
            (matrix.data, place.part, place.row, place.column) == (to.matrix.data, to.part, to.row, to.column)
        })
    }
}

/// Where a panel lies: all columns, from column 0, of `M` rows.
#[derive(Clone, Copy, Debug)]
pub enum PanelPlace {
    /// In a matrix.
    Matrix(MatrixPlace),
    /// In a channel's slot.
    Slot(SlotPlace),
}

impl PanelPlace {
    /// Whether it is there only once it has arrived.
    #[inline(always)]
    pub fn arrives(&self) -> bool {
        matches!(self, PanelPlace::Slot(_))
    }

    /// The number of columns.
    #[inline(always)]
    pub fn columns(&self) -> u32 {
        match self {
            PanelPlace::Matrix(place) => place.matrix.columns,
            PanelPlace::Slot(place) => place.arg.columns,
        }
    }
}
