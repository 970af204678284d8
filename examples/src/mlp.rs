//! The kernel of `03_mlp`: the first layer, with its activation.

use entwine::prelude::*;

/// C = relu(A·Bᵀ)², where A's rows are split over the ranks and gathered while they are multiplied.
///
/// It is the library's `all_gather_gemm` with one line more.
#[entwine::kernel(tiles = [(128, 256), (128, 128)])]
pub mod all_gather_gemm_relu2 {
    use super::*;

    #[channel(slots = [world, m / world / BM], route = peers, columns = k, pieces = 128 / (m / world / BM + 1))]
    pub struct Gathered(Panel<T, BM>);

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
        let activated = product.map(|x| if x > 0.0 { x * x } else { 0.0 });
        c.shard_mut(owner).tile([row, column]).store(activated.cast::<T>());
    }
}
