//! Tiles that move without being computed on, to a rank that the launch names: a neighbour, or the sender itself.

use entwine::prelude::*;

/// Each rank gets the x of the rank `distance` before it: through its own memory, and through the sender's.
#[entwine::kernel(tiles = [(128, 128), (64, 64), (64, 136)], elements = [bf16, f16])]
pub mod rotate {
    use super::*;

    #[channel(slots = [world, m / BM, n / BN], by = push)]
    pub struct Pushed(Tile<T, BM, BN>);

    #[channel(slots = [world, m / BM, n / BN], by = pull)]
    pub struct Pulled(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn depart(at: At<2>, distance: u32, #[shape(m, n)] x: &Matrix<T>, #[send] pushed: Pushed, #[send] pulled: Pulled) {
        let [row, column] = at.coordinates();
        let to = (at.rank() + distance) % at.world();
        pushed.to(to).slot([at.rank(), row, column]).store(x.load::<BM, BN>([row, column]));
        pulled.to(to).slot([at.rank(), row, column]).store(x.load::<BM, BN>([row, column]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn arrive(
        at: At<2>,
        distance: u32,
        #[recv] pushed: Pushed,
        #[recv] pulled: Pulled,
        #[shape(m, n)] y: &mut Matrix<T>,
        #[shape(m, n)] z: &mut Matrix<T>,
    ) {
        let [row, column] = at.coordinates();
        let from = (at.rank() + at.world() - distance) % at.world();
        y.tile([row, column]).store(pushed.slot([from, row, column]).load());
        z.tile([row, column]).store(pulled.slot([from, row, column]).load());
    }
}

/// Tiles pass through the ring of CTAs that multiply after it: y = x and c = a·bᵀ.
#[entwine::kernel(tiles = [(64, 128)], elements = [bf16, f16])]
pub mod copy_then_multiply {
    use super::*;

    #[stage(grid = [m / BM])]
    fn copy(at: At<1>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        let [row] = at.coordinates();
        for column in 0..tiles(x.columns(), BN as u32) {
            y.tile([row, column]).store(x.load::<BM, BN>([row, column]));
        }
    }

    #[stage(grid = [m / BM, w / BN])]
    fn multiply(
        at: At<2>,
        #[shape(m, k)] a: &Matrix<T>,
        #[shape(w, k)] b: &Matrix<T>,
        #[shape(m, w)] c: &mut Matrix<T>,
    ) {
        let [row, column] = at.coordinates();
        let product: Tile<f32, BM, BN> = matmul(a.row_panel(row), b.row_panel(column));
        c.tile([row, column]).store(product.cast::<T>());
    }
}
