//! The rules of what a tile function's body does with its channels, read off its syntax.
//!
//! A parameter that is used otherwise than by calls that start at its name is left to the types.

use proc_macro2::Ident;
use syn::{Block, Expr};

use super::slot_is_complete;
use super::trace::{Trace, Use};
use crate::errors::Errors;
use crate::model::{Channel, Holds, Port, Route, Stage};
use crate::setting::integer;

/// Checks that the body does with a channel what its parameter says, and names its slots in full.
pub fn check(stage: &Stage, name: &Ident, port: &Port, channel: &Channel, errors: &Errors) {
    let Some(found) = uses(&stage.function.block, name) else { return };
    let called = |wanted: Action| {
        found.calls.iter().filter_map(move |call| match call.action {
            Some((action, method)) if action == wanted => Some((call, method)),
            _ => None,
        })
    };
    let gate = matches!(channel.holds, Holds::Gate { .. });
    let mut understood = true;
    for call in &found.calls {
        understood &= is_understood(call, name, gate, errors);
        if let Some(Expr::Array(slot)) = call.slot {
            slot_is_complete(slot, channel, errors);
        }
        if let Some(piece) = call.piece {
            pieces_exist(piece, call, channel, errors);
        }
        if let (true, Some(to)) = (gate, call.to) {
            errors.at(to, format!("`{name}` stays on its rank, as every gate does: leave `to` out"));
        }
    }
    if !understood {
        return;
    }
    for (call, method) in called(Action::Load) {
        if port.receive.is_none() {
            let message = match gate {
                true => format!("this stage is only counted at `{name}`: mark the parameter `#[recv]` to wait there"),
                false => format!("this stage only sends on `{name}`: mark the parameter `#[recv]` to load from it"),
            };
            errors.at(method, message);
        } else if let (Some(to), false) = (call.to, gate) {
            errors.at(to, "`to` names the rank that a tile is sent to; what is loaded has been sent to this rank");
        }
    }
    for (call, method) in called(Action::Store) {
        if port.send.is_none() {
            let message = match gate {
                true => format!("this stage only waits at `{name}`: mark the parameter `#[send]` to be counted there"),
                false => format!("this stage only receives on `{name}`: mark the parameter `#[send]` to store to it"),
            };
            errors.at(method, message);
        } else if !gate {
            routed(call, method, name, channel, errors);
        }
    }
    if found.escapes {
        return;
    }
    if let (Some(marker), None) = (&port.send, called(Action::Store).next()) {
        let message = match gate {
            true => format!("no tile arrives at `{name}`, so that whoever waits there would wait for ever"),
            false => format!("nothing is stored to `{name}`, so that its receiver would wait for ever"),
        };
        errors.at(marker, message);
    }
    if let (Some(receive), None) = (&port.receive, called(Action::Load).next()) {
        let message = match gate {
            true => format!(
                "no tile waits at `{name}`: `{name}.slot([…]).wait()` comes before what is read, or take `#[recv]` off"
            ),
            false => format!("nothing is loaded from `{name}`: take `#[recv]` off"),
        };
        errors.at(&receive.marker, message);
    }
    let first = found.calls.iter().find(|call| call.action.is_some());
    if let Some(PortCall { action: Some((Action::Load, method)), always: true, .. }) = first
        && port.send.is_some()
        && port.receive.is_some()
    {
        errors.at(
            method,
            format!(
                "every tile waits here before it stores to `{name}`, so that no rank would ever send: store first, or \
                 wait in the tiles that don't send"
            ),
        );
    }
}

/// Whether what is done with a slot can be done with one of its kind, and a slot is named.
fn is_understood(call: &PortCall, name: &Ident, gate: bool, errors: &Errors) -> bool {
    let Some((_, method)) = call.action else { return true };
    let passed = ["arrive", "wait"].iter().any(|known| method == known);
    if gate != passed {
        let message = match gate {
            true => format!("a gate holds nothing: a tile is counted at `{name}` by `arrive(n)`, or waits by `wait()`"),
            false => {
                format!("`{method}` is for gates: what `{name}` holds is sent by `store(…)`, and received by `load()`")
            }
        };
        errors.at(method, message);
    } else if call.slotless {
        errors.at(method, format!("say which slot: `{name}.slot([…]).{method}(…)`"));
    } else {
        if let (true, Some(count)) = (gate, call.count.filter(|count| integer(count) == Some(0))) {
            errors.at(count, format!("`{name}` opens when one tile or more has arrived, and these are none"));
        }
        return true;
    }
    false
}

/// A piece is one of a panel that is cut, and is stored: what is loaded is the whole panel.
fn pieces_exist(piece: &Ident, call: &PortCall, channel: &Channel, errors: &Errors) {
    let name = &channel.name;
    match &channel.holds {
        Holds::Tile { .. } | Holds::Gate { .. } | Holds::Routing { .. } => {
            errors.at(piece, format!("`{name}` holds no panels: leave `piece` out"))
        }
        Holds::Panel { .. } if channel.pieces.is_none() => errors.at(
            piece,
            format!("the panels of `{name}` are sent as a whole: `#[channel(…, pieces = k / 64)]` cuts them"),
        ),
        Holds::Panel { .. } => {
            if let Some((Action::Load, _)) = call.action {
                errors.at(piece, "a panel is loaded as a whole: what uses it waits for each piece as it comes to it");
            }
        }
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
        (Route::All, Some(to)) => {
            errors.at(to, format!("`{}` goes to every rank (`route = all`): leave `to` out", channel.name));
        }
        _ => {}
    }
}

/// What the body does with one channel parameter.
struct PortUse<'a> {
    /// The calls that start at its name, in the order in which they are evaluated.
    calls: Vec<PortCall<'a>>,
    /// It is also used in other ways, so that `calls` may not be all.
    escapes: bool,
}

/// `port.to(…).slot(…).piece(…).store(…)`, each part where it is written.
struct PortCall<'a> {
    to: Option<&'a Ident>,
    slot: Option<&'a Expr>,
    /// None is named.
    slotless: bool,
    piece: Option<&'a Ident>,
    action: Option<(Action, &'a Ident)>,
    /// What `arrive` is given.
    count: Option<&'a Expr>,
    /// Every tile comes here: no branch, loop or closure is around it.
    always: bool,
}

/// What is done with a slot; at a gate, waiting and arriving.
#[derive(Clone, Copy, PartialEq)]
enum Action {
    Load,
    Store,
}

/// Finds what `body` does with the channel parameter `port`; `None` if the name is given to something else too.
fn uses<'a>(body: &'a Block, port: &'a Ident) -> Option<PortUse<'a>> {
    let found = Trace::of(body, &[port])?.uses;
    let calls: Vec<_> = found.iter().filter(|found| !found.calls.is_empty()).map(PortCall::of).collect();
    let escapes = calls.len() < found.len() || calls.iter().any(|call| call.action.is_none());
    Some(PortUse { calls, escapes })
}

impl<'a> PortCall<'a> {
    fn of(found: &Use<'a>) -> Self {
        let method = |name| found.call(&[name]).map(|call| &call.method);
        let load = found.call(&["load", "wait"]).map(|call| (Action::Load, &call.method));
        let store = || found.call(&["store", "arrive"]).map(|call| (Action::Store, &call.method));
        PortCall {
            to: method("to"),
            slot: found.call(&["slot"]).and_then(|call| call.args.first()),
            slotless: found.call(&["slot"]).is_none(),
            piece: method("piece"),
            action: load.or_else(store),
            count: found.call(&["arrive"]).and_then(|call| call.args.first()),
            always: found.always(),
        }
    }
}
