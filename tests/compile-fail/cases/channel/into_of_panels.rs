use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / BM], route = peers, columns = n, into = y)]
    struct Moved(Panel<T, BM>);

    #[stage(grid = [m / BM, n / BN])]
    fn send(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.slot([at.rank(), at[0]]).store(x.row_panel(at[0]));
    }

    #[stage(grid = [world, m / BM, n / BN])]
    fn receive(at: At<3>, #[recv] moved: Moved, #[shape(m * world, n)] y: &mut Sharded<T>) {
        let _ = (&y, at, moved.slot([at[0], at[1]]).load());
    }
}

fn main() {}
