//! Which tiles a CTA visits, and in which order.

use crate::abi::MAX_AXES;
use crate::at::At;
use crate::role::Role;

/// How many tiles of `size` cover `extent`: the quotient, rounded up.
#[inline(always)]
pub fn tiles(extent: u32, size: u32) -> u32 {
    extent / size + (extent % size != 0) as u32
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

/// Visits this CTA's tiles of a stage in a fixed order.
#[inline(always)]
pub fn walk<const D: usize, R: Role>(
    role: &R,
    stage: Stage<D>,
    order: impl Fn(Step<D>) -> [u32; D],
    mut tile: impl FnMut(At<'_, D, R>),
) {
    let cta = role.cta();
    if cta < stage.share.first || cta >= stage.share.first + stage.share.count {
        return;
    }
    let (rank, world) = (role.head().rank, role.head().world);
    let mut total = 1;
    for extent in stage.grid {
        total *= extent;
    }
    let mut index = cta - stage.share.first;
    while index < total {
        let coordinates = order(Step { index, grid: stage.grid, rank, world });
        let mut named = [crate::abi::NONE; MAX_AXES];
        for axis in 0..D {
            named[axis] = coordinates[axis];
        }
        role.begin(stage.index, named);
        tile(At::new(role, coordinates));
        index += stage.share.count;
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

/// Rank blocks in turn from `rank + offset` on; within a block, groups of rows walk along the last axis.
#[inline(always)]
fn blocks<const D: usize>(step: Step<D>, offset: u32) -> [u32; D] {
    let mut block = 1;
    for extent in &step.grid[1..] {
        block *= extent;
    }
    let mut coordinates = grouped(Step { index: step.index % block, ..step });
    coordinates[0] = (step.rank + offset + step.index / block) % step.world;
    coordinates
}

/// Groups of rows (the last axis but one) walk along the last axis. The axes before are row-major.
#[inline(always)]
fn grouped<const D: usize>(step: Step<D>) -> [u32; D] {
    let mut coordinates = [0; D];
    if D < 2 {
        coordinates[D - 1] = step.index % step.grid[D - 1];
        return coordinates;
    }
    let (rows, columns) = (step.grid[D - 2], step.grid[D - 1]);
    let plane = rows * columns;
    let index = step.index % plane;
    let first = index / (GROUP * columns) * GROUP;
    let height = if rows - first < GROUP { rows - first } else { GROUP };
    let within = index % (GROUP * columns);
    coordinates[D - 2] = first + within % height;
    coordinates[D - 1] = within / height;
    let mut rest = step.index / plane;
    for axis in (0..D.saturating_sub(2)).rev() {
        coordinates[axis] = rest % step.grid[axis];
        rest /= step.grid[axis];
    }
    coordinates
}
