//! A matrix product whose left operand is split by rows over the ranks and gathered while it is multiplied.

use entwine::prelude::*;

/// C = A·Bᵀ, where A's rows lie evenly split over the ranks and each rank has its own B.
///
/// A few CTAs send this rank's rows to all others, a panel at a time; the others multiply, this rank's own
/// rows first, then those of the ranks after it as they arrive.
#[entwine::kernel(tiles = [(128, 256), (128, 128)], elements = [bf16, f16])]
pub mod all_gather_gemm {
    use super::*;

    /// Panels of A on their way to all other ranks.
    #[channel(slots = [world, m / world / BM], route = peers, columns = k)]
    pub struct Gathered(Panel<T, BM>);

    #[stage(grid = [m / world / BM], ctas = 8)]
    fn gather(at: At<1>, #[shape(m / world, k)] a: &Matrix<T>, #[send] gathered: Gathered) {
        gathered.slot([at.rank(), at[0]]).store(a.row_panel(at[0]));
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
