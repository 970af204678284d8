use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Panels on their way.
    #[channel(slots = [world, m / BM], route = peers, columns = k, pieces = k / 64)]
    struct Moved(Panel<T, BM>);

    #[stage(grid = [m / BM, k / 64])]
    fn send(at: At<2>, #[shape(m, k)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.slot([at.rank(), at[0]]).piece(at[1]).store(x.row_panel(at[0]));
    }

    #[stage(grid = [m / BM, m / BN], order = row_major)]
    fn receive(at: At<2>, #[recv] moved: Moved, x: &Matrix<T>, #[shape(m, m)] y: &mut Matrix<T>) {
        let panel = moved.slot([0, at[0]]).piece(at[1]).load();
        y.tile([at[0], at[1]]).store(matmul(panel, x.row_panel::<BN>(at[1])).cast());
    }
}

fn main() {}
