//! What tile functions are written with: `use entwine::prelude::*;`.

pub use entwine_device::order::{Step, grouped, in_spans, peers_first, ring, row_major};
pub use entwine_device::ordering::{AcqRel, Acquire, Cta, Gpu, Relaxed, Release, Sys};
pub use entwine_device::{
    At, Bags, Columns, Comparison, Element, Group, Grouped, Incoming, MatmulElement, Matrix, Panel, Rows, Scalar,
    Shard, Sharded, Symmetric, Tile, bf16, f16, matmul, tiles,
};
