//! Two stages, one of them on CTAs of its own; a channel of panels, in pieces, to every peer; tiles as they become ready.

use entwine::prelude::*;

/// C = A·Bᵀ, where each rank has some rows of A and some columns of C.
#[entwine::kernel(tiles = [(64, 128)])]
pub mod all_gather_gemm {
    use super::*;

    /// Rows of A on their way to every rank.
    #[channel(slots = [world, m / world / BM], route = peers, by = push, columns = k, pieces = 3)]
    pub struct Rows(Panel<T, BM>);

    /// Sends the rows of this rank.
    #[stage(grid = [m / world / BM], ctas = 8)]
    fn gather(at: At<1>, #[shape(m / world, k)] a: &Matrix<T>, #[send] rows: Rows) {
        rows.slot([at.rank(), at[0]]).store(a.row_panel(at[0]));
    }

    #[stage(grid = [world, m / world / BM, n / BN], order = ready_first)]
    fn multiply(
        at: At<3>,
        a: &Matrix<T>,
        #[recv(slot = [at[0], at[1]], unless = at[0] == at.rank())] rows: Rows,
        #[shape(n, k)] b: &Matrix<T>,
        #[shape(m, n)] c: &mut Sharded<T>,
    ) {
        let [owner, row, column] = at.coordinates();
        let panel = if owner == at.rank() { a.row_panel(row) } else { rows.slot([owner, row]).load() };
        c.shard_mut(owner).tile([row, column]).store(matmul(panel, b.row_panel::<BN>(column)).cast());
    }
}
