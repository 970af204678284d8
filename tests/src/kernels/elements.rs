//! What can be done with a tile's elements, without communication.

use entwine::prelude::*;

/// Each row of each tile of x + z, squared and divided by its sum.
#[entwine::kernel(tiles = [(128, 128), (64, 64), (128, 168)], elements = [bf16, f16])]
pub mod normalize {
    use super::*;

    #[stage(grid = [m / BM, n / BN], order = row_major)]
    fn normalize(
        at: At<2>,
        #[shape(m, n)] x: &Matrix<T>,
        #[shape(m, n)] z: &Matrix<T>,
        floor: f32,
        #[shape(m, n)] y: &mut Matrix<T>,
    ) {
        let z: Tile<T, BM, BN> = z.load(at.coordinates()).read();
        let x: Tile<T, BM, BN> = x.load(at.coordinates()).read();
        let squares = x.cast::<f32>().zip(&z, |x, z| x + z).map(|x| x * x);
        let scales = squares.reduce_rows(|x, y| x + y).map(|sum| if sum > floor { 1.0 / sum } else { 0.0 });
        y.tile(at.coordinates()).store(squares.zip_rows(&scales, |x, scale| x * scale).cast::<T>());
    }
}

/// For each row of each tile of x, with its largest element l: exp(x − l) · tanh(l) / √Σ exp(x − l).
#[entwine::kernel(tiles = [(128, 128), (64, 64)], elements = [bf16, f16])]
pub mod scalar_functions {
    use super::*;

    #[stage(grid = [m / BM, n / BN], order = row_major)]
    fn compute(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        let x: Tile<T, BM, BN> = x.load(at.coordinates()).read();
        let largest = x.reduce_rows(f32::max);
        let powers = x.cast::<f32>().zip_rows(&largest, |x, largest| (x - largest).exp());
        let sums = powers.reduce_rows(|x, y| x + y);
        let scales = sums.zip(&largest, |sum, largest| largest.tanh() / sum.sqrt());
        y.tile(at.coordinates()).store(powers.zip_rows(&scales, |x, scale| x * scale).cast::<T>());
    }
}
