//! Values for each column of a tile.

use entwine::prelude::*;

/// max(A·Bᵀ + bias, 0) · scale, with a bias for each column, and scales for each column that alternate by rows of tiles.
#[entwine::kernel(tiles = [(128, 128), (64, 64), (128, 256), (128, 168)], elements = [bf16, f16])]
pub mod biased {
    use super::*;

    fn activated(product: Tile<f32, BM, BN>, bias: Columns<T, BN>) -> Tile<f32, BM, BN> {
        product.zip_columns(&bias, |x, bias| (x + bias).max(0.0))
    }

    #[stage(grid = [m / BM, n / BN])]
    fn multiply(
        at: At<2>,
        #[shape(m, k)] a: &Matrix<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[shape(1, n)] bias: &Matrix<T>,
        #[shape(2, 3, n)] scales: &Grouped<f32>,
        #[shape(m, n)] c: &mut Matrix<T>,
    ) {
        let [row, column] = at.coordinates();
        let product = matmul(a.row_panel(row), b.row_panel(column));
        let scales = scales.group(row % 2).column_values([1, column]);
        let tile = activated(product, bias.column_values([0, column])).zip_columns(&scales, |x, scale| x * scale);
        c.tile([row, column]).store(tile.cast::<T>());
    }
}

/// x + 2 · bias, of a bias for each column that another stage doubles, behind gates.
#[entwine::kernel(tiles = [(64, 64), (128, 128)], elements = [bf16, f16])]
pub mod biased_twice {
    use super::*;

    /// Columns of tiles whose bias is doubled.
    #[channel(slots = [n / BN], guards = doubled)]
    pub struct Doubled(Gate);

    #[stage(grid = [n / BN])]
    fn double(
        at: At<1>,
        #[shape(1, n)] bias: &Matrix<T>,
        #[shape(1, n)] doubled: &mut Matrix<T>,
        #[send] done: Doubled,
    ) {
        let bias: Tile<T, BM, BN> = bias.load([0, at[0]]).read();
        doubled.tile([0, at[0]]).store(bias.map(|x| 2.0 * x));
        done.slot([at[0]]).arrive(1);
    }

    #[stage(grid = [m / BM, n / BN])]
    fn add(
        at: At<2>,
        #[shape(m, n)] x: &Matrix<T>,
        #[recv] done: Doubled,
        doubled: &Matrix<T>,
        #[shape(m, n)] y: &mut Matrix<T>,
    ) {
        let x: Tile<T, BM, BN> = x.load(at.coordinates()).read();
        let bias = doubled.column_values([0, at[1]]);
        done.slot([at[1]]).wait();
        y.tile(at.coordinates()).store(x.zip_columns(&bias, |x, bias| x + bias));
    }
}

/// x + bias, with a bias for each column, where threads have one role.
#[entwine::kernel(tiles = [(64, 64), (64, 128)], elements = [f32, bf16, f16], roles = one)]
pub mod biased_together {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn add(
        at: At<2>,
        #[shape(m, n)] x: &Matrix<T>,
        row: u32,
        #[shape(r, n)] biases: &Matrix<T>,
        #[shape(m, n)] y: &mut Matrix<T>,
    ) {
        let x: Tile<T, BM, BN> = x.load(at.coordinates()).read();
        y.tile(at.coordinates()).store(x.zip_columns(&biases.column_values([row, at[1]]), |x, bias| x + bias));
    }
}
