//! The rules of stages that go by a routing.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, GenericArgument, Stmt};

use super::trace::Trace;
use crate::errors::Errors;
use crate::extent::Extent;
use crate::model::{Binding, Holds, Kernel, Parameter, Port, Stage};
use crate::setting::name;
use crate::tokens::mentions;

/// Checks that `within` names a routing which the stage receives, and who reads what is lent.
pub fn check(stage: &Stage, kernel: &Kernel, errors: &Errors) {
    if let Some(within) = &stage.within {
        let received = stage.ports().any(|(name, port)| {
            let routes = matches!(kernel.channels[port.channel].holds, Holds::Routing { .. });
            name == within && routes && port.receive.is_some()
        });
        if !received {
            errors.at(
                within,
                format!("the grid is as large as a routing says that the stage receives: no parameter `#[recv] {within}` is one"),
            );
        }
    }
    for (_, port) in stage.ports() {
        let channel = &kernel.channels[port.channel];
        if let (Holds::Routing { .. }, Some(_), Some(receive)) = (&channel.holds, &port.send, &port.receive) {
            errors.at(
                &receive.marker,
                format!("the stage that arranges `{}` can't go by it: receive it in a later one", channel.name),
            );
        }
        if let (Holds::Routing { .. }, Some(_), None) = (&channel.holds, &port.send, &port.receive)
            && !has_one_tile(stage, kernel)
        {
            errors.at(
                &stage.written_grid,
                format!(
                    "each tile would arrange `{}` anew: the stage that arranges it has one, `grid = [1]`",
                    channel.name
                ),
            );
        }
    }
    let mut scatters = Scatters { stage, kernel, errors, found: false };
    scatters.visit_block(&stage.function.block);
    // A stage that scatters and is no mover's has had its error.
    if stage.moved || scatters.found {
        return;
    }
    for parameter in &stage.parameters {
        let Binding::Matrix { argument, .. } = parameter.binding else { continue };
        let lent = kernel.matrix(&kernel.arguments[argument].name).is_some_and(|(_, matrix)| matrix.lent);
        if lent {
            errors.at(
                &parameter.written,
                format!("`{}` is lent to other ranks: it is read in a stage with `carrier = mover`", parameter.name),
            );
        }
    }
}

/// Whether the stage has a single tile on every rank, whatever the launch.
fn has_one_tile(stage: &Stage, kernel: &Kernel) -> bool {
    kernel.tiles.iter().all(|tile| stage.grid.iter().all(|axis| axis.constant(*tile) == Some(1)))
}

/// Checks that a routing is arranged by who sends it, once, and that those who receive it go by it.
pub fn check_use(stage: &Stage, name: &Ident, port: &Port, kernel: &Kernel, errors: &Errors) {
    if let Some(slot) = port.receive.as_ref().and_then(|receive| receive.slot.as_ref()) {
        errors.at(slot, format!("tiles wait for all of `{name}` before the stage begins: leave `slot` out"));
    }
    let Some(trace) = Trace::of(&stage.function.block, &[name]) else { return };
    match (&port.send, &port.receive) {
        (Some(marker), None) => arranged_once(stage, &trace, name, marker, errors),
        (None, Some(receive)) => {
            // Where nobody sends, that has been said.
            let arranged = trace.uses.iter().filter_map(|found| found.call(&["arrange"]));
            for call in arranged.filter(|_| kernel.senders(port.channel).next().is_some()) {
                let message = format!("who arranges `{name}` doesn't go by it: mark the parameter `#[send]`");
                errors.at(&call.method, message);
            }
            if trace.uses.is_empty() && !is_looked_at(stage, name) {
                errors.at(&receive.marker, format!("no tile goes by `{name}`: take `#[recv]` off"));
            }
        }
        _ => {}
    }
}

/// Who sends a routing arranges it, once, and does nothing else with it.
fn arranged_once(stage: &Stage, trace: &Trace, name: &Ident, marker: &Ident, errors: &Errors) {
    let by_it: Vec<_> =
        trace.uses.iter().filter_map(|found| found.call(&["blocks", "group", "scatter", "weighted_sum"])).collect();
    for call in &by_it {
        errors.at(&call.method, format!("the stage that arranges `{name}` can't go by it: receive it in a later one"));
    }
    let arranged: Vec<_> = trace.uses.iter().filter(|found| found.call(&["arrange"]).is_some()).collect();
    if arranged.is_empty() && trace.uses.iter().all(|found| !found.calls.is_empty()) {
        let message = format!(
            "nothing arranges `{name}`, so that who goes by it would wait for ever: \
             `{name}.arrange(choices, weights, loads)`"
        );
        errors.at(marker, message);
    }
    let again =
        arranged.iter().find(|found| found.repeated() || arranged.iter().any(|earlier| earlier.surely_precedes(found)));
    if let Some(again) = again {
        errors.at(again.at, format!("`{name}` is arranged once, for all rows and all groups"));
    } else if let ([_], []) = (&arranged[..], &by_it[..])
        && let Some(other) = stage.function.block.stmts.iter().find(|statement| !is_arrangement(statement, name))
    {
        let message = format!(
            "several CTAs share out the work of arranging `{name}`, and would each do this: a stage that arranges does \
             nothing else"
        );
        errors.at(other, message);
    }
}

/// Whether a statement is the call that arranges a routing, and no more.
fn is_arrangement(statement: &Stmt, name: &Ident) -> bool {
    let Stmt::Expr(Expr::MethodCall(call), _) = statement else { return false };
    call.method == "arrange" && self::name(&call.receiver) == Some(name)
}

/// Whether the stage's attributes go by the routing: its grid, or what its tiles wait for.
fn is_looked_at(stage: &Stage, name: &Ident) -> bool {
    let names = |tokens: TokenStream| mentions(tokens, &|found| found == name);
    let mut looks = stage.ports().filter_map(|(_, port)| port.receive.as_ref());
    let waits = looks.any(|look| names(look.slot.to_token_stream()) || names(look.unless.to_token_stream()));
    waits || stage.within.as_ref() == Some(name)
}

/// Looks for what is scattered: rows that other ranks fetch.
struct Scatters<'a> {
    stage: &'a Stage,
    kernel: &'a Kernel,
    errors: &'a Errors,
    /// Something is.
    found: bool,
}

impl Scatters<'_> {
    /// Whether a call's receiver is a routing.
    fn is_routing(&self, receiver: &Expr) -> bool {
        let holds = |port: &Port| matches!(self.kernel.channels[port.channel].holds, Holds::Routing { .. });
        let called = name(receiver);
        self.stage.ports().any(|(parameter, port)| called == Some(parameter) && holds(port))
    }

    /// Tiles of the grid scatter rows of the blocks that there are.
    fn blocks_are_meant(&self, call: &ExprMethodCall) {
        if self.has_grid(call) && self.stage.within.as_ref() != name(&call.receiver) {
            let routing = &call.receiver.to_token_stream();
            let message = format!(
                "rows are scattered block after block: `grid = [c / BM, BM / 8], within = {routing}`, so that the first axis \
                 is the blocks"
            );
            self.errors.at(&call.args[0], message);
        }
    }

    /// Some rows are scattered, and all rows of a block where the second axis of the grid is its parts.
    fn rows_are_covered(&self, call: &ExprMethodCall, written: &Expr, rows: u32) {
        if rows == 0 {
            return self.errors.at(written, "a tile scatters one row or more: `scatter::<8, _, _>(…)`");
        }
        if let [_, Extent::DivCeil(all, each)] = self.stage.grid.as_slice()
            && let (Extent::TileRows(_), Extent::Literal(each)) = (&**all, &**each)
            && self.has_grid(call)
            && *each > rows
        {
            let message = format!(
                "the grid has a tile for {each} rows of a block, of which it scatters {rows}: whoever needs the others \
                 would wait for ever"
            );
            self.errors.at(written, message);
        }
    }

    /// Whether the tile's place in the grid says which rows are scattered.
    fn has_grid(&self, call: &ExprMethodCall) -> bool {
        match call.args.first() {
            Some(Expr::MethodCall(place)) => {
                place.method == "coordinates" && name(&place.receiver) == Some(&self.stage.at)
            }
            _ => false,
        }
    }

    fn check(&self, call: &ExprMethodCall) {
        if !self.stage.moved {
            self.errors.at(&call.method, "rows are scattered by movers: the stage needs `carrier = mover`");
        }
        self.blocks_are_meant(call);
        if let Some((written, rows)) = scattered_rows(call) {
            self.rows_are_covered(call, written, rows);
        }
        let Some(rows) = call.args.iter().nth(1) else { return };
        let is_scattered = |parameter: &&Parameter| name(rows) == Some(&parameter.name);
        let Some(parameter) = self.stage.parameters.iter().find(is_scattered) else { return };
        let Binding::Matrix { argument, .. } = parameter.binding else { return };
        if !self.kernel.matrix(&self.kernel.arguments[argument].name).is_some_and(|(_, matrix)| matrix.lent) {
            self.errors
                .at(rows, format!("other ranks fetch rows of `{0}`: mark the parameter `#[lent] {0}`", parameter.name));
        }
    }
}

/// The rows that each call scatters, where they are written.
fn scattered_rows(call: &ExprMethodCall) -> Option<(&Expr, u32)> {
    let Some(GenericArgument::Const(rows)) = call.turbofish.as_ref()?.args.first() else { return None };
    Some((rows, Extent::parse(rows).ok()?.constant((1, 1))?))
}

impl<'ast> Visit<'ast> for Scatters<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "scatter" && self.is_routing(&call.receiver) {
            self.found = true;
            self.check(call);
        }
        visit::visit_expr_method_call(self, call);
    }
}
