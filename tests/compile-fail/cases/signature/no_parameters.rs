use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn copy() {}
}

fn main() {}
