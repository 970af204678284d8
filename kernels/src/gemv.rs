//! A product of a few rows, whose K is split over the ranks, summed, and the sum given to every rank: a step of decoding.

use entwine::prelude::*;

/// C = Σ A·Bᵀ over the ranks, on every rank, where A has so few rows that the time is that of reading B once.
///
/// Every rank sends its partial products to all others and adds all of them in the order of the ranks, so that all end
/// with the same bits and a sum is one way over the link away. For 64 rows or fewer; more are right too, and faster with
/// [`gemm_all_reduce`](crate::gemm_all_reduce).
#[entwine::kernel(tiles = [(64, 64), (64, 96)], elements = [bf16, f16])]
pub mod gemv_all_reduce {
    use super::*;

    /// Partial tiles on their way to all other ranks, no more of them than there are rows.
    #[channel(slots = [world, m / BM, n / BN], route = peers, by = push, height = m)]
    pub struct Partial(Tile<T, BM, BN>);

    /// Every rank visits the tiles in the same order, and sends each before it waits for the others' of the same place.
    fn in_step(step: Step<2>) -> [u32; 2] {
        row_major(step)
    }

    #[stage(grid = [m / BM, n / BN], order = in_step)]
    fn multiply(
        at: At<2>,
        #[shape(m, k)] a: &Matrix<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[send]
        #[recv]
        partial: Partial,
        #[shape(m, n)] c: &mut Matrix<T>,
    ) {
        let [row, column] = at.coordinates();
        let product: Tile<T, BM, BN> = matmul(a.row_panel(row), b.row_panel(column)).cast();
        partial.slot([at.rank(), row, column]).store(&product);
        let mut sum = product.zeros_like();
        for rank in 0..at.world() {
            if rank == at.rank() {
                sum += &product;
            } else {
                sum += partial.slot([rank, row, column]).load();
            }
        }
        c.tile([row, column]).store(sum.cast::<T>());
    }
}
