use entwine::prelude::*;

#[entwine::kernel(roles = one)]
mod shared {
    use super::*;

    #[stage(grid = [m])]
    fn share(at: At<1>, #[shape(m, n)] x: &Symmetric<f32>, #[shape(m, n)] y: &mut Matrix<f32>) {
        y.tile([at[0], 0]).store(x.on(0).load::<64, 64>([at[0], 0]));
    }
}

fn main() {}
