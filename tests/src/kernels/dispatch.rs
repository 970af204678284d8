//! Stages chained through two channels, orders of the user's own, and items that depend on the variant.

use entwine::prelude::*;

#[entwine::kernel(tiles = [(64, 64), (128, 128)], elements = [bf16, f32])]
pub mod round_trip {
    //! Each tile goes to the next rank, is doubled there, and comes back.

    use super::*;

    /// The rank that works on this rank's tiles.
    fn next(at_rank: u32, world: u32) -> u32 {
        (at_rank + 1) % world
    }

    /// The tiles from the last to the first.
    fn backwards(step: Step<2>) -> [u32; 2] {
        row_major(Step { index: step.grid[0] * step.grid[1] - 1 - step.index, ..step })
    }

    /// A scale that is not the same for each tile.
    const SCALE: f32 = BM as f32 / BN as f32;

    #[channel(slots = [world, m / BM, n / BN])]
    pub struct Out(Tile<T, BM, BN>);

    #[channel(slots = [m / BM, n / BN], acknowledge = launch)]
    struct Back(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN], order = backwards)]
    fn dispatch(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] out: Out) {
        let tile: Tile<T, BM, BN> = x.load([at[0], at[1]]).read();
        out.to(next(at.rank(), at.world())).slot([at.rank(), at[0], at[1]]).store(tile);
    }

    #[stage(grid = [m / BM, n / BN])]
    fn double(at: At<2>, factor: f32, #[recv] out: Out, #[send] back: Back) {
        let from = (at.rank() + at.world() - 1) % at.world();
        let tile = out.slot([from, at[0], at[1]]).load().read().cast::<f32>();
        back.to(from).slot([at[0], at[1]]).store(tile.map(|x| x * factor * SCALE).cast());
    }

    #[stage(grid = [m / BM, n / BN])]
    fn combine(at: At<2>, #[recv] back: Back, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(back.slot([at[0], at[1]]).load());
    }
}
