use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[stage(grid = [m % BM, n / BN])]
    fn copy(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }
}

fn main() {}
