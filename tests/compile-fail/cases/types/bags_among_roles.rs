use entwine::prelude::*;

#[entwine::kernel(elements = [f32])]
mod pooled {
    use super::*;

    #[stage(grid = [m / BM])]
    fn pool(
        at: At<1>,
        #[shape(rows, d)] table: &Matrix<T>,
        #[shape(1, m + 1)] offsets: &Matrix<u32>,
        #[shape(1, room)] indices: &Matrix<u32>,
        #[shape(m, d)] out: &mut Matrix<T>,
    ) {
        let bags = Bags::new(offsets, 0, indices);
        out.tile([at[0], 0]).store(table.pool::<BM, BN>([at[0], 0], &bags));
    }
}

fn main() {}
