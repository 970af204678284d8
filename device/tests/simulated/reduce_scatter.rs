//! C = Σ_ranks A·Bᵀ, each rank keeping the rows it owns: matmul fused with a reduce-scatter.

use entwine_device::abi::{self, Head, MatrixArg};
use entwine_device::cpu::{Launch, Whole, run};
use entwine_device::order::{ROWS_TOGETHER, peers_first};
use entwine_device::{
    At, Channel, Matrix, Port, Role, Route, SendReceive, Sharded, Share, Stage, TileItem, bf16, matmul, tiles, walk,
};

use crate::ranks::{Ranks, Slots};
use crate::tensor::{Tensor, sample};

const BM: usize = 64;
const BN: usize = 128;

struct Partial;

impl Channel for Partial {
    const INDEX: u32 = 0;
    const ROUTE: Route = Route::One;
    /// Every rank waits for all others in each launch.
    const ACKNOWLEDGED: bool = false;
    type Index = [u32; 3];
    type Item = TileItem<bf16, BM, BN>;
}

fn multiply<R: Role>(
    at: At<'_, 3, R>,
    a: &Sharded<'_, bf16, R>,
    b: &Matrix<'_, bf16, R>,
    partial: Port<'_, Partial, SendReceive, R>,
    c: &mut Matrix<'_, f32, R>,
) {
    let [owner, row, column] = at.coordinates();
    let product = matmul(a.shard(owner).row_panel::<BM>(row), b.row_panel::<BN>(column)).cast::<bf16>();
    if owner != at.rank() {
        partial.to(owner).slot([at.rank(), row, column]).store(product);
    } else {
        let mut sum = product.zeros_like();
        for rank in 0..at.world() {
            if rank == owner { sum += &product } else { sum += partial.slot([rank, row, column]).load() }
        }
        c.tile([row, column]).store(sum);
    }
}

type Params = abi::Params<3, 1, 0>;

fn grid(world: u32, m: usize, n: usize) -> [u32; 3] {
    [world, tiles(tiles(m as u32, world), BM as u32), tiles(n as u32, BN as u32)]
}

fn weave<R: Role>(role: &R, params: &Params) {
    let [m, n, ..] = params.head.dims.map(|dim| dim as usize);
    let share = Share { first: 0, count: params.head.ctas };
    let stage =
        Stage { index: 0, grid: grid(params.head.world, m, n), share, from_end: false, rows_together: ROWS_TOGETHER };
    let (a, b) = (Sharded::woven(role, &params.matrices[0]), Matrix::woven(role, &params.matrices[1]));
    let mut c = Matrix::woven(role, &params.matrices[2]);
    walk(role, stage, peers_first, |at| {
        multiply(at, &a, &b, Port::woven(role, &params.channels[0]), &mut c);
    });
}

unsafe fn simulate(params: *const Head, cta: u32) {
    unsafe { run(params, cta, weave::<Whole>) }
}

/// One launch: what each rank computes from, and what it gets.
pub struct Problem {
    world: usize,
    dims: [usize; 3],
    seed: usize,
    pull: bool,
    a: Vec<Tensor<bf16>>,
    b: Vec<Tensor<bf16>>,
    c: Vec<Tensor<f32>>,
}

impl Problem {
    /// `[m, n, k]`, where `k` is each rank's share of the columns that are summed over.
    pub fn new(world: u32, dims: [usize; 3], seed: usize, pull: bool) -> Self {
        let world = world as usize;
        let [m, n, k] = dims;
        let share = m.div_ceil(world);
        let rows = |rank| m.saturating_sub(rank * share).min(share);
        Problem {
            world,
            dims,
            seed,
            pull,
            a: (0..world).map(|rank| Tensor::from_fn(m, k, |i, j| sample(seed + 2 * rank, i, j))).collect(),
            b: (0..world).map(|rank| Tensor::from_fn(n, k, |i, j| sample(seed + 2 * rank + 1, i, j))).collect(),
            c: (0..world).map(|rank| Tensor::poisoned(rows(rank), n)).collect(),
        }
    }

    pub fn slots(&self) -> [u32; 3] {
        grid(self.world as u32, self.dims[0], self.dims[1])
    }

    pub fn launch(&self, ranks: &Ranks<1>) -> Launch {
        let [world, rows, columns] = self.slots();
        let slots = [world, rows, columns, 1];
        let partial = Slots { slots, rows: BM as u32, columns: BN as u32, element: 2, pull: self.pull, pieces: 1 };
        // SAFETY: every test joins its launches before it drops the problem and the ranks.
        unsafe {
            ranks.launch(simulate, &self.dims, [partial], |head, channels| {
                let rank = head.rank as usize;
                // The last ranks may own fewer rows; all are told of the same extent.
                let part_rows = self.dims[0].div_ceil(self.world) as u32;
                let c = MatrixArg { part_rows, ..self.c[rank].arg(1) };
                let matrices = [self.a[rank].arg(self.world), self.b[rank].arg(1), c];
                Params { head, matrices, channels, scalars: [] }
            })
        }
    }

    pub fn check(&self) {
        let [m, _, k] = self.dims;
        let share = m.div_ceil(self.world);
        for (rank, c) in self.c.iter().enumerate() {
            c.assert_is(&format!("rank {rank}'s part of {:?}", self.dims), |row, column| {
                let product = |from| -> f64 {
                    let (a, b) = (self.seed + 2 * from, self.seed + 2 * from + 1);
                    (0..k).map(|j| sample(a, rank * share + row, j) as f64 * sample(b, column, j) as f64).sum()
                };
                (0..self.world).map(product).sum()
            });
        }
    }
}

fn runs(world: u32, ctas: u32, dims: [usize; 3]) {
    for pull in [false, true] {
        let mut ranks = Ranks::new(world, ctas);
        let problem = Problem::new(world, dims, 0, pull);
        problem.launch(&ranks).join();
        assert!(ranks.take_faults().is_empty());
        problem.check();
    }
}

#[test]
fn a_tile_for_each_rank() {
    for world in [1, 2, 3, 4, 8] {
        runs(world, 1, [64 * world as usize, 128, 64]);
    }
}

#[test]
fn ragged_shapes() {
    for world in [1, 2, 3, 4, 8] {
        for dims in [[1, 1, 1], [127, 129, 65], [1000, 130, 9], [129, 127, 150]] {
            runs(world, 3, dims);
        }
    }
}

#[test]
fn fewer_rows_than_ranks() {
    runs(8, 2, [3, 128, 16]);
    runs(4, 2, [0, 128, 16]);
}

#[test]
fn nothing_to_sum_over() {
    runs(4, 2, [300, 200, 0]);
}

#[test]
fn more_ctas_than_tiles() {
    runs(2, 20, [128, 128, 32]);
}
