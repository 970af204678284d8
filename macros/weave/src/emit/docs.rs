//! What rustdoc shows of a kernel: its stages, its channels and the shapes of its arguments.

use std::fmt::Write;

use proc_macro2::TokenStream;
use quote::quote;

use crate::errors::all_of;
use crate::extent::axes;
use crate::model::{Argument, ArgumentKind, Channel, Element, Holds, Kernel, Route};

/// The section that the module's documentation gains.
pub fn module(kernel: &Kernel) -> TokenStream {
    let mut text = String::from("# Stages\n\n");
    for stage in &kernel.stages {
        let (name, grid, order) = (stage.name(), axes(&stage.grid), &stage.order.name);
        let _ = write!(text, "* `{name}` covers `{grid}` in the order `{order}`");
        if let Some(ctas) = stage.ctas {
            let _ = write!(text, ", on {ctas} CTAs of its own");
        }
        let ends = |sends: bool| {
            let ports =
                stage.ports().filter(move |(_, port)| if sends { port.send.is_some() } else { port.receive.is_some() });
            ports.map(|(_, port)| &kernel.channels[port.channel].name).collect::<Vec<_>>()
        };
        for (verb, channels) in [("sends on", ends(true)), ("receives on", ends(false))] {
            if !channels.is_empty() {
                let _ = write!(text, "; {verb} {}", all_of(channels));
            }
        }
        text.push_str(".\n");
    }
    let elements = all_of(kernel.elements.iter().map(|element| element.name()));
    let tiles = kernel.tiles.iter().map(|(rows, columns)| format!("{rows} × {columns}"));
    let _ = write!(text, "\nCompiled for elements {elements} and tiles of {}.", all_of(tiles));
    appended(&text)
}

/// The paragraph that a channel's documentation gains.
pub fn channel(kernel: &Kernel, index: usize) -> TokenStream {
    let Channel { slots, holds, route, pull, .. } = &kernel.channels[index];
    let holds = match holds {
        Holds::Tile { element, rows, columns, .. } => format!("`Tile<{element}, {rows}, {columns}>`"),
        Holds::Panel { element, rows, columns, .. } => format!("`Panel<{element}, {rows}>` of `{columns}` columns"),
    };
    let names = |stages: Vec<usize>| all_of(stages.into_iter().map(|stage| kernel.stages[stage].name()));
    let senders = names(kernel.senders(index).map(|(stage, _)| stage).collect());
    let receivers = names(kernel.receivers(index).map(|(stage, _)| stage).collect());
    let route = match route {
        Route::One => "one rank",
        Route::Peers => "every other rank",
    };
    let movement = if *pull { "pulled by the receiver" } else { "pushed by the sender" };
    let slots = axes(slots);
    appended(&format!(
        "Slots `{slots}` of {holds}, each to {route}, {movement}. Sent by {senders}, received by {receivers}."
    ))
}

/// The line that documents a field of `Args`.
pub fn argument(argument: &Argument) -> TokenStream {
    appended(&match &argument.kind {
        ArgumentKind::Matrix(matrix) => {
            let access = if matrix.mutable { "Written" } else { "Read" };
            let element = match matrix.element {
                Element::Variant => "the kernel's element".into(),
                fixed => format!("`{fixed}`"),
            };
            let parts = if matrix.sharded { ", its rows in `world` parts" } else { "" };
            format!("{access}: `[{}, {}]` of {element}{parts}.", matrix.rows, matrix.columns)
        }
        ArgumentKind::Scalar(_) => "Passed to every tile.".into(),
    })
}

/// A paragraph after the user's own documentation.
fn appended(text: &str) -> TokenStream {
    let text = format!("\n{text}");
    quote!(#[doc = #text])
}
