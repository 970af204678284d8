//! A kernel's description for unit tests. Nothing runs it.

use entwine_device::abi::Head;

use crate::spec::*;

const SHARE: Extent = Extent::DivCeil(&Extent::Dim(0), &Extent::World);
const ROW_TILES: Extent = Extent::DivCeil(&SHARE, &Extent::TileRows);
const COLUMN_TILES: Extent = Extent::DivCeil(&Extent::Dim(1), &Extent::TileColumns);

unsafe fn simulate(_: *const Head, _: u32) {}

/// Sums over ranks; each keeps its share of the rows.
pub(crate) static SPEC: KernelSpec = KernelSpec {
    name: "gather_sum",
    codes: &[],
    dims: &["m", "n"],
    stages: &[StageSpec {
        name: "sum",
        grid: &[Extent::World, ROW_TILES, COLUMN_TILES],
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
        slots: &[Extent::World, ROW_TILES, COLUMN_TILES],
        item: ItemSpec::Tile { element: ElementSpec::Variant, rows: Extent::TileRows, columns: Extent::TileColumns },
        route: Route::One,
        carriage: None,
        into: None,
        pieces: Extent::Literal(1),
        height: Extent::Literal(u32::MAX),
        acknowledged: true,
    }],
    arguments: &[
        ArgumentSpec {
            name: "a",
            kind: ArgumentKind::Matrix {
                element: ElementSpec::Variant,
                rows: Extent::Dim(0),
                columns: Extent::Dim(1),
                sharded: true,
                symmetric: false,
                groups: None,
                lent: false,
                mutable: false,
            },
        },
        ArgumentSpec {
            name: "c",
            kind: ArgumentKind::Matrix {
                element: ElementSpec::Variant,
                rows: SHARE,
                columns: Extent::Dim(1),
                sharded: false,
                symmetric: false,
                groups: None,
                lent: false,
                mutable: true,
            },
        },
    ],
    variants: &[variant((128, 128)), variant((64, 64))],
};

const fn variant(tile: (u32, u32)) -> VariantSpec {
    let cta = CtaSpec { threads: 384, shared_bytes: 0 };
    VariantSpec { entry: "gather_sum", element: ElementType::F32, tile, sm_90a: cta, sm_80: cta, simulate }
}
