//! Gives tile functions their role: the types of tiles, matrices and channels are generic over it, and the
//! user leaves it out.

use proc_macro2::Ident;
use syn::visit_mut::{self, VisitMut};
use syn::{
    FnArg, GenericArgument, Item, ItemFn, Pat, Path, PathArguments, PathSegment, Signature, Type, TypePath, parse_quote,
};

use crate::model::{Binding, Holds, Kernel, Parameter, Port, Stage};

/// The types that are generic over the role, and the number of generic arguments that the user writes.
const HANDLES: [(&str, usize); 9] = [
    ("At", 1),
    ("Grouped", 1),
    ("Incoming", 3),
    ("Matrix", 1),
    ("Panel", 2),
    ("Rows", 2),
    ("Sharded", 1),
    ("Symmetric", 1),
    ("Tile", 3),
];
/// Of these, the one that borrows nothing.
const WITHOUT_LIFETIME: &str = "Rows";

/// What a kernel's roles are.
pub fn role(kernel: &Kernel) -> Path {
    if kernel.together { parse_quote!(::entwine::device::Together) } else { parse_quote!(::entwine::device::Role) }
}

/// The tile function of `stage`, generic over its role.
pub fn tile_function(kernel: &Kernel, stage: &Stage) -> ItemFn {
    let role = role(kernel);
    let mut function = stage.function.clone();
    Roles.visit_block_mut(&mut function.block);
    for input in &mut function.sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        match stage.parameters.iter().find(|parameter| parameter.written == *input.ty) {
            Some(Parameter { binding: Binding::Port(port), .. }) => *input.ty = port_type(kernel, port, &input.ty),
            _ => Roles.visit_type_mut(&mut input.ty),
        }
    }
    function.sig.generics = parse_quote!(<'cta, R: #role>);
    function.attrs.push(parse_quote!(#[inline(always)]));
    function.attrs.push(parse_quote!(#[allow(clippy::too_many_arguments)]));
    function
}

/// The tile function of a stage in which there are errors: what is right about its signature, and no body.
pub fn outline(kernel: &Kernel, stage: &Stage) -> ItemFn {
    let ItemFn { sig: Signature { ident, inputs, .. }, .. } = tile_function(kernel, stage);
    let understood = inputs.iter().filter(|input| match input {
        FnArg::Typed(input) => matches!(&*input.pat, Pat::Ident(pattern) if is_understood(&pattern.ident, stage)),
        FnArg::Receiver(_) => false,
    });
    // A role that can do everything, so that what is wrong with the kernel's roles is said once.
    parse_quote!(fn #ident<'cta, R: ::entwine::device::Together>(#(#understood),*) {})
}

fn is_understood(name: &Ident, stage: &Stage) -> bool {
    *name == stage.at || stage.parameters.iter().any(|parameter| parameter.name == *name)
}

/// A function that tile functions call, generic over its role if its signature has tiles and the like.
pub fn helper(kernel: &Kernel, function: &ItemFn) -> ItemFn {
    let role = role(kernel);
    let mut woven = function.clone();
    Roles.visit_signature_mut(&mut woven.sig);
    if woven.sig != function.sig {
        Roles.visit_block_mut(&mut woven.block);
        woven.sig.generics.params.insert(0, parse_quote!('cta));
        woven.sig.generics.params.push(parse_quote!(R: #role));
        woven.attrs.push(parse_quote!(#[inline(always)]));
    }
    woven
}

/// The type of a parameter that is written as the channel's name.
fn port_type(kernel: &Kernel, port: &Port, channel: &Type) -> Type {
    let direction: Type = match (&port.send, &port.receive) {
        (Some(_), Some(_)) => parse_quote!(::entwine::device::SendReceive),
        (Some(_), None) => parse_quote!(::entwine::device::Send),
        _ => parse_quote!(::entwine::device::Receive),
    };
    match kernel.channels[port.channel].holds {
        Holds::Routing { .. } => parse_quote!(::entwine::device::Routing<'cta, #channel, #direction, R>),
        _ => parse_quote!(::entwine::device::Port<'cta, #channel, #direction, R>),
    }
}

/// Adds the role to the types that take one.
struct Roles;

impl VisitMut for Roles {
    fn visit_type_path_mut(&mut self, ty: &mut TypePath) {
        visit_mut::visit_type_path_mut(self, ty);
        if let Some(last) = ty.path.segments.last_mut() {
            add_role(last);
        }
    }

    /// An item inside a body can't see the role.
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

fn add_role(segment: &mut PathSegment) {
    let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else { return };
    let is_handle = |(name, count): &(&str, usize)| segment.ident == name && arguments.args.len() == *count;
    if !HANDLES.iter().any(is_handle) {
        return;
    }
    let role: GenericArgument = parse_quote!(R);
    arguments.args.push(role);
    if segment.ident != WITHOUT_LIFETIME {
        arguments.args.insert(0, parse_quote!('cta));
    }
}
