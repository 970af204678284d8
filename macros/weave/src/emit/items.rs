//! Where the user's own items go: into the module itself, or, if they depend on the tile or the element,
//! into each variant.

use std::collections::HashSet;

use quote::ToTokens;
use syn::{GenericParam, Generics, Item, Type};

use crate::model::Kernel;
use crate::parse::item_name;
use crate::roles;
use crate::tokens::mentions;

/// The user's own items, their functions with a role where they need one.
pub struct Items {
    /// One for all variants.
    pub shared: Vec<Item>,
    /// One in each variant.
    pub varying: Vec<Item>,
}

/// An item varies if it mentions `BM`, `BN`, `T`, a channel, or the name of something that varies.
pub fn split(kernel: &Kernel) -> Items {
    let mut varying_names: HashSet<String> = ["BM", "BN", "T"].map(String::from).into();
    varying_names.extend(kernel.channels.iter().map(|channel| channel.name.to_string()));
    let items = kernel.items.iter().map(|item| match item {
        Item::Fn(function) => Item::Fn(roles::helper(kernel, function)),
        other => other.clone(),
    });
    let mut items = Items { shared: items.collect(), varying: Vec::new() };
    loop {
        let (varying, shared): (Vec<_>, Vec<_>) =
            items.shared.into_iter().partition(|item| varies(item, &varying_names));
        items.shared = shared;
        if varying.is_empty() {
            return items;
        }
        varying_names.extend(varying.iter().filter_map(defined));
        items.varying.extend(varying);
    }
}

fn varies(item: &Item, names: &HashSet<String>) -> bool {
    let own = generics(item).map(own_parameters).unwrap_or_default();
    !matches!(item, Item::Use(_))
        && mentions(item.to_token_stream(), &|name| {
            let name = name.to_string();
            names.contains(&name) && !own.contains(&name)
        })
}

/// What an item defines; for an `impl`, the type that it belongs to.
fn defined(item: &Item) -> Option<String> {
    match item {
        Item::Impl(item) => match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        },
        item => item_name(item).map(ToString::to_string),
    }
}

fn generics(item: &Item) -> Option<&Generics> {
    match item {
        Item::Enum(item) => Some(&item.generics),
        Item::Fn(item) => Some(&item.sig.generics),
        Item::Impl(item) => Some(&item.generics),
        Item::Struct(item) => Some(&item.generics),
        Item::Trait(item) => Some(&item.generics),
        Item::Type(item) => Some(&item.generics),
        Item::Union(item) => Some(&item.generics),
        _ => None,
    }
}

/// The names of an item's own generic parameters.
fn own_parameters(generics: &Generics) -> Vec<String> {
    let names = generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(parameter.ident.to_string()),
        GenericParam::Const(parameter) => Some(parameter.ident.to_string()),
        GenericParam::Lifetime(_) => None,
    });
    names.collect()
}
