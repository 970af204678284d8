//! What one-sided operations cost, and what an order is worth: kernels that measure, and do nothing else.

use entwine::prelude::*;

/// Each rank puts its `x` into the next rank's `y`: a CTA for each row, `piece` columns at a time.
#[entwine::kernel(tiles = [(64, 128)], elements = [f32], roles = one)]
pub mod put_to_next {
    use super::*;

    #[stage(grid = [rows])]
    fn put(at: At<1>, piece: u32, #[shape(rows, n)] x: &mut Symmetric<T>, #[shape(rows, n)] y: &mut Symmetric<T>) {
        let (next, columns) = ((at.rank() + 1) % at.world(), x.columns());
        let mut column = 0;
        while column < columns {
            let width = (columns - column).min(piece.max(1));
            let (origin, extent) = ([at[0], column], [1, width]);
            // The launch ends when all of it is there.
            let _under_way = x.here().block(origin, extent).start_put(&y.on(next).block(origin, extent));
            column += width;
        }
    }
}

/// Ranks 0 and 1 send a word to and fro, so many times.
#[entwine::kernel(tiles = [(64, 128)], elements = [f32], roles = one)]
pub mod to_and_fro {
    use super::*;

    #[stage(grid = [1])]
    fn exchange(at: At<1>, times: u32, #[shape(1, 1)] word: &mut Symmetric<u32>) {
        if at.rank() > 1 {
            return;
        }
        let (here, there) = (word.here().word([0, 0]), word.on(1 - at.rank()).word([0, 0]));
        for time in 0..times {
            if at.rank() == 0 {
                there.store(2 * time + 1, Release, Sys);
                here.wait_until(Comparison::AtLeast, 2 * time + 2);
            } else {
                here.wait_until(Comparison::AtLeast, 2 * time + 1);
                there.store(2 * time + 2, Release, Sys);
            }
        }
    }
}

/// Each rank reads its `x` once, and adds up its tiles by blocks of rows.
#[entwine::kernel(tiles = [(64, 128)], elements = [f32], roles = one)]
pub mod read_once {
    use super::*;

    #[stage(grid = [m / BM])]
    fn read(at: At<1>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, width)] sums: &mut Matrix<T>) {
        let [row] = at.coordinates();
        let mut sum: Tile<f32, BM, BN> = x.load([row, 0]).read();
        for column in 1..tiles(x.columns(), BN as u32) {
            sum += x.load::<BM, BN>([row, column]);
        }
        sums.tile([row, 0]).store(sum);
    }
}

/// As [`moe_dispatch_gemm`](crate::moe_dispatch_gemm), but for the order of its products, which is fixed: that in which
/// `ready_first` looks at them.
#[entwine::kernel(tiles = [(128, 256)], elements = [bf16])]
pub mod moe_dispatch_gemm_in_order {
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
        #[shape(1, e)] loads: &mut Matrix<u32>,
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

    #[stage(grid = [c / BM, 2 * f / BN], within = experts, order = grouped)]
    fn activate(
        at: At<2>,
        #[recv] experts: Experts,
        #[recv] arrived: Arrived,
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
