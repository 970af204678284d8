//! A matrix that one stage writes and another reads, behind gates.

use entwine::prelude::*;

#[entwine::kernel(tiles = [(64, 64), (128, 128)], elements = [bf16, f16])]
pub mod mirror {
    //! Each row of tiles back to front, by way of a second matrix.

    use super::*;

    /// Rows of tiles that are all there.
    #[channel(slots = [m / BM], guards = y)]
    pub struct Complete(Gate);

    #[stage(grid = [m / BM, n / BN])]
    fn copy(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>, #[send] complete: Complete) {
        let tile: Tile<T, BM, BN> = x.load([at[0], at[1]]).read();
        y.tile([at[0], at[1]]).store(tile);
        complete.slot([at[0]]).arrive(tiles(y.columns(), BN as u32));
    }

    #[stage(grid = [m / BM, n / BN], order = ready_first)]
    fn turn(at: At<2>, #[recv(slot = [at[0]])] complete: Complete, y: &Matrix<T>, #[shape(m, n)] z: &mut Matrix<T>) {
        complete.slot([at[0]]).wait();
        let last = tiles(y.columns(), BN as u32) - 1;
        let tile: Tile<T, BM, BN> = y.load([at[0], last - at[1]]).read();
        z.tile([at[0], at[1]]).store(tile);
    }
}
