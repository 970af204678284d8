//! The second half of a layer of experts: their second products, and the weighted sums that come back to the tokens.

use entwine::prelude::*;

/// `y = Σ w · hidden·Dᵀ` over the experts that each token chose, on whatever rank.
///
/// `hidden` holds what a rank's experts have made of the tokens, arranged as [`moe_dispatch_gemm`](super::moe_dispatch_gemm)
/// leaves it for the same `choices`.
#[entwine::kernel(tiles = [(128, 256), (128, 128)], elements = [bf16, f16])]
pub mod moe_gemm_combine {
    use super::*;
    use crate::moe::orders::{column_by_column, in_quarters};

    /// Columns of a tile of sums: half of those of a product, since they take more registers.
    const HALF: usize = BN / 2;

    /// Which experts the tokens went to.
    #[channel(rows = m / world, choices = k, groups = e, capacity = c)]
    pub struct Experts(Routing);

    /// Columns of tiles that all experts have computed.
    #[channel(slots = [h / BN], guards = outputs)]
    pub struct Computed(Gate);

    /// What a rank's experts make of another rank's tokens, summed.
    #[channel(slots = [world, m / world / BM, h / (BN / 2)])]
    pub struct Partial(Tile<T, BM, { BN / 2 }>);

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

    #[stage(grid = [c / BM, h / BN], within = experts, order = in_quarters)]
    fn compute(
        at: At<2>,
        #[recv] experts: Experts,
        #[shape(c, f)] hidden: &Matrix<T>,
        #[shape(e / world, h, f)] down: &Grouped<T>,
        #[shape(c, h)] outputs: &mut Matrix<T>,
        #[send] computed: Computed,
    ) {
        let [block, column] = at.coordinates();
        let expert = down.group(experts.group(block));
        let product: Tile<f32, BM, BN> = matmul(hidden.row_panel(block), expert.row_panel(column));
        outputs.tile([block, column]).store(product.cast::<T>());
        computed.slot([column]).arrive(experts.blocks());
    }

    /// The peers' tiles, whose sums go out while others are still computed.
    #[stage(grid = [world - 1, m / world / BM, h / (BN / 2)], order = column_by_column, beside = compute)]
    fn send(
        at: At<3>,
        #[recv] experts: Experts,
        #[recv(slot = [at[2] / 2], unless = experts.blocks() == 0)] computed: Computed,
        outputs: &Matrix<T>,
        #[send] partial: Partial,
    ) {
        let [turn, row, column] = at.coordinates();
        let owner = at.peer(turn);
        if experts.blocks() > 0 {
            computed.slot([column / 2]).wait();
        }
        let sum: Tile<f32, BM, HALF> = experts.weighted_sum([owner, row, column], outputs);
        partial.to(owner).slot([at.rank(), row, column]).store(sum.cast());
    }

    #[stage(grid = [m / world / BM, h / (BN / 2)], order = ready_first)]
    fn combine(
        at: At<2>,
        #[recv] experts: Experts,
        #[recv(slot = [at[1] / 2], unless = experts.blocks() == 0)] computed: Computed,
        outputs: &Matrix<T>,
        #[recv] partial: Partial,
        #[shape(m / world, h)] y: &mut Matrix<T>,
    ) {
        let [row, column] = at.coordinates();
        if experts.blocks() > 0 {
            computed.slot([column / 2]).wait();
        }
        let mut sum: Tile<f32, BM, HALF> = experts.weighted_sum([at.rank(), row, column], outputs);
        for peer in at.peers() {
            sum += partial.slot([peer, row, column]).load();
        }
        y.tile([row, column]).store(sum.cast::<T>());
    }
}
