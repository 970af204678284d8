use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    /// Values for the columns of tiles that are there.
    #[channel(slots = [n / BN], guards = y)]
    struct Ready(Gate);

    #[stage(grid = [n / BN])]
    fn write(at: At<1>, #[shape(1, n)] x: &Matrix<T>, #[shape(1, n)] y: &mut Matrix<T>, #[send] ready: Ready) {
        y.tile([0, at[0]]).store(x.load::<BM, BN>([0, at[0]]));
        ready.slot([at[0]]).arrive(1);
    }

    #[stage(grid = [m / BM, n / BN])]
    fn read(at: At<2>, #[recv] ready: Ready, y: &Matrix<T>, #[shape(m, n)] z: &mut Matrix<T>) {
        let tile: Tile<T, BM, BN> = z.load([at[0], at[1]]).read();
        let sum = tile.zip_columns(&y.column_values([0, at[1]]), |x, value| x + value);
        ready.slot([at[1]]).wait();
        z.tile([at[0], at[1]]).store(sum);
    }
}

fn main() {}
