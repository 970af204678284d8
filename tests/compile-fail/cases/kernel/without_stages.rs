use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    const LIMIT: u32 = 3;
}

fn main() {}
