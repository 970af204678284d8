//! Which tiles a CTA visits, and in which order.

use crate::abi::{MAX_AXES, NONE};
use crate::at::At;
use crate::place::SlotPlace;
use crate::role::Role;

/// How many tiles of `size` cover `extent`: the quotient, rounded up.
#[inline(always)]
pub fn tiles(extent: u32, size: u32) -> u32 {
    extent / size + !extent.is_multiple_of(size) as u32
}

/// The CTAs of the grid that carry a stage: `count` of them, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first CTA.
    pub first: u32,
    /// The number of CTAs.
    pub count: u32,
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
}

impl<const D: usize> Stage<D> {
    /// The number of its tiles that fall to a CTA, every `count`-th of them.
    #[inline(always)]
    fn tiles_of(&self, cta: u32) -> u32 {
        let mut total = 1;
        for extent in self.grid {
            total *= extent;
        }
        if cta < self.share.first || cta - self.share.first >= self.share.count {
            return 0;
        }
        tiles(total.saturating_sub(cta - self.share.first), self.share.count)
    }

    /// The position, in the rank's sequence, of the `turn`-th tile that falls to a CTA.
    #[inline(always)]
    fn step<R: Role>(&self, role: &R, turn: u32) -> Step<D> {
        let index = role.cta() - self.share.first + turn * self.share.count;
        Step { index, grid: self.grid, rank: role.head().rank, world: role.head().world }
    }

    #[inline(always)]
    fn begin<R: Role>(&self, role: &R, coordinates: [u32; D]) {
        let mut named = [NONE; MAX_AXES];
        named[..D].copy_from_slice(&coordinates);
        role.begin(self.index, named);
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
    for turn in 0..stage.tiles_of(role.cta()) {
        let coordinates = order(stage.step(role, turn));
        stage.begin(role, coordinates);
        tile(At::new(role, coordinates));
    }
}

/// Visits this CTA's tiles of a stage as the slots arrive that they wait for, each named by `slot`, or that
/// wait for none. Of its tiles in row-major order, those within 64 of the first unvisited one are pending.
#[inline(always)]
pub fn walk_ready_first<const D: usize, R: Role>(
    role: &R,
    stage: Stage<D>,
    slot: impl Fn([u32; D]) -> Option<SlotPlace>,
    mut tile: impl FnMut(At<'_, D, R>),
) {
    let count = stage.tiles_of(role.cta());
    let coordinates = |turn| row_major(stage.step(role, turn));
    let mut first = 0;
    let mut visited = 0u64;
    while first < count {
        let window = if count - first < u64::BITS { (1 << (count - first)) - 1 } else { u64::MAX };
        // Until a tile is picked, what is missing is reported for the first.
        stage.begin(role, coordinates(first));
        let pick = role.first_ready(window & !visited, |bit| slot(coordinates(first + bit)));
        let picked = coordinates(first + pick);
        stage.begin(role, picked);
        tile(At::new(role, picked));
        visited |= 1 << pick;
        let done = visited.trailing_ones();
        visited = visited.checked_shr(done).unwrap_or(0);
        first += done;
    }
}

/// The last axis fastest.
#[inline(always)]
pub fn row_major<const D: usize>(step: Step<D>) -> [u32; D] {
    let mut coordinates = [0; D];
    let mut rest = step.index;
    for axis in (0..D).rev() {
        coordinates[axis] = rest % step.grid[axis];
        rest /= step.grid[axis];
    }
    coordinates
}

/// Tiles of one rank's block are visited in groups of this many rows, so that the panels which a wave of
/// CTAs reads stay in the L2.
const GROUP: u32 = 16;

/// The blocks of the peers first, each rank starting at the one after itself, and its own last: whatever
/// is sent is on its way before anything is waited for. The first axis must be the ranks.
#[inline(always)]
pub fn peers_first<const D: usize>(step: Step<D>) -> [u32; D] {
    blocks(step, 1)
}

/// This rank's own block first, then those of the ranks after it in turn. The first axis must be the ranks.
#[inline(always)]
pub fn ring<const D: usize>(step: Step<D>) -> [u32; D] {
    blocks(step, 0)
}

/// Blocks in turn from `rank + offset` on; within a block, groups of rows walk along the last axis.
#[inline(always)]
fn blocks<const D: usize>(step: Step<D>, offset: u32) -> [u32; D] {
    let mut block = 1;
    for extent in &step.grid[1..] {
        block *= extent;
    }
    let mut coordinates = grouped(step.grid, step.index % block);
    coordinates[0] = (step.rank + offset + step.index / block) % step.grid[0];
    coordinates
}

/// The tile at `index` of a block, whose axes are all but the first: groups of rows (the last axis but one,
/// if that is not the first) walk along the last axis. The axes before are row-major.
#[inline(always)]
fn grouped<const D: usize>(grid: [u32; D], index: u32) -> [u32; D] {
    let mut coordinates = [0; D];
    if D < 3 {
        coordinates[D - 1] = index;
        return coordinates;
    }
    let (rows, columns) = (grid[D - 2], grid[D - 1]);
    let (plane, within) = (index / (rows * columns), index % (rows * columns));
    let first = within / (GROUP * columns) * GROUP;
    let height = if rows - first < GROUP { rows - first } else { GROUP };
    let within = within - first * columns;
    coordinates[D - 2] = first + within % height;
    coordinates[D - 1] = within / height;
    let mut rest = plane;
    for axis in (1..D - 2).rev() {
        coordinates[axis] = rest % grid[axis];
        rest /= grid[axis];
    }
    coordinates
}
