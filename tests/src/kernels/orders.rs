//! The orders: one of the user's own, the ring, and tiles as they become ready.

use entwine::prelude::*;

/// Every rank gets all ranks' x, twice: once as it comes, once in the order of the ring.
#[entwine::kernel(tiles = [(128, 128), (64, 64)], elements = [bf16, f16])]
pub mod broadcast {
    use super::*;

    #[channel(slots = [world, m / world / BM, n / BN], route = peers, by = push)]
    pub struct Pushed(Tile<T, BM, BN>);

    #[channel(slots = [world, m / world / BM, n / BN], route = peers, by = pull)]
    pub struct Pulled(Tile<T, BM, BN>);

    /// From the last tile to the first.
    fn backwards(step: Step<2>) -> [u32; 2] {
        row_major(Step { index: step.grid[0] * step.grid[1] - 1 - step.index, ..step })
    }

    #[stage(grid = [m / world / BM, n / BN], order = backwards)]
    fn send(at: At<2>, #[shape(m / world, n)] x: &Matrix<T>, #[send] pushed: Pushed, #[send] pulled: Pulled) {
        let [row, column] = at.coordinates();
        pushed.slot([at.rank(), row, column]).store(x.load::<BM, BN>([row, column]));
        pulled.slot([at.rank(), row, column]).store(x.load::<BM, BN>([row, column]));
    }

    #[stage(grid = [world, m / world / BM, n / BN], order = ready_first)]
    fn as_it_comes(
        at: At<3>,
        x: &Matrix<T>,
        #[recv(slot = [at[0], at[1], at[2]], unless = at[0] == at.rank())] pushed: Pushed,
        #[shape(m, n)] y: &mut Sharded<T>,
    ) {
        let [owner, row, column] = at.coordinates();
        let here = y.shard_mut(owner).tile([row, column]);
        if owner == at.rank() {
            here.store(x.load::<BM, BN>([row, column]));
        } else {
            here.store(pushed.slot([owner, row, column]).load());
        }
    }

    #[stage(grid = [world, m / world / BM, n / BN], order = ring)]
    fn in_turn(at: At<3>, x: &Matrix<T>, #[recv] pulled: Pulled, #[shape(m, n)] z: &mut Sharded<T>) {
        let [owner, row, column] = at.coordinates();
        let here = z.shard_mut(owner).tile([row, column]);
        if owner == at.rank() {
            here.store(x.load::<BM, BN>([row, column]));
        } else {
            here.store(pulled.slot([owner, row, column]).load());
        }
    }
}
