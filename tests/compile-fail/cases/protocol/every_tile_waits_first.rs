use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / world / BM, n / BN])]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [world, m / world / BM, n / BN], order = peers_first)]
    fn forward(at: At<3>, #[send] #[recv] moved: Moved, #[shape(m / world, n)] y: &mut Matrix<T>) {
        let [owner, row, column] = at.coordinates();
        let tile: Tile<T, BM, BN> = moved.slot([owner, row, column]).load().read();
        if owner != at.rank() {
            moved.to(owner).slot([at.rank(), row, column]).store(&tile);
        }
        y.tile([row, column]).store(tile);
    }
}

fn main() {}
