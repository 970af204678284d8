//! The woven code of one variant: its channels, its tile functions and the entries into it.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Item, Type};

use super::{Variant, literal, walk};
use crate::model::{Channel, ElementType, Holds, Kernel, Route};
use crate::roles;

/// Code for GPUs without TMA has tiles whose columns are a multiple of this: a warp holds a quarter of them, in blocks of 16.
/// As `Target::has_tile` of the launcher has it.
const WIDTH_FOR_ALL: u32 = 64;

/// The hidden module of a variant.
pub fn module(kernel: &Kernel, variant: &Variant, varying: &[Item]) -> TokenStream {
    let Variant { module, entry, .. } = variant;
    let declarations = declarations(kernel, variant, varying);
    let functions = kernel.stages.iter().map(|stage| roles::tile_function(kernel, stage));
    let weave = walk::weave(kernel);
    let params = params(kernel);
    let not_for_all = (!variant.tile.1.is_multiple_of(WIDTH_FOR_ALL)).then(|| quote!(, not(entwine_sm_80)));
    let device = entry_of(kernel, entry);
    quote! {
        #[doc(hidden)]
        #[allow(dead_code, unexpected_cfgs, unused_imports)]
        pub mod #module {
            #declarations
            #(#functions)*

            pub type Params = #params;
            #weave

            #[cfg(all(target_arch = "nvptx64", entwine_entries #not_for_all))]
            #device

            #[cfg(not(target_arch = "nvptx64"))]
            pub unsafe fn simulate(params: *const ::entwine::device::abi::Head, cta: u32) {
                // SAFETY: the launcher passes the address of this kernel's `Params`.
                unsafe { ::entwine::device::cpu::run::<Params>(params, cta, weave) }
            }
        }
    }
}

/// The entry for GPUs.
fn entry_of(kernel: &Kernel, entry: &Ident) -> TokenStream {
    let symbol = entry.to_string();
    if kernel.together {
        let lends = kernel.lends();
        return quote! {
            ::entwine::device::gpu::streaming_entry!(
                #entry, name = #symbol, params = Params, weave = weave, tile = (BM, BN), element = T, lends = #lends
            );
        };
    }
    let moves = walk::moves(kernel).then(|| quote!(weave_moves));
    let goes_by_routing = kernel.channels.iter().any(|channel| matches!(channel.holds, Holds::Routing { .. }));
    let routes = goes_by_routing.then(|| quote!(routes = true,));
    let moves_rows = walk::moves_rows(kernel).then(|| quote!(moves_rows = true,));
    let unmoved = if walk::moves(kernel) { quote!(weave_unmoved) } else { quote!(weave) };
    let polls = walk::polls(kernel).then_some(&unmoved);
    quote! {
        ::entwine::device::gpu::entry!(
            #entry, name = #symbol, params = Params, weave = weave, unmoved = #unmoved, moves = [#moves],
            polls = [#polls], #routes #moves_rows tile = (BM, BN), element = T
        );
    }
}

/// What stands in for a variant where there are errors: its declarations, so that the user's imports stay in use.
pub fn outline(kernel: &Kernel, variant: &Variant, varying: &[Item]) -> TokenStream {
    let module = &variant.module;
    let declarations = declarations(kernel, variant, varying);
    let functions = kernel.stages.iter().map(|stage| roles::outline(kernel, stage));
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
    let (rows, columns) = (literal(variant.tile.0), literal(variant.tile.1));
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
    let scalars = literal(kernel.arguments.len() - matrices);
    let (matrices, channels) = (literal(matrices), literal(kernel.channels.len()));
    quote!(::entwine::device::abi::Params<#matrices, #channels, #scalars>)
}

fn channel(index: usize, channel: &Channel) -> TokenStream {
    let name = &channel.name;
    let (index, arity) = (literal(index), literal(channel.slots.len()));
    let route = match channel.route {
        Route::One => quote!(One),
        Route::Peers => quote!(Peers),
        Route::All => quote!(All),
    };
    let item = item(&channel.holds);
    let unacknowledged = (channel.unacknowledged.is_some() || channel.holds.is_local()).then(|| {
        quote!(
            const ACKNOWLEDGED: bool = false;
        )
    });
    let local = channel.holds.is_local().then(|| {
        quote!(
            const LOCAL: bool = true;
        )
    });
    quote! {
        pub struct #name;
        impl ::entwine::device::Channel for #name {
            const INDEX: u32 = #index;
            const ROUTE: ::entwine::device::Route = ::entwine::device::Route::#route;
            #unacknowledged
            #local
            type Index = [u32; #arity];
            type Item = #item;
        }
    }
}

/// What a slot holds, with the generic arguments that the user wrote.
fn item(holds: &Holds) -> TokenStream {
    let kind = match holds {
        Holds::Tile { .. } => quote!(TileItem),
        Holds::Panel { .. } => quote!(PanelItem),
        Holds::Gate { .. } => quote!(GateItem),
        Holds::Routing { .. } => quote!(RoutingItem),
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
        ElementType::U32 => quote!(u32),
        ElementType::I32 => quote!(i32),
        ElementType::U64 => quote!(u64),
        ElementType::I64 => quote!(i64),
    }
}
