//! The rules of a stage whose tiles are taken between those of the one before it.

use crate::errors::Errors;
use crate::model::{Holds, Kernel, OrderKind, Stage};

/// Checks that the stage before is named, and that the tiles which are taken when they are ready wait for nothing else.
pub fn check(index: usize, stage: &Stage, kernel: &Kernel, errors: &Errors) {
    let Some(beside) = &stage.beside else { return };
    let before = index.checked_sub(1).map(|before| &kernel.stages[before]);
    let Some(main) = before.filter(|before| before.name() == beside) else {
        let names = match before {
            Some(before) => format!(": `beside = {}`", before.name()),
            None => ", and this one is the first".into(),
        };
        return errors.at(beside, format!("a stage is beside the one that is written before it{names}"));
    };
    let apart = |stage: &Stage| stage.ctas.is_some() || stage.moved;
    if apart(main) || apart(stage) {
        errors.at(
            beside,
            "stages that are taken by turns are carried by the same CTAs: neither has `ctas` or a `carrier`",
        );
    }
    if main.beside.is_some() {
        errors.at(beside, format!("`{beside}` is beside another stage itself"));
    }
    let arranges = |stage: &Stage| {
        let routes = |channel: usize| matches!(kernel.channels[channel].holds, Holds::Routing { .. });
        stage.ports().any(|(_, port)| port.send.is_some() && routes(port.channel))
    };
    if arranges(main) || arranges(stage) {
        errors.at(beside, "a stage that arranges a routing is nobody's neighbour: several CTAs share out its one tile");
    }
    for stage in [main, stage].into_iter().filter(|stage| stage.order.kind == OrderKind::ReadyFirst) {
        errors.at(&stage.order.name, "stages that are taken by turns are each in a fixed order");
    }
    let waits = stage.ports().filter_map(|(_, port)| Some((port.channel, port.receive.as_ref()?)));
    let waits = waits.filter(|(channel, _)| !matches!(kernel.channels[*channel].holds, Holds::Routing { .. }));
    let (named, others): (Vec<_>, Vec<_>) = waits.partition(|(_, wait)| wait.slot.is_some());
    if named.is_empty() {
        let message =
            "say which slot its tiles wait for, so that they are taken when it is there: `#[recv(slot = [at[0]])]`";
        errors.at(others.first().map_or(beside, |(_, wait)| &wait.marker), message);
    } else if let Some((_, other)) = others.first() {
        errors.at(
            &other.marker,
            format!("a tile that waits here holds up those of `{beside}`, which others may wait for: receive it in a later stage"),
        );
    }
}
