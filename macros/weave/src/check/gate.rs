//! The rules of gates: what they guard is a matrix that is written before them and read behind them.

use proc_macro2::Ident;

use super::trace::{Trace, Use};
use crate::errors::Errors;
use crate::model::{Binding, Channel, Holds, Kernel, Port, Stage};

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

/// Checks that tiles have written what a gate guards when they arrive there, and read it once they have waited.
///
/// Only what is sure to be in the wrong order is refused: nothing is said of gates and matrices that go by another name as
/// well, of what a loop repeats, and of what a condition leaves open.
pub fn check_body(stage: &Stage, kernel: &Kernel, errors: &Errors) {
    for parameter in &stage.parameters {
        let Binding::Matrix { argument, .. } = parameter.binding else { continue };
        let argument = &kernel.arguments[argument].name;
        // A gate orders what is done on its rank, and a symmetric matrix is written on others, too.
        if kernel.matrix(argument).is_some_and(|(_, matrix)| !matrix.symmetric) {
            check_order(stage, &parameter.name, argument, kernel, errors);
        }
    }
}

/// Checks the order of what a stage does with a matrix, which is this argument, and at the gates that guard it.
fn check_order(stage: &Stage, matrix: &Ident, argument: &Ident, kernel: &Kernel, errors: &Errors) {
    let is_guard = |port: &Port| match &kernel.channels[port.channel].holds {
        Holds::Gate { guards: Some(guards), .. } => guards == argument,
        _ => false,
    };
    let counts = |port: &Port| port.send.is_some();
    let guards = || stage.ports().filter(|(_, port)| is_guard(port));
    let counted = guards().any(|(_, port)| counts(port));
    let gates: Vec<_> = guards().filter(|(_, port)| counts(port) == counted).map(|(name, _)| name).collect();
    let names: Vec<_> = gates.iter().copied().chain([matrix]).collect();
    let Some(trace) = Trace::of(&stage.function.block, &names) else { return };
    let (at_gates, of_matrix): (Vec<_>, Vec<_>) = trace.uses.iter().partition(|found| gates.contains(&found.name));
    let passage = if counted { "arrive" } else { "wait" };
    if at_gates.iter().any(|found| found.call(&[passage]).is_none()) {
        return;
    }
    if counted {
        for (stored, arrival) in stored_after_arrival(&of_matrix, &at_gates) {
            let message = format!(
                "the tile was counted at `{0}` before this is stored in `{matrix}`, so that who waits there may miss it: \
                 `{0}.slot([…]).arrive(n)` comes after it",
                arrival.name
            );
            errors.at(stored.at, message);
        }
    } else {
        for (read, wait) in read_before_waiting(&trace, &of_matrix, &at_gates) {
            let message = format!(
                "`{matrix}` is read before the tile has waited at `{0}`, which guards it: `{0}.slot([…]).wait()` comes \
                 first",
                wait.name
            );
            errors.at(read.at, message);
        }
    }
}

/// What is stored when the tile has arrived, at no gate after that, with where it has.
fn stored_after_arrival<'u, 'a>(
    of_matrix: &'u [&'u Use<'a>],
    arrivals: &'u [&'u Use<'a>],
) -> impl Iterator<Item = (&'u Use<'a>, &'u Use<'a>)> {
    let stores = of_matrix.iter().filter(|found| found.ends_in(&["store"]));
    let unguarded = stores.filter(|store| !arrivals.iter().any(|arrival| store.may_precede(arrival)));
    unguarded.filter_map(|store| Some((*store, *arrivals.iter().find(|arrival| arrival.surely_precedes(store))?)))
}

/// What is read when the tile has waited at none of the gates yet, and is still going to, with where it is.
fn read_before_waiting<'u, 'a>(
    trace: &'u Trace<'a>,
    of_matrix: &'u [&'u Use<'a>],
    waits: &'u [&'u Use<'a>],
) -> impl Iterator<Item = (&'u Use<'a>, &'u Use<'a>)> {
    let reads = of_matrix.iter().filter(|found| is_read(found));
    let early = reads.filter(|read| !waits.iter().any(|wait| wait.may_precede(read)));
    early.filter_map(|read| Some((*read, *waits.iter().find(|wait| trace.surely_followed(read, wait))?)))
}

/// Whether a matrix is read there and then: what is loaded, and values for columns, are fetched where they are used. Values that have a name
/// first are not followed to there.
fn is_read(found: &Use) -> bool {
    let summed = found.given_to.is_some_and(|method| method == "weighted_sum");
    let fetched = found.consumed && found.ends_in(&["load", "row_panel", "column_values"]);
    summed || fetched || found.ends_in(&["at", "read", "pool"])
}
