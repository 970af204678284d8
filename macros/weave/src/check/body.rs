//! The rules of what a tile function's body does with its channels, read off its syntax.
//!
//! Only calls that start at the parameter's name are understood (`partial.to(owner).slot([…]).store(tile)`).
//! A parameter that is used in any other way is left to the types.

use proc_macro2::Ident;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprMethodCall};

use super::slot_is_complete;
use crate::errors::Errors;
use crate::model::{Channel, Holds, Port, Route, Stage};
use crate::tokens::mentions;

/// Checks that the body does with a channel what its parameter says, and names its slots in full.
pub fn check(stage: &Stage, name: &Ident, port: &Port, channel: &Channel, errors: &Errors) {
    let Some(found) = uses(&stage.function.block, name) else { return };
    let called = |wanted: Action| {
        found.calls.iter().filter_map(move |call| match call.action {
            Some((action, method)) if action == wanted => Some((call, method)),
            _ => None,
        })
    };
    for call in &found.calls {
        if let Some(Expr::Array(slot)) = call.slot {
            slot_is_complete(slot, channel, errors);
        }
        if let Some(piece) = call.piece {
            pieces_exist(piece, call, channel, errors);
        }
    }
    let gate = matches!(channel.holds, Holds::Gate { .. });
    for (call, method) in called(Action::Load) {
        if port.receive.is_none() {
            let message = match gate {
                true => format!("this stage is only counted at `{name}`: mark the parameter `#[recv]` to wait there"),
                false => format!("this stage only sends on `{name}`: mark the parameter `#[recv]` to load from it"),
            };
            errors.at(method, message);
        } else if let Some(to) = call.to {
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
            true => format!("no tile waits at `{name}`: take `#[recv]` off"),
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
#[derive(Default)]
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
    piece: Option<&'a Ident>,
    action: Option<(Action, &'a Ident)>,
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
    let mut finder = Finder { port, found: PortUse::default(), depth: 0, ambiguous: false };
    finder.visit_block(body);
    (!finder.ambiguous).then_some(finder.found)
}

struct Finder<'a> {
    port: &'a Ident,
    found: PortUse<'a>,
    /// Branches, loops and closures around the current expression.
    depth: usize,
    /// The name is bound again somewhere.
    ambiguous: bool,
}

impl<'a> Finder<'a> {
    fn sometimes(&mut self, visit: impl FnOnce(&mut Self)) {
        self.depth += 1;
        visit(self);
        self.depth -= 1;
    }
}

impl<'a> Visit<'a> for Finder<'a> {
    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        let Some(chain) = chain(call, self.port) else { return visit::visit_expr_method_call(self, call) };
        for argument in chain.iter().flat_map(|call| &call.args) {
            self.visit_expr(argument);
        }
        let method = |name: &str| chain.iter().find(|call| call.method == name);
        let action = chain.iter().find_map(|call| match call.method.to_string().as_str() {
            "load" | "wait" => Some((Action::Load, &call.method)),
            "store" | "arrive" => Some((Action::Store, &call.method)),
            _ => None,
        });
        self.found.calls.push(PortCall {
            to: method("to").map(|call| &call.method),
            slot: method("slot").and_then(|call| call.args.first()),
            piece: method("piece").map(|call| &call.method),
            action,
            always: self.depth == 0,
        });
        self.found.escapes |= action.is_none();
    }

    fn visit_expr_if(&mut self, branch: &'a syn::ExprIf) {
        self.visit_expr(&branch.cond);
        self.sometimes(|finder| {
            finder.visit_block(&branch.then_branch);
            if let Some((_, other)) = &branch.else_branch {
                finder.visit_expr(other);
            }
        });
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        self.sometimes(|finder| visit::visit_arm(finder, arm));
    }

    fn visit_expr_for_loop(&mut self, repeated: &'a syn::ExprForLoop) {
        self.sometimes(|finder| visit::visit_expr_for_loop(finder, repeated));
    }

    fn visit_expr_while(&mut self, repeated: &'a syn::ExprWhile) {
        self.sometimes(|finder| visit::visit_expr_while(finder, repeated));
    }

    fn visit_expr_closure(&mut self, closure: &'a syn::ExprClosure) {
        self.sometimes(|finder| visit::visit_expr_closure(finder, closure));
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        self.visit_expr(&binary.left);
        if matches!(binary.op, syn::BinOp::And(_) | syn::BinOp::Or(_)) {
            self.sometimes(|finder| finder.visit_expr(&binary.right));
        } else {
            self.visit_expr(&binary.right);
        }
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        self.found.escapes |= path.path.is_ident(self.port);
    }

    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        self.ambiguous |= pattern.ident == *self.port;
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.found.escapes |= mentions(call.tokens.clone(), &|name| name == self.port);
    }
}

/// The calls of `port.first().second()…`, in that order, if `call` is the last of such a chain.
fn chain<'a>(call: &'a ExprMethodCall, port: &Ident) -> Option<Vec<&'a ExprMethodCall>> {
    let mut calls = vec![call];
    loop {
        match receiver(calls.last().expect("it starts with one")) {
            Expr::MethodCall(earlier) => calls.push(earlier),
            Expr::Path(path) if path.path.is_ident(port) => break,
            _ => return None,
        }
    }
    calls.reverse();
    Some(calls)
}

fn receiver(call: &ExprMethodCall) -> &Expr {
    let mut receiver = &*call.receiver;
    while let Expr::Paren(inner) = receiver {
        receiver = &inner.expr;
    }
    receiver
}
