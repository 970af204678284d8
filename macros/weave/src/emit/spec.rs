//! `SPEC`: the kernel's description for the launcher, plain static data.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use super::{Variant, literal, walk};
use crate::extent::Extent;
use crate::model::{Argument, ArgumentKind, Carriage, Channel, Element, ElementType, Holds, Kernel, Route, Stage};
use crate::{Build, DeviceCode, products};

/// The item `SPEC`, for hosts alone.
pub fn specification(kernel: &Kernel, variants: &[Variant], build: &Build) -> TokenStream {
    let name = kernel.name.to_string();
    let documentation = format!("What the launcher knows of `{name}`.");
    let codes = build.codes.iter().map(code);
    let dims = kernel.dims.iter().map(Ident::to_string);
    let stages = kernel.stages.iter().map(|stage| self::stage(kernel, stage));
    let channels = kernel.channels.iter().map(|channel| self::channel(kernel, channel));
    let arguments = kernel.arguments.iter().map(|argument| self::argument(argument, &kernel.dims));
    let variants = variants.iter().map(|variant| self::variant(variant, walk::moves(kernel)));
    quote! {
        #[doc = #documentation]
        #[cfg(not(target_arch = "nvptx64"))]
        pub static SPEC: ::entwine::spec::KernelSpec = {
            use ::core::option::Option;
            use ::entwine::device::{Element, layout};
            use ::entwine::spec::*;
            KernelSpec {
                name: #name,
                codes: &[#(#codes),*],
                dims: &[#(#dims),*],
                stages: &[#(#stages),*],
                channels: &[#(#channels),*],
                arguments: &[#(#arguments),*],
                variants: &[#(#variants),*],
            }
        };
    }
}

fn code(DeviceCode { target, timeline, variable }: &DeviceCode) -> TokenStream {
    let target = Ident::new(target, Span::call_site());
    quote! {
        DeviceCode {
            target: Target::#target,
            timeline: #timeline,
            ptx: ::core::include_str!(::core::env!(#variable)),
        }
    }
}

fn stage(kernel: &Kernel, stage: &Stage) -> TokenStream {
    let name = stage.name().to_string();
    let grid = extents(&stage.grid, &kernel.dims);
    let order = stage.order.name.to_string();
    let ctas = match stage.ctas {
        Some(ctas) => {
            let ctas = literal(ctas);
            quote!(Option::Some(#ctas))
        }
        None => quote!(Option::None),
    };
    let moved = stage.moved;
    let products = products::inner_extents(kernel, stage).into_iter().map(|extent| extent.in_spec(&kernel.dims));
    let sends = stage.ports().filter(|(_, port)| port.send.is_some()).map(|(_, port)| literal(port.channel));
    let receives = stage.ports().filter(|(_, port)| port.receive.is_some()).map(|(_, port)| literal(port.channel));
    quote! {
        StageSpec {
            name: #name,
            grid: #grid,
            order: #order,
            ctas: #ctas,
            moved: #moved,
            products: &[#(#products),*],
            sends: &[#(#sends),*],
            receives: &[#(#receives),*],
        }
    }
}

fn channel(kernel: &Kernel, channel: &Channel) -> TokenStream {
    let dims = &kernel.dims;
    let name = channel.name.to_string();
    let slots = extents(&channel.slots, dims);
    let block = |kind: TokenStream, element: &Element, rows: &Extent, columns: &Extent| {
        let (element, rows, columns) = (self::element(*element), rows.in_spec(dims), columns.in_spec(dims));
        quote!(#kind { element: #element, rows: #rows, columns: #columns })
    };
    let item = match &channel.holds {
        Holds::Tile { element, rows, columns, .. } => block(quote!(Tile), element, rows, columns),
        Holds::Panel { element, rows, columns, .. } => block(quote!(Panel), element, rows, columns),
        Holds::Gate { .. } => quote!(Gate),
        Holds::Routing { size, .. } => {
            let [rows, choices, groups, capacity] = size.extents().map(|extent| extent.in_spec(dims));
            quote!(Routing { rows: #rows, choices: #choices, groups: #groups, capacity: #capacity })
        }
    };
    let route = match channel.route {
        Route::One => quote!(One),
        Route::Peers => quote!(Peers),
        Route::All => quote!(All),
    };
    let carriage = match channel.carriage {
        Some(Carriage::Push) => quote!(Option::Some(Carriage::Push)),
        Some(Carriage::Pull) => quote!(Option::Some(Carriage::Pull)),
        None => quote!(Option::None),
    };
    let into = match channel.into.as_ref().and_then(|into| kernel.matrix(into)) {
        Some((argument, _)) => {
            let matrix = literal(kernel.index_among_kind(argument));
            quote!(Option::Some(#matrix))
        }
        None => quote!(Option::None),
    };
    let pieces = match &channel.pieces {
        Some(pieces) => pieces.in_spec(dims),
        None => Extent::Literal(1).in_spec(dims),
    };
    let acknowledged = channel.unacknowledged.is_none() && !channel.holds.is_local();
    quote! {
        ChannelSpec {
            name: #name,
            slots: #slots,
            item: ItemSpec::#item,
            route: Route::#route,
            carriage: #carriage,
            into: #into,
            pieces: #pieces,
            acknowledged: #acknowledged,
        }
    }
}

fn argument(argument: &Argument, dims: &[Ident]) -> TokenStream {
    let name = argument.name.to_string();
    let kind = match &argument.kind {
        ArgumentKind::Matrix(matrix) => {
            let (element, sharded, mutable) = (element(matrix.element), matrix.sharded, matrix.mutable);
            let (rows, columns, lent) = (matrix.rows.in_spec(dims), matrix.columns.in_spec(dims), matrix.lent);
            let groups = match &matrix.groups {
                Some(groups) => {
                    let groups = groups.in_spec(dims);
                    quote!(Option::Some(#groups))
                }
                None => quote!(Option::None),
            };
            quote! {
                Matrix {
                    element: #element,
                    rows: #rows,
                    columns: #columns,
                    sharded: #sharded,
                    groups: #groups,
                    lent: #lent,
                    mutable: #mutable,
                }
            }
        }
        ArgumentKind::Scalar(scalar) => {
            let scalar = scalar.to_string();
            quote!(Scalar(#scalar))
        }
    };
    quote! {
        ArgumentSpec { name: #name, kind: ArgumentKind::#kind }
    }
}

fn variant(variant: &Variant, moves: bool) -> TokenStream {
    let Variant { tile: (rows, columns), module, .. } = variant;
    let (rows, columns) = (literal(*rows), literal(*columns));
    let entry = variant.entry.to_string();
    let element = element_variant(variant.element);
    quote! {
        VariantSpec {
            entry: #entry,
            element: #element,
            tile: (#rows, #columns),
            sm_90a: CtaSpec {
                threads: layout::threads(#module::BM),
                shared_bytes: layout::shared_bytes(
                    #module::BM,
                    #module::BN,
                    <#module::T as Element>::SIZE,
                    #moves,
                ),
            },
            sm_80: CtaSpec {
                threads: layout::ampere::threads(#module::BM),
                shared_bytes: layout::ampere::shared_bytes(
                    #module::BM,
                    #module::BN,
                    <#module::T as Element>::SIZE,
                ),
            },
            simulate: #module::simulate,
        }
    }
}

fn extents(extents: &[Extent], dims: &[Ident]) -> TokenStream {
    let extents = extents.iter().map(|extent| extent.in_spec(dims));
    quote!(&[#(#extents),*])
}

fn element(element: Element) -> TokenStream {
    match element {
        Element::Variant => quote!(ElementSpec::Variant),
        Element::Fixed(element) => {
            let element = element_variant(element);
            quote!(ElementSpec::Fixed(#element))
        }
    }
}

fn element_variant(element: ElementType) -> TokenStream {
    let element = match element {
        ElementType::Bf16 => quote!(Bf16),
        ElementType::F16 => quote!(F16),
        ElementType::F32 => quote!(F32),
        ElementType::U32 => quote!(U32),
    };
    quote!(ElementType::#element)
}
