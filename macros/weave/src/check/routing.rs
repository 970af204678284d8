//! The rules of stages that go by a routing.

use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall};

use crate::errors::Errors;
use crate::model::{Binding, Holds, Kernel, Parameter, Port, Stage};
use crate::setting::name;

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

    fn check(&self, call: &ExprMethodCall) {
        if !self.stage.moved {
            self.errors.at(&call.method, "rows are scattered by movers: the stage needs `carrier = mover`");
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

impl<'ast> Visit<'ast> for Scatters<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "scatter" && self.is_routing(&call.receiver) {
            self.found = true;
            self.check(call);
        }
        visit::visit_expr_method_call(self, call);
    }
}
