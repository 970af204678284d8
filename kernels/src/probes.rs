//! What one-sided operations cost: kernels that measure, and do nothing else.

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
