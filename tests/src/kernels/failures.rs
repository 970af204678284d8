//! A kernel that can be made to fail while it runs.

use entwine::prelude::*;

/// Each rank gets the x of the rank before it, times a factor.
#[entwine::kernel(tiles = [(128, 128)])]
pub mod faulty {
    use super::*;

    const FACTORS: [f32; 2] = [1.0, 2.0];

    #[channel(slots = [world, m / BM, n / BN])]
    pub struct Scaled(Tile<T, BM, BN>);

    /// Fails on rank `culprit` if there is no such factor, or if `shift` is past the last slot.
    #[stage(grid = [m / BM, n / BN])]
    fn scale(at: At<2>, culprit: u32, factor: u32, shift: u32, #[shape(m, n)] x: &Matrix<T>, #[send] scaled: Scaled) {
        let [row, column] = at.coordinates();
        let (factor, shift) = if at.rank() == culprit { (factor, shift) } else { (0, 0) };
        let factor = FACTORS[factor as usize];
        let tile: Tile<T, BM, BN> = x.load([row, column]).read();
        let next = (at.rank() + 1) % at.world();
        scaled.to(next).slot([at.rank(), row + shift, column]).store(tile.map(|x| x * factor));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn collect(at: At<2>, #[recv] scaled: Scaled, #[shape(m, n)] y: &mut Matrix<T>) {
        let [row, column] = at.coordinates();
        let previous = (at.rank() + at.world() - 1) % at.world();
        y.tile([row, column]).store(scaled.slot([previous, row, column]).load());
    }
}
