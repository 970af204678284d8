//! The rules of gates: what they guard is a matrix that is written before them and read behind them.

use proc_macro2::Ident;

use crate::errors::Errors;
use crate::model::{Binding, Channel, Holds, Kernel, Stage};

/// Checks that what a gate guards is a matrix that every stage which is counted writes.
pub fn check(channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let Holds::Gate { guards: Some(guards), .. } = &channel.holds else { return };
    let name = &channel.name;
    let Some((argument, _)) = kernel.matrix(guards) else {
        return errors.at(guards, format!("`{name}` guards a matrix, and no argument `{guards}` is one"));
    };
    let index = kernel.channels.iter().position(|other| other.name == *name).expect("the channel is the kernel's");
    for (sender, marker) in kernel.senders(index) {
        if !has(&kernel.stages[sender], argument, true) {
            errors.at(
                marker,
                format!(
                    "who is counted at `{name}` has written `{guards}`, which it guards: take `{guards}: &mut …`, too"
                ),
            );
        }
    }
}

/// Whether a stage takes the argument so.
fn has(stage: &Stage, argument: usize, mutable: bool) -> bool {
    stage.parameters.iter().any(|parameter| match parameter.binding {
        Binding::Matrix { argument: found, mutable: writes } => found == argument && writes == mutable,
        _ => false,
    })
}

/// Whether a gate that guards the matrix `name` is between the stage that writes it and the one that reads it. One that
/// guards what its senders don't write has had its error, and may be meant for this.
pub fn stands_between(writer: &Stage, reader: &Stage, name: &Ident, kernel: &Kernel) -> bool {
    kernel.channels.iter().enumerate().any(|(index, channel)| {
        let Holds::Gate { guards: Some(guards), .. } = &channel.holds else { return false };
        let written = kernel.matrix(guards).is_some_and(|(argument, _)| has(writer, argument, true));
        (guards == name || !written)
            && writer.port(index).is_some_and(|port| port.send.is_some())
            && reader.port(index).is_some_and(|port| port.receive.is_some())
    })
}
