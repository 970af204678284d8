//! The kernel of `06_decode`: the first layer of an MLP for a few tokens, with its activation.

use entwine::prelude::*;

/// C = relu(A·Bᵀ)², by each rank for its own hidden units.
#[entwine::kernel(tiles = [(64, 64)])]
pub mod gemv_relu2 {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn multiply(
        at: At<2>,
        #[shape(m, k)] a: &Matrix<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[shape(m, n)] c: &mut Matrix<T>,
    ) {
        let product: Tile<f32, BM, BN> = matmul(a.row_panel(at[0]), b.row_panel(at[1]));
        let activated = product.map(|x| if x > 0.0 { x * x } else { 0.0 });
        c.tile(at.coordinates()).store(activated.cast::<T>());
    }
}
