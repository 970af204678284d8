//! Which tiles a CTA visits, and in which order.

use crate::abi::{Head, MAX_AXES, NONE};
use crate::at::At;
use crate::place::SlotPlace;
use crate::role::Role;

/// How many tiles of `size` cover `extent`: the quotient, rounded up.
#[inline(always)]
pub fn tiles(extent: u32, size: u32) -> u32 {
    quotient(extent, size) + !extent.is_multiple_of(size) as u32
}

/// The CTAs of the grid that carry a stage: `count` of them, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first CTA.
    pub first: u32,
    /// The number of CTAs.
    pub count: u32,
}

/// One of the CTAs that share out the work of a stage's single tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its index among them.
    pub index: u32,
    /// Their number.
    pub of: u32,
}

/// The most CTAs that share out the work of a tile.
pub const MEMBERS: u32 = 16;

impl Member {
    /// A CTA that works alone.
    pub const ALONE: Member = Member { index: 0, of: 1 };
}

/// A stage as the walk sees it.
#[derive(Clone, Copy, Debug)]
pub struct Stage<const D: usize> {
    /// Its index in the kernel.
    pub index: u32,
    /// Tiles along each axis.
    pub grid: [u32; D],
    /// The CTAs that carry it.
    pub share: Share,
    /// The last of them begins. Stages begin by turns with the first and the last: who gets a tile more of one gets none more of
    /// the next.
    pub from_end: bool,
    /// Rows of tiles that [`grouped`] keeps together.
    pub rows_together: u32,
}

/// A position in the sequence in which a rank visits a stage's tiles. An order is a function from it to
/// the tile's coordinates that is one-to-one over `0..grid.product()`.
#[derive(Clone, Copy, Debug)]
pub struct Step<const D: usize> {
    /// The position, from 0.
    pub index: u32,
    /// Tiles along each axis.
    pub grid: [u32; D],
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// Columns of tiles (the last axis) that an order by blocks visits in all blocks before the next; 0 means all.
    pub span: u32,
    /// Rows of tiles (the last axis but one) that an order by groups keeps together.
    pub rows_together: u32,
}

impl<const D: usize> Stage<D> {
    /// Which of the CTAs that carry it a CTA is, and so the position of its first tile.
    #[inline(always)]
    fn seat(&self, cta: u32) -> u32 {
        let offset = cta.wrapping_sub(self.share.first);
        if self.from_end { self.share.count.wrapping_sub(1).wrapping_sub(offset) } else { offset }
    }

    /// The number of its tiles.
    #[inline(always)]
    fn total(&self) -> u32 {
        let mut total = 1;
        for extent in self.grid {
            total *= extent;
        }
        total
    }

    /// The number of its tiles that fall to a CTA, every `count`-th of them.
    #[inline(always)]
    fn tiles_of(&self, cta: u32) -> u32 {
        let seat = self.seat(cta);
        if seat >= self.share.count {
            return 0;
        }
        tiles(self.total().saturating_sub(seat), self.share.count)
    }

    /// Its tiles, as a CTA takes them, if that is one of those that carry it.
    #[inline(always)]
    fn queue(&self, cta: u32) -> Option<Queue> {
        let Share { first, count } = self.share;
        (cta.wrapping_sub(first) < count).then(|| Queue { stage: self.index, tiles: self.total(), ctas: count })
    }

    /// The position, in the rank's sequence, of the `turn`-th tile that falls to a CTA.
    #[inline(always)]
    fn step<R: Role>(&self, role: &R, turn: u32) -> Step<D> {
        self.step_at(role, self.seat(role.cta()) + turn * self.share.count)
    }

    /// A position in the rank's sequence.
    #[inline(always)]
    fn step_at<R: Role>(&self, role: &R, index: u32) -> Step<D> {
        let Head { rank, world, span, .. } = *role.head();
        Step { index, grid: self.grid, rank, world, span, rows_together: self.rows_together }
    }

    #[inline(always)]
    fn begin<R: Role>(&self, role: &R, coordinates: [u32; D], last: bool) {
        role.begin(self.index, named(coordinates), last);
    }
}

/// Coordinates as reports have them.
#[inline(always)]
fn named<const D: usize>(coordinates: [u32; D]) -> [u32; MAX_AXES] {
    let mut named = [NONE; MAX_AXES];
    named[..D].copy_from_slice(&coordinates);
    named
}

/// The largest grid whose order is looked through before it is walked.
#[cfg(not(target_arch = "nvptx64"))]
const LOOKED_THROUGH: u32 = 1 << 20;

/// On simulated ranks, sees on the CTA of a rank that begins a stage that an order leads to each of its tiles once: one that leads
/// elsewhere, or to a tile twice, never comes to another, whose results would be missing. Of another CTA the stray tile might come first.
#[cfg(not(target_arch = "nvptx64"))]
fn check_order<const D: usize, R: Role>(role: &R, stage: &Stage<D>, order: impl Fn(Step<D>) -> [u32; D]) {
    let grid = stage.grid;
    let total = grid.iter().try_fold(1u32, |total, extent| total.checked_mul(*extent)).unwrap_or(u32::MAX);
    if stage.seat(role.cta()) != 0 || total > LOOKED_THROUGH {
        return;
    }
    let mut visited = std::vec![false; total as usize];
    for index in 0..total {
        let tile = order(stage.step_at(role, index));
        role.note(stage.index, named(tile));
        let inside = tile.iter().zip(&grid).all(|(at, extent)| at < extent);
        assert!(inside, "its order leads to tile {tile:?}, outside of a grid of {grid:?}");
        let position = tile.iter().zip(&grid).fold(0, |position, (at, extent)| position * extent + at);
        let before = core::mem::replace(&mut visited[position as usize], true);
        assert!(!before, "its order leads to tile {tile:?} twice, and so to another never");
    }
}

/// Visits this CTA's tiles of a stage in a fixed order.
#[inline(always)]
pub fn walk<const D: usize, R: Role>(
    role: &R,
    stage: Stage<D>,
    order: impl Fn(Step<D>) -> [u32; D],
    mut tile: impl FnMut(At<'_, D, R>),
) {
    #[cfg(not(target_arch = "nvptx64"))]
    check_order(role, &stage, &order);
    let count = stage.tiles_of(role.cta());
    let mut turn = 0;
    while turn < count {
        let coordinates = order(stage.step(role, turn));
        stage.begin(role, coordinates, turn + 1 == count);
        tile(At::new(role, coordinates));
        turn += 1;
        if turn == count && role.comes_back() {
            turn = 0;
        }
    }
}

/// Visits the single tile of a stage on several of the CTAs that carry it, which share out its work.
#[inline(always)]
pub fn walk_as_members<const D: usize, R: Role>(role: &R, stage: Stage<D>, tile: impl FnOnce(At<'_, D, R>, Member)) {
    let index = role.cta().wrapping_sub(stage.share.first);
    let of = if stage.share.count < MEMBERS { stage.share.count } else { MEMBERS };
    if index < of {
        stage.begin(role, [0; D], true);
        tile(At::new(role, [0; D]), Member { index, of });
    }
}

/// The tiles of a stage as the CTAs that carry it take them: whoever is free takes the next one, and puts by what isn't ready.
/// Candidates are positions in the rank's sequence.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The stage, whose tiles are counted in [`Control::taken`](crate::abi::Control::taken) as they are taken.
    pub stage: u32,
    /// How many there are.
    pub tiles: u32,
    /// How many CTAs take them.
    pub ctas: u32,
}

impl Queue {
    /// The most tiles that a CTA has put by.
    pub const PUT_BY: u32 = 31;
    /// No candidate: none is left.
    pub const EMPTY: u32 = NONE;
    /// The candidate that is a tile of the stage beside this one.
    pub const BESIDE: u32 = NONE - 1;

    /// Of places (a bit each) where tiles are put by, the next one behind a place, round and round. There must be one.
    #[inline(always)]
    pub fn behind(place: u32, places: u32) -> u32 {
        let behind = places & (!1 << place);
        if behind != 0 { behind.trailing_zeros() } else { places.trailing_zeros() }
    }

    /// As many of them as each CTA would get if they were dealt.
    #[inline(always)]
    pub fn share(&self) -> u32 {
        tiles(self.tiles, self.ctas)
    }

    /// What the counter holds last before it is 0 again, for the next launch: each tile is drawn, and each CTA draws once in vain.
    #[inline(always)]
    pub fn last(&self) -> u32 {
        (self.tiles + self.ctas).wrapping_sub(1)
    }
}

/// Visits a stage's tiles as CTAs are free for them and the slots arrive that they wait for, each named by `slot`, or that
/// wait for none: a CTA takes the next tile in [`grouped`] order, and comes back later to those that aren't ready.
#[inline(always)]
pub fn walk_ready_first<const D: usize, R: Role>(
    role: &R,
    stage: Stage<D>,
    slot: impl Fn([u32; D]) -> Option<SlotPlace>,
    mut tile: impl FnMut(At<'_, D, R>),
) {
    let Some(queue) = stage.queue(role.cta()) else { return };
    let coordinates = |position| grouped(stage.step_at(role, position));
    let note = |position| role.note(stage.index, named(coordinates(position)));
    loop {
        let position = role.take(&queue, false, |position| slot(coordinates(position)), note);
        if position == Queue::EMPTY {
            return;
        }
        let picked = coordinates(position);
        // Probably the last: one that was put by may come after it.
        stage.begin(role, picked, position + queue.ctas >= queue.tiles);
        tile(At::new(role, picked));
    }
}

/// A CTA's tiles of a stage that are left to it, in a fixed order, where it visits those of several stages by turns.
pub struct Course<const D: usize, O> {
    stage: Stage<D>,
    order: O,
    /// The position of the next one in the rank's sequence.
    index: u32,
    /// How many there are.
    left: u32,
}

impl<const D: usize, O: Fn(Step<D>) -> [u32; D]> Course<D, O> {
    /// All of its tiles.
    #[inline(always)]
    pub fn new<R: Role>(role: &R, stage: Stage<D>, order: O) -> Self {
        #[cfg(not(target_arch = "nvptx64"))]
        check_order(role, &stage, &order);
        Course { stage, order, index: stage.seat(role.cta()), left: stage.tiles_of(role.cta()) }
    }

    /// Whether there are any left.
    #[inline(always)]
    pub fn is_left(&self) -> bool {
        self.left > 0
    }

    /// The next one's coordinates.
    #[inline(always)]
    pub fn next<R: Role>(&self, role: &R) -> [u32; D] {
        (self.order)(self.stage.step_at(role, self.index))
    }

    /// Visits the next one, at these coordinates.
    #[inline(always)]
    pub fn visit<R: Role>(&mut self, role: &R, coordinates: [u32; D], tile: impl FnOnce(At<'_, D, R>)) {
        // The last of the CTA's tiles may be the other stage's.
        self.stage.begin(role, coordinates, false);
        tile(At::new(role, coordinates));
        self.index += self.stage.share.count;
        self.left -= 1;
    }
}

/// Visits the tiles of a stage in its order, each on the CTA that is free for it, and a CTA's tiles of another in theirs: the next
/// one of `beside` whenever the slot has arrived that it waits for, and else the next one of the stage.
#[inline(always)]
pub fn walk_beside<const D: usize, const E: usize, R: Role>(
    role: &R,
    main: Stage<D>,
    order: impl Fn(Step<D>) -> [u32; D],
    mut tile: impl FnMut(At<'_, D, R>),
    mut beside: Course<E, impl Fn(Step<E>) -> [u32; E]>,
    slot: impl Fn([u32; E]) -> Option<SlotPlace>,
    mut tile_beside: impl FnMut(At<'_, E, R>),
) {
    #[cfg(not(target_arch = "nvptx64"))]
    check_order(role, &main, &order);
    let Some(queue) = main.queue(role.cta()) else { return };
    let coordinates = |position| order(main.step_at(role, position));
    loop {
        let next = if beside.is_left() { beside.next(role) } else { [0; E] };
        let candidate = role.take(
            &queue,
            beside.is_left(),
            |candidate| if candidate == Queue::BESIDE { slot(next) } else { None },
            |candidate| match candidate {
                Queue::BESIDE => role.note(beside.stage.index, named(next)),
                position => role.note(main.index, named(coordinates(position))),
            },
        );
        match candidate {
            Queue::EMPTY => return,
            Queue::BESIDE => beside.visit(role, next, &mut tile_beside),
            position => {
                let picked = coordinates(position);
                main.begin(role, picked, false);
                tile(At::new(role, picked));
            }
        }
    }
}

/// The last axis fastest.
#[inline(always)]
pub fn row_major<const D: usize>(step: Step<D>) -> [u32; D] {
    let mut coordinates = [0; D];
    row_major_before(D, step.grid, step.index, 0, &mut coordinates);
    coordinates
}

/// Groups of [rows](Step::rows_together) (the last axis but one) walk along the last axis, so that the panels which a wave of
/// CTAs reads stay in the L2. The axes before are row-major.
#[inline(always)]
pub fn grouped<const D: usize>(step: Step<D>) -> [u32; D] {
    let mut coordinates = [0; D];
    grouped_from(0, &step, step.grid, step.index, &mut coordinates);
    coordinates
}

/// Each span of so many columns (the last axis) in turn, in an order for the tiles in it.
#[inline(always)]
pub fn in_spans<const D: usize>(step: Step<D>, span: u32, order: impl Fn(Step<D>) -> [u32; D]) -> [u32; D] {
    let Step { mut grid, index, .. } = step;
    let mut column = 1;
    for extent in &grid[..D - 1] {
        column *= extent;
    }
    let left = quotient(index, span * column) * span;
    let right = grid[D - 1] - left;
    grid[D - 1] = if span < right { span } else { right };
    let mut coordinates = order(Step { index: index - left * column, grid, ..step });
    coordinates[D - 1] += left;
    coordinates
}

/// The blocks of the peers first, each rank starting at the one after itself, and its own last: whatever
/// is sent is on its way before anything is waited for. The first axis must be the ranks; a block is [`grouped`].
///
/// With a [`span`](Step::span) this holds for each span of columns in turn. A tile of a rank's own still comes after the
/// peers' tiles of the same columns, on every rank alike, so that nothing waits for what comes later in the order.
#[inline(always)]
pub fn peers_first<const D: usize>(step: Step<D>) -> [u32; D] {
    blocks(step, 1)
}

/// This rank's own block first, then those of the ranks after it in turn; with a [`span`](Step::span), for each span of
/// columns. The first axis must be the ranks; a block is [`grouped`].
#[inline(always)]
pub fn ring<const D: usize>(step: Step<D>) -> [u32; D] {
    blocks(step, 0)
}

/// Blocks in turn from `rank + offset` on, for each span of columns.
#[inline(always)]
fn blocks<const D: usize>(step: Step<D>, offset: u32) -> [u32; D] {
    let Step { mut grid, mut index, rank, span, .. } = step;
    let mut left = 0;
    if D > 2 && span != 0 && span < grid[D - 1] {
        let mut column = 1;
        for extent in &grid[..D - 1] {
            column *= extent;
        }
        let passed = quotient(index, span * column);
        left = passed * span;
        index -= left * column;
        let right = grid[D - 1] - left;
        grid[D - 1] = if span < right { span } else { right };
    }
    let mut block = 1;
    for extent in &grid[1..] {
        block *= extent;
    }
    let (turn, within) = split(index, block);
    let mut coordinates = [0; D];
    grouped_from(1, &step, grid, within, &mut coordinates);
    let owner = rank + offset + turn;
    coordinates[0] = if owner < grid[0] { owner } else { owner - grid[0] };
    if D > 2 {
        coordinates[D - 1] += left;
    }
    coordinates
}

/// Rows of tiles that are kept together: with as many columns a wave of CTAs reads few panels of either operand.
pub const ROWS_TOGETHER: u32 = 16;
/// The same where rows go by a routing. Only the few blocks of a group have their weights in common, so that rows are read again less
/// often if more columns are visited at once; and the first tiles wait for fewer blocks.
pub const ROUTED_ROWS_TOGETHER: u32 = 8;

/// [`grouped`] over the axes from `first` on of a grid, at a position in it.
#[inline(always)]
fn grouped_from<const D: usize>(first: usize, step: &Step<D>, grid: [u32; D], index: u32, coordinates: &mut [u32; D]) {
    if D < first + 2 {
        row_major_before(D, grid, index, first, coordinates);
        return;
    }
    let (rows, columns) = (grid[D - 2], grid[D - 1]);
    // Division is slow enough to matter between two tiles.
    let within = if D == first + 2 {
        index
    } else {
        let (plane, within) = split(index, rows * columns);
        row_major_before(D - 2, grid, plane, first, coordinates);
        within
    };
    let together = step.rows_together;
    let (group, within) = split(within, together * columns);
    let top = group * together;
    let height = if rows - top < together { rows - top } else { together };
    let (column, row) = split(within, height);
    coordinates[D - 2] = top + row;
    coordinates[D - 1] = column;
}

/// Row-major over the axes from `first` up to `end`.
#[inline(always)]
fn row_major_before<const D: usize>(end: usize, grid: [u32; D], index: u32, first: usize, coordinates: &mut [u32; D]) {
    let mut rest = index;
    for axis in (first..end).rev() {
        (rest, coordinates[axis]) = split(rest, grid[axis]);
    }
}

// A grid without tiles has no steps, so nothing here is divided by zero. The compiler can't see that, and a
// panic would be carried along in every entry.

#[inline(always)]
fn quotient(dividend: u32, divisor: u32) -> u32 {
    dividend.checked_div(divisor).unwrap_or(0)
}

/// Quotient and remainder.
#[inline(always)]
fn split(dividend: u32, divisor: u32) -> (u32, u32) {
    let quotient = quotient(dividend, divisor);
    (quotient, dividend - quotient * divisor)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn tiles_of(from_end: bool, total: u32, ctas: u32) -> Vec<u32> {
        let stage =
            Stage { index: 0, grid: [total], share: Share { first: 0, count: ctas }, from_end, rows_together: 1 };
        (0..ctas).map(|cta| stage.tiles_of(cta)).collect()
    }

    #[test]
    fn who_gets_more_of_a_stage_gets_none_more_of_the_next() {
        assert_eq!(tiles_of(false, 6, 4), [2, 2, 1, 1]);
        assert_eq!(tiles_of(true, 6, 4), [1, 1, 2, 2]);
        assert_eq!(tiles_of(false, 3, 4), [1, 1, 1, 0]);
        assert_eq!(tiles_of(true, 3, 4), [0, 1, 1, 1]);
    }

    #[test]
    fn places_follow_each_other_round_and_round() {
        assert_eq!(Queue::behind(1, 0b1010), 3);
        assert_eq!(Queue::behind(3, 0b1010), 1);
        assert_eq!(Queue::behind(31, 0b1011), 0);
        assert_eq!(Queue::behind(2, 0b0100), 2);
        assert_eq!(Queue::behind(30, 1 << 31 | 1), 31);
    }

    #[test]
    fn only_those_that_carry_a_stage_have_tiles_of_it() {
        for from_end in [false, true] {
            let stage =
                Stage { index: 0, grid: [2, 5], share: Share { first: 2, count: 3 }, from_end, rows_together: 1 };
            let of_all = (0..7).map(|cta| stage.tiles_of(cta)).collect::<Vec<_>>();
            assert_eq!(of_all.iter().sum::<u32>(), 10);
            assert_eq!(of_all[..2], [0, 0]);
            assert_eq!(of_all[5..], [0, 0]);
        }
    }
}
