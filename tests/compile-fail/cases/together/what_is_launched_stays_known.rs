use entwine::World;
use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[stage(grid = [m / BM, n / BN], order = peer_first)]
    fn copy(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }
}

fn main() -> Result<(), entwine::Error> {
    let world = World::simulated(2)?;
    let x = world.zeros::<bf16>([128, 128])?;
    let mut y = world.zeros::<bf16>([128, 128])?;
    let kernel = kernel::load(&world)?;
    kernel.launch(kernel::Args { x: &x, y: &mut y })?.wait()
}
