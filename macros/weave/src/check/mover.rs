//! The rules of stages that movers carry: what they do passes through no registers.

use syn::ExprMethodCall;

use super::trace::Trace;
use crate::errors::Errors;
use crate::model::{Holds, Kernel, OrderKind, Stage};
use crate::products;

/// Checks that a mover's stage only moves tiles, panels or rows, and nothing beside rows.
pub fn check(stage: &Stage, kernel: &Kernel, errors: &Errors) {
    if !stage.moved {
        return;
    }
    if let Some(call) = products::calls(stage).first() {
        return errors.at(&call.func, "movers only move tiles, and multiply none: leave `carrier = mover` out");
    }
    if scatters(stage, kernel) && stage.order.kind == OrderKind::ReadyFirst {
        let message = "movers scatter rows in a fixed order: what they wait for is the routing, and all of it";
        errors.at(&stage.order.name, message);
    }
    let scattering = kernel.stages.iter().find(|stage| scatters(stage, kernel));
    for parameter in &stage.parameters {
        let Some(trace) = Trace::of(&stage.function.block, &[&parameter.name]) else { continue };
        for found in &trace.uses {
            if let Some(ExprMethodCall { method, .. }) = found.call(&["read", "arrange", "weighted_sum"]) {
                let message =
                    format!("movers only move tiles and rows, and can't `{method}` them: leave `carrier = mover` out");
                errors.at(method, message);
            }
            if let (true, Some(scattering)) = (found.ends_in(&["store", "arrive"]), scattering) {
                errors.at(
                    found.at,
                    format!(
                        "movers scatter rows in `{}`, and then do nothing else: leave `carrier = mover` out here",
                        scattering.name()
                    ),
                );
            }
        }
    }
}

/// Whether movers scatter rows in the stage.
pub fn scatters(stage: &Stage, kernel: &Kernel) -> bool {
    let is_routing = |channel: usize| matches!(kernel.channels[channel].holds, Holds::Routing { .. });
    stage.moved && stage.ports().any(|(_, port)| is_routing(port.channel) && port.receive.is_some())
}
