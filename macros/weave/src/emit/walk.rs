//! The walk over a kernel's stages, which every role makes in step with the others.

use proc_macro2::TokenStream;
use quote::quote;

use super::literal;
use crate::extent::Extent;
use crate::model::{ArgumentKind, Binding, Holds, Kernel, Order, OrderKind, Parameter, Port, Receive, Stage};

/// The function `weave`, which visits the tiles of all stages, in order. Where movers carry some of them beside the other
/// roles, these visit the rest in `weave_unmoved`, and the movers theirs in `weave_moves`.
pub fn weave(kernel: &Kernel) -> TokenStream {
    let all = function(kernel, quote!(weave), |_| true);
    if !moves(kernel) {
        return all;
    }
    let unmoved = function(kernel, quote!(weave_unmoved), |stage| !stage.moved);
    let moved = function(kernel, quote!(weave_moves), |stage| stage.moved);
    quote! {
        #all
        #[cfg(target_arch = "nvptx64")]
        #unmoved
        #[cfg(target_arch = "nvptx64")]
        #moved
    }
}

/// Whether movers carry any of the stages.
pub fn moves(kernel: &Kernel) -> bool {
    kernel.stages.iter().any(|stage| stage.moved)
}

/// Whether panels arrive for the other roles, so that a poller looks for their signals.
pub fn polls(kernel: &Kernel) -> bool {
    let arrives =
        |port: &Port| port.receive.is_some() && matches!(kernel.channels[port.channel].holds, Holds::Panel { .. });
    let stages = kernel.stages.iter().filter(|stage| !stage.moved);
    stages.flat_map(Stage::ports).any(|(_, port)| arrives(port))
}

fn function(kernel: &Kernel, name: TokenStream, includes: impl Fn(&Stage) -> bool) -> TokenStream {
    let stages = || kernel.stages.iter().enumerate().filter(|(_, stage)| includes(stage));
    let dedicated = kernel.stages.iter().map(|stage| literal(stage.ctas.unwrap_or(0)));
    let mut dedicated = quote!([#(#dedicated),*]);
    if kernel.stages.iter().any(|stage| stage.ctas.is_some()) {
        dedicated = quote!(::entwine::device::dedicated(role.head(), #dedicated));
    }
    let walks = stages().map(|(index, stage)| walk(kernel, index, stage, &dedicated));
    let grids = || stages().flat_map(|(_, stage)| &stage.grid);
    let world = grids().any(Extent::mentions_world).then(|| quote!(world,));
    let dims =
        kernel.dims.iter().map(|dim| if grids().any(|extent| extent.mentions(dim)) { quote!(#dim) } else { quote!(_) });
    quote! {
        #[inline(always)]
        pub fn #name<R: ::entwine::device::Role>(role: &R, params: &Params) {
            let ::entwine::device::abi::Head { #world ctas, dims: [#(#dims,)* ..], .. } = *role.head();
            #(#walks)*
        }
    }
}

fn walk(kernel: &Kernel, index: usize, stage: &Stage, dedicated: &TokenStream) -> TokenStream {
    let name = stage.name();
    let index = literal(index);
    let grid = stage.grid.iter().map(Extent::in_kernel);
    let arguments = stage.parameters.iter().map(|parameter| argument(kernel, parameter));
    let share = if stage.moved {
        quote!(::entwine::device::Share { first: 0, count: ctas })
    } else {
        quote!(::entwine::device::share(ctas, #dedicated, #index))
    };
    let described = quote! {
        ::entwine::device::Stage { index: #index, grid: [#(#grid),*], share: #share }
    };
    // A dimension, which is a variable here, may have a function's name.
    let tile = quote!(|at| self::#name(at, #(#arguments),*));
    match &stage.order {
        Order { kind: OrderKind::ReadyFirst, .. } => {
            let slot = awaited_slot(kernel, stage);
            quote!(::entwine::device::walk_ready_first(role, #described, #slot, #tile);)
        }
        Order { kind: OrderKind::Function, name } => {
            quote!(::entwine::device::walk(role, #described, self::#name, #tile);)
        }
        Order { name, .. } => {
            quote!(::entwine::device::walk(role, #described, ::entwine::device::order::#name, #tile);)
        }
    }
}

/// What a tile function is given for a parameter.
fn argument(kernel: &Kernel, parameter: &Parameter) -> TokenStream {
    match &parameter.binding {
        Binding::Matrix { argument, mutable } => {
            let index = literal(kernel.index_among_kind(*argument));
            let reference = if *mutable { quote!(&mut) } else { quote!(&) };
            let kind = match &kernel.arguments[*argument].kind {
                ArgumentKind::Matrix(matrix) if matrix.sharded => quote!(Sharded),
                _ => quote!(Matrix),
            };
            quote!(#reference ::entwine::device::#kind::woven(role, &params.matrices[#index]))
        }
        Binding::Scalar { argument } => {
            let index = literal(kernel.index_among_kind(*argument));
            quote!(::entwine::device::abi::Scalar::from_word(params.scalars[#index]))
        }
        Binding::Port(port) => port_of(kernel, port.channel),
    }
}

/// An end of a channel.
fn port_of(kernel: &Kernel, channel: usize) -> TokenStream {
    let index = literal(channel);
    match kernel.channels[channel].into.as_ref().and_then(|into| kernel.matrix(into)) {
        Some((argument, _)) => {
            let matrix = literal(kernel.index_among_kind(argument));
            quote!(::entwine::device::Port::woven_into(role, &params.channels[#index], &params.matrices[#matrix]))
        }
        None => quote!(::entwine::device::Port::woven(role, &params.channels[#index])),
    }
}

/// From a tile's coordinates to the place of the slot that it waits for.
fn awaited_slot(kernel: &Kernel, stage: &Stage) -> TokenStream {
    let awaited = stage.ports().find_map(|(_, port)| match &port.receive {
        Some(Receive { slot: Some(slot), unless, .. }) => Some((port.channel, slot, unless)),
        _ => None,
    });
    let Some((channel, slot, unless)) = awaited else { return quote!(|_| ::core::option::Option::None) };
    let (at, name, port) = (&stage.at, &kernel.channels[channel].name, port_of(kernel, channel));
    let free = unless.as_ref().map(|unless| quote!(if #unless { return ::core::option::Option::None }));
    quote! {
        |coordinates| {
            let index = {
                let #at = &::entwine::device::At::new(role, coordinates);
                #free
                #slot
            };
            let port: ::entwine::device::Port<#name, ::entwine::device::Receive, R> = #port;
            ::core::option::Option::Some(port.slot(index).place())
        }
    }
}
