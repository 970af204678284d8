//! `#[channel(…)] struct Name(Tile<E, M, N>);`

use proc_macro2::{Ident, Span};
use quote::quote;
use syn::{Attribute, Expr, ExprPath, Field, Fields, GenericArgument, ItemStruct, PathArguments, Type, parse_quote};

use super::{axes, refuse_cfg};
use crate::errors::{Errors, one_of};
use crate::extent::Extent;
use crate::model::{
    Carriage, Channel, Element, ElementType, Holds, LEAST_TILE_ROWS, MAX_CHOICES, MAX_GROUPS, Route, RoutingSize,
};
use crate::setting::{Settings, name};

const KEYS: [&str; 14] = [
    "slots",
    "route",
    "by",
    "columns",
    "height",
    "pieces",
    "senders",
    "acknowledge",
    "into",
    "guards",
    "rows",
    "choices",
    "groups",
    "capacity",
];
const OF_ROUTINGS: [&str; 4] = ["rows", "choices", "groups", "capacity"];
const HOLDS: &str = "a channel holds tiles or panels: `struct Name(Tile<T, BM, BN>);` or `struct Name(Panel<T, BM>);`; \
                     or it is a `struct Name(Gate);` or a `struct Name(Routing);`";

/// Parses a channel. Where it is not even clear what it holds, it stays known by its name.
pub fn parse(attribute: Attribute, item: ItemStruct, errors: &Errors) -> Channel {
    let mut settings = Settings::of(&attribute, &KEYS, errors);
    refuse_cfg(&item.attrs, "channel", errors);
    if !item.generics.params.is_empty() {
        errors.at(&item.generics, "a channel has no generic parameters: `T`, `BM` and `BN` are known in the module");
    }
    match only_field(&item.fields).and_then(|field| kind(&field.ty, errors)) {
        Some(Kind::Gate) => return gate(settings, item, errors),
        Some(Kind::Routing) => return routing(settings, item, errors),
        None => {}
    }
    let slots = axes(&mut settings, "slots", "[world, m / BM, n / BN]", errors);
    for key in OF_ROUTINGS {
        if let Some(written) = settings.take(key) {
            errors.at(written, format!("`{key}` is for routings: `struct Name(Routing);`"));
        }
    }
    if let Some(written) = settings.take("guards") {
        errors.at(written, "`guards` is for gates: `struct Name(Gate);`");
    }
    let by_rank = slots.as_ref().is_none_or(|slots| matches!(slots.first(), Some(Extent::World(_))));
    let route =
        settings.take_choice("route", &[("one", Route::One), ("peers", Route::Peers), ("all", Route::All)], errors);
    let carriage = settings.take_choice("by", &[("pull", Carriage::Pull), ("push", Carriage::Push)], errors);
    if let Some((Carriage::Pull, written)) = &carriage
        && !by_rank
    {
        errors.at(
            written,
            "a tile is pulled from its sender: the first axis of `slots` must be `world`, the sender's rank",
        );
    }
    if let Some((Route::Peers | Route::All, written)) = &route
        && !by_rank
    {
        errors.at(
            written,
            "every rank sends to the others: the first axis of `slots` must be `world`, the sender's rank, so that no \
             two send to one slot",
        );
    }
    let acknowledge = settings.take_choice("acknowledge", &[("launch", true), ("never", false)], errors);
    let senders = settings.take_count("senders", errors).unwrap_or(1);
    let columns = settings.take("columns");
    let into = settings.take("into").and_then(|value| {
        let argument = name(&value).cloned();
        if argument.is_none() {
            errors.at(&value, "`into` is the name of the matrix in which the tiles lie: `into = c`");
        }
        argument
    });
    if let (Some(_), Some((Carriage::Pull, written))) = (&into, &carriage) {
        errors.at(written, "what lies in its receiver's matrix is pushed there: leave `by` out");
    }
    let pieces = settings.take("pieces").map(|written| pieces(&written, &item.fields, errors));
    let height = settings.take("height").and_then(|written| Some((errors.keep(Extent::parse(&written))?, written)));

    let held = match only_field(&item.fields) {
        Some(field) => holds(&field.ty, columns, &settings, errors),
        None => {
            match &item.fields {
                Fields::Unit => errors.at(&item.ident, HOLDS),
                fields => errors.at(fields, HOLDS),
            }
            None
        }
    };
    let Some(holds) = held else {
        let holds = Holds::Gate { guards: None, written: parse_quote!(Gate) };
        return local(item, holds, vec![Extent::Literal(1)], Route::One, 1);
    };
    if let Some((height, written)) = &height {
        match &holds {
            Holds::Tile { .. } if into.is_some() => {
                errors.at(written, "what lies in its receiver's matrix has as many rows as that: leave `height` out");
            }
            Holds::Tile { .. } if height.constant((1, 1)) == Some(0) => {
                errors.at(written, "nothing of a tile would be sent: `height` is one row or more, `height = m`");
            }
            Holds::Tile { .. } => {}
            _ => errors.at(written, "`height` is for channels of tiles: of a panel all rows are sent"),
        }
    }
    // A tile is read once, so its receiver may fetch it itself; a panel is read by every tile of its rows.
    let read_once = matches!(holds, Holds::Tile { .. });
    let only_push = (!by_rank || !read_once || into.is_some()).then_some(Carriage::Push);
    Channel {
        holds,
        attributes: item.attrs,
        visibility: item.vis,
        name: item.ident,
        slots: slots.unwrap_or_else(|| vec![Extent::World(Ident::new("world", Span::call_site()))]),
        route: route.map_or(Route::One, |(route, _)| route),
        carriage: carriage.map(|(carriage, _)| carriage).or(only_push),
        into,
        pieces,
        height: height.map(|(height, _)| height),
        senders,
        unacknowledged: acknowledge.and_then(|(acknowledged, written)| (!acknowledged).then_some(written)),
    }
}

/// A channel of gates: `struct Name(Gate);`
fn gate(mut settings: Settings, item: ItemStruct, errors: &Errors) -> Channel {
    let slots = axes(&mut settings, "slots", "[m / BM]", errors);
    let guards = settings.take("guards").and_then(|value| {
        let argument = name(&value).cloned();
        if argument.is_none() {
            errors.at(&value, "`guards` is the name of the matrix that is written before the gate opens: `guards = c`");
        }
        argument
    });
    let senders = settings.take_count("senders", errors).unwrap_or(1);
    settings.refuse_others("a gate", "`slots`, `guards` and `senders`", errors);
    let holds = Holds::Gate { guards, written: parse_quote!(Gate) };
    local(item, holds, slots.unwrap_or_else(|| vec![Extent::Literal(1)]), Route::One, senders)
}

/// A routing: `struct Name(Routing);`
fn routing(mut settings: Settings, item: ItemStruct, errors: &Errors) -> Channel {
    // What is wrong with a number follows from it and the number before.
    let mut extent = |key: &str, example: &str, wrong: &dyn Fn(u32) -> Option<String>| {
        let Some(value) = settings.take(key) else {
            settings.missing(key, example, errors);
            return None;
        };
        let extent = errors.keep(Extent::parse(&value))?;
        if let Some(problem) = extent.constant((1, 1)).and_then(wrong) {
            errors.at(value, problem);
        }
        Some(extent)
    };
    let rows = extent("rows", "m / world", &|_| None);
    let each = rows.as_ref().and_then(|rows| rows.constant((1, 1))).unwrap_or(1).max(1);
    let choices = extent("choices", "k", &|choices| too_many_choices(each, choices));
    let groups = extent("groups", "e", &too_many_groups);
    let capacity = extent("capacity", "c", &no_capacity);
    settings.refuse_others("a routing", "`rows`, `choices`, `groups` and `capacity`", errors);
    let [rows, choices, groups, capacity] =
        [rows, choices, groups, capacity].map(|extent| extent.unwrap_or(Extent::Literal(1)));
    let size = RoutingSize { rows, choices, groups, capacity };
    let holds = Holds::Routing { size, written: parse_quote!(Routing) };
    // A table from each rank, this rank's arrangement, and what its CTAs have counted.
    let world = Extent::World(Ident::new("world", Span::call_site()));
    let slots = vec![Extent::Add(Box::new(world), Box::new(Extent::Literal(2)))];
    local(item, holds, slots, Route::All, 1)
}

fn too_many_choices(rows: u32, choices: u32) -> Option<String> {
    match rows as u64 * choices as u64 {
        0 => Some("a row chooses one group or more: `choices = k`".into()),
        all if all >= MAX_CHOICES as u64 => {
            Some(format!("the rows of a rank have fewer than {MAX_CHOICES} choices in all, and these are {all}"))
        }
        _ => None,
    }
}

fn too_many_groups(groups: u32) -> Option<String> {
    match groups {
        0 => Some("there is one group or more to choose: `groups = e`".into()),
        1..=MAX_GROUPS => None,
        _ => Some(format!("there are at most {MAX_GROUPS} groups, not {groups}")),
    }
}

fn no_capacity(capacity: u32) -> Option<String> {
    let room = capacity >= LEAST_TILE_ROWS;
    (!room).then(|| {
        format!("each group has blocks of `BM` rows, {LEAST_TILE_ROWS} or more, and {capacity} rows are room for none")
    })
}

/// A channel whose carriage leaves nothing to choose.
fn local(item: ItemStruct, holds: Holds, slots: Vec<Extent>, route: Route, senders: u32) -> Channel {
    Channel {
        holds,
        attributes: item.attrs,
        visibility: item.vis,
        name: item.ident,
        slots,
        route,
        carriage: Some(Carriage::Push),
        into: None,
        pieces: None,
        height: None,
        senders,
        unacknowledged: None,
    }
}

/// What holds neither tiles nor panels.
enum Kind {
    Gate,
    Routing,
}

/// What a channel of this type is, if it holds neither tiles nor panels.
fn kind(ty: &Type, errors: &Errors) -> Option<Kind> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let kind = match last.ident.to_string().as_str() {
        "Gate" => Kind::Gate,
        "Routing" => Kind::Routing,
        _ => return None,
    };
    if !last.arguments.is_empty() {
        errors.at(&last.arguments, format!("a `{0}` has no generic arguments: `struct Name({0});`", last.ident));
    }
    Some(kind)
}

/// Into how many pieces panels are cut; one, where that is not understood.
fn pieces(written: &Expr, fields: &Fields, errors: &Errors) -> Extent {
    if only_field(fields).and_then(|field| generic_type(&field.ty)).is_some_and(|(kind, _)| kind == "Tile") {
        errors.at(written, "`pieces` is for channels of panels: a tile is sent as a whole");
    }
    let pieces = errors.keep(Extent::parse(written)).unwrap_or(Extent::Literal(1));
    if pieces.constant((1, 1)) == Some(0) {
        errors.at(written, "a panel is cut into one piece or more: `pieces = k / 64`");
    }
    pieces
}

/// The only field of `struct Name(Field);`.
fn only_field(fields: &Fields) -> Option<&Field> {
    match fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => fields.unnamed.first(),
        _ => None,
    }
}

fn holds(written: &Type, columns: Option<Expr>, settings: &Settings, errors: &Errors) -> Option<Holds> {
    let Some((kind, arguments)) = generic_type(written) else {
        errors.at(written, HOLDS);
        return None;
    };
    let sizes =
        |errors: &Errors| arguments[1..].iter().map(|size| errors.keep(tile_size(size))).collect::<Option<Vec<_>>>();
    match (kind.as_str(), arguments.as_slice()) {
        ("Tile", [element, _, _]) => {
            if let Some(columns) = columns {
                errors.at(columns, "`columns` is for channels of panels: a tile says its own");
            }
            let (element, sizes) = (self::element(element, errors), sizes(errors));
            let [rows, columns] = sizes?.try_into().ok()?;
            Some(Holds::Tile { element: element?, rows, columns, written: written.clone() })
        }
        ("Panel", [element, _]) => {
            let (element, sizes) = (self::element(element, errors), sizes(errors));
            let Some(columns) = columns else {
                settings.missing("columns", "k", errors);
                return None;
            };
            let [rows] = sizes?.try_into().ok()?;
            Some(Holds::Panel {
                element: element?,
                rows,
                columns: errors.keep(Extent::parse(&columns))?,
                written: written.clone(),
            })
        }
        _ => {
            errors.at(written, HOLDS);
            None
        }
    }
}

/// The name and the generic arguments of `Name<…>`.
pub fn generic_type(ty: &Type) -> Option<(String, Vec<&GenericArgument>)> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => Some((last.ident.to_string(), arguments.args.iter().collect())),
        _ => None,
    }
}

/// An element type among generic arguments.
pub fn element(argument: &GenericArgument, errors: &Errors) -> Option<Element> {
    one_among(argument, ElementType::ALL, errors)
}

/// An element type, or a whole number, among generic arguments.
pub fn word(argument: &GenericArgument, errors: &Errors) -> Option<Element> {
    one_among(argument, ElementType::ALL.into_iter().chain(ElementType::WHOLE), errors)
}

fn one_among(
    argument: &GenericArgument,
    known: impl IntoIterator<Item = ElementType> + Clone,
    errors: &Errors,
) -> Option<Element> {
    let found = match argument {
        GenericArgument::Type(Type::Path(path)) => path.path.segments.last().and_then(|last| {
            if last.ident == "T" {
                Some(Element::Variant)
            } else {
                known.clone().into_iter().find(|known| last.ident == known.name()).map(Element::Fixed)
            }
        }),
        _ => None,
    };
    if found.is_none() {
        let all = ["T"].into_iter().chain(known.into_iter().map(ElementType::name));
        errors.at(argument, format!("an element is {}", one_of(all)));
    }
    found
}

/// Rows or columns of a tile, among generic arguments.
fn tile_size(argument: &GenericArgument) -> syn::Result<Extent> {
    let expr = match argument {
        GenericArgument::Const(expr) => expr.clone(),
        GenericArgument::Type(Type::Path(path)) => {
            Expr::Path(ExprPath { attrs: Vec::new(), qself: None, path: path.path.clone() })
        }
        other => return Err(syn::Error::new_spanned(quote!(#other), "a tile's size is `BM`, `BN` or a number")),
    };
    let size = Extent::parse(&expr)?;
    match size.constant((1, 1)) {
        Some(_) => Ok(size),
        None => Err(syn::Error::new_spanned(
            argument,
            "a tile's size can't depend on the launch: it is `BM`, `BN` or a number",
        )),
    }
}
