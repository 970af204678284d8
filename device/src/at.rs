//! Where a tile function is.

use core::ops::Index;

use crate::abi::Head;
use crate::role::Role;

/// The tile that a tile function computes, in its stage's grid of `D` axes, and the rank it runs on.
/// In a tile function the role `R` is left out: `At<3>`.
pub struct At<'c, const D: usize, R: Role> {
    role: &'c R,
    coordinates: [u32; D],
}

impl<'c, const D: usize, R: Role> At<'c, D, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(role: &'c R, coordinates: [u32; D]) -> Self {
        At { role, coordinates }
    }

    /// The tile's coordinates.
    #[inline(always)]
    pub fn coordinates(&self) -> [u32; D] {
        self.coordinates
    }

    /// This rank.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        self.role.head().rank
    }

    /// The number of ranks.
    #[inline(always)]
    pub fn world(&self) -> u32 {
        self.role.head().world
    }

    /// The rank that comes `turn + 1` ranks after this one, the first one after the last: of each turn below `world - 1` another
    /// peer, and no two ranks' the same.
    #[inline(always)]
    pub fn peer(&self, turn: u32) -> u32 {
        let Head { rank, world, .. } = *self.role.head();
        let peer = rank + 1 + turn;
        if peer < world { peer } else { peer - world }
    }

    /// All ranks but this one, in order.
    #[inline(always)]
    pub fn peers(&self) -> impl Iterator<Item = u32> + use<D, R> {
        let Head { rank, world, .. } = *self.role.head();
        (0..rank).chain(rank + 1..world)
    }
}

impl<const D: usize, R: Role> Index<usize> for At<'_, D, R> {
    type Output = u32;
    #[inline(always)]
    fn index(&self, axis: usize) -> &u32 {
        &self.coordinates[axis]
    }
}
