use entwine::prelude::*;

#[entwine::kernel]
fn copy(at: At<2>, x: &Matrix<bf16>, y: &mut Matrix<bf16>) {
    y.tile([at[0], at[1]]).store(x.load::<128, 128>([at[0], at[1]]));
}

fn main() {}
