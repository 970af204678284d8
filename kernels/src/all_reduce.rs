//! A matrix product whose K is split over the ranks, summed, and the sum given to every rank.

use entwine::prelude::*;

/// C = Σ A·Bᵀ over the ranks, on every rank.
///
/// Each rank sums the rows it owns and broadcasts the sums, so that all ranks end with the same bits.
#[entwine::kernel(tiles = [(128, 256), (128, 192), (128, 128)], elements = [bf16, f16])]
pub mod gemm_all_reduce {
    use super::*;

    /// Partial tiles on their way to the rank that owns their rows.
    #[channel(slots = [world, m / world / BM, n / BN])]
    pub struct Partial(Tile<T, BM, BN>);

    /// Sums on their way from the rank that owns their rows into every rank's C.
    #[channel(slots = [world, m / world / BM, n / BN], route = all, into = c)]
    pub struct Reduced(Tile<T, BM, BN>);

    #[stage(grid = [world, m / world / BM, n / BN], order = peers_first)]
    fn multiply(
        at: At<3>,
        #[shape(m, k)] a: &Sharded<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[send]
        #[recv]
        partial: Partial,
        #[send] reduced: Reduced,
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
            reduced.slot([owner, row, column]).store(sum.cast());
        }
    }

    #[stage(grid = [world, m / world / BM, n / BN], order = peers_first, carrier = mover)]
    fn collect(at: At<3>, #[recv] reduced: Reduced, #[shape(m, n)] c: &mut Sharded<T>) {
        let [owner, row, column] = at.coordinates();
        if owner != at.rank() {
            c.shard_mut(owner).tile([row, column]).store(reduced.slot([owner, row, column]).load());
        }
    }
}
