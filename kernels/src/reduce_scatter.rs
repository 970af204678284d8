//! A matrix product whose K is split over the ranks, summed to the rank that owns each row.

use entwine::prelude::*;

/// C = Σ A·Bᵀ over the ranks, each rank keeping the rows it owns.
#[entwine::kernel(tiles = [(128, 256), (128, 192), (128, 128)], elements = [bf16, f16])]
pub mod gemm_reduce_scatter {
    use super::*;

    /// Partial tiles on their way to the rank that owns their rows.
    #[channel(slots = [world, m / world / BM, n / BN])]
    pub struct Partial(Tile<T, BM, BN>);

    #[stage(grid = [world, m / world / BM, n / BN], order = peers_first)]
    fn multiply(
        at: At<3>,
        #[shape(m, k)] a: &Sharded<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[send]
        #[recv]
        partial: Partial,
        #[shape(m / world, n)] c: &mut Matrix<T>,
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
