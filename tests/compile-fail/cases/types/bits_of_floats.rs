use entwine::prelude::*;

#[entwine::kernel(roles = one)]
mod bits {
    use super::*;

    #[stage(grid = [m])]
    fn mask(at: At<1>, #[shape(m, n)] words: &mut Symmetric<f32>) {
        words.on(at[0]).word([0, 0]).fetch_and(1.0, Relaxed, Sys);
    }
}

fn main() {}
