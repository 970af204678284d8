//! The named dimensions of a launch: bound from the arguments' shapes, then held against every shape.

use entwine_device::abi::MAX_DIMS;

use crate::arguments::{Bound, BoundMatrix};
use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::limits;
use crate::spec::{ArgumentKind, Extent, ItemSpec, KernelSpec};
use crate::tensor::{ALIGNMENT, share};

/// Rows or columns of a matrix argument.
#[derive(Clone, Copy)]
enum Axis {
    Rows,
    Columns,
}

impl Axis {
    const BOTH: [Axis; 2] = [Axis::Rows, Axis::Columns];

    fn extent(self, matrix: &BoundMatrix) -> &'static Extent {
        match (&matrix.spec.kind, self) {
            (ArgumentKind::Matrix { rows, .. }, Axis::Rows) => rows,
            (ArgumentKind::Matrix { columns, .. }, Axis::Columns) => columns,
            (ArgumentKind::Scalar(_), _) => unreachable!("a scalar has no shape"),
        }
    }

    fn sizes(self, matrix: &BoundMatrix) -> impl Iterator<Item = usize> + '_ {
        matrix.ranks.iter().map(move |rank| match self {
            Axis::Rows => rank.rows,
            Axis::Columns => rank.columns,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Axis::Rows => "rows",
            Axis::Columns => "columns",
        }
    }
}

/// The sizes of a kernel's named dimensions, in the order of its specification.
///
/// An extent that is a dimension alone binds it to what rank 0 has; one that is `x / world` binds `x` to what all
/// ranks have together, if nothing else binds it.
pub(crate) fn bind(kernel: &'static KernelSpec, arguments: &Bound) -> Result<[u32; MAX_DIMS], Error> {
    let mut found = [None; MAX_DIMS];
    for shares in [false, true] {
        for matrix in &arguments.matrices {
            for axis in Axis::BOTH {
                let (dim, size) = match axis.extent(matrix) {
                    Extent::Dim(dim) if !shares => (*dim, axis.sizes(matrix).next().unwrap_or(0)),
                    extent if shares => match extent.share_of() {
                        Some(dim) => (dim, axis.sizes(matrix).sum()),
                        None => continue,
                    },
                    _ => continue,
                };
                found[dim].get_or_insert(size);
            }
        }
    }
    let mut dims = [0; MAX_DIMS];
    for (dim, name) in kernel.dims.iter().enumerate() {
        let refuse = |problem| Error::Launch { kernel: kernel.name, problem };
        let size = found[dim].ok_or_else(|| {
            refuse(format!("dimension `{name}` must be an argument's rows or columns by itself, to have a size"))
        })?;
        dims[dim] = u32::try_from(size)
            .map_err(|_| refuse(format!("dimension `{name}` is {size}; a dimension must be less than 2³²")))?;
    }
    Ok(dims)
}

/// Holds the shape of every matrix on every rank against the signature, and sees that kernels can count their tiles.
pub(crate) fn check(kernel: &'static KernelSpec, arguments: &Bound, sizes: &Sizes<'_>) -> Result<(), Error> {
    for matrix in &arguments.matrices {
        let refuse = |problem| Error::Argument { kernel: kernel.name, argument: matrix.spec.name, problem };
        for axis in Axis::BOTH {
            let extent = axis.extent(matrix);
            for (rank, size) in axis.sizes(matrix).enumerate() {
                let expected = match extent.share_of() {
                    Some(dim) => Some(share(sizes.dims[dim] as usize, sizes.world as usize, rank).1),
                    None => extent.value(sizes).map(|expected| expected as usize),
                };
                if expected != Some(size) {
                    let expected = expected.map_or("fewer than 2³²".into(), |expected| expected.to_string());
                    return Err(refuse(format!(
                        "expected {expected} {} (`{}`) on rank {rank}, found {size}; {}",
                        axis.name(),
                        extent.text(kernel.dims),
                        where_from(kernel, sizes)
                    )));
                }
            }
        }
        spare_rows(matrix, sizes.world).map_err(refuse)?;
    }
    check_scattered(kernel, arguments)?;
    check_sizes(kernel, sizes)?;
    check_into(kernel, arguments, sizes)
}

/// Refuses grids whose tiles kernels can't count, and channels that can't work.
pub(crate) fn check_sizes(kernel: &KernelSpec, sizes: &Sizes<'_>) -> Result<(), Error> {
    let grids = kernel.stages.iter().map(|stage| ("tiles of stage", stage.name, stage.grid));
    let slots = kernel.channels.iter().map(|channel| ("slots of channel", channel.name, channel.slots));
    for (what, name, axes) in grids.chain(slots) {
        if extent::count(axes, sizes).is_none() {
            let axes: Vec<_> = axes.iter().map(|axis| axis.text(kernel.dims).to_string()).collect();
            let problem = format!(
                "the {what} `{name}`, [{}], must be counted in 32 bits, without dividing by 0 and with nothing below 0; {}",
                axes.join(", "),
                where_from(kernel, sizes)
            );
            return Err(Error::Launch { kernel: kernel.name, problem });
        }
    }
    limits::check(kernel, sizes)
}

/// The dimensions' sizes, each with the argument that gave it.
pub(crate) fn where_from(kernel: &KernelSpec, sizes: &Sizes<'_>) -> String {
    let dims = kernel.dims.iter().zip(sizes.dims).enumerate().map(|(dim, (name, size))| match giver(kernel, dim) {
        Some(giver) => format!("{name} = {size} ({giver}), "),
        None => format!("{name} = {size}, "),
    });
    format!("here {}world = {}", dims.collect::<String>(), sizes.world)
}

/// What [`bind`] takes a dimension's size from, in words.
fn giver(kernel: &KernelSpec, dim: usize) -> Option<String> {
    let axes = || {
        kernel.arguments.iter().filter_map(|argument| match &argument.kind {
            ArgumentKind::Matrix { rows, columns, .. } => {
                Some([(argument.name, "rows", rows), (argument.name, "columns", columns)])
            }
            ArgumentKind::Scalar(_) => None,
        })
    };
    let alone = axes().flatten().find(|(.., extent)| matches!(extent, Extent::Dim(found) if *found == dim));
    if let Some((argument, axis, _)) = alone {
        return Some(format!("{axis} of `{argument}`"));
    }
    let (argument, axis, _) = axes().flatten().find(|(.., extent)| extent.share_of() == Some(dim))?;
    Some(format!("{axis} of `{argument}` on all ranks"))
}

/// Refuses channels in matrices whose slots are not one for each of the matrix's tiles: what is sent would be lost, or a part of
/// the matrix never come.
pub(crate) fn check_into(kernel: &KernelSpec, arguments: &Bound, sizes: &Sizes<'_>) -> Result<(), Error> {
    for channel in kernel.channels {
        let (Some(into), ItemSpec::Tile { rows, columns, .. }) = (channel.into, &channel.item) else { continue };
        let matrix = &arguments.matrices[into];
        let sharded = matches!(matrix.spec.kind, ArgumentKind::Matrix { sharded: true, .. });
        let most = |axis: Axis| axis.sizes(matrix).max().unwrap_or(0);
        let rows_of_part = if sharded { most(Axis::Rows).div_ceil(sizes.world as usize) } else { most(Axis::Rows) };
        let tiles = |size: usize, extent: &Extent| extent.value(sizes).map(|tile| size.div_ceil(tile.max(1) as usize));
        let parts = sharded.then_some(Some(sizes.world as usize));
        let wanted = parts.into_iter().chain([tiles(rows_of_part, rows), tiles(most(Axis::Columns), columns)]);
        let found = channel.slots.iter().map(|axis| axis.value(sizes).map(|slots| slots as usize));
        let (wanted, found): (Vec<_>, Vec<_>) = (wanted.collect(), found.collect());
        // What is empty has no tiles, whatever is said of its other axis.
        let none = |axes: &[Option<usize>]| axes.contains(&Some(0));
        if wanted != found && !(none(&wanted) && none(&found)) {
            let text = |axes: &[Option<usize>]| {
                let axes = axes.iter().map(|axis| axis.map_or("more than 2³²".into(), |axis| axis.to_string()));
                axes.collect::<Vec<_>>().join(", ")
            };
            let problem = format!(
                "channel `{}` lies in `{}`, so that it has a slot for each of its tiles: expected slots [{}], found [{}]; {}",
                channel.name,
                matrix.spec.name,
                text(&wanted),
                text(&found),
                where_from(kernel, sizes)
            );
            return Err(Error::Launch { kernel: kernel.name, problem });
        }
    }
    Ok(())
}

/// Refuses foreign memory whose rows movers would copy in whole pieces of 16 bytes, where these reach beyond the rows' ends:
/// what lies there isn't the matrix's.
fn check_scattered(kernel: &KernelSpec, arguments: &Bound) -> Result<(), Error> {
    let is_lent = |matrix: &&BoundMatrix| matches!(matrix.spec.kind, ArgumentKind::Matrix { lent: true, .. });
    for lent in arguments.matrices.iter().filter(is_lent) {
        let bytes = lent.ranks[0].row_bytes();
        if bytes.is_multiple_of(ALIGNMENT) {
            continue;
        }
        // Rows are scattered to a matrix that has the same columns.
        let takes_part = |matrix: &&BoundMatrix| {
            let written = matches!(matrix.spec.kind, ArgumentKind::Matrix { mutable: true, .. });
            (written || is_lent(matrix)) && matrix.ranks[0].row_bytes() == bytes
        };
        let foreign = |matrix: &&BoundMatrix| matrix.ranks.iter().any(|rank| rank.is_foreign());
        if let Some(matrix) = arguments.matrices.iter().filter(takes_part).find(foreign) {
            let problem = format!(
                "rows are scattered in pieces of {ALIGNMENT} bytes, and one of {} columns has {bytes}, so that in foreign memory \
                 what lies behind it would be overwritten; allocate the tensor with this crate",
                lent.ranks[0].columns
            );
            return Err(Error::Argument { kernel: kernel.name, argument: matrix.spec.name, problem });
        }
    }
    Ok(())
}

/// A sharded matrix whose rows do not divide evenly needs spare rows: each part is loaded and stored as if it were whole.
fn spare_rows(matrix: &BoundMatrix, world: u32) -> Result<(), String> {
    if !matches!(matrix.spec.kind, ArgumentKind::Matrix { sharded: true, .. }) {
        return Ok(());
    }
    for rank in &matrix.ranks {
        let spill = rank.rows.next_multiple_of(world as usize) - rank.rows;
        if spill > rank.spare_rows {
            return Err(format!(
                "{} rows do not divide evenly among {world} ranks, and a tensor in foreign memory has no spare rows \
                 behind the last one; allocate it with this crate, or pad it to {} rows",
                rank.rows,
                rank.rows + spill
            ));
        }
    }
    Ok(())
}
