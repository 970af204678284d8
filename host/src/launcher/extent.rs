//! Extents: their value in a launch, and their text.

use std::fmt;

use crate::spec::Extent;

/// What the names in an extent stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes<'a> {
    /// The named dimensions.
    pub dims: &'a [u32],
    /// The number of ranks.
    pub world: u32,
    /// `BM`, `BN`.
    pub tile: (u32, u32),
}

impl Extent {
    /// The value, computed in 32 bits as kernels do; `None` where it, or a part of it, does not fit, and for a quotient
    /// by 0.
    pub(crate) fn value(&self, sizes: &Sizes<'_>) -> Option<u32> {
        match self {
            Extent::Dim(index) => Some(sizes.dims[*index]),
            Extent::World => Some(sizes.world),
            Extent::Literal(number) => Some(*number),
            Extent::TileRows => Some(sizes.tile.0),
            Extent::TileColumns => Some(sizes.tile.1),
            Extent::Add(left, right) => left.value(sizes)?.checked_add(right.value(sizes)?),
            Extent::Sub(left, right) => left.value(sizes)?.checked_sub(right.value(sizes)?),
            Extent::Mul(left, right) => left.value(sizes)?.checked_mul(right.value(sizes)?),
            Extent::DivCeil(left, right) => match right.value(sizes)? {
                0 => None,
                divisor => Some(left.value(sizes)?.div_ceil(divisor)),
            },
        }
    }

    /// The dimension whose share on each rank this is: `x` in `x / world`.
    pub(crate) fn share_of(&self) -> Option<usize> {
        match self {
            Extent::DivCeil(Extent::Dim(index), Extent::World) => Some(*index),
            _ => None,
        }
    }

    /// The extent as it is written, with the dimensions' names.
    pub(crate) fn text<'a>(&'a self, dims: &'a [&'a str]) -> impl fmt::Display + 'a {
        Text { extent: self, dims, within: 0 }
    }
}

/// The number of tiles or slots along these axes together; `None` where kernels can't count them.
pub(crate) fn count(axes: &[Extent], sizes: &Sizes<'_>) -> Option<u32> {
    axes.iter().try_fold(1u32, |count, axis| count.checked_mul(axis.value(sizes)?))
}

struct Text<'a> {
    extent: &'a Extent,
    dims: &'a [&'a str],
    /// How strongly the surroundings bind: 0 not, 1 like a sum, 2 like a factor, 3 like a divisor.
    within: u8,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |extent, within| Text { extent, dims: self.dims, within };
        let (binds, left, operator, right) = match self.extent {
            Extent::Dim(index) => return f.write_str(self.dims[*index]),
            Extent::World => return f.write_str("world"),
            Extent::Literal(number) => return write!(f, "{number}"),
            Extent::TileRows => return f.write_str("BM"),
            Extent::TileColumns => return f.write_str("BN"),
            Extent::Add(left, right) => (1, part(left, 1), '+', part(right, 1)),
            Extent::Sub(left, right) => (1, part(left, 1), '-', part(right, 2)),
            Extent::Mul(left, right) => (2, part(left, 2), '*', part(right, 3)),
            Extent::DivCeil(left, right) => (2, part(left, 2), '/', part(right, 3)),
        };
        if self.within > binds {
            write!(f, "({left} {operator} {right})")
        } else {
            write!(f, "{left} {operator} {right}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Extent::{Add, Dim, DivCeil, Literal, Mul, Sub, TileRows, World};

    const SIZES: Sizes<'static> = Sizes { dims: &[1000, 0], world: 3, tile: (128, 256) };
    const SHARE: Extent = DivCeil(&Dim(0), &World);

    #[test]
    fn quotients_round_up() {
        assert_eq!(SHARE.value(&SIZES), Some(334));
        assert_eq!(DivCeil(&SHARE, &TileRows).value(&SIZES), Some(3));
        assert_eq!(DivCeil(&Dim(1), &TileRows).value(&SIZES), Some(0));
    }

    #[test]
    fn what_kernels_cannot_compute_has_no_value() {
        const LARGE: Extent = Mul(&Literal(1 << 16), &Literal(1 << 16));
        assert_eq!(LARGE.value(&SIZES), None);
        assert_eq!(DivCeil(&LARGE, &TileRows).value(&SIZES), None, "though the quotient would fit");
        assert_eq!(Add(&Literal(u32::MAX), &World).value(&SIZES), None);
        assert_eq!(DivCeil(&Dim(0), &Dim(1)).value(&SIZES), None);
        assert_eq!(Sub(&World, &Literal(4)).value(&SIZES), None);
        assert_eq!(Sub(&World, &Literal(3)).value(&SIZES), Some(0));
        assert_eq!(count(&[World, Literal(1 << 30)], &SIZES), Some(3 << 30));
        assert_eq!(count(&[TileRows, World, Literal(1 << 30)], &SIZES), None);
    }

    #[test]
    fn text_keeps_the_meaning() {
        let dims = ["m", "n"];
        assert_eq!(DivCeil(&SHARE, &TileRows).text(&dims).to_string(), "m / world / BM");
        assert_eq!(DivCeil(&Dim(0), &Mul(&World, &TileRows)).text(&dims).to_string(), "m / (world * BM)");
        assert_eq!(Mul(&Add(&Dim(0), &Literal(1)), &Dim(1)).text(&dims).to_string(), "(m + 1) * n");
        assert_eq!(Sub(&Dim(0), &Sub(&Dim(1), &World)).text(&dims).to_string(), "m - (n - world)");
        assert_eq!(Add(&Dim(0), &Mul(&Literal(2), &Dim(1))).text(&dims).to_string(), "m + 2 * n");
    }
}
