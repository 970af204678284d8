use entwine::prelude::*;

#[entwine::kernel]
mod kernel {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn stage_0(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_1(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_2(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_3(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_4(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_5(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_6(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_7(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_8(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_9(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_10(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_11(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_12(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_13(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_14(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_15(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_16(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_17(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_18(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_19(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_20(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_21(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_22(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_23(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_24(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_25(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_26(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_27(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_28(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_29(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_30(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_31(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn stage_32(at: At<2>, x: &Matrix<T>, y: &mut Matrix<T>) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
    }
}

fn main() {}
