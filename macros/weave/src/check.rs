//! The rules of the protocol: what must hold between the stages of a kernel, so that no rank waits for what
//! never comes or reads what is not there yet.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::{Expr, Item};

use crate::body::{Action, PortCall, mentions, uses};
use crate::errors::Errors;
use crate::extent::Extent;
use crate::model::{Binding, Channel, ElementType, Holds, Kernel, Order, OrderKind, Port, Route, Stage};

/// Reports everything in which the kernel breaks the rules.
pub fn check(kernel: &Kernel, errors: &Errors) {
    if kernel.stages.is_empty() {
        errors.at(&kernel.name, "a kernel has at least one stage: `#[stage(grid = […])] fn name(at: At<2>, …) { … }`");
    }
    dims_are_bound(kernel, errors);
    for (index, channel) in kernel.channels.iter().enumerate() {
        tiles_exist(channel, kernel, errors);
        both_ends_are_held(index, channel, kernel, errors);
        senders_come_first(index, channel, kernel, errors);
        reuse_is_acknowledged(index, channel, kernel, errors);
    }
    for stage in &kernel.stages {
        order_suits(stage, kernel, errors);
        something_is_stored(stage, errors);
        for (name, port) in stage.ports() {
            body_keeps_to_port(stage, name, port, &kernel.channels[port.channel], errors);
        }
    }
    matrices_are_read_or_written(kernel, errors);
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
            (Some(rows @ (64 | 128)), Some(columns @ (64 | 128 | 192 | 256))) => {
                let fits = rows == tile.0 && columns * element.in_variant(variant).size() <= tile.1 * variant.size();
                (!fits).then_some(
                    "such a tile can't be sent: it must have `BM` rows, and no more bytes than a `Tile<T, BM, BN>`",
                )
            }
            _ => Some("there is no such tile: a tile has 64 or 128 rows, and 64, 128, 192 or 256 columns"),
        },
    }
}

/// Some stage sends on the channel and some stage receives, as many as were declared.
fn both_ends_are_held(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let name = &channel.name;
    let senders: Vec<_> = kernel.senders(index).map(|(_, marker)| marker).collect();
    match (senders.len() as u32, kernel.receivers(index).next()) {
        (0, None) => return errors.at(name, format!("no stage uses `{name}`: mark a parameter `#[send]` where it is sent on, and `#[recv]` where it is received")),
        (0, Some(_)) => return errors.at(name, format!("nobody sends on `{name}`, so that its receiver would wait for ever: mark a parameter `#[send]`")),
        (_, None) => return errors.at(name, format!("nobody receives on `{name}`: mark a parameter `#[recv]`, or take the channel out")),
        _ => {}
    }
    let declared = channel.senders;
    let found = senders.len() as u32;
    if found > declared {
        errors.at(
            senders[declared as usize],
            format!("{found} stages send on `{name}`, and {declared} was declared: `senders = {found}` if each fills slots of its own"),
        );
    } else if found < declared {
        errors.at(name, format!("`{name}` was declared with `senders = {declared}`, but {found} sends on it"));
    }
}

/// Stages run in the order in which they are written, so every sender of a channel must come before its receivers.
fn senders_come_first(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    for (sender, _) in kernel.senders(index) {
        for (receiver, marker) in kernel.receivers(index).filter(|(receiver, _)| *receiver < sender) {
            let name = &channel.name;
            let (from, to) = (kernel.stages[sender].name(), kernel.stages[receiver].name());
            errors.at(
                marker,
                match path(kernel, receiver, sender) {
                    Some(path) => format!(
                        "these stages wait for each other in a circle: {}; a later stage can't send on `{name}` to an earlier one",
                        arrows(path.into_iter().chain([receiver]).map(|stage| kernel.stages[stage].name()))
                    ),
                    None => format!("`{to}` would wait for what `{from}` sends on `{name}` only later: write `{from}` before `{to}`"),
                },
            );
        }
    }
}

/// The stages on a way along channels from one stage to another, both included.
fn path(kernel: &Kernel, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut ways = vec![vec![from]];
    let mut seen = vec![from];
    while let Some(way) = ways.pop() {
        let last = *way.last().expect("a way has a start");
        if last == to {
            return Some(way);
        }
        for (_, port) in kernel.stages[last].ports().filter(|(_, port)| port.send.is_some()) {
            for (next, _) in kernel.receivers(port.channel) {
                if !seen.contains(&next) {
                    seen.push(next);
                    ways.push(way.iter().copied().chain([next]).collect());
                }
            }
        }
    }
    None
}

fn arrows<'a>(stages: impl Iterator<Item = &'a Ident>) -> String {
    stages.map(|stage| format!("`{stage}`")).collect::<Vec<_>>().join(" → ")
}

/// Without an acknowledgement, a slot may be used again only if its sender has heard from its receiver since: where
/// every rank sends to every other, or all exchange tiles with all.
fn reuse_is_acknowledged(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let Some(never) = &channel.unacknowledged else { return };
    let by_rank = matches!(channel.slots.first(), Some(Extent::World(_)));
    let exchanges = |stage: &Stage| {
        stage.order.kind == OrderKind::PeersFirst && stage.port(index).is_some_and(|port| port.send.is_some())
    };
    let exchanged = by_rank && kernel.receivers(index).all(|(receiver, _)| exchanges(&kernel.stages[receiver]));
    if channel.route == Route::One && !exchanged {
        errors.at(
            never,
            format!(
                "a rank may receive on `{}` and send nothing back, so that a slot could be overwritten while it is still \
                 read: leave `acknowledge` out (`never` is for `route = peers`, and for a stage that sends and receives \
                 on the channel in the order `peers_first`)",
                channel.name
            ),
        );
    }
}

/// The order is known and fits the grid, and no tile waits before this rank has sent what the others wait for.
fn order_suits(stage: &Stage, kernel: &Kernel, errors: &Errors) {
    let Order { kind, name } = &stage.order;
    if *kind == OrderKind::Function && !defines_function(&kernel.items, name) {
        errors.at(name, format!("there is no order `{name}`: an order is {}", Order::choices()));
    }
    let by_rank = matches!(stage.grid.first(), Some(Extent::World(_)));
    if matches!(kind, OrderKind::PeersFirst | OrderKind::Ring) && !by_rank {
        errors.at(name, format!("`{name}` visits the ranks' tiles in turn: the first axis of `grid` must be `world`"));
    }
    for (_, port) in stage.ports() {
        let Port { send: Some(_), receive: Some(receive), channel } = port else { continue };
        if !matches!(kind, OrderKind::PeersFirst | OrderKind::Function) {
            errors.at(
                &receive.marker,
                format!(
                    "this stage sends and receives on `{}`, and may wait before it has sent in the order `{name}`: \
                     use `order = peers_first`, or a function that puts the tiles that send first",
                    kernel.channels[*channel].name
                ),
            );
        }
    }
    ready_first_knows_slots(stage, kernel, errors);
}

/// A function of this name is among the items, or is imported by name.
fn defines_function(items: &[Item], name: &Ident) -> bool {
    items.iter().any(|item| match item {
        Item::Fn(function) => function.sig.ident == *name,
        Item::Use(import) => mentions(import.to_token_stream(), &|found| found == name),
        _ => false,
    })
}

/// `ready_first` needs one slot to look at for each tile, and nothing else does.
fn ready_first_knows_slots(stage: &Stage, kernel: &Kernel, errors: &Errors) {
    let waits: Vec<_> = stage.ports().filter_map(|(_, port)| Some((port.channel, port.receive.as_ref()?))).collect();
    let slots: Vec<_> = waits.iter().filter_map(|(channel, wait)| Some((*channel, wait.slot.as_ref()?))).collect();
    for (channel, slot) in &slots {
        arity(slot.elems.len(), slot, &kernel.channels[*channel], errors);
    }
    let Order { kind, name } = &stage.order;
    match (kind, slots.as_slice()) {
        (OrderKind::ReadyFirst, []) if waits.is_empty() => {
            errors.at(name, "`ready_first` goes by what has arrived, but this stage receives nothing");
        }
        (OrderKind::ReadyFirst, []) => {
            errors.at(
                &waits[0].1.marker,
                "`ready_first` must know the slot that a tile waits for: `#[recv(slot = [at[0], at[1]])]`",
            );
        }
        (OrderKind::ReadyFirst, [_, (_, second), ..]) => {
            errors.at(second, "`ready_first` looks at one slot for each tile: give `slot` to one channel");
        }
        (OrderKind::ReadyFirst, _) => {}
        (_, slots) => {
            for (_, slot) in slots {
                errors.at(slot, "`slot` is for `order = ready_first`: in other orders a tile waits where it loads");
            }
        }
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

/// The body does with a channel what its parameter says, and names its slots in full.
fn body_keeps_to_port(stage: &Stage, name: &Ident, port: &Port, channel: &Channel, errors: &Errors) {
    let Some(found) = uses(&stage.function.block, name) else { return };
    let called = |wanted: Action| {
        found.calls.iter().filter_map(move |call| match call.action {
            Some((action, method)) if action == wanted => Some((call, method)),
            _ => None,
        })
    };
    for call in &found.calls {
        if let Some(Expr::Array(slot)) = call.slot {
            arity(slot.elems.len(), slot, channel, errors);
        }
    }
    for (call, method) in called(Action::Load) {
        if port.receive.is_none() {
            errors
                .at(method, format!("this stage only sends on `{name}`: mark the parameter `#[recv]` to load from it"));
        } else if let Some(to) = call.to {
            errors.at(to, "`to` names the rank that a tile is sent to; what is loaded has been sent to this rank");
        }
    }
    for (call, method) in called(Action::Store) {
        if port.send.is_none() {
            errors.at(
                method,
                format!("this stage only receives on `{name}`: mark the parameter `#[send]` to store to it"),
            );
        } else {
            routed(call, method, name, channel, errors);
        }
    }
    if found.escapes {
        return;
    }
    if let (Some(marker), None) = (&port.send, called(Action::Store).next()) {
        errors.at(marker, format!("nothing is stored to `{name}`, so that its receiver would wait for ever"));
    }
    if let (Some(receive), None) = (&port.receive, called(Action::Load).next()) {
        errors.at(&receive.marker, format!("nothing is loaded from `{name}`: take `#[recv]` off"));
    }
    let first = found.calls.iter().find(|call| call.action.is_some());
    if let Some(PortCall { action: Some((Action::Load, method)), always: true, .. }) = first
        && port.send.is_some()
        && port.receive.is_some()
    {
        errors.at(
            method,
            format!("every tile waits here before it stores to `{name}`, so that no rank would ever send: store first, or wait in the tiles that don't send"),
        );
    }
}

/// A store says whom it is for, unless the route does.
fn routed(call: &PortCall, method: &Ident, name: &Ident, channel: &Channel, errors: &Errors) {
    match (channel.route, call.to) {
        (Route::One, None) => {
            errors.at(method, format!("say which rank receives: `{name}.to(rank).slot([…]).store(…)`"))
        }
        (Route::Peers, Some(to)) => {
            errors.at(to, format!("`{}` goes to every other rank (`route = peers`): leave `to` out", channel.name));
        }
        _ => {}
    }
}

fn arity(found: usize, slot: &syn::ExprArray, channel: &Channel, errors: &Errors) {
    let wanted = channel.slots.len();
    if found != wanted {
        let slots = crate::extent::axes(&channel.slots);
        errors.at(slot, format!("a slot of `{}` has {wanted} coordinates, one for each axis of {slots}", channel.name));
    }
}

/// What one stage writes no other reads: nothing would make the reader wait.
fn matrices_are_read_or_written(kernel: &Kernel, errors: &Errors) {
    let parameters =
        || kernel.stages.iter().flat_map(|stage| stage.parameters.iter().map(move |parameter| (stage, parameter)));
    for (reader, read) in parameters() {
        let Binding::Matrix { argument, mutable: false } = read.binding else { continue };
        let writes = |binding: &Binding| matches!(binding, Binding::Matrix { argument: written, mutable: true } if *written == argument);
        if let Some((writer, _)) = parameters().find(|(_, parameter)| writes(&parameter.binding)) {
            errors.at(
                &read.written,
                format!(
                    "`{}` writes `{}`, and nothing makes `{}` wait for it: what a stage hands to another goes through a channel",
                    writer.name(),
                    read.name,
                    reader.name()
                ),
            );
        }
    }
}
