use entwine::prelude::*;

#[entwine::kernel(roles = one)]
mod ordered {
    use super::*;

    #[stage(grid = [m])]
    fn look(at: At<1>, #[shape(m, n)] words: &mut Symmetric<u32>) {
        let seen = words.on(at[0]).word([0, 0]).load(Release, Sys);
        words.here().word([0, 0]).store(seen, Acquire, Sys);
    }
}

fn main() {}
