//! A matrix product on each rank, without communication: what the fused kernels are measured against.

use entwine::prelude::*;

/// C = A·Bᵀ, on each rank for itself.
#[entwine::kernel(tiles = [(128, 256), (128, 128)], elements = [bf16, f16])]
pub mod gemm {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn multiply(
        at: At<2>,
        #[shape(m, k)] a: &Matrix<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[shape(m, n)] c: &mut Matrix<T>,
    ) {
        let [row, column] = at.coordinates();
        let product: Tile<f32, BM, BN> = matmul(a.row_panel(row), b.row_panel(column));
        c.tile([row, column]).store(product.cast::<T>());
    }
}
