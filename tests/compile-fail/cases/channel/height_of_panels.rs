use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Tiles on their way.
    #[channel(slots = [world, m / BM, 1], route = peers, columns = n, height = m)]
    struct Moved(Panel<T, BM>);

    #[stage(grid = [m / BM, 1])]
    fn send(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.slot([at.rank(), at[0], at[1]]).store(x.row_panel(at[0]));
    }

    #[stage(grid = [world, m / BM, n / BN])]
    fn receive(at: At<3>, x: &Matrix<T>, #[recv] moved: Moved, #[shape(m * world, n)] y: &mut Sharded<T>) {
        if at[0] != at.rank() {
            let product: Tile<f32, BM, BN> = matmul(moved.slot([at[0], at[1], 0]).load(), x.row_panel(at[2]));
            y.shard_mut(at[0]).tile([at[1], at[2]]).store(product.cast::<T>());
        }
    }
}

fn main() {}
