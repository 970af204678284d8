//! No channel at all, scalars of several types, and a function on tiles.

use entwine::prelude::*;

/// C = A·Bᵀ on every rank by itself, scaled where a tile's row has a positive element, and shifted.
#[entwine::kernel]
pub mod scaled_gemm {
    use super::*;

    /// Rows with a positive element times `factor`.
    fn scaled(tile: Tile<f32, BM, BN>, factor: f32) -> Tile<f32, BM, BN> {
        let largest: Rows<BM, BN> = tile.reduce_rows(f32::max);
        tile.zip_rows(&largest, |x, largest| if largest > 0.0 { x * factor } else { x })
    }

    #[stage(grid = [m / BM, n / BN])]
    fn multiply(
        at: At<2>,
        #[shape(m, k)] a: &Matrix<bf16>,
        #[shape(n, k)] b: &Matrix<bf16>,
        scale: f32,
        shift: i32,
        negated: bool,
        #[shape(m, n)] c: &mut Matrix<bf16>,
    ) {
        let product = matmul::<_, BM, BN, _>(a.row_panel(at[0]), b.row_panel(at[1]));
        let sign = if negated { -scale } else { scale };
        c.tile([at[0], at[1]]).store(scaled(product, sign).map(|x| x + shift as f32).cast());
    }
}
