//! The rules between stages: no rank waits for what never comes, and none overwrites what is still read.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::Item;

use super::{mover, slot_is_complete};
use crate::errors::Errors;
use crate::extent::Extent;
use crate::model::{Channel, Holds, Kernel, Order, OrderKind, Port, Route, Stage};
use crate::tokens::mentions;

/// Checks who sends and receives on a channel, and when.
pub fn check_channel(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    both_ends_are_held(index, channel, kernel, errors);
    senders_come_first(index, channel, kernel, errors);
    reuse_is_acknowledged(index, channel, kernel, errors);
}

/// Checks that the order is known and fits the grid, and that no tile waits before this rank has sent what the others
/// wait for.
pub fn check_order(stage: &Stage, kernel: &Kernel, errors: &Errors) {
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
        if let Holds::Routing { .. } = kernel.channels[*channel].holds {
            continue;
        }
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

/// Some stage sends on the channel and some stage receives, as many as were declared.
fn both_ends_are_held(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let name = &channel.name;
    let senders: Vec<_> = kernel.senders(index).map(|(_, marker)| marker).collect();
    let missing = match (senders.is_empty(), kernel.receivers(index).next()) {
        (true, None) => {
            Some("no stage uses this channel: mark a parameter `#[send]` in one stage, and `#[recv]` in another")
        }
        (true, _) => {
            Some("nobody sends on this channel, so that its receiver would wait for ever: mark a parameter `#[send]`")
        }
        (_, None) => Some("nobody receives on this channel: mark a parameter `#[recv]`, or take the channel out"),
        _ => None,
    };
    if let Some(missing) = missing {
        return errors.at(name, missing);
    }
    let (found, declared) = (senders.len(), channel.senders as usize);
    if let Some(surplus) = senders.get(declared) {
        errors.at(
            surplus,
            format!(
                "{found} stages send on `{name}`, and {declared} was declared: `senders = {found}` if each fills slots \
                 of its own"
            ),
        );
    } else if found < declared {
        errors.at(name, format!("`{name}` was declared with `senders = {declared}`, but {found} sends on it"));
    }
}

/// Stages run in the order in which they are written, so every sender of a channel must come before its receivers.
fn senders_come_first(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let name = &channel.name;
    for (sender, _) in kernel.senders(index) {
        for (receiver, marker) in kernel.receivers(index).filter(|(receiver, _)| *receiver < sender) {
            let stage = |stage: usize| kernel.stages[stage].name();
            let (from, to) = (stage(sender), stage(receiver));
            let message = match path(kernel, receiver, sender) {
                Some(path) => format!(
                    "these stages wait for each other in a circle: {}; a later stage can't send on `{name}` to an \
                     earlier one",
                    arrows(path.into_iter().chain([receiver]).map(stage))
                ),
                None => format!(
                    "`{to}` would wait for what `{from}` sends on `{name}` only later: write `{from}` before `{to}`"
                ),
            };
            errors.at(marker, message);
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
                "a rank may receive on `{}` and send nothing back, so that a slot could be overwritten while it is \
                 still read: leave `acknowledge` out (`never` is for `route = peers`, and for a stage that sends and \
                 receives on the channel in the order `peers_first`)",
                channel.name
            ),
        );
    }
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
    // Routings are waited for before the stage begins.
    let waits = stage.ports().filter_map(|(_, port)| Some((port.channel, port.receive.as_ref()?)));
    let waits: Vec<_> =
        waits.filter(|(channel, _)| !matches!(kernel.channels[*channel].holds, Holds::Routing { .. })).collect();
    let slots: Vec<_> = waits.iter().filter_map(|(channel, wait)| Some((*channel, wait.slot.as_ref()?))).collect();
    for (channel, slot) in &slots {
        slot_is_complete(slot, &kernel.channels[*channel], errors);
    }
    let Order { kind, name } = &stage.order;
    match (kind, slots.as_slice()) {
        // That has rules of its own.
        (OrderKind::ReadyFirst, _) if mover::scatters(stage, kernel) => {}
        (OrderKind::ReadyFirst, []) if waits.is_empty() => {
            errors.at(name, "`ready_first` goes by what has arrived, but nothing arrives for this stage");
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
        (_, [_, (_, second), ..]) if stage.beside.is_some() => {
            errors.at(second, "one slot is looked at for each tile: give `slot` to one channel");
        }
        (_, slots) => {
            for (_, slot) in slots.iter().filter(|_| stage.beside.is_none()) {
                errors.at(
                    slot,
                    "`slot` is for `order = ready_first`, and for stages `beside` others: in other orders a tile waits where \
                     it loads",
                );
            }
        }
    }
}
