//! A matrix product whose columns are exchanged: each goes to the rank that owns it.

use entwine::prelude::*;

/// C = A·Bᵀ, of which each rank computes the rows of its own A and keeps its own columns of everybody's.
///
/// Rank `r` ends with the product of rank `s`'s A and the `r`-th share of rank `s`'s B, for every `s`: heads or experts
/// are B's rows, and tokens A's. Tiles are stored where they stay, each as soon as it is computed.
#[entwine::kernel(tiles = [(128, 256), (128, 128)], elements = [bf16, f16])]
pub mod gemm_all_to_all {
    use super::*;

    /// Tiles on their way to the rank that owns their columns.
    #[channel(slots = [world, m / BM, n / BN], into = c)]
    pub struct Exchanged(Tile<T, BM, BN>);

    #[stage(grid = [world, m / BM, n / BN], order = peers_first)]
    fn multiply(
        at: At<3>,
        #[shape(m, k)] a: &Matrix<T>,
        #[shape(world * n, k)] b: &Sharded<T>,
        #[send] exchanged: Exchanged,
    ) {
        let [owner, row, column] = at.coordinates();
        let product: Tile<f32, BM, BN> = matmul(a.row_panel(row), b.shard(owner).row_panel(column));
        exchanged.to(owner).slot([at.rank(), row, column]).store(product.cast());
    }

    #[stage(grid = [world, m / BM, n / BN], order = peers_first, carrier = mover)]
    fn collect(at: At<3>, #[recv] exchanged: Exchanged, #[shape(world * m, n)] c: &mut Sharded<T>) {
        let [sender, row, column] = at.coordinates();
        if sender != at.rank() {
            c.shard_mut(sender).tile([row, column]).store(exchanged.slot([sender, row, column]).load());
        }
    }
}
