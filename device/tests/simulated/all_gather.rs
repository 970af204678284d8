//! C = A·Bᵀ with the rows of A spread over the ranks: an all-gather fused with a matmul.

use entwine_device::abi::{self, Head};
use entwine_device::cpu::{Launch, Whole, run};
use entwine_device::order::{ROWS_TOGETHER, ring, row_major};
use entwine_device::{
    At, Channel, Matrix, PanelItem, Port, Receive, Role, Route, Send, Sharded, Share, Stage, bf16, matmul, tiles, walk,
    walk_ready_first,
};

use crate::ranks::{Ranks, Slots};
use crate::tensor::{Tensor, sample};

const BM: usize = 128;
const BN: usize = 64;

struct Gathered;

impl Channel for Gathered {
    const INDEX: u32 = 0;
    const ROUTE: Route = Route::Peers;
    type Index = [u32; 2];
    type Item = PanelItem<bf16, BM>;
}

/// Sends every other panel piece by piece, and those between as a whole.
fn gather<R: Role>(at: At<'_, 2, R>, a: &Matrix<'_, bf16, R>, gathered: Port<'_, Gathered, Send, R>) {
    let [piece, row] = at.coordinates();
    let slot = gathered.slot([at.rank(), row]);
    if row % 2 == 0 {
        slot.piece(piece).store(a.row_panel(row));
    } else if piece == 0 {
        slot.store(a.row_panel(row));
    }
}

fn multiply<R: Role>(
    at: At<'_, 3, R>,
    a: &Matrix<'_, bf16, R>,
    b: &Matrix<'_, bf16, R>,
    gathered: Port<'_, Gathered, Receive, R>,
    c: &mut Sharded<'_, f32, R>,
) {
    let [owner, row, column] = at.coordinates();
    let rows = if owner == at.rank() { a.row_panel(row) } else { gathered.slot([owner, row]).load() };
    c.shard_mut(owner).tile([row, column]).store(matmul(rows, b.row_panel::<BN>(column)));
}

type Params = abi::Params<3, 1, 0>;

fn weave<R: Role, const READY_FIRST: bool>(role: &R, params: &Params) {
    let Head { rank, world, ctas, dims: [m, n, _, pieces, ..], .. } = params.head;
    let share = Share { first: 0, count: ctas };
    let panels = tiles(tiles(m, world), BM as u32);
    let (a, b) = (Matrix::woven(role, &params.matrices[0]), Matrix::woven(role, &params.matrices[1]));
    let mut c = Sharded::woven(role, &params.matrices[2]);
    let gathered = Port::woven(role, &params.channels[0]);
    walk(
        role,
        Stage { index: 0, grid: [pieces, panels], share, from_end: false, rows_together: ROWS_TOGETHER },
        row_major,
        |at| {
            gather(at, &a, Port::woven(role, &params.channels[0]));
        },
    );
    let stage = Stage {
        index: 1,
        grid: [world, panels, tiles(n, BN as u32)],
        share,
        from_end: false,
        rows_together: ROWS_TOGETHER,
    };
    if READY_FIRST {
        let slot = |[owner, row, _]: [u32; 3]| (owner != rank).then(|| gathered.slot([owner, row]).place());
        walk_ready_first(role, stage, slot, |at| multiply(at, &a, &b, gathered, &mut c));
    } else {
        walk(role, stage, ring, |at| multiply(at, &a, &b, gathered, &mut c));
    }
}

unsafe fn simulate<const READY_FIRST: bool>(params: *const Head, cta: u32) {
    unsafe { run(params, cta, weave::<Whole, READY_FIRST>) }
}

/// One launch: what each rank computes from, and what it gets.
pub struct Problem {
    world: usize,
    dims: [usize; 3],
    pull: bool,
    pieces: u32,
    /// Those of them that are sent.
    pub sent: u32,
    a: Vec<Tensor<bf16>>,
    b: Tensor<bf16>,
    c: Vec<Tensor<f32>>,
}

impl Problem {
    /// `[m, n, k]`, and the pieces that panels are cut into.
    pub fn new(world: u32, [m, n, k]: [usize; 3], pull: bool, pieces: u32) -> Self {
        let world = world as usize;
        let share = m.div_ceil(world);
        let rows = |rank| m.saturating_sub(rank * share).min(share);
        let shard = |rank| Tensor::from_fn(rows(rank), k, |i, j| sample(0, rank * share + i, j));
        Problem {
            world,
            dims: [m, n, k],
            pull,
            pieces,
            sent: pieces,
            a: (0..world).map(shard).collect(),
            b: Tensor::from_fn(n, k, |i, j| sample(1, i, j)),
            c: (0..world).map(|_| Tensor::poisoned(m, n)).collect(),
        }
    }

    pub fn launch<const READY_FIRST: bool>(&self, ranks: &Ranks<1>) -> Launch {
        let [m, n, k] = self.dims;
        let slots = [ranks.world, tiles(tiles(m as u32, ranks.world), BM as u32), 1, 1];
        let gathered =
            Slots { slots, rows: BM as u32, columns: k as u32, element: 2, pull: self.pull, pieces: self.pieces };
        // SAFETY: every test joins its launches before it drops the problem and the ranks.
        unsafe {
            ranks.launch(simulate::<READY_FIRST>, &[m, n, k, self.sent as usize], [gathered], |head, channels| {
                let rank = head.rank as usize;
                let matrices = [self.a[rank].arg(1), self.b.arg(1), self.c[rank].arg(self.world)];
                Params { head, matrices, channels, scalars: [] }
            })
        }
    }

    pub fn check(&self) {
        let [m, n, k] = self.dims;
        let dot = |row, column| (0..k).map(|j| sample(0, row, j) as f64 * sample(1, column, j) as f64).sum();
        let product: Vec<f64> = (0..m * n).map(|at| dot(at / n, at % n)).collect();
        for (rank, c) in self.c.iter().enumerate() {
            c.assert_is(&format!("rank {rank}'s product of {m} × {n} × {k}"), |row, column| {
                product[row * n + column]
            });
        }
    }
}

fn runs<const READY_FIRST: bool>(world: u32, ctas: u32, dims: [usize; 3], pull: bool, pieces: u32) {
    let mut ranks = Ranks::new(world, ctas);
    let problem = Problem::new(world, dims, pull, pieces);
    problem.launch::<READY_FIRST>(&ranks).join();
    assert!(ranks.take_faults().is_empty());
    problem.check();
}

fn runs_every_way(world: u32, ctas: u32, dims: [usize; 3]) {
    for (pull, pieces) in [(false, 1), (true, 1), (false, 3), (true, 8)] {
        runs::<false>(world, ctas, dims, pull, pieces);
        runs::<true>(world, ctas, dims, pull, pieces);
    }
}

#[test]
fn ragged_shapes() {
    for world in [1, 2, 3, 4, 8] {
        for dims in [[1, 1, 1], [127, 129, 65], [1000, 130, 9], [128 * 8, 64, 128], [260, 20, 200]] {
            runs_every_way(world, 3, dims);
        }
    }
}

#[test]
fn empty_shapes() {
    runs_every_way(4, 2, [300, 64, 0]);
    runs_every_way(4, 2, [0, 64, 8]);
    runs_every_way(8, 2, [3, 100, 8]);
}

#[test]
fn more_tiles_than_the_window_of_pending_ones() {
    runs_every_way(2, 1, [1024, 1024, 2]);
}
