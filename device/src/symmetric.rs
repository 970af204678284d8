//! Symmetric matrices, and what is done to them from one side: whole tiles and blocks, and single words.

use core::marker::PhantomData;

use crate::abi::{MAX_WORLD, MatrixArg, NONE};
use crate::channel::Incoming;
use crate::element::Element;
use crate::matrix::{Matrix, TileMut};
use crate::ordering::{Here, LoadOrdering, Ordering, Reaches, Release, StoreOrdering, Sys, There};
use crate::place::MatrixPlace;
use crate::shape::{Shape, TileShape};
use crate::tile::Tile;
use crate::together::{BlockPlace, SymmetricPlace, Together, WordPlace};
use crate::word::{Change, Comparison, Integer, Summand, Word};

/// A matrix that every rank has, and that every rank can reach on every other. In a tile function the role `R` is left
/// out: `&Symmetric<f32>`.
///
/// A launch that takes one begins on a rank's memory when that rank has begun the launch, and ends on all ranks together:
/// nobody's stores arrive after the launch has ended, or before it has begun, where they arrive. Whatever else orders two
/// accesses within a launch is up to its author: words that are released and acquired, and barriers.
pub struct Symmetric<'c, E, R: Together> {
    role: &'c R,
    place: SymmetricPlace,
    element: PhantomData<E>,
}

impl<'c, E, R: Together> Symmetric<'c, E, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn woven(role: &'c R, matrix: &MatrixArg, argument: u32) -> Self {
        Symmetric { role, place: SymmetricPlace { matrix: *matrix, argument }, element: PhantomData }
    }

    /// What it is on a rank.
    ///
    /// # Faults
    /// There is no such rank, or it doesn't begin the launch before the deadline.
    #[inline(always)]
    pub fn on(&self, rank: u32) -> Image<'c, E, There, R> {
        let matrix = self.role.matrix_on(&self.place, rank);
        Image { role: self.role, place: SymmetricPlace { matrix, ..self.place }, rank, held: PhantomData }
    }

    /// What it is on this rank.
    #[inline(always)]
    pub fn here(&self) -> Image<'c, E, Here, R> {
        Image { role: self.role, place: self.place, rank: self.role.head().rank, held: PhantomData }
    }

    /// Rows, on this rank.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.place.matrix.rows
    }

    /// Columns.
    #[inline(always)]
    pub fn columns(&self) -> u32 {
        self.place.matrix.columns
    }
}

impl<R: Together> Symmetric<'_, u64, R> {
    /// Waits until the tiles that name this row have come here on all `ranks`: whatever each has stored before is there for
    /// all of them after. A rank that is none of them doesn't wait.
    ///
    /// The matrix has a column for each rank. It is zero before the first launch that uses it, and never has to be again,
    /// unless a launch was given up. A row belongs to one tile of each rank, and always to the same ranks.
    ///
    /// # Faults
    /// There is no such row or no such rank, or a rank doesn't come before the deadline.
    #[inline(always)]
    pub fn barrier(&self, row: u32, ranks: Group) {
        let (rank, world) = (self.role.head().rank, self.role.head().world);
        if let Some(stranger) = ranks.beyond(world) {
            let place = WordPlace {
                matrix: self.place.matrix,
                argument: self.place.argument,
                rank: stranger,
                row: NONE,
                column: NONE,
            };
            self.role.out_of_range(&place);
        }
        if !ranks.contains(rank) {
            return;
        }
        let mut times = 0;
        for peer in 0..world {
            if ranks.contains(peer) {
                let before = self.on(peer).word([row, rank]).fetch_add(1, Release, Sys);
                times = if peer == rank { before + 1 } else { times };
            }
        }
        for peer in 0..world {
            if ranks.contains(peer) {
                self.here().word([row, peer]).wait_until(Comparison::AtLeast, times);
            }
        }
    }
}

/// Some of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// A bit for each rank.
    ranks: u32,
    /// A rank that no world has; [`NONE`] if all may be there.
    stranger: u32,
}

impl Group {
    /// All ranks of the world.
    pub const ALL: Group = Group { ranks: u32::MAX, stranger: NONE };

    /// These ranks.
    #[inline(always)]
    pub fn of<const COUNT: usize>(ranks: [u32; COUNT]) -> Self {
        let mut group = Group { ranks: 0, stranger: NONE };
        for rank in ranks {
            group = group.with(rank);
        }
        group
    }

    /// These ranks, and this one.
    #[inline(always)]
    pub fn with(self, rank: u32) -> Self {
        if rank < MAX_WORLD as u32 {
            Group { ranks: self.ranks | 1 << rank, ..self }
        } else {
            Group { stranger: rank.min(NONE - 1), ..self }
        }
    }

    /// Whether a rank is one of them.
    #[inline(always)]
    pub fn contains(self, rank: u32) -> bool {
        rank < u32::BITS && self.ranks >> rank & 1 != 0
    }

    /// One of them that a world of so many ranks doesn't have. All ranks are those that it has.
    #[inline(always)]
    fn beyond(self, world: u32) -> Option<u32> {
        let left_out = if self == Group::ALL { 0 } else { self.ranks >> world };
        if self.stranger != NONE {
            Some(self.stranger)
        } else {
            (left_out != 0).then(|| world + left_out.trailing_zeros())
        }
    }
}

/// What a symmetric matrix is on one rank: this one (`A` is [`Here`]), or one that was named ([`There`]).
pub struct Image<'c, E, A, R: Together> {
    role: &'c R,
    place: SymmetricPlace,
    rank: u32,
    held: PhantomData<(E, A)>,
}

impl<'c, E, A, R: Together> Image<'c, E, A, R> {
    /// Rows.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.place.matrix.rows
    }

    /// Columns.
    #[inline(always)]
    pub fn columns(&self) -> u32 {
        self.place.matrix.columns
    }
}

impl<'c, E: Element, A, R: Together> Image<'c, E, A, R> {
    /// The tile at `[row, column]` of the grid of `M × N` tiles that covers it, to be read straight into registers.
    #[inline(always)]
    pub fn load<const M: usize, const N: usize>(&self, index: [u32; 2]) -> Incoming<'c, E, M, N, R> {
        self.matrix().load(index)
    }

    /// The tile at `[row, column]` of the grid of tiles that covers it, to be stored to straight from registers.
    #[inline(always)]
    pub fn tile(&self, index: [u32; 2]) -> TileMut<E> {
        self.matrix().tile(index)
    }

    /// Adds a tile to the one at `[row, column]` of the grid of tiles that covers it, each element at once with respect to
    /// the others' additions, in no order. NaN and subnormal sums are as in [`WordAt`].
    #[inline(always)]
    pub fn add<const M: usize, const N: usize>(&self, [row, column]: [u32; 2], tile: &Tile<'c, E, M, N, R>)
    where
        Shape<M, N>: TileShape,
        E: Summand,
    {
        let (row, column) = (row * M as u32, column * N as u32);
        let place = MatrixPlace { matrix: self.place.matrix, part: 0, row, column };
        self.role.add_tile::<E, Shape<M, N>>(tile.fragment(), &place);
    }

    /// `count` of its columns from `first` on, as a matrix of their own.
    ///
    /// # Faults
    /// There are no such columns.
    #[inline(always)]
    pub fn columns_from(&self, first: u32, count: u32) -> Image<'c, E, A, R> {
        self.check([0, first], [0, count]);
        let mut place = self.place;
        place.matrix.data += first as u64 * <E as Element>::SIZE as u64;
        place.matrix.columns = count;
        Image { role: self.role, place, rank: self.rank, held: PhantomData }
    }

    #[inline(always)]
    fn matrix(&self) -> Matrix<'c, E, R> {
        let MatrixArg { rows, part_rows, .. } = self.place.matrix;
        // Simulated ranks hold tiles that are stored against what the rank with the most rows has.
        let part_rows = if cfg!(target_arch = "nvptx64") { rows } else { part_rows };
        Matrix::woven(self.role, &MatrixArg { part_rows, parts: 1, ..self.place.matrix })
    }
}

impl<'c, E, A, R: Together> Image<'c, E, A, R> {
    /// Ends the launch if there are no such rows and columns.
    #[inline(always)]
    fn check(&self, [row, column]: [u32; 2], [rows, columns]: [u32; 2]) {
        let inside = |first: u32, count: u32, all: u32| first <= all && count <= all - first;
        if !inside(row, rows, self.rows()) || !inside(column, columns, self.columns()) {
            self.role.out_of_range(&self.word_place(row, column));
        }
    }

    #[inline(always)]
    fn word_place(&self, row: u32, column: u32) -> WordPlace {
        WordPlace { matrix: self.place.matrix, argument: self.place.argument, rank: self.rank, row, column }
    }
}

impl<'c, W: Word, A, R: Together> Image<'c, W, A, R> {
    /// The word in this row and column.
    ///
    /// # Faults
    /// There is none.
    #[inline(always)]
    pub fn word(&self, [row, column]: [u32; 2]) -> WordAt<'c, W, A, R> {
        self.check([row, column], [1, 1]);
        WordAt { role: self.role, place: self.word_place(row, column), held: PhantomData }
    }

    /// The block of so many rows and columns whose first word is in this row and column.
    ///
    /// # Faults
    /// A part of it lies outside.
    #[inline(always)]
    pub fn block(&self, origin: [u32; 2], extent: [u32; 2]) -> Block<'c, W, A, R> {
        self.check(origin, extent);
        let [row, column] = origin;
        let pitch = self.place.matrix.pitch;
        let data = self.place.matrix.data + row as u64 * pitch + column as u64 * W::SIZE as u64;
        let place = BlockPlace { data, pitch, rows: extent[0], bytes: extent[1] as u64 * W::SIZE as u64 };
        Block { role: self.role, place, held: PhantomData }
    }

    /// All of it.
    #[inline(always)]
    pub fn whole(&self) -> Block<'c, W, A, R> {
        self.block([0, 0], [self.rows(), self.columns()])
    }
}

/// One word of a symmetric matrix on one rank. Every operation is done once by the CTA.
///
/// An operation comes after all that the CTA did before, and before all that it does next, as far as its own memory goes;
/// for others, its order and scope say what it orders.
///
/// A sum, difference, minimum or maximum that is a NaN is the one that GPUs make, with all bits set but the sign, whatever it came
/// of; sums and differences of `f32` count subnormal numbers as zeros of the same sign, also where they come to one. What is
/// loaded, stored or exchanged keeps all its bits.
pub struct WordAt<'c, W, A, R: Together> {
    role: &'c R,
    place: WordPlace,
    held: PhantomData<(W, A)>,
}

impl<W: Word, A, R: Together> WordAt<'_, W, A, R> {
    /// What it holds.
    #[inline(always)]
    pub fn load<O: LoadOrdering, S: Reaches<A>>(&self, _: O, _: S) -> W {
        self.role.load_word::<W, O, S>(&self.place)
    }

    /// Lets it hold `value`.
    #[inline(always)]
    pub fn store<O: StoreOrdering, S: Reaches<A>>(&self, value: W, _: O, _: S) {
        self.role.store_word::<W, O, S>(&self.place, value);
    }

    /// Lets it hold `value`. What it held before.
    #[inline(always)]
    pub fn exchange<O: Ordering, S: Reaches<A>>(&self, value: W, _: O, _: S) -> W {
        self.role.change_word::<W, O, S>(&self.place, Change::Exchange, value)
    }

    /// Lets it hold `new` if it holds the bits of `expected`. What it held before: as `Ok` if that was `expected`.
    ///
    /// # Errors
    /// It held something else, and still does.
    #[inline(always)]
    pub fn compare_exchange<O: Ordering, S: Reaches<A>>(&self, expected: W, new: W, _: O, _: S) -> Result<W, W> {
        let found = self.role.compare_exchange::<W, O, S>(&self.place, expected, new);
        if found.to_bits() == expected.to_bits() { Ok(found) } else { Err(found) }
    }

    /// Waits until what it holds compares so with `value`, and acquires, for all ranks, what was released with it. What it
    /// holds then.
    ///
    /// # Faults
    /// That is not so before the deadline.
    #[inline(always)]
    pub fn wait_until(&self, comparison: Comparison, value: W) -> W {
        self.role.wait_word(&self.place, comparison, value)
    }
}

macro_rules! changes {
    ($bound:ident: $($(#[$doc:meta])* $name:ident = |$value:ident| $change:ident($operand:expr);)+) => {
        impl<W: Word, A, R: Together> WordAt<'_, W, A, R> {
            $($(#[$doc])*
            #[inline(always)]
            pub fn $name<O: Ordering, S: Reaches<A>>(&self, $value: W, _: O, _: S) -> W
            where
                W: $bound,
            {
                self.role.change_word::<W, O, S>(&self.place, Change::$change, $operand)
            })+
        }
    };
}
changes! {
    Summand:
    /// Adds `value`; whole numbers wrap. What it held before.
    fetch_add = |value| Add(value);
    /// Subtracts `value`; whole numbers wrap. What it held before.
    fetch_sub = |value| Add(value.negated());
    /// Lets it hold the smaller of what it holds and `value`; of a NaN and a number, the number. What it held before.
    ///
    /// On GPUs a floating-point word is compared and exchanged until nobody else has changed it in between.
    fetch_min = |value| Min(value);
    /// Lets it hold the larger of what it holds and `value`; of a NaN and a number, the number. What it held before.
    ///
    /// On GPUs as [`fetch_min`](WordAt::fetch_min).
    fetch_max = |value| Max(value);
}
changes! {
    Integer:
    /// Clears the bits that are not set in `value`. What it held before.
    fetch_and = |value| And(value);
    /// Sets the bits that are set in `value`. What it held before.
    fetch_or = |value| Or(value);
    /// Flips the bits that are set in `value`. What it held before.
    fetch_xor = |value| Xor(value);
}

/// Rows and columns of a symmetric matrix on one rank, to be copied from or to.
pub struct Block<'c, W, A, R: Together> {
    role: &'c R,
    place: BlockPlace,
    held: PhantomData<(W, A)>,
}

impl<'c, W: Word, A, R: Together> Block<'c, W, A, R> {
    /// Copies this block to another of as many rows and columns. They must not overlap.
    ///
    /// # Panics
    /// The other has other rows or columns.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn copy<B>(&self, to: &Block<'c, W, B, R>) {
        self.start_copy(to).wait();
    }

    /// Starts to [`copy`](Block::copy).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn start_copy<B>(&self, to: &Block<'c, W, B, R>) -> Transfer<'c, R> {
        check!(
            self.place.rows == to.place.rows && self.place.bytes == to.place.bytes,
            "a block of {} rows and {} columns can't be copied to one of {} rows and {} columns",
            self.place.rows,
            self.place.bytes / W::SIZE as u64,
            to.place.rows,
            to.place.bytes / W::SIZE as u64
        );
        self.role.copy_block::<W>(&self.place, &to.place);
        Transfer { role: self.role }
    }
}

impl<'c, W: Word, R: Together> Block<'c, W, Here, R> {
    /// Copies this block to one on a rank. When it returns, the data are there.
    ///
    /// # Panics
    /// The other has other rows or columns.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn put(&self, to: &Block<'c, W, There, R>) {
        self.copy(to);
    }

    /// Starts to [`put`](Block::put).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn start_put(&self, to: &Block<'c, W, There, R>) -> Transfer<'c, R> {
        self.start_copy(to)
    }

    /// Copies this block to one on a rank and then lets a word there hold `value`: whoever acquires that finds the data.
    ///
    /// # Panics
    /// The other has other rows or columns.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn put_signal<V: Word>(&self, to: &Block<'c, W, There, R>, signal: &WordAt<'c, V, There, R>, value: V) {
        let _ = self.start_copy(to);
        signal.store(value, Release, Sys);
    }

    /// Copies one on a rank to this block. When it returns, the data are here.
    ///
    /// # Panics
    /// The other has other rows or columns.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn get(&self, from: &Block<'c, W, There, R>) {
        from.copy(self);
    }

    /// Starts to [`get`](Block::get).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn start_get(&self, from: &Block<'c, W, There, R>) -> Transfer<'c, R> {
        from.start_copy(self)
    }

    /// Copies this block to the same place of a symmetric matrix on every rank, this one among them. When it returns, the
    /// data are there.
    ///
    /// # Faults
    /// A part of the place lies outside of the matrix.
    #[inline(always)]
    pub fn broadcast(&self, to: &Symmetric<'c, W, R>, origin: [u32; 2]) {
        let columns = self.place.bytes / W::SIZE as u64;
        for rank in 0..self.role.head().world {
            let _ = self.start_copy(&to.on(rank).block(origin, [self.place.rows, columns as u32]));
        }
        self.role.complete();
    }
}

/// A copy that was started. Its loads are behind it; its stores may be under way, until it is waited for, a word is released
/// or the launch ends.
#[must_use = "what it copies may be under way until it is waited for"]
pub struct Transfer<'c, R: Together> {
    role: &'c R,
}

impl<R: Together> Transfer<'_, R> {
    /// Waits until all that this CTA has started to copy is there.
    #[inline(always)]
    pub fn wait(self) {
        self.role.complete();
    }
}
