//! One stage that sends and receives on one channel, in several variants.

use entwine::prelude::*;

/// C = Σ A·Bᵀ over the ranks, each of which keeps the rows it owns.
#[entwine::kernel(tiles = [(128, 256), (128, 128)], elements = [bf16, f16])]
pub mod gemm_reduce_scatter {
    use super::*;

    /// Partial tiles on their way to the rank that owns their rows.
    #[channel(slots = [world, m / world / BM, n / BN])]
    pub struct Partial(Tile<T, BM, BN>);

    #[stage(grid = [world, m / world / BM, n / BN], order = peers_first)]
    fn multiply(
        at: At<3>,
        /// This rank's columns of A.
        #[shape(m, k)]
        a: &Sharded<T>,
        /// This rank's columns of B.
        #[shape(n, k)]
        b: &Matrix<T>,
        #[send]
        #[recv]
        partial: Partial,
        /// The rows of C that this rank owns.
        #[shape(m / world, n)]
        c: &mut Matrix<T>,
    ) {
        let [owner, row, column] = at.coordinates();
        let product = matmul(a.shard(owner).row_panel(row), b.row_panel(column)).cast();
        if owner != at.rank() {
            partial.to(owner).slot([at.rank(), row, column]).store(product);
        } else {
            let mut sum = product.cast();
            for peer in at.peers() {
                sum += partial.slot([peer, row, column]).load();
            }
            c.tile([row, column]).store(sum.cast::<T>());
        }
    }
}
