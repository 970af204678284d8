use entwine::prelude::*;

#[entwine::kernel(roles = one)]
mod narrow {
    use super::*;

    #[stage(grid = [m])]
    fn count(at: At<1>, #[shape(m, n)] words: &mut Symmetric<u32>) {
        words.here().word([0, 0]).fetch_add(1, Relaxed, Gpu);
        words.on(at[0]).word([0, 0]).fetch_add(1, Relaxed, Gpu);
    }
}

fn main() {}
