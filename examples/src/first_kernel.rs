//! The kernel of `01_first_kernel`.

use entwine::prelude::*;

/// A product whose rows are split over the ranks before it and its columns after it: rank r multiplies its rows of A
/// by all of B, and keeps the r-th part of the columns of all rows. (Sequence-parallel before, head-parallel after.)
///
/// `T` is the element type, `BM` × `BN` the size of a tile; both are chosen when the kernel is launched.
#[entwine::kernel(tiles = [(128, 128)], elements = [bf16, f16])]
pub mod gemm_all_to_all {
    use super::*;

    /// Tiles on their way to the rank that keeps their columns. Each sender has slots of its own; by its place in the
    /// list, `world` says so.
    #[channel(slots = [world, m / world / BM, n / world / BN])]
    pub struct Product(Tile<T, BM, BN>);

    /// Runs once for each tile of its grid, on each rank. It sees whole tiles, and no threads.
    #[stage(grid = [world, m / world / BM, n / world / BN], order = peers_first)]
    fn multiply(
        at: At<3>,
        #[shape(m / world, k)] a: &Matrix<T>,
        #[shape(n, k)] b: &Sharded<T>,
        #[send] product: Product,
        #[shape(m, n / world)] c: &mut Sharded<T>,
    ) {
        let [keeper, row, column] = at.coordinates();
        let tile: Tile<f32, BM, BN> = matmul(a.row_panel(row), b.shard(keeper).row_panel(column));
        if keeper == at.rank() {
            c.shard_mut(keeper).tile([row, column]).store(tile.cast::<T>());
        } else {
            // Stored in the other rank's memory, released, and signalled, while this rank multiplies its next tile.
            product.to(keeper).slot([at.rank(), row, column]).store(tile.cast::<T>());
        }
    }

    /// Puts the tiles of the others in their places.
    #[stage(grid = [world, m / world / BM, n / world / BN], order = ring)]
    fn collect(at: At<3>, #[recv] product: Product, c: &mut Sharded<T>) {
        let [sender, row, column] = at.coordinates();
        if sender != at.rank() {
            // Waits for the tile's signal, and only for that one.
            c.shard_mut(sender).tile([row, column]).store(product.slot([sender, row, column]).load());
        }
    }
}
