//! What rustdoc shows of a kernel: its stages, its channels and the shapes of its arguments.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, MetaNameValue};

use crate::errors::all_of;
use crate::extent::axes;
use crate::model::{
    Argument, ArgumentKind, Carriage, Channel, Element, Holds, Kernel, Port, Route, RoutingSize, Stage,
};

/// The section that the module's documentation gains, inside of it.
pub fn module(kernel: &Kernel) -> TokenStream {
    let mut text = String::from("\n# Stages\n\n");
    for stage in &kernel.stages {
        text += &format!("* `{}`: {}\n", stage.name(), self::stage(kernel, stage));
    }
    let elements = all_of(kernel.elements.iter().map(|element| element.name()));
    let tiles = kernel.tiles.iter().map(|(rows, columns)| format!("{rows} × {columns}"));
    text += &format!("\nCompiled for elements {elements} and tiles of {}.", all_of(tiles));
    quote!(#![doc = #text])
}

/// What its author says of a stage, and what the kernel says.
fn stage(kernel: &Kernel, stage: &Stage) -> String {
    let mut text = first_paragraph(&stage.function.attrs);
    text += &format!("Covers `{}` in the order `{}`", axes(&stage.grid), stage.order.name);
    if let Some(ctas) = stage.ctas {
        text += &format!(", on {ctas} CTAs of its own");
    }
    if stage.moved {
        text += ", carried by the movers";
    }
    let names = |marked: fn(&Port) -> bool| {
        let ports = stage.ports().filter(move |(_, port)| marked(port));
        ports.map(|(_, port)| &kernel.channels[port.channel].name).collect::<Vec<_>>()
    };
    let sends = names(|port| port.send.is_some());
    let receives = names(|port| port.receive.is_some());
    for (verb, channels) in [("sends on", sends), ("receives on", receives)] {
        if !channels.is_empty() {
            text += &format!("; {verb} {}", all_of(channels));
        }
    }
    text.push('.');
    text
}

/// The documentation up to its first empty line, with a space after it.
fn first_paragraph(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(MetaNameValue { path, value: Expr::Lit(ExprLit { lit: Lit::Str(line), .. }), .. })
            if path.is_ident("doc") =>
        {
            Some(line.value())
        }
        _ => None,
    });
    let lines = lines.map(|line| line.trim().to_string()).take_while(|line| !line.is_empty());
    lines.map(|line| line + " ").collect()
}

/// The paragraph that a channel's documentation gains.
pub fn channel(kernel: &Kernel, index: usize) -> TokenStream {
    let Channel { slots, holds, route, carriage, into, pieces, .. } = &kernel.channels[index];
    let holds = match holds {
        Holds::Tile { element, rows, columns, .. } => format!("`Tile<{element}, {rows}, {columns}>`"),
        Holds::Panel { element, rows, columns, .. } => format!("`Panel<{element}, {rows}>` of `{columns}` columns"),
        Holds::Gate { .. } => return appended(&gate(kernel, index)),
        Holds::Routing { size, .. } => return appended(&routing(size)),
    };
    let names = |stages: Vec<usize>| all_of(stages.into_iter().map(|stage| kernel.stages[stage].name()));
    let senders = names(kernel.senders(index).map(|(stage, _)| stage).collect());
    let receivers = names(kernel.receivers(index).map(|(stage, _)| stage).collect());
    let route = match route {
        Route::One => "one rank",
        Route::Peers => "every other rank",
        Route::All => "every rank",
    };
    let movement = match (into, carriage) {
        (Some(into), _) => format!("stored in the receiver's `{into}`"),
        (None, Some(Carriage::Push)) => "pushed by the sender".into(),
        (None, Some(Carriage::Pull)) => "pulled by the receiver".into(),
        (None, None) => "pushed by the sender or pulled by the receiver, as the launcher chooses".into(),
    };
    let slots = axes(slots);
    let cut = pieces.as_ref().map(|pieces| format!(" in `{pieces}` pieces")).unwrap_or_default();
    appended(&format!(
        "Slots `{slots}` of {holds}{cut}, each to {route}, {movement}. Sent by {senders}, received by {receivers}."
    ))
}

fn gate(kernel: &Kernel, index: usize) -> String {
    let Channel { slots, holds, .. } = &kernel.channels[index];
    let guarded = match holds {
        Holds::Gate { guards: Some(guards), .. } => format!(" before `{guards}` is read"),
        _ => String::new(),
    };
    let names = |stages: Vec<usize>| all_of(stages.into_iter().map(|stage| kernel.stages[stage].name()));
    let senders = names(kernel.senders(index).map(|(stage, _)| stage).collect());
    let receivers = names(kernel.receivers(index).map(|(stage, _)| stage).collect());
    format!("Gates `{}` on each rank{guarded}: {senders} are counted, {receivers} wait.", axes(slots))
}

fn routing(size: &RoutingSize) -> String {
    let RoutingSize { rows, choices, groups, capacity } = size;
    format!(
        "`{rows}` rows of each rank choose `{choices}` of `{groups}` groups each; a rank has room for `{capacity}` rows, in \
         blocks of `BM` rows of one group."
    )
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
            let parts = match &matrix.groups {
                Some(groups) => format!(", its rows in `{groups}` groups"),
                None if matrix.sharded => ", its rows in `world` parts".into(),
                None if matrix.symmetric => ", within every rank's reach".into(),
                None if matrix.lent => ", by other ranks too".into(),
                None => String::new(),
            };
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
