use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / BM, n / BN])]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn send(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.to(0).slot([at.rank(), at[0], at[1]]).store(x.load([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn send_too(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.to(0).slot([at.rank(), at[0], at[1]]).store(x.load([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn receive(at: At<2>, #[recv] moved: Moved, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(moved.slot([0, at[0], at[1]]).load());
    }
}

fn main() {}
