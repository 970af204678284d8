use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Rows of tiles that are there.
    #[channel(slots = [m / BM], guards = y)]
    struct Ready(Gate);

    /// Tiles on their way.
    #[channel(slots = [world, m / BM, n / BN], route = peers)]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn write(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>, #[send] ready: Ready) {
        y.tile([at[0], at[1]]).store(x.load([at[0], at[1]]));
        ready.slot([at[0]]).arrive(tiles(y.columns(), BN as u32));
    }

    #[stage(grid = [m / BM, n / BN], beside = write)]
    fn send(at: At<2>, #[recv(slot = [at[0]])] ready: Ready, y: &Matrix<T>, #[send] moved: Moved) {
        ready.slot([at[0]]).wait();
        moved.slot([at.rank(), at[0], at[1]]).store(y.load([at[0], at[1]]));
    }

    #[stage(grid = [world, m / BM, n / BN], beside = send)]
    fn receive(at: At<3>, #[recv] moved: Moved, #[shape(m * world, n)] z: &mut Sharded<T>) {
        if at[0] != at.rank() {
            z.shard_mut(at[0]).tile([at[1], at[2]]).store(moved.slot([at[0], at[1], at[2]]).load());
        }
    }
}

fn main() {}
