use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / BM, n / BN])]
    struct Moved(Tile<T, BM, BN>);

    /// Tiles on their way back.
    #[channel(slots = [world, m / BM, n / BN])]
    struct Returned(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn ask(at: At<2>, #[recv] returned: Returned, #[send] moved: Moved) {
        moved.to(0).slot([at.rank(), at[0], at[1]]).store(returned.slot([0, at[0], at[1]]).load());
    }

    #[stage(grid = [m / BM, n / BN])]
    fn answer(at: At<2>, #[recv] moved: Moved, #[shape(m, n)] y: &mut Matrix<T>, #[send] returned: Returned) {
        y.tile([at[0], at[1]]).store(moved.slot([0, at[0], at[1]]).load());
        returned.to(0).slot([at.rank(), at[0], at[1]]).store(moved.slot([0, at[0], at[1]]).load());
    }
}

fn main() {}
