use entwine::prelude::*;

#[entwine::kernel(roles = three)]
mod several {
    use super::*;

    #[stage(grid = [m / BM])]
    fn copy(at: At<1>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], 0]).store(x.load::<BM, BN>([at[0], 0]));
    }
}

fn main() {}
