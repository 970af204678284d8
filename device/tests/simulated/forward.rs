//! One rank sends every tile of a matrix to all others: the flow has no way back, so a slot may be reused
//! only once it is acknowledged.

use entwine_device::abi::{self, Head};
use entwine_device::cpu::{Launch, Whole, run};
use entwine_device::order::{ROWS_TOGETHER, row_major};
use entwine_device::{At, Channel, Matrix, Port, Role, Route, SendReceive, Share, Stage, TileItem, bf16, tiles, walk};

use crate::ranks::{Ranks, Slots};
use crate::tensor::{Tensor, sample};

const BM: usize = 64;
const BN: usize = 64;

struct Copies;

impl Channel for Copies {
    const INDEX: u32 = 0;
    const ROUTE: Route = Route::Peers;
    type Index = [u32; 3];
    type Item = TileItem<bf16, BM, BN>;
}

fn forward<R: Role>(
    at: At<'_, 2, R>,
    from: &Matrix<'_, bf16, R>,
    copies: Port<'_, Copies, SendReceive, R>,
    to: &mut Matrix<'_, bf16, R>,
) {
    let tile = at.coordinates();
    if at.rank() == 0 {
        copies.slot([0, tile[0], tile[1]]).store(from.load(tile));
        to.tile(tile).store(from.load::<BM, BN>(tile));
    } else {
        to.tile(tile).store(copies.slot([0, tile[0], tile[1]]).load());
    }
}

type Params = abi::Params<2, 1, 0>;

fn weave<R: Role>(role: &R, params: &Params) {
    let [rows, columns, ..] = params.head.dims;
    let grid = [tiles(rows, BM as u32), tiles(columns, BN as u32)];
    let stage = Stage {
        index: 0,
        grid,
        share: Share { first: 0, count: params.head.ctas },
        from_end: false,
        rows_together: ROWS_TOGETHER,
    };
    let (from, mut to) = (Matrix::woven(role, &params.matrices[0]), Matrix::woven(role, &params.matrices[1]));
    walk(role, stage, row_major, |at| forward(at, &from, Port::woven(role, &params.channels[0]), &mut to));
}

unsafe fn simulate(params: *const Head, cta: u32) {
    unsafe { run(params, cta, weave::<Whole>) }
}

/// One launch: what is sent, and what each rank gets.
pub struct Problem {
    dims: [usize; 2],
    seed: usize,
    pull: bool,
    from: Tensor<bf16>,
    to: Vec<Tensor<bf16>>,
}

impl Problem {
    pub fn new(world: u32, dims: [usize; 2], seed: usize, pull: bool) -> Self {
        let from = Tensor::from_fn(dims[0], dims[1], |i, j| sample(seed, i, j));
        let to = (0..world).map(|_| Tensor::poisoned(dims[0], dims[1])).collect();
        Problem { dims, seed, pull, from, to }
    }

    pub fn launch(&self, ranks: &Ranks<1>) -> Launch {
        let [rows, columns] = self.dims.map(|extent| extent as u32);
        let slots = [ranks.world, tiles(rows, BM as u32), tiles(columns, BN as u32), 1];
        let copies = Slots { slots, rows: BM as u32, columns: BN as u32, element: 2, pull: self.pull, pieces: 1 };
        // SAFETY: every test joins its launches before it drops the problem and the ranks.
        unsafe {
            ranks.launch(simulate, &self.dims, [copies], |head, channels| {
                let matrices = [self.from.arg(1), self.to[head.rank as usize].arg(1)];
                Params { head, matrices, channels, scalars: [] }
            })
        }
    }

    pub fn check(&self) {
        for (rank, to) in self.to.iter().enumerate() {
            to.assert_is(&format!("rank {rank}'s copy"), |row, column| sample(self.seed, row, column) as f64);
        }
    }
}

#[test]
fn every_rank_gets_every_tile() {
    for pull in [false, true] {
        for world in [1, 2, 3, 8] {
            let mut ranks = Ranks::new(world, 2);
            let problem = Problem::new(world, [130, 200], 0, pull);
            problem.launch(&ranks).join();
            assert!(ranks.take_faults().is_empty());
            problem.check();
        }
    }
}
