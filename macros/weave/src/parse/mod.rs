//! From a module's tokens to the model.

mod channel;
mod parameter;
mod stage;

use proc_macro2::{Ident, TokenStream};
use syn::{AttrStyle, Attribute, Expr, Item, ItemMod};

use crate::errors::{Errors, one_of};
use crate::extent::Extent;
use crate::model::{ElementType, Kernel, LEAST_TILE_ROWS, MAX_AXES, MAX_DIMS};
use crate::setting::{Settings, integer, name};

/// The names that the attribute adds to a module, or to a variant's, and those by which woven tile functions know their parameters.
const RESERVED: [&str; 20] = [
    "Args",
    "BM",
    "BN",
    "Config",
    "Params",
    "SPEC",
    "T",
    "Woven",
    "load",
    "protocol",
    "simulate",
    "weave",
    "At",
    "Grouped",
    "Matrix",
    "Panel",
    "R",
    "Sharded",
    "Symmetric",
    "Tile",
];

/// Parses `#[kernel(arguments)]` on `module`. What can't be parsed is left out of the model, after an error.
pub fn kernel(arguments: TokenStream, module: ItemMod, errors: &Errors) -> Kernel {
    let mut settings =
        Settings::parse("kernel", &["tiles", "elements", "roles"], arguments, module.ident.span(), errors);
    let (attributes, inner_attributes) =
        module.attrs.into_iter().partition(|attribute| matches!(attribute.style, AttrStyle::Outer));
    let mut kernel = Kernel {
        attributes,
        inner_attributes,
        visibility: module.vis,
        name: module.ident,
        tiles: tiles(&mut settings, errors),
        together: settings
            .take_choice("roles", &[("split", false), ("one", true)], errors)
            .is_some_and(|(together, _)| together),
        elements: elements(&mut settings, errors),
        dims: Vec::new(),
        channels: Vec::new(),
        stages: Vec::new(),
        arguments: Vec::new(),
        items: Vec::new(),
    };
    if !kernel.name.to_string().is_ascii() {
        errors.at(&kernel.name, "a kernel's name becomes a symbol of PTX, which knows ASCII alone");
    }
    let Some((_, items)) = module.content else {
        errors.at(&kernel.name, "a kernel's module is written in place: `mod name { … }`");
        return kernel;
    };

    let mut functions = Vec::new();
    for mut item in items {
        let channel = take_attribute(&mut item, "channel");
        let stage = take_attribute(&mut item, "stage");
        if refuse_reserved(&item, errors) {
            continue;
        }
        match (item, channel, stage) {
            (Item::Struct(item), Some(attribute), None) => {
                kernel.channels.push(channel::parse(attribute, item, errors));
            }
            (Item::Fn(function), None, Some(attribute)) => functions.push((attribute, function)),
            (item, None, None) => kernel.items.push(item),
            (_, Some(attribute), _) => {
                errors.at(
                    attribute,
                    "a channel is a struct: `#[channel(slots = […])] pub struct Name(Tile<T, BM, BN>);`",
                );
            }
            (_, None, Some(attribute)) => {
                errors.at(attribute, "a stage is a function: `#[stage(grid = […])] fn name(at: At<2>, …) { … }`");
            }
        }
    }
    for (attribute, function) in functions {
        let stage = stage::parse(attribute, function, &kernel.channels, &mut kernel.arguments, errors);
        kernel.stages.push(stage);
    }
    kernel.dims = dims(&kernel, errors);
    kernel
}

/// The default where none are given, or none rightly.
const DEFAULT_TILE: (u32, u32) = (128, 128);
const DEFAULT_ELEMENT: ElementType = ElementType::Bf16;

fn tiles(settings: &mut Settings, errors: &Errors) -> Vec<(u32, u32)> {
    let value = settings.take("tiles");
    let mut tiles = Vec::new();
    for pair in value.iter().flat_map(|value| list(value, "tiles", "[(128, 256), (128, 128)]", errors)) {
        let sizes = match pair {
            Expr::Tuple(pair) => pair.elems.iter().map(integer).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        match sizes.as_deref() {
            Some(&[rows, columns]) if !is_tile(rows, columns) => errors.at(pair, TILE_SHAPES),
            Some(&[rows, columns]) if tiles.contains(&(rows, columns)) => errors.at(pair, "this tile is listed twice"),
            Some(&[rows, columns]) => tiles.push((rows, columns)),
            _ => errors.at(pair, "a tile is a pair of numbers: `(128, 256)`"),
        }
    }
    if tiles.is_empty() { vec![DEFAULT_TILE] } else { tiles }
}

fn elements(settings: &mut Settings, errors: &Errors) -> Vec<ElementType> {
    let value = settings.take("elements");
    let mut elements = Vec::new();
    for element in value.iter().flat_map(|value| list(value, "elements", "[bf16, f16]", errors)) {
        match name(element).and_then(ElementType::from_name) {
            Some(found) if elements.contains(&found) => errors.at(element, "this element is listed twice"),
            Some(found) => elements.push(found),
            None => errors.at(element, format!("an element is {}", one_of(ElementType::ALL.map(ElementType::name)))),
        }
    }
    if elements.is_empty() { vec![DEFAULT_ELEMENT] } else { elements }
}

/// The items of a list that must not be empty.
fn list<'a>(value: &'a Expr, key: &str, example: &str, errors: &Errors) -> impl Iterator<Item = &'a Expr> {
    let items = match value {
        Expr::Array(array) if !array.elems.is_empty() => Some(array.elems.iter()),
        _ => {
            errors.at(value, format!("`{key}` is a list: `{key} = {example}`"));
            None
        }
    };
    items.into_iter().flatten()
}

/// The axes of `key`, one to four extents; `None` if they are not all known.
fn axes(settings: &mut Settings, key: &str, example: &str, errors: &Errors) -> Option<Vec<Extent>> {
    let Some(value) = settings.take(key) else {
        settings.missing(key, example, errors);
        return None;
    };
    let axes: Vec<_> = list(&value, key, example, errors).collect();
    if axes.len() > MAX_AXES {
        errors.at(axes[MAX_AXES], format!("`{key}` has at most {MAX_AXES} axes"));
        return None;
    }
    // All are parsed before one that fails ends the matter, so that each failure is reported.
    let parsed: Vec<_> = axes.into_iter().map(|axis| errors.keep(Extent::parse(axis))).collect();
    parsed.into_iter().collect::<Option<Vec<_>>>().filter(|axes| !axes.is_empty())
}

const TILE_SHAPES: &str = "a tile has 64 or 128 rows, and 64 or 96 columns or a multiple of 8 from 128 to 256";

fn is_tile(rows: u32, columns: u32) -> bool {
    [LEAST_TILE_ROWS, 128].contains(&rows)
        && ([64, 96].contains(&columns) || (128..=256).contains(&columns) && columns.is_multiple_of(8))
}

/// Every dimension that some extent names.
fn dims(kernel: &Kernel, errors: &Errors) -> Vec<Ident> {
    let mut dims: Vec<Ident> = Vec::new();
    kernel.for_each_extent(&mut |extent| {
        extent.for_each_dim(&mut |name| {
            if !dims.contains(name) {
                dims.push(name.clone());
            }
        });
    });
    if dims.len() > MAX_DIMS {
        errors.at(&dims[MAX_DIMS], format!("a kernel has at most {MAX_DIMS} named dimensions"));
    }
    dims
}

/// Takes the attribute `name` off an item, if it is there.
fn take_attribute(item: &mut Item, name: &str) -> Option<Attribute> {
    let attributes = match item {
        Item::Const(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        Item::Fn(item) => &mut item.attrs,
        Item::Impl(item) => &mut item.attrs,
        Item::Mod(item) => &mut item.attrs,
        Item::Static(item) => &mut item.attrs,
        Item::Struct(item) => &mut item.attrs,
        Item::Trait(item) => &mut item.attrs,
        Item::Type(item) => &mut item.attrs,
        Item::Union(item) => &mut item.attrs,
        _ => return None,
    };
    take(attributes, name)
}

/// Takes the attribute `name` off a list, if it is there.
fn take(attributes: &mut Vec<Attribute>, name: &str) -> Option<Attribute> {
    let index = attributes.iter().position(|attribute| attribute.path().is_ident(name))?;
    Some(attributes.remove(index))
}

/// Refuses conditions: the host, the device and the simulated ranks must see the same kernel.
fn refuse_cfg(attributes: &[Attribute], what: &str, errors: &Errors) {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")) {
        errors.at(attribute, format!("a {what} can't be conditional: put the condition on the kernel's module"));
    }
}

/// Whether the item has a name that the kernel needs for itself.
fn refuse_reserved(item: &Item, errors: &Errors) -> bool {
    let reserved = item_name(item).filter(|name| RESERVED.iter().any(|reserved| name == reserved));
    if let Some(name) = reserved {
        errors.at(name, format!("`{name}` is a name that the kernel needs in its module: rename this item"));
    }
    reserved.is_some()
}

/// The name that an item defines.
pub fn item_name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Mod(item) => Some(&item.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}
