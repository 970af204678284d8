//! The rules that a kernel must keep: those of its sizes and matrices here, those of its channels in `flow` and,
//! where they lie in matrices, in `into`, those of gates, of routings and of movers in files of their own, those of the tile
//! functions' bodies in `body`, which `trace` reads, and those of kernels whose threads have one role in `together`.

mod beside;
mod body;
mod flow;
mod gate;
mod into;
mod mover;
mod routing;
mod together;
mod trace;

use syn::ExprArray;

use crate::errors::Errors;
use crate::extent::{Extent, axes};
use crate::model::{Binding, Channel, ElementType, Holds, Kernel, MAX_STAGES, Stage};

/// Reports everything in which the kernel breaks the rules.
pub fn check(kernel: &Kernel, errors: &Errors) {
    if kernel.stages.is_empty() {
        errors.at(&kernel.name, "a kernel has at least one stage: `#[stage(grid = […])] fn name(at: At<2>, …) { … }`");
    }
    if let Some(stage) = kernel.stages.get(MAX_STAGES) {
        errors.at(stage.name(), format!("a kernel has at most {MAX_STAGES} stages"));
    }
    dims_are_bound(kernel, errors);
    for (index, channel) in kernel.channels.iter().enumerate() {
        tiles_exist(channel, kernel, errors);
        flow::check_channel(index, channel, kernel, errors);
        into::check(index, channel, kernel, errors);
        gate::check(channel, kernel, errors);
    }
    for (index, stage) in kernel.stages.iter().enumerate() {
        beside::check(index, stage, kernel, errors);
        flow::check_order(stage, kernel, errors);
        routing::check(stage, kernel, errors);
        mover::check(stage, kernel, errors);
        something_is_stored(stage, errors);
        gate::check_body(stage, kernel, errors);
        for (name, port) in stage.ports() {
            match &kernel.channels[port.channel] {
                Channel { holds: Holds::Routing { .. }, .. } => routing::check_use(stage, name, port, kernel, errors),
                channel => body::check(stage, name, port, channel, errors),
            }
        }
    }
    no_matrix_is_read_and_written(kernel, errors);
    together::check(kernel, errors);
}

/// Every dimension stands alone in some matrix's shape, or is shared out there, and so gets its size.
fn dims_are_bound(kernel: &Kernel, errors: &Errors) {
    let extents = kernel.matrices().flat_map(|(_, matrix)| [&matrix.rows, &matrix.columns]);
    let bound: Vec<_> = extents.filter_map(Extent::binds).collect();
    for dim in kernel.dims.iter().filter(|dim| !bound.contains(dim)) {
        let message = format!(
            "nothing gives `{dim}` its size: some matrix must have `{dim}` or `{dim} / world` in its `#[shape]`"
        );
        errors.at(dim, message);
    }
}

/// In every variant there are tiles of the channel's shape, and they pass through the kernel's staging buffer.
fn tiles_exist(channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let variants = kernel.elements.iter().flat_map(|element| kernel.tiles.iter().map(move |tile| (*element, *tile)));
    for (variant, tile) in variants {
        let Some(problem) = no_such_item(&channel.holds, variant, tile) else { continue };
        let (rows, columns) = tile;
        let variant = format!("`T` is `{}`, `BM` is {rows} and `BN` is {columns}", variant.name());
        return errors.at(channel.holds.written(), format!("{problem} (here {variant})"));
    }
}

/// What is wrong with a channel's tile or panel in a variant.
fn no_such_item(holds: &Holds, variant: ElementType, tile: (u32, u32)) -> Option<&'static str> {
    match holds {
        Holds::Panel { rows, .. } => match rows.constant(tile) {
            Some(64 | 128 | 192 | 256) => None,
            _ => Some("there is no such panel: a panel has 64, 128, 192 or 256 rows"),
        },
        Holds::Tile { element, rows, columns, .. } => match (rows.constant(tile), columns.constant(tile)) {
            // Code for GPUs without TMA knows multiples of 64 alone, and variants with a tile of another width have none.
            (Some(rows @ (64 | 128)), Some(columns)) if columns == tile.1 || [64, 128, 192, 256].contains(&columns) => {
                let fits = rows == tile.0 && columns * element.in_variant(variant).size() <= tile.1 * variant.size();
                (!fits).then_some(
                    "such a tile can't be sent: it must have `BM` rows, and no more bytes than a `Tile<T, BM, BN>`",
                )
            }
            _ => Some("there is no such tile: a tile has 64 or 128 rows, and `BN` or 64, 128, 192 or 256 columns"),
        },
        Holds::Gate { .. } | Holds::Routing { .. } => None,
    }
}

/// A stage leaves something behind.
fn something_is_stored(stage: &Stage, errors: &Errors) {
    let stores = stage.parameters.iter().any(|parameter| match &parameter.binding {
        Binding::Matrix { mutable, .. } => *mutable,
        Binding::Port(port) => port.send.is_some(),
        Binding::Scalar { .. } => false,
    });
    if !stores {
        let message = "this stage leaves nothing behind: it needs a `&mut Matrix<E>` or a channel marked `#[send]`";
        errors.at(stage.name(), message);
    }
}

/// What one stage writes no other reads, unless a gate that guards it stands between them: nothing else orders the two.
fn no_matrix_is_read_and_written(kernel: &Kernel, errors: &Errors) {
    let parameters =
        || kernel.stages.iter().flat_map(|stage| stage.parameters.iter().map(move |parameter| (stage, parameter)));
    for (reader, read) in parameters() {
        let Binding::Matrix { argument, mutable: false } = read.binding else { continue };
        let writer = parameters().find(|(_, parameter)| match parameter.binding {
            Binding::Matrix { argument: written, mutable } => mutable && written == argument,
            _ => false,
        });
        if let Some((writer, _)) = writer
            && !gate::stands_between(writer, reader, &kernel.arguments[argument].name, kernel)
        {
            errors.at(
                &read.written,
                format!(
                    "`{}` writes `{}`, and nothing orders that with what `{}` reads: what a stage hands to another \
                     goes through a channel, or is guarded by a gate",
                    writer.name(),
                    read.name,
                    reader.name()
                ),
            );
        }
    }
}

/// A slot's coordinates are as many as the channel's axes.
fn slot_is_complete(slot: &ExprArray, channel: &Channel, errors: &Errors) {
    let wanted = channel.slots.len();
    if slot.elems.len() != wanted {
        let slots = axes(&channel.slots);
        errors.at(slot, format!("a slot of `{}` has {wanted} coordinates, one for each axis of {slots}", channel.name));
    }
}
