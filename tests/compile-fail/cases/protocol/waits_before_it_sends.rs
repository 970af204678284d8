use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / world / BM, n / BN])]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [world, m / world / BM, n / BN], order = ring)]
    fn exchange(at: At<3>, #[shape(m, n)] x: &Sharded<T>, #[send] #[recv] moved: Moved, #[shape(m / world, n)] y: &mut Matrix<T>) {
        let [owner, row, column] = at.coordinates();
        if owner != at.rank() {
            moved.to(owner).slot([at.rank(), row, column]).store(x.shard(owner).load([row, column]));
        } else {
            for rank in (0..at.world()).filter(|rank| *rank != owner) {
                y.tile([row, column]).store(moved.slot([rank, row, column]).load());
            }
        }
    }
}

fn main() {}
