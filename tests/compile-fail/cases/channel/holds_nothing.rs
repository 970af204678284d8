use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[channel(slots = [m / BM])]
    pub struct Moved;

    #[stage(grid = [m / BM])]
    fn send(at: At<1>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        moved.to(at.rank()).slot([at[0]]).store(x.load([at[0], 0]));
    }
}

fn main() {}
