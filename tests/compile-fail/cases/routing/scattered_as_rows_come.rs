use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Which rows go where.
    #[channel(rows = m / world, choices = k, groups = e, capacity = c)]
    struct Groups(Routing);

    /// Groups that are there.
    #[channel(slots = [c / BM], guards = rows)]
    struct Arrived(Gate);

    #[stage(grid = [1])]
    fn route(
        _at: At<1>,
        #[shape(m / world, k)] choices: &Matrix<u32>,
        #[shape(m / world, k)] weights: &Matrix<f32>,
        #[send] groups: Groups,
        #[shape(1, e)] loads: &mut Matrix<u32>,
    ) {
        groups.arrange(choices, weights, loads);
    }

    #[stage(grid = [c / BM, BM / 8], within = groups, order = ready_first, carrier = mover)]
    fn dispatch(
        at: At<2>,
        #[recv] groups: Groups,
        #[lent] #[shape(m / world, h)] x: &Matrix<T>,
        #[shape(c, h)] rows: &mut Matrix<T>,
        #[send] arrived: Arrived,
    ) {
        groups.scatter::<8, _, _>(at.coordinates(), x, rows, arrived);
    }

    #[stage(grid = [c / BM, n / BN], within = groups, order = ready_first)]
    fn multiply(
        at: At<2>,
        #[recv] groups: Groups,
        #[recv(slot = [at[0]])] arrived: Arrived,
        rows: &Matrix<T>,
        #[shape(e / world, n, h)] b: &Grouped<T>,
        #[shape(c, n)] y: &mut Matrix<T>,
    ) {
        arrived.slot([at[0]]).wait();
        let product: Tile<f32, BM, BN> = matmul(rows.row_panel(at[0]), b.group(groups.group(at[0])).row_panel(at[1]));
        y.tile([at[0], at[1]]).store(product.cast::<T>());
    }
}

fn main() {}
