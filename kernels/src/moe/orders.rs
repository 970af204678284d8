//! The orders in which sums go out between the products that they are of.

use entwine::prelude::*;

/// A quarter of the columns after the other, so that the sums of one go out while the next is computed.
pub(super) fn in_quarters(step: Step<2>) -> [u32; 2] {
    in_spans(step, tiles(step.grid[1], 4), grouped)
}

/// Column after column, as they are computed.
pub(super) fn column_by_column(step: Step<3>) -> [u32; 3] {
    in_spans(step, 1, row_major)
}
