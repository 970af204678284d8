//! The woven code of one variant: its tile functions, the walk over its stages, and the entries into it.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Item, Type};

use super::Variant;
use crate::extent::Extent;
use crate::model::{
    ArgumentKind, Binding, Channel, ElementType, Holds, Kernel, Order, OrderKind, Parameter, Receive, Route, Stage,
};
use crate::roles;

/// The hidden module of a variant.
pub fn module(kernel: &Kernel, variant: &Variant, varying: &[Item]) -> TokenStream {
    let Variant { module, entry, .. } = variant;
    let declarations = declarations(kernel, variant, varying);
    let functions = kernel.stages.iter().map(roles::tile_function);
    let weave = weave(kernel);
    let params = params(kernel);
    let symbol = entry.to_string();
    quote! {
        #[doc(hidden)]
        #[allow(dead_code, unexpected_cfgs, unused_imports)]
        pub mod #module {
            #declarations
            #(#functions)*

            pub type Params = #params;
            #weave

            #[cfg(all(target_arch = "nvptx64", entwine_entries))]
            ::entwine::device::gpu::entry!(#entry, name = #symbol, params = Params, weave = weave, tile = (BM, BN), element = T);

            #[cfg(not(target_arch = "nvptx64"))]
            pub unsafe fn simulate(params: *const ::entwine::device::abi::Head, cta: u32) {
                // SAFETY: the launcher passes the address of this kernel's `Params`.
                unsafe { ::entwine::device::cpu::run::<Params>(params, cta, weave) }
            }
        }
    }
}

/// What stands in for a variant where there are errors: its declarations, so that the user's imports stay in use.
pub fn outline(kernel: &Kernel, variant: &Variant, varying: &[Item]) -> TokenStream {
    let module = &variant.module;
    let declarations = declarations(kernel, variant, varying);
    let functions = kernel.stages.iter().map(roles::outline);
    quote! {
        #[allow(unused)]
        mod #module {
            #declarations
            #(#functions)*
        }
    }
}

/// The constants, items and channels that tile functions see.
fn declarations(kernel: &Kernel, variant: &Variant, varying: &[Item]) -> TokenStream {
    let (rows, columns) = variant.tile;
    let (rows, columns) = (rows as usize, columns as usize);
    let element = element_type(variant.element);
    let channels = kernel.channels.iter().enumerate().map(|(index, channel)| self::channel(index, channel));
    quote! {
        use super::*;

        pub const BM: usize = #rows;
        pub const BN: usize = #columns;
        pub type T = #element;

        #(#varying)*
        #(#channels)*
    }
}

fn params(kernel: &Kernel) -> TokenStream {
    let matrices = kernel.matrices().count();
    let channels = kernel.channels.len();
    let scalars = kernel.arguments.len() - matrices;
    quote!(::entwine::device::abi::Params<#matrices, #channels, #scalars>)
}

fn channel(index: usize, channel: &Channel) -> TokenStream {
    let name = &channel.name;
    let index = index as u32;
    let arity = channel.slots.len();
    let route = match channel.route {
        Route::One => quote!(One),
        Route::Peers => quote!(Peers),
    };
    let item = item(&channel.holds);
    let unacknowledged = channel.unacknowledged.as_ref().map(|_| {
        quote!(
            const ACKNOWLEDGED: bool = false;
        )
    });
    quote! {
        pub struct #name;
        impl ::entwine::device::Channel for #name {
            const INDEX: u32 = #index;
            const ROUTE: ::entwine::device::Route = ::entwine::device::Route::#route;
            #unacknowledged
            type Index = [u32; #arity];
            type Item = #item;
        }
    }
}

/// The walk over all stages, in order.
fn weave(kernel: &Kernel) -> TokenStream {
    let dedicated = kernel.stages.iter().map(|stage| stage.ctas.unwrap_or(0));
    let dedicated = quote!([#(#dedicated),*]);
    let walks = kernel.stages.iter().enumerate().map(|(index, stage)| walk(kernel, index, stage, &dedicated));
    let mut used = HashSet::new();
    for extent in kernel.stages.iter().flat_map(|stage| &stage.grid) {
        extent.for_each_dim(&mut |name| {
            used.insert(name);
        });
    }
    let dims = kernel.dims.iter().map(|dim| if used.contains(dim) { dim.clone() } else { format_ident!("_{dim}") });
    quote! {
        #[inline(always)]
        #[allow(unused_variables)]
        pub fn weave<R: ::entwine::device::Role>(role: &R, params: &Params) {
            let ::entwine::device::abi::Head { world, ctas, dims: [#(#dims,)* ..], .. } = *role.head();
            #(#walks)*
        }
    }
}

fn walk(kernel: &Kernel, index: usize, stage: &Stage, dedicated: &TokenStream) -> TokenStream {
    let name = stage.name();
    let number = index as u32;
    let grid = stage.grid.iter().map(Extent::in_kernel);
    let arguments = stage.parameters.iter().map(|parameter| argument(kernel, parameter));
    let described = quote! {
        ::entwine::device::Stage {
            index: #number,
            grid: [#(#grid),*],
            share: ::entwine::device::share(ctas, #dedicated, #index),
        }
    };
    let tile = quote!(|at| #name(at, #(#arguments),*));
    if stage.order.kind == OrderKind::ReadyFirst {
        let slot = awaited_slot(kernel, stage);
        return quote!(::entwine::device::order::walk_ready_first(role, #described, #slot, #tile););
    }
    let order = match &stage.order {
        Order { kind: OrderKind::Function, name } => quote!(#name),
        Order { name, .. } => quote!(::entwine::device::order::#name),
    };
    quote!(::entwine::device::walk(role, #described, #order, #tile);)
}

/// What a tile function is given for a parameter.
fn argument(kernel: &Kernel, parameter: &Parameter) -> TokenStream {
    match &parameter.binding {
        Binding::Matrix { argument, mutable } => {
            let index = kernel.index_among_kind(*argument);
            let reference = if *mutable { quote!(&mut) } else { quote!(&) };
            let kind = match &kernel.arguments[*argument].kind {
                ArgumentKind::Matrix(matrix) if matrix.sharded => quote!(Sharded),
                _ => quote!(Matrix),
            };
            quote!(#reference ::entwine::device::#kind::woven(role, &params.matrices[#index]))
        }
        Binding::Scalar { argument } => {
            let index = kernel.index_among_kind(*argument);
            quote!(::entwine::device::abi::Scalar::from_word(params.scalars[#index]))
        }
        Binding::Port(port) => {
            let index = port.channel;
            quote!(::entwine::device::Port::woven(role, &params.channels[#index]))
        }
    }
}

/// From a tile's coordinates to the place of the slot that it waits for.
fn awaited_slot(kernel: &Kernel, stage: &Stage) -> TokenStream {
    let awaited = stage.ports().find_map(|(_, port)| match &port.receive {
        Some(Receive { slot: Some(slot), unless, .. }) => Some((port.channel, slot, unless)),
        _ => None,
    });
    let Some((channel, slot, unless)) = awaited else { return quote!(|_| ::core::option::Option::None) };
    let (at, name) = (&stage.at, &kernel.channels[channel].name);
    let free = unless.as_ref().map(|unless| quote!(if #unless { return ::core::option::Option::None }));
    quote! {
        |coordinates| {
            let #at = &::entwine::device::At::new(role, coordinates);
            #free
            let port = ::entwine::device::Port::<#name, ::entwine::device::Receive, R>::woven(role, &params.channels[#channel]);
            ::core::option::Option::Some(port.slot(#slot).place())
        }
    }
}

/// What a slot holds, with the generic arguments that the user wrote.
fn item(holds: &Holds) -> TokenStream {
    let kind = match holds {
        Holds::Tile { .. } => quote!(TileItem),
        Holds::Panel { .. } => quote!(PanelItem),
    };
    let arguments = match holds.written() {
        Type::Path(written) => written.path.segments.last().map(|last| &last.arguments),
        _ => None,
    };
    quote!(::entwine::device::#kind #arguments)
}

/// The Rust type of an element.
pub fn element_type(element: ElementType) -> TokenStream {
    match element {
        ElementType::Bf16 => quote!(::entwine::device::bf16),
        ElementType::F16 => quote!(::entwine::device::f16),
        ElementType::F32 => quote!(f32),
    }
}
