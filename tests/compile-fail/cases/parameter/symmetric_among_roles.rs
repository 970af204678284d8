use entwine::prelude::*;

#[entwine::kernel]
mod shared {
    use super::*;

    #[stage(grid = [m])]
    fn share(at: At<1>, #[shape(m, n)] x: &mut Symmetric<f32>) {
        x.on(at[0]).word([0, 0]).store(1.0, Release, Sys);
    }
}

fn main() {}
