//! The parameters of a tile function after the first, and the launch arguments that they stand for.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Meta, Pat, PatType, Token, Type, TypeReference};

use super::channel::{element, generic_type, word};
use super::take;
use crate::errors::{Errors, all_of};
use crate::extent::Extent;
use crate::model::{Argument, ArgumentKind, Binding, Channel, Matrix, Parameter, Port, Receive};
use crate::setting::Settings;

const SCALARS: [&str; 7] = ["u32", "i32", "u64", "i64", "f32", "f64", "bool"];
const KINDS: &str = "a tile function takes `&Matrix<E>`, `&mut Matrix<E>`, `&Sharded<E>`, `&mut Sharded<E>`, \
                     `&Grouped<E>`, `&mut Symmetric<E>`, the channels of its module, and `u32`, `i32`, `u64`, `i64`, \
                     `f32`, `f64` or `bool`";

/// The parameters of one stage, as they are parsed.
pub struct Parameters<'a> {
    pub found: Vec<Parameter>,
    channels: &'a [Channel],
    arguments: &'a mut Vec<Argument>,
    errors: &'a Errors,
}

/// The attributes of a parameter.
struct Markers {
    documentation: Vec<Attribute>,
    shape: Option<Attribute>,
    lent: Option<Attribute>,
    send: Option<Attribute>,
    receive: Option<Attribute>,
}

impl<'a> Parameters<'a> {
    pub fn new(channels: &'a [Channel], arguments: &'a mut Vec<Argument>, errors: &'a Errors) -> Self {
        Parameters { found: Vec::new(), channels, arguments, errors }
    }

    /// Parses one parameter, and takes its attributes off.
    pub fn parse(&mut self, input: &mut PatType) {
        let markers = self.markers(&mut input.attrs);
        let Pat::Ident(pattern) = &*input.pat else {
            return self
                .errors
                .at(&input.pat, "a tile function's parameter is a plain name: it names the launch argument");
        };
        let name = &pattern.ident;
        let binding = match &*input.ty {
            Type::Reference(reference) => self.matrix(name, reference, markers),
            Type::Path(path) => match path.path.get_ident() {
                Some(scalar) if SCALARS.iter().any(|known| scalar == known) => self.scalar(name, scalar, markers),
                Some(channel) => self.port(channel, &input.ty, markers),
                None => self.refuse(&input.ty),
            },
            other => self.refuse(other),
        };
        if let Some(binding) = binding {
            self.found.push(Parameter { name: name.clone(), written: (*input.ty).clone(), binding });
        }
    }

    fn refuse(&self, ty: &Type) -> Option<Binding> {
        self.errors.at(ty, KINDS);
        None
    }

    fn markers(&self, attributes: &mut Vec<Attribute>) -> Markers {
        let markers = Markers {
            shape: take(attributes, "shape"),
            lent: take(attributes, "lent"),
            send: take(attributes, "send"),
            receive: take(attributes, "recv"),
            documentation: attributes.extract_if(.., |attribute| attribute.path().is_ident("doc")).collect(),
        };
        for attribute in [&markers.lent, &markers.send].into_iter().flatten() {
            if !matches!(attribute.meta, Meta::Path(_)) {
                let name = attribute.path().to_token_stream();
                self.errors.at(attribute, format!("`#[{name}]` takes no arguments"));
            }
        }
        for other in attributes.drain(..) {
            self.errors
                .at(other.path(), "a parameter is marked `#[shape(rows, columns)]`, `#[lent]`, `#[send]` or `#[recv]`");
        }
        markers
    }

    fn matrix(&mut self, name: &Ident, reference: &TypeReference, markers: Markers) -> Option<Binding> {
        self.refuse_directions(&markers, "a matrix");
        let (kind, element) = match generic_type(&reference.elem) {
            Some((kind, arguments)) if arguments.len() == 1 && ["Matrix", "Symmetric"].contains(&kind.as_str()) => {
                (kind, word(arguments[0], self.errors)?)
            }
            Some((kind, arguments)) if arguments.len() == 1 && ["Sharded", "Grouped"].contains(&kind.as_str()) => {
                (kind, element(arguments[0], self.errors)?)
            }
            _ => return self.refuse(&Type::Reference(reference.clone())),
        };
        let (sharded, grouped, symmetric) = (kind == "Sharded", kind == "Grouped", kind == "Symmetric");
        if let (true, Some(token)) = (grouped, &reference.mutability) {
            self.errors.at(token, "a `Grouped` matrix is only read");
        }
        if let (true, Some(lent)) = (kind != "Matrix" || reference.mutability.is_some(), &markers.lent) {
            self.errors.at(lent, "what is lent to other ranks is a `&Matrix<E>`");
        }
        if let Some(lifetime) = &reference.lifetime {
            self.errors.at(lifetime, "a tile function names no lifetimes");
        }
        let mutable = reference.mutability.is_some();
        if symmetric && !mutable {
            self.errors.at(reference, "any rank may write a symmetric matrix: `&mut Symmetric<E>`");
        }
        let shape = match &markers.shape {
            Some(attribute) => Some(self.shape(attribute, grouped)?),
            None => None,
        };
        let lent = markers.lent.is_some();
        let Some(argument) = self.earlier(name) else {
            let Some((groups, [rows, columns])) = shape else {
                let example = if grouped { "groups, rows, columns" } else { "rows, columns" };
                self.errors.at(name, format!("say the shape of `{name}`: `#[shape({example})]`"));
                return None;
            };
            let kind =
                ArgumentKind::Matrix(Matrix { element, sharded, symmetric, groups, lent, rows, columns, mutable });
            let argument = self.add(name, kind, markers.documentation);
            return Some(Binding::Matrix { argument, mutable });
        };
        match &mut self.arguments[argument].kind {
            ArgumentKind::Matrix(matrix)
                if (matrix.element, matrix.sharded, matrix.symmetric) == (element, sharded, symmetric)
                    && matrix.groups.is_some() == grouped =>
            {
                matrix.mutable |= mutable;
                matrix.lent |= lent;
                let earlier = [&matrix.rows, &matrix.columns];
                if shape.as_ref().is_some_and(|(_, shape)| shape.each_ref() != earlier) {
                    let [rows, columns] = earlier;
                    self.errors
                        .at(markers.shape, format!("`{name}` is `#[shape({rows}, {columns})]` in an earlier stage"));
                }
            }
            kind => self.errors.at(reference, format!("`{name}` is a {} in an earlier stage", kind.describe())),
        }
        Some(Binding::Matrix { argument, mutable })
    }

    /// The launch argument of this name, if an earlier stage takes it.
    fn earlier(&self, name: &Ident) -> Option<usize> {
        self.arguments.iter().position(|argument| argument.name == *name)
    }

    /// Adds a launch argument.
    fn add(&mut self, name: &Ident, kind: ArgumentKind, attributes: Vec<Attribute>) -> usize {
        self.arguments.push(Argument { attributes, name: name.clone(), kind });
        self.arguments.len() - 1
    }

    /// The groups, if there are any, and the rows of all of them and the columns.
    fn shape(&self, attribute: &Attribute, grouped: bool) -> Option<(Option<Extent>, [Extent; 2])> {
        let parsed = attribute.parse_args_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        let extents = parsed.ok().filter(|extents| extents.len() == 2 + grouped as usize);
        let Some(extents) = extents else {
            let shape = match grouped {
                true => {
                    "the shape of a `Grouped` matrix is its groups, and the rows and columns of each: `#[shape(e, n, k)]`"
                }
                false => "a shape is rows and columns: `#[shape(m, k)]`",
            };
            self.errors.at(attribute, shape);
            return None;
        };
        let extents: Vec<_> = extents.iter().map(|extent| self.errors.keep(Extent::parse(extent))).collect();
        match <[Extent; 3]>::try_from(extents.into_iter().collect::<Option<Vec<_>>>()?) {
            Ok([groups, rows, columns]) => {
                let all = Extent::Mul(Box::new(groups.clone()), Box::new(rows));
                Some((Some(groups), [all, columns]))
            }
            Err(two) => Some((None, two.try_into().ok()?)),
        }
    }

    fn scalar(&mut self, name: &Ident, scalar: &Ident, markers: Markers) -> Option<Binding> {
        self.refuse_directions(&markers, "a scalar");
        self.refuse_shape(&markers, "a scalar");
        let kind = ArgumentKind::Scalar(scalar.clone());
        let argument = match self.earlier(name) {
            Some(earlier) => earlier,
            None => self.add(name, ArgumentKind::Scalar(scalar.clone()), markers.documentation),
        };
        let declared = &self.arguments[argument].kind;
        if *declared != kind {
            self.errors.at(scalar, format!("`{name}` is a {} in an earlier stage", declared.describe()));
        }
        Some(Binding::Scalar { argument })
    }

    fn port(&mut self, name: &Ident, ty: &Type, markers: Markers) -> Option<Binding> {
        self.refuse_shape(&markers, "a channel");
        let Some(channel) = self.channels.iter().position(|channel| channel.name == *name) else {
            if markers.send.is_none() && markers.receive.is_none() {
                return self.refuse(ty);
            }
            let declared = self.channels.iter().map(|channel| &channel.name);
            self.errors.at(name, format!("there is no channel `{name}` in this module: it has {}", all_of(declared)));
            return None;
        };
        if markers.send.is_none() && markers.receive.is_none() {
            self.errors.at(ty, format!("say what this stage does with `{name}`: `#[send]`, `#[recv]` or both"));
            return None;
        }
        if self
            .found
            .iter()
            .any(|parameter| matches!(&parameter.binding, Binding::Port(port) if port.channel == channel))
        {
            self.errors
                .at(ty, format!("`{name}` is a parameter already: one is enough, marked `#[send]`, `#[recv]` or both"));
            return None;
        }
        Some(Binding::Port(Box::new(Port {
            channel,
            send: markers.send.as_ref().and_then(|attribute| attribute.path().get_ident().cloned()),
            receive: markers.receive.as_ref().and_then(|attribute| self.receive(attribute)),
        })))
    }

    fn receive(&self, attribute: &Attribute) -> Option<Receive> {
        let marker = attribute.path().get_ident()?.clone();
        let mut settings = Settings::of(attribute, &["slot", "unless"], self.errors);
        let slot = match settings.take("slot") {
            Some(Expr::Array(slot)) => Some(slot),
            Some(other) => {
                self.errors
                    .at(other, "`slot` is the coordinates of the slot that a tile waits for: `slot = [at[0], at[1]]`");
                return None;
            }
            None => None,
        };
        let unless = settings.take("unless");
        if let (None, Some(unless)) = (&slot, &unless) {
            self.errors.at(unless, "`unless` goes with `slot`: it says which tiles wait for no slot");
        }
        Some(Receive { marker, slot, unless })
    }

    fn refuse_directions(&self, markers: &Markers, what: &str) {
        for attribute in [&markers.send, &markers.receive].into_iter().flatten() {
            self.errors
                .at(attribute, format!("{what} is not sent or received: `#[send]` and `#[recv]` are for channels"));
        }
    }

    fn refuse_shape(&self, markers: &Markers, what: &str) {
        if let Some(attribute) = &markers.shape {
            self.errors.at(attribute, format!("{what} has no shape of its own: `#[shape]` is for matrices"));
        }
        if let Some(attribute) = &markers.lent {
            self.errors.at(attribute, format!("{what} is not lent: `#[lent]` is for matrices"));
        }
    }
}

impl ArgumentKind {
    /// The type in the signature, less its reference.
    fn describe(&self) -> String {
        match self {
            ArgumentKind::Matrix(matrix) if matrix.groups.is_some() => format!("`Grouped<{}>`", matrix.element),
            ArgumentKind::Matrix(matrix) if matrix.sharded => format!("`Sharded<{}>`", matrix.element),
            ArgumentKind::Matrix(matrix) if matrix.symmetric => format!("`Symmetric<{}>`", matrix.element),
            ArgumentKind::Matrix(matrix) => format!("`Matrix<{}>`", matrix.element),
            ArgumentKind::Scalar(scalar) => format!("`{scalar}`"),
        }
    }
}
