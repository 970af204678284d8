use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / BM, n / BN], route = peers, into = y)]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn send(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.slot([at.rank(), at[0], at[1]]).store(x.load([at[0], at[1]]));
    }

    #[stage(grid = [world, m / BM, n / BN])]
    fn receive(at: At<3>, #[recv] moved: Moved, #[shape(m * world, n)] z: &mut Sharded<T>, #[shape(m, n)] y: &Sharded<T>) {
        z.shard_mut(at[0]).tile([at[1], at[2]]).store(moved.slot([at[0], at[1], at[2]]).load());
    }
}

fn main() {}
