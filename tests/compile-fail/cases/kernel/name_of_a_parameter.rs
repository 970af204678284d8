use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[channel(slots = [world, m / BM])]
    pub struct Matrix(Tile<T, BM, BN>);

    #[stage(grid = [m / BM])]
    fn fill(at: At<1>, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], 0]).store(y.load([at[0], 0]));
    }
}

fn main() {}
