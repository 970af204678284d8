use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Rows of tiles that are there.
    #[channel(slots = [m / BM], guards = w)]
    struct Ready(Gate);

    #[stage(grid = [m / BM, n / BN])]
    fn write(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>, #[send] ready: Ready) {
        y.tile([at[0], at[1]]).store(x.load([at[0], at[1]]));
        ready.slot([at[0]]).arrive(tiles(y.columns(), BN as u32));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn read(at: At<2>, #[recv] ready: Ready, y: &Matrix<T>, #[shape(m, n)] z: &mut Matrix<T>) {
        ready.slot([at[0]]).wait();
        z.tile([at[0], at[1]]).store(y.load([at[0], at[1]]));
    }
}

fn main() {}
