//! What roles do that carry out a whole operation: reach other ranks' memory from one side, and gather rows.

use crate::abi::MatrixArg;
use crate::element::Element;
use crate::memory::word;
use crate::ordering::{Ordering, Scope};
use crate::place::MatrixPlace;
use crate::role::Role;
use crate::shape::TileShape;
use crate::word::{Change, Comparison, Summand, Word};

/// A role that carries out whole operations: that of all threads of a CTA together, or that of a simulated rank.
///
/// The values of words that it returns are the same for all threads, so that control flow may depend on them.
#[diagnostic::on_unimplemented(
    message = "here a CTA's threads have roles of their own, and none carries out this operation",
    note = "a kernel whose threads have one role, `#[entwine::kernel(roles = one)]`, has symmetric matrices and bags"
)]
pub trait Together: Role {
    /// A symmetric matrix as `rank` has it, once that has begun the launch.
    fn matrix_on(&self, place: &SymmetricPlace, rank: u32) -> MatrixArg;

    /// Ends the launch, since a symmetric matrix has no such word.
    fn out_of_range(&self, place: &WordPlace) -> !;

    /// What a word holds.
    fn load_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace) -> W;

    /// Lets a word hold `value`.
    fn store_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, value: W);

    /// Changes a word. What it held before.
    fn change_word<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, change: Change, operand: W) -> W;

    /// Lets a word hold `new` if it holds the bits of `expected`. What it held before.
    fn compare_exchange<W: Word, O: Ordering, S: Scope>(&self, place: &WordPlace, expected: W, new: W) -> W;

    /// Waits until what a word holds compares so with `value`, and acquires it at system scope. What it holds then.
    fn wait_word<W: Word>(&self, place: &WordPlace, comparison: Comparison, value: W) -> W;

    /// Adds a tile to what lies at a place, element by element.
    fn add_tile<E: Element + Summand, S: TileShape>(&self, tile: &Self::Fragment<E, S>, to: &MatrixPlace);

    /// Starts to copy a block to another.
    fn copy_block<W: Word>(&self, from: &BlockPlace, to: &BlockPlace);

    /// Waits until all that the CTA has stored is there.
    fn complete(&self);

    /// The sums, or means, of a table's rows in `f32`, by bag: tile row `i` is bag `bags.first + i`.
    fn pool<E: Element, S: TileShape>(&self, table: &MatrixPlace, bags: &BagsPlace) -> Self::Fragment<f32, S>;
}

/// A symmetric matrix, as some rank has it.
#[derive(Clone, Copy, Debug)]
pub struct SymmetricPlace {
    /// The matrix.
    pub matrix: MatrixArg,
    /// Its index among the kernel's matrices.
    pub argument: u32,
}

/// A word of a symmetric matrix.
#[derive(Clone, Copy, Debug)]
pub struct WordPlace {
    /// The matrix, as `rank` has it.
    pub matrix: MatrixArg,
    /// Its index among the kernel's matrices.
    pub argument: u32,
    /// The rank.
    pub rank: u32,
    /// The word's row.
    pub row: u32,
    /// Its column.
    pub column: u32,
}

impl WordPlace {
    /// Its address.
    #[inline(always)]
    pub fn address<W: Word>(&self) -> u64 {
        self.matrix.data + self.row as u64 * self.matrix.pitch + self.column as u64 * W::SIZE as u64
    }
}

/// Rows of memory.
#[derive(Clone, Copy, Debug)]
pub struct BlockPlace {
    /// Address of the first row.
    pub data: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Rows.
    pub rows: u32,
    /// Bytes of a row.
    pub bytes: u64,
}

impl BlockPlace {
    /// The same bytes in one row, if they follow each other.
    #[inline(always)]
    pub fn flat(self) -> Self {
        if self.pitch == self.bytes {
            BlockPlace { rows: (self.rows != 0) as u32, bytes: self.bytes * self.rows as u64, ..self }
        } else {
            self
        }
    }
}

/// Lists of a table's rows, of different lengths.
#[derive(Clone, Copy, Debug)]
pub struct BagsPlace {
    /// Where each list's bags begin among `indices`, and where the last one ends: a row for each list.
    pub offsets: MatrixArg,
    /// The rows, bag after bag: one row.
    pub indices: MatrixArg,
    /// The list.
    pub list: u32,
    /// The first bag.
    pub first: u32,
    /// Bags that there are from it on.
    pub count: u32,
    /// Sums are divided by the number of rows.
    pub mean: bool,
}

impl BagsPlace {
    /// Where a bag begins among the indices, and where it ends.
    #[inline(always)]
    pub fn range(&self, bag: u32) -> [u32; 2] {
        let begin = self.offsets.data + self.list as u64 * self.offsets.pitch + 4 * bag as u64;
        [word(begin), word(begin + 4)]
    }

    /// Whether a bag that begins and ends there is one.
    #[inline(always)]
    pub fn holds(&self, [begin, end]: [u32; 2]) -> bool {
        begin <= end && end <= self.indices.columns
    }

    /// The offset that is wrong if one isn't, with its number: one beyond the indices is wrong for both bags that it bounds, so
    /// that all who find it name the same.
    #[inline(always)]
    pub fn wrong(&self, bag: u32, [begin, end]: [u32; 2]) -> (u32, u32) {
        if begin > self.indices.columns { (bag, begin) } else { (bag + 1, end) }
    }
}
