//! A layer of experts, split over the ranks: tokens go to the experts that they chose, and come back as weighted sums.

use entwine::prelude::*;

/// `y = Σ w · (silu(x·Gᵀ) ∘ (x·Uᵀ))·Dᵀ` over the experts that each token chose, each expert with its own G, U and D.
///
/// The experts lie evenly split over the ranks, and so do the tokens. A token goes once to each rank that it needs,
/// however many of its experts are there. Tokens come expert after expert, and products start with the rows that have come.
///
/// Rows of G and U alternate in `gate_up`, eight at a time: rows `16i…16i+7` are rows `8i…8i+7` of G, and rows
/// `16i+8…16i+15` those of U. Where `f` is no multiple of 8, rows of any numbers fill the last eight of each up.
///
/// `rows`, `hidden` and `outputs` hold what a rank's experts work on, expert after expert, each from a multiple of `BM`
/// rows on. With more rows than `c` the launch fails on every rank; [`moe_capacity`](crate::moe_capacity) rows are always enough
/// where a token chooses no expert twice. A choice that is no expert's number chooses none.
#[entwine::kernel(tiles = [(64, 256), (128, 256), (128, 128)], elements = [bf16, f16])]
pub mod moe_layer {
    use super::*;
    use crate::moe::orders::{column_by_column, in_quarters};

    /// Columns of G and of U in a tile of both; and of a tile of sums, which take more registers than products.
    const HALF: usize = BN / 2;

    /// Which experts the tokens go to.
    #[channel(rows = m / world, choices = k, groups = e, capacity = c)]
    pub struct Experts(Routing);

    /// Blocks of rows all of whose tokens have come.
    #[channel(slots = [c / BM], guards = rows)]
    pub struct Arrived(Gate);

    /// Blocks of rows whose hidden values are all there.
    #[channel(slots = [c / BM], guards = hidden)]
    pub struct Activated(Gate);

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
        #[send] activated: Activated,
    ) {
        let [block, column] = at.coordinates();
        let expert = gate_up.group(experts.group(block));
        arrived.slot([block]).wait();
        let product: Tile<f32, BM, BN> = matmul(rows.row_panel(block), expert.row_panel(column));
        let tile = product.fold::<HALF>(|gate, up| gate * gate.sigmoid() * up);
        hidden.tile([block, column]).store(tile.cast::<T>());
        activated.slot([block]).arrive(tiles(hidden.columns(), HALF as u32));
    }

    #[stage(grid = [c / BM, h / BN], within = experts, order = in_quarters)]
    fn compute(
        at: At<2>,
        #[recv] experts: Experts,
        #[recv] activated: Activated,
        hidden: &Matrix<T>,
        #[shape(e / world, h, f)] down: &Grouped<T>,
        #[shape(c, h)] outputs: &mut Matrix<T>,
        #[send] computed: Computed,
    ) {
        let [block, column] = at.coordinates();
        let expert = down.group(experts.group(block));
        // Without columns there are no tiles that would be counted, and the products are zero.
        if hidden.columns() > 0 {
            activated.slot([block]).wait();
        }
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
