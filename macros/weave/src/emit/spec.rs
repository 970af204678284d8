//! `SPEC`: the kernel's description for the launcher, plain static data.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use super::{Variant, literal, symbol, walk};
use crate::extent::Extent;
use crate::model::{
    Argument, ArgumentKind, Carriage, Channel, Element, ElementType, Holds, Kernel, Matrix, Route, Stage,
};
use crate::{Build, DeviceCode, products};

/// The item `SPEC`, for hosts alone.
pub fn specification(kernel: &Kernel, variants: &[Variant], build: &Build) -> TokenStream {
    let name = kernel.name.to_string();
    let documentation = format!("What the launcher knows of `{name}`.");
    let symbol = symbol(kernel, build);
    let codes = build.codes.iter().filter(|code| code.has(&symbol)).map(|code| self::code(code, &symbol));
    let dims = kernel.dims.iter().map(Ident::to_string);
    let stages = kernel.stages.iter().map(|stage| self::stage(kernel, stage));
    let channels = kernel.channels.iter().map(|channel| self::channel(kernel, channel));
    let arguments = kernel.arguments.iter().map(|argument| self::argument(argument, &kernel.dims));
    let variants = variants.iter().map(|variant| self::variant(kernel, variant));
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

fn code(DeviceCode { target, timeline, variable, .. }: &DeviceCode, kernel: &str) -> TokenStream {
    let target = Ident::new(target, Span::call_site());
    let extension = format!(".{kernel}");
    quote! {
        DeviceCode {
            target: Target::#target,
            timeline: #timeline,
            ptx: ::core::include_str!(::core::concat!(::core::env!(#variable), #extension)),
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
    let routing = stage.ports().find(|(name, _)| stage.within.as_ref() == Some(*name));
    let within = match routing {
        Some((_, port)) => {
            let channel = literal(port.channel);
            quote!(Option::Some(#channel))
        }
        None => quote!(Option::None),
    };
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
            within: #within,
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
    let height = channel.height.as_ref().unwrap_or(&Extent::Literal(u32::MAX)).in_spec(dims);
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
            height: #height,
            acknowledged: #acknowledged,
        }
    }
}

fn argument(argument: &Argument, dims: &[Ident]) -> TokenStream {
    let name = argument.name.to_string();
    let kind = match &argument.kind {
        ArgumentKind::Matrix(matrix) => {
            let Matrix { sharded, symmetric, lent, mutable, .. } = matrix;
            let element = element(matrix.element);
            let (rows, columns) = (matrix.rows.in_spec(dims), matrix.columns.in_spec(dims));
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
                    symmetric: #symmetric,
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

fn variant(kernel: &Kernel, variant: &Variant) -> TokenStream {
    let Variant { tile: (rows, columns), module, .. } = variant;
    let (rows, columns) = (literal(*rows), literal(*columns));
    let entry = variant.entry.to_string();
    let element = element_variant(variant.element);
    let [sm_90a, sm_80] = ctas(kernel, module);
    quote! {
        VariantSpec {
            entry: #entry,
            element: #element,
            tile: (#rows, #columns),
            sm_90a: #sm_90a,
            sm_80: #sm_80,
            simulate: #module::simulate,
        }
    }
}

/// What a variant's CTAs take, in code for Hopper and for every GPU from Ampere on.
fn ctas(kernel: &Kernel, module: &Ident) -> [TokenStream; 2] {
    if kernel.together {
        let cta = quote! {
            CtaSpec { threads: layout::streaming::threads(#module::BM), shared_bytes: layout::streaming::SHARED }
        };
        return [cta.clone(), cta];
    }
    let moves = walk::moves(kernel);
    let sm_90a = quote! {
        CtaSpec {
            threads: layout::threads(#module::BM),
            shared_bytes: layout::shared_bytes(
                #module::BM,
                #module::BN,
                <#module::T as Element>::SIZE,
                #moves,
            ),
        }
    };
    let sm_80 = quote! {
        CtaSpec {
            threads: layout::ampere::threads(#module::BM),
            shared_bytes: layout::ampere::shared_bytes(
                #module::BM,
                #module::BN,
                <#module::T as Element>::SIZE,
            ),
        }
    };
    [sm_90a, sm_80]
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
        ElementType::I32 => quote!(I32),
        ElementType::U64 => quote!(U64),
        ElementType::I64 => quote!(I64),
    };
    quote!(ElementType::#element)
}
