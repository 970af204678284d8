//! A matrix product whose left operand is split by rows over the ranks and gathered while it is multiplied.

use entwine::prelude::*;

/// C = A·Bᵀ, where A's rows lie evenly split over the ranks and each rank has its own B.
///
/// Every CTA multiplies, this rank's own rows first, then those of the ranks after it as they arrive; beside that its
/// mover sends this rank's rows to all others, a piece of a panel at a time.
#[entwine::kernel(tiles = [(128, 256), (128, 224), (128, 192), (128, 168), (128, 128)], elements = [bf16, f16])]
pub mod all_gather_gemm {
    use super::*;

    /// Panels of A on their way to all other ranks, in about as many pieces in all as there are movers: the fewer the
    /// panels, the earlier a piece is needed.
    #[channel(slots = [world, m / world / BM], route = peers, columns = k, pieces = 128 / (m / world / BM + 1))]
    pub struct Gathered(Panel<T, BM>);

    /// Pieces before rows: all the tiles that a wave begins with wait for the first pieces of all rows.
    #[stage(grid = [128 / (m / world / BM + 1), m / world / BM], order = row_major, carrier = mover)]
    fn gather(at: At<2>, #[shape(m / world, k)] a: &Matrix<T>, #[send] gathered: Gathered) {
        let [piece, row] = at.coordinates();
        gathered.slot([at.rank(), row]).piece(piece).store(a.row_panel(row));
    }

    #[stage(grid = [world, m / world / BM, n / BN], order = ring)]
    fn multiply(
        at: At<3>,
        a: &Matrix<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[recv] gathered: Gathered,
        #[shape(m, n)] c: &mut Sharded<T>,
    ) {
        let [owner, row, column] = at.coordinates();
        let panel = if owner == at.rank() { a.row_panel(row) } else { gathered.slot([owner, row]).load() };
        let product: Tile<f32, BM, BN> = matmul(panel, b.row_panel(column));
        c.shard_mut(owner).tile([row, column]).store(product.cast::<T>());
    }
}
