//! The rules of stages that go by a routing.

use crate::errors::Errors;
use crate::model::{Binding, Holds, Kernel, Stage};

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
    for parameter in &stage.parameters {
        let Binding::Matrix { argument, .. } = parameter.binding else { continue };
        let lent = kernel.matrix(&kernel.arguments[argument].name).is_some_and(|(_, matrix)| matrix.lent);
        if lent && !stage.moved {
            errors.at(
                &parameter.written,
                format!("`{}` is lent to other ranks: it is read in a stage with `carrier = mover`", parameter.name),
            );
        }
    }
}
