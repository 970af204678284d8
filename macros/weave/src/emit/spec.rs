//! `SPEC`: the kernel's description for the launcher, plain static data.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::Variant;
use super::variant::element_type;
use crate::Build;
use crate::extent::Extent;
use crate::model::{Argument, ArgumentKind, Channel, Element, ElementType, Holds, Kernel, Route, Stage};

/// The item `SPEC`, for hosts alone.
pub fn specification(kernel: &Kernel, variants: &[Variant], build: &Build) -> TokenStream {
    let name = kernel.name.to_string();
    let documentation = format!("What the launcher knows of `{name}`.");
    let ptx = if build.ptx {
        quote!(::core::option::Option::Some(::core::include_str!(::core::env!("ENTWINE_PTX"))))
    } else {
        quote!(::core::option::Option::None)
    };
    let dims = kernel.dims.iter().map(Ident::to_string);
    let stages = kernel.stages.iter().map(|stage| self::stage(stage, &kernel.dims));
    let channels = kernel.channels.iter().map(|channel| self::channel(channel, &kernel.dims));
    let arguments = kernel.arguments.iter().map(|argument| self::argument(argument, &kernel.dims));
    let variants = variants.iter().map(variant);
    quote! {
        #[doc = #documentation]
        #[cfg(not(target_arch = "nvptx64"))]
        pub static SPEC: ::entwine::spec::KernelSpec = ::entwine::spec::KernelSpec {
            name: #name,
            ptx: #ptx,
            dims: &[#(#dims),*],
            stages: &[#(#stages),*],
            channels: &[#(#channels),*],
            arguments: &[#(#arguments),*],
            variants: &[#(#variants),*],
        };
    }
}

fn stage(stage: &Stage, dims: &[Ident]) -> TokenStream {
    let name = stage.name().to_string();
    let grid = extents(&stage.grid, dims);
    let order = stage.order.name.to_string();
    let ctas = match stage.ctas {
        Some(ctas) => quote!(::core::option::Option::Some(#ctas)),
        None => quote!(::core::option::Option::None),
    };
    let sends = stage.ports().filter(|(_, port)| port.send.is_some()).map(|(_, port)| port.channel);
    let receives = stage.ports().filter(|(_, port)| port.receive.is_some()).map(|(_, port)| port.channel);
    quote! {
        ::entwine::spec::StageSpec {
            name: #name,
            grid: #grid,
            order: #order,
            ctas: #ctas,
            sends: &[#(#sends),*],
            receives: &[#(#receives),*],
        }
    }
}

fn channel(channel: &Channel, dims: &[Ident]) -> TokenStream {
    let name = channel.name.to_string();
    let slots = extents(&channel.slots, dims);
    let (kind, element, rows, columns) = match &channel.holds {
        Holds::Tile { element, rows, columns, .. } => (quote!(Tile), element, rows, columns),
        Holds::Panel { element, rows, columns, .. } => (quote!(Panel), element, rows, columns),
    };
    let (element, rows, columns) = (self::element(*element), rows.in_spec(dims), columns.in_spec(dims));
    let route = match channel.route {
        Route::One => quote!(One),
        Route::Peers => quote!(Peers),
    };
    let pull = channel.pull;
    quote! {
        ::entwine::spec::ChannelSpec {
            name: #name,
            slots: #slots,
            item: ::entwine::spec::ItemSpec::#kind { element: #element, rows: #rows, columns: #columns },
            route: ::entwine::spec::Route::#route,
            pull: #pull,
        }
    }
}

fn argument(argument: &Argument, dims: &[Ident]) -> TokenStream {
    let name = argument.name.to_string();
    let kind = match &argument.kind {
        ArgumentKind::Matrix(matrix) => {
            let (element, sharded, mutable) = (element(matrix.element), matrix.sharded, matrix.mutable);
            let (rows, columns) = (matrix.rows.in_spec(dims), matrix.columns.in_spec(dims));
            quote! {
                Matrix { element: #element, rows: #rows, columns: #columns, sharded: #sharded, mutable: #mutable }
            }
        }
        ArgumentKind::Scalar(scalar) => {
            let scalar = scalar.to_string();
            quote!(Scalar(#scalar))
        }
    };
    quote! {
        ::entwine::spec::ArgumentSpec { name: #name, kind: ::entwine::spec::ArgumentKind::#kind }
    }
}

fn variant(variant: &Variant) -> TokenStream {
    let Variant { tile: (rows, columns), module, .. } = variant;
    let entry = variant.entry.to_string();
    let (element, element_rust) = (element_variant(variant.element), element_type(variant.element));
    quote! {
        ::entwine::spec::VariantSpec {
            entry: #entry,
            element: #element,
            tile: (#rows, #columns),
            threads: ::entwine::device::layout::threads(#module::BM),
            shared_bytes: ::entwine::device::layout::shared_bytes(
                #module::BM,
                #module::BN,
                <#element_rust as ::entwine::device::Element>::SIZE,
            ),
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
        Element::Variant => quote!(::entwine::spec::ElementSpec::Variant),
        Element::Fixed(element) => {
            let element = element_variant(element);
            quote!(::entwine::spec::ElementSpec::Fixed(#element))
        }
    }
}

fn element_variant(element: ElementType) -> TokenStream {
    let element = match element {
        ElementType::Bf16 => quote!(Bf16),
        ElementType::F16 => quote!(F16),
        ElementType::F32 => quote!(F32),
    };
    quote!(::entwine::spec::ElementType::#element)
}
