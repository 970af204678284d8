//! Twice the distance of each element of A·Bᵀ from its row's maximum, in two stages on one rank: elementwise
//! and row-wise operations, and a channel from a rank to itself.

use entwine_device::abi::{self, Head};
use entwine_device::cpu::{Whole, run};
use entwine_device::order::{ROWS_TOGETHER, row_major};
use entwine_device::{
    At, Channel, Matrix, Port, Receive, Role, Route, Send, Share, Stage, TileItem, f16, matmul, tiles, walk,
};

use crate::ranks::{Ranks, Slots};
use crate::tensor::{Tensor, sample};

const BM: usize = 64;
const BN: usize = 192;

struct Products;

impl Channel for Products {
    const INDEX: u32 = 0;
    const ROUTE: Route = Route::One;
    type Index = [u32; 2];
    type Item = TileItem<f32, BM, BN>;
}

fn multiply<R: Role>(
    at: At<'_, 1, R>,
    a: &Matrix<'_, f16, R>,
    b: &Matrix<'_, f16, R>,
    products: Port<'_, Products, Send, R>,
) {
    let product = matmul(a.row_panel::<BM>(at[0]), b.row_panel::<BN>(0));
    products.to(at.rank()).slot([at.rank(), at[0]]).store(product);
}

fn compare<R: Role>(at: At<'_, 1, R>, products: Port<'_, Products, Receive, R>, c: &mut Matrix<'_, f16, R>) {
    let product = products.slot([at.rank(), at[0]]).load().read();
    let maximum = product.reduce_rows(f32::max).map(|most| 2.0 * most);
    let distance = product.map(|x| 2.0 * x).zip_rows(&maximum, |x, most| most - x);
    c.tile([at[0], 0]).store(distance.cast());
}

type Params = abi::Params<3, 1, 0>;

/// Two CTAs carry the first stage, another one the second.
fn weave<R: Role>(role: &R, params: &Params) {
    let grid = [tiles(params.head.dims[0], BM as u32)];
    let [a, b, mut c] = params.matrices.each_ref().map(|matrix| Matrix::woven(role, matrix));
    let (sender, receiver) = (Share { first: 0, count: 2 }, Share { first: 2, count: 1 });
    walk(
        role,
        Stage { index: 0, grid, share: sender, from_end: false, rows_together: ROWS_TOGETHER },
        row_major,
        |at| {
            multiply(at, &a, &b, Port::woven(role, &params.channels[0]));
        },
    );
    walk(
        role,
        Stage { index: 1, grid, share: receiver, from_end: false, rows_together: ROWS_TOGETHER },
        row_major,
        |at| {
            compare(at, Port::woven(role, &params.channels[0]), &mut c);
        },
    );
}

unsafe fn simulate(params: *const Head, cta: u32) {
    unsafe { run(params, cta, weave::<Whole>) }
}

#[test]
fn rows_are_reduced_and_spread() {
    let (m, n, k) = (200, BN, 70);
    for pull in [false, true] {
        let mut ranks = Ranks::new(2, 3);
        let a = Tensor::<f16>::from_fn(m, k, |i, j| sample(0, i, j));
        let b = Tensor::<f16>::from_fn(n, k, |i, j| sample(1, i, j));
        let c = [(); 2].map(|_| Tensor::<f16>::poisoned(m, n));
        let slots = [2, tiles(m as u32, BM as u32), 1, 1];
        let products = Slots { slots, rows: BM as u32, columns: BN as u32, element: 4, pull, pieces: 1 };
        // SAFETY: joined here.
        let launch = unsafe {
            ranks.launch(simulate, &[m], [products], |head, channels| {
                let matrices = [a.arg(1), b.arg(1), c[head.rank as usize].arg(1)];
                Params { head, matrices, channels, scalars: [] }
            })
        };
        launch.join();
        assert!(ranks.take_faults().is_empty());

        let dot = |i, column| (0..k).map(|j| sample(0, i, j) as f64 * sample(1, column, j) as f64).sum::<f64>();
        let maximum: Vec<_> = (0..m).map(|i| (0..n).map(|j| dot(i, j)).fold(f64::MIN, f64::max)).collect();
        for c in &c {
            c.assert_is("the distance", |i, j| 2.0 * (maximum[i] - dot(i, j)));
        }
    }
}
