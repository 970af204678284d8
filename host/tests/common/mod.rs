//! A reduce-scatter, woven by hand: each rank adds up its own rows of what all ranks have.

use entwine::device::abi::{Head, Params};
use entwine::device::cpu::{self, Whole};
use entwine::device::order::{ROWS_TOGETHER, Share, Stage};
use entwine::device::{self, Channel, Role, SendReceive, TileItem, walk};
use entwine::prelude::*;
use entwine::spec::*;
use entwine::{ArgumentValue, Arguments, KernelType, Tensor};

pub const TILE: usize = 64;

/// Tiles on their way to the rank that owns their rows.
pub struct Part;

impl Channel for Part {
    const INDEX: u32 = 0;
    const ROUTE: device::Route = device::Route::One;
    type Index = [u32; 3];
    type Item = TileItem<f32, TILE, TILE>;
}

type Port<'c, R> = device::Port<'c, Part, SendReceive, R>;

fn reduce<R: Role>(at: At<'_, 3, R>, a: &Sharded<'_, f32, R>, part: Port<'_, R>, c: &mut Matrix<'_, f32, R>) {
    let [owner, row, column] = at.coordinates();
    let own = a.shard(owner).load::<TILE, TILE>([row, column]);
    if owner != at.rank() {
        return part.to(owner).slot([at.rank(), row, column]).store(own);
    }
    let mut sum = own.read();
    for peer in (0..at.world()).filter(|peer| *peer != owner) {
        sum += part.slot([peer, row, column]).load();
    }
    c.tile([row, column]).store(sum);
}

fn weave<R: Role>(role: &R, params: &Params<2, 1, 0>) {
    let Head { world, ctas, dims: [m, n, ..], .. } = *role.head();
    let grid = [world, tiles(tiles(m, world), TILE as u32), tiles(n, TILE as u32)];
    let a = Sharded::woven(role, &params.matrices[0]);
    let mut c = Matrix::woven(role, &params.matrices[1]);
    let part = device::Port::woven(role, &params.channels[0]);
    let stage =
        Stage { index: 0, grid, share: Share { first: 0, count: ctas }, from_end: false, rows_together: ROWS_TOGETHER };
    walk(role, stage, peers_first, |at| reduce(at, &a, part, &mut c));
}

unsafe fn simulate(params: *const Head, cta: u32) {
    // SAFETY: the launcher lays the parameters out as the specification says.
    unsafe { cpu::run(params, cta, weave::<Whole>) }
}

const SHARE: Extent = Extent::DivCeil(&Extent::Dim(0), &Extent::World);
const GRID: &[Extent] = &[
    Extent::World,
    Extent::DivCeil(&SHARE, &Extent::TileRows),
    Extent::DivCeil(&Extent::Dim(1), &Extent::TileColumns),
];

pub static SPEC: KernelSpec = KernelSpec {
    name: "reduce_scatter",
    codes: &[],
    dims: &["m", "n"],
    stages: &[StageSpec {
        name: "reduce",
        grid: GRID,
        order: "peers_first",
        ctas: None,
        moved: false,
        within: None,
        products: &[],
        sends: &[0],
        receives: &[0],
    }],
    channels: &[ChannelSpec {
        name: "Part",
        slots: GRID,
        item: ItemSpec::Tile { element: ElementSpec::Variant, rows: Extent::TileRows, columns: Extent::TileColumns },
        route: Route::One,
        carriage: None,
        into: None,
        pieces: Extent::Literal(1),
        height: Extent::Literal(u32::MAX),
        acknowledged: true,
    }],
    arguments: &[matrix("a", Extent::Dim(0), true, false), matrix("c", SHARE, false, true)],
    variants: &[VariantSpec {
        entry: "reduce_scatter",
        element: ElementType::F32,
        tile: (TILE as u32, TILE as u32),
        sm_90a: CTA,
        sm_80: CTA,
        simulate,
    }],
};

const CTA: CtaSpec = CtaSpec { threads: 384, shared_bytes: 0 };

const fn matrix(name: &'static str, rows: Extent, sharded: bool, mutable: bool) -> ArgumentSpec {
    let kind = ArgumentKind::Matrix {
        element: ElementSpec::Variant,
        rows,
        columns: Extent::Dim(1),
        groups: None,
        sharded,
        symmetric: false,
        lent: false,
        mutable,
    };
    ArgumentSpec { name, kind }
}

pub struct ReduceScatter;

impl KernelType for ReduceScatter {
    const SPEC: &'static KernelSpec = &SPEC;
}

pub struct Args<'a> {
    pub a: &'a Tensor<f32>,
    pub c: &'a mut Tensor<f32>,
}

impl<'a> Arguments<'a> for Args<'a> {
    type Kernel = ReduceScatter;

    fn element() -> Option<ElementType> {
        None
    }

    fn values(&self) -> Vec<ArgumentValue<'_>> {
        vec![ArgumentValue::Matrix(self.a), ArgumentValue::Matrix(self.c)]
    }

    fn into_values(self) -> Vec<ArgumentValue<'a>> {
        vec![ArgumentValue::Matrix(self.a), ArgumentValue::MatrixMut(self.c)]
    }
}
