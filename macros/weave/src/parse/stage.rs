//! `#[stage(…)] fn name(at: At<D>, …) { … }`

use proc_macro2::{Ident, Span};
use syn::{Attribute, Expr, FnArg, GenericArgument, ItemFn, Pat, PatType, ReturnType, Signature};

use super::channel::generic_type;
use super::parameter::Parameters;
use super::{axes, refuse_cfg};
use crate::errors::Errors;
use crate::model::{Argument, Channel, Order, Stage};
use crate::setting::{Settings, integer, name};

const KEYS: [&str; 6] = ["grid", "order", "ctas", "carrier", "within", "beside"];

/// Parses a stage, and adds what it takes to the launch `arguments`.
pub fn parse(
    attribute: Attribute,
    mut function: ItemFn,
    channels: &[Channel],
    arguments: &mut Vec<Argument>,
    errors: &Errors,
) -> Stage {
    let mut settings = Settings::of(&attribute, &KEYS, errors);
    refuse_cfg(&function.attrs, "stage", errors);
    refuse_signature(&function.sig, errors);
    let written_grid = settings.value("grid").cloned();
    let grid = axes(&mut settings, "grid", "[m / BM, n / BN]", errors);
    let order = settings.take("order").and_then(|written| order(&written, errors)).unwrap_or_default();
    let ctas = settings.take_count("ctas", errors);
    let carrier = settings.take_choice("carrier", &[("ctas", false), ("mover", true)], errors);
    let within = settings.take("within").and_then(|written| {
        let routing = name(&written).cloned();
        if routing.is_none() {
            errors.at(&written, "`within` is the name of a parameter that is a routing: `within = groups`");
        }
        routing
    });
    let beside = settings.take("beside").and_then(|written| {
        let stage = name(&written).cloned();
        if stage.is_none() {
            errors.at(&written, "`beside` is the name of the stage before this one: `beside = multiply`");
        }
        stage
    });
    if let (Some(_), Some((true, written))) = (ctas, &carrier) {
        errors.at(
            written,
            "the mover of every CTA carries this stage, so that it has no `ctas` to itself: leave one of the two out",
        );
    }

    let mut inputs = function.sig.inputs.iter_mut().filter_map(|input| match input {
        FnArg::Typed(input) => Some(input),
        FnArg::Receiver(_) => None,
    });
    let at = at(inputs.next().map(|input| &*input), grid.as_ref().map(Vec::len), &function.sig.ident, errors);
    let mut parameters = Parameters::new(channels, arguments, errors);
    for input in inputs {
        parameters.parse(input);
    }
    let parameters = parameters.found;
    Stage {
        grid: grid.unwrap_or_default(),
        written_grid,
        order,
        ctas,
        moved: carrier.is_some_and(|(moved, _)| moved),
        beside,
        within,
        at,
        parameters,
        function,
    }
}

fn order(written: &Expr, errors: &Errors) -> Option<Order> {
    let found = name(written).map(|name| Order::from_name(name.clone()));
    if found.is_none() {
        errors.at(written, format!("an order is {}", Order::choices()));
    }
    found
}

fn refuse_signature(signature: &Signature, errors: &Errors) {
    if let Some(token) = &signature.constness {
        errors.at(token, "a tile function is not `const`");
    }
    if let Some(token) = &signature.asyncness {
        errors.at(token, "a tile function is not `async`: loads wait by themselves");
    }
    if !matches!(signature.safety, syn::Safety::Default) {
        errors.at(&signature.safety, "a tile function is safe");
    }
    if let Some(abi) = &signature.abi {
        errors.at(abi, "a tile function has no `extern`: the entry point is generated");
    }
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        errors.at(
            &signature.generics,
            "a tile function has no generic parameters: `T`, `BM` and `BN` are known in the module",
        );
    }
    if let Some(receiver) = signature.receiver() {
        errors.at(receiver, "a tile function is not a method: its first parameter is `at: At<D>`");
    }
    if let Some(variadic) = &signature.variadic {
        errors.at(variadic, "a tile function has a fixed number of parameters");
    }
    if let ReturnType::Type(..) = &signature.output {
        errors.at(&signature.output, "a tile function returns nothing: it stores its tile in a matrix or a channel");
    }
}

/// The name of the first parameter, which must be `At<axes>`.
fn at(input: Option<&PatType>, axes: Option<usize>, function: &Ident, errors: &Errors) -> Ident {
    let fallback = Ident::new("at", Span::call_site());
    let example = format!("the first parameter is the tile's place in the grid: `at: At<{}>`", axes.unwrap_or(2));
    let Some(input) = input else {
        errors.at(function, example);
        return fallback;
    };
    let at = match (&*input.pat, generic_type(&input.ty)) {
        (Pat::Ident(at), Some((kind, arguments))) if kind == "At" && arguments.len() == 1 => {
            let stated = match arguments[0] {
                GenericArgument::Const(value) => integer(value),
                _ => None,
            };
            if let Some(axes) = axes
                && stated != Some(axes as u32)
            {
                errors.at(arguments[0], format!("the grid has {axes} axes: `At<{axes}>`"));
            }
            Some(at.ident.clone())
        }
        _ => None,
    };
    at.unwrap_or_else(|| {
        errors.at(input, example);
        fallback
    })
}
