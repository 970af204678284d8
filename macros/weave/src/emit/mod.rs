//! From the model to code: the user's module with the woven variants, the specification and the launcher in it.

mod docs;
mod items;
mod launch;
mod spec;
mod variant;
mod walk;

use std::fmt::Debug;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use crate::Build;
use crate::model::{ElementType, Kernel};

use items::Items;

/// One compiled form of a kernel.
struct Variant {
    element: ElementType,
    /// `(BM, BN)`
    tile: (u32, u32),
    /// The hidden module.
    module: Ident,
    /// The PTX entry.
    entry: Ident,
}

/// The woven module.
pub fn kernel(kernel: &Kernel, build: &Build) -> TokenStream {
    let variants = variants(kernel, build);
    let Items { shared, varying } = items::split(kernel);
    let modules = variants.iter().map(|variant| variant::module(kernel, variant, &varying));
    let channels = channels(kernel);
    let spec = spec::specification(kernel, &variants, build);
    let launch = launch::launcher(kernel);
    let documentation = docs::module(kernel);
    let Kernel { attributes, inner_attributes, visibility, name, .. } = kernel;
    quote! {
        #(#attributes)*
        #visibility mod #name {
            #(#inner_attributes)*
            #documentation
            #(#shared)*
            #channels
            #(#modules)*
            #launch
            #spec
        }
    }
}

/// What stands in for the woven module where there are errors: whatever others may use of it, so that they
/// cause no further ones. The bodies of the tile functions are there for editors alone.
pub fn fallback(kernel: &Kernel, build: &Build) -> TokenStream {
    let Items { shared, varying } = items::split(kernel);
    let variants = variants(kernel, build);
    let editing = variant::module(kernel, &variants[0], &varying);
    let outline = variant::outline(kernel, &variants[0], &varying);
    let channels = channels(kernel);
    let spec = spec::specification(kernel, &[], build);
    let launch = launch::launcher(kernel);
    let Kernel { attributes, inner_attributes, visibility, name, .. } = kernel;
    quote! {
        #(#attributes)*
        #[allow(dead_code, unexpected_cfgs, unused_imports)]
        #visibility mod #name {
            #(#inner_attributes)*
            #(#shared)*
            #channels
            #[cfg(rust_analyzer)]
            #editing
            #[cfg(not(rust_analyzer))]
            #outline
            #launch
            #spec
        }
    }
}

/// What the names of a kernel's entries begin with.
fn symbol(kernel: &Kernel, build: &Build) -> String {
    format!("entwine_{}_{}", build.crate_name.replace('-', "_"), kernel.name.unraw())
}

fn variants(kernel: &Kernel, build: &Build) -> Vec<Variant> {
    let pairs = kernel.elements.iter().flat_map(|element| kernel.tiles.iter().map(move |tile| (*element, *tile)));
    pairs
        .map(|(element, tile)| {
            let (rows, columns) = tile;
            let module = format_ident!("{}_{rows}x{columns}", element.name());
            let entry = format!("{}_{module}", symbol(kernel, build));
            Variant { element, tile, module, entry: Ident::new(&entry, Span::call_site()) }
        })
        .collect()
}

/// The channels as the user sees them in the documentation.
fn channels(kernel: &Kernel) -> TokenStream {
    let channels = kernel.channels.iter().enumerate().map(|(index, channel)| {
        let (attributes, visibility, name) = (&channel.attributes, &channel.visibility, &channel.name);
        let documentation = docs::channel(kernel, index);
        quote! {
            #(#attributes)*
            #documentation
            #[allow(dead_code)]
            #visibility struct #name;
        }
    });
    channels.collect()
}

/// A number without the suffix of its type.
fn literal(number: impl TryInto<u64, Error: Debug>) -> Literal {
    Literal::u64_unsuffixed(number.try_into().expect("counts and indices fit into 64 bits"))
}
