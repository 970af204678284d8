//! What tile functions are written with: `use entwine::prelude::*;`.

pub use entwine_device::order::{Step, grouped, in_spans, peers_first, ring, row_major};
pub use entwine_device::{
    At, Element, Grouped, Incoming, MatmulElement, Matrix, Panel, Rows, Scalar, Shard, Sharded, Tile, bf16, f16,
    matmul, tiles,
};
