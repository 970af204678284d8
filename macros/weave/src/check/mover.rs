//! The rules of stages that movers carry: what they do passes through no registers.

use syn::ExprMethodCall;

use super::trace::Trace;
use crate::errors::Errors;
use crate::model::{Holds, Kernel, Port, Stage};
use crate::products;

/// Checks that a mover's stage only moves tiles, panels or rows, and nothing beside rows.
pub fn check(stage: &Stage, kernel: &Kernel, errors: &Errors) {
    if !stage.moved {
        return;
    }
    if let Some(call) = products::calls(stage).first() {
        return errors.at(&call.func, "movers only move tiles, and multiply none: leave `carrier = mover` out");
    }
    let is_routing = |port: &Port| matches!(kernel.channels[port.channel].holds, Holds::Routing { .. });
    let scatters =
        |stage: &&Stage| stage.moved && stage.ports().any(|(_, port)| is_routing(port) && port.receive.is_some());
    let scattering = kernel.stages.iter().find(scatters);
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
