use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn multiply(
        at: At<2>,
        #[lent] #[shape(m, k)] a: &Matrix<T>,
        #[shape(n, k)] b: &Matrix<T>,
        #[shape(m, n)] c: &mut Matrix<T>,
    ) {
        let product: Tile<f32, BM, BN> = matmul(a.row_panel(at[0]), b.row_panel(at[1]));
        c.tile([at[0], at[1]]).store(product.cast::<T>());
    }
}

fn main() {}
