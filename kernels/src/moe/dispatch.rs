//! The first half of a layer of experts: tokens go to the experts that they chose, and through their first products.

use entwine::prelude::*;

/// `hidden = silu(x·Gᵀ) ∘ (x·Uᵀ)` for each expert of the rank and each token that chose it, of whatever rank.
///
/// A token goes once to each rank that it needs, however many of its experts are there. Tokens come expert after expert, and
/// products start with the rows that have come.
///
/// `rows` and `hidden` hold what a rank's experts work on, expert after expert, each from a multiple of `BM` rows on; an
/// expert's rows come from the rank itself, then from those after it in turn, each rank's in their order. Rows of G and U
/// alternate in `gate_up`, and `c` is as large, as in [`moe_layer`](super::moe_layer).
#[entwine::kernel(tiles = [(128, 256), (128, 128)], elements = [bf16, f16])]
pub mod moe_dispatch_gemm {
    use super::*;

    /// Columns of G and of U in a tile of both.
    const HALF: usize = BN / 2;

    /// Which experts the tokens go to.
    #[channel(rows = m / world, choices = k, groups = e, capacity = c)]
    pub struct Experts(Routing);

    /// Blocks of rows all of whose tokens have come.
    #[channel(slots = [c / BM], guards = rows)]
    pub struct Arrived(Gate);

    #[stage(grid = [1])]
    fn route(
        _at: At<1>,
        #[shape(m / world, k)] choices: &Matrix<u32>,
        #[shape(m / world, k)] weights: &Matrix<f32>,
        #[send] experts: Experts,
        /// How many tokens each expert gets.
        #[shape(1, e)]
        loads: &mut Matrix<u32>,
    ) {
        experts.arrange(choices, weights, loads);
    }

    #[stage(grid = [c / BM, BM / 8], within = experts, order = row_major, carrier = mover)]
    fn dispatch(
        at: At<2>,
        #[recv] experts: Experts,
        #[lent]
        #[shape(m / world, h)]
        x: &Matrix<T>,
        #[shape(c, h)] rows: &mut Matrix<T>,
        #[send] arrived: Arrived,
    ) {
        experts.scatter::<8, _, _>(at.coordinates(), x, rows, arrived);
    }

    #[stage(grid = [c / BM, 2 * f / BN], within = experts, order = ready_first)]
    fn activate(
        at: At<2>,
        #[recv] experts: Experts,
        #[recv(slot = [at[0]])] arrived: Arrived,
        rows: &Matrix<T>,
        #[shape(e / world, 2 * (f / 8 * 8), h)] gate_up: &Grouped<T>,
        #[shape(c, f)] hidden: &mut Matrix<T>,
    ) {
        let [block, column] = at.coordinates();
        let expert = gate_up.group(experts.group(block));
        arrived.slot([block]).wait();
        let product: Tile<f32, BM, BN> = matmul(rows.row_panel(block), expert.row_panel(column));
        hidden.tile([block, column]).store(product.fold::<HALF>(|gate, up| gate * gate.sigmoid() * up).cast::<T>());
    }
}
