//! The `key = value` arguments of an attribute.

use proc_macro2::{Ident, Span, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Lit, Token};

use crate::errors::{Errors, one_of};

/// One attribute's arguments, each to be taken by its key.
pub struct Settings {
    /// Where to point for what is missing.
    pub span: Span,
    given: Vec<Setting>,
}

struct Setting {
    key: Ident,
    value: Expr,
}

impl Parse for Setting {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let key: Ident = input.parse()?;
        if !input.peek(Token![=]) {
            return Err(syn::Error::new(key.span(), format!("`{key}` needs a value: `{key} = …`")));
        }
        input.parse::<Token![=]>()?;
        Ok(Setting { key, value: input.parse()? })
    }
}

impl Settings {
    /// Parses the arguments of the attribute `name` at `span`, which knows the keys `known`.
    pub fn parse(name: &str, known: &[&str], arguments: TokenStream, span: Span, errors: &Errors) -> Self {
        let parsed = errors.keep(Punctuated::<Setting, Token![,]>::parse_terminated.parse2(arguments));
        let mut given: Vec<Setting> = Vec::new();
        for setting in parsed.into_iter().flatten() {
            let key = &setting.key;
            if !known.iter().any(|known| key == known) {
                errors.at(key, format!("`#[{name}]` has no argument `{key}`: it takes {}", one_of(known)));
            } else if given.iter().any(|earlier| earlier.key == *key) {
                errors.at(key, format!("`{key}` is given twice"));
            } else {
                given.push(setting);
            }
        }
        Settings { span, given }
    }

    /// The value of `key`, if it is given.
    pub fn take(&mut self, key: &str) -> Option<Expr> {
        let index = self.given.iter().position(|setting| setting.key == key)?;
        Some(self.given.swap_remove(index).value)
    }

    /// The value of `key`, one of the names in `choices`.
    pub fn take_choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)], errors: &Errors) -> Option<(T, Ident)> {
        let value = self.take(key)?;
        let chosen = name(&value).and_then(|name| {
            choices.iter().find(|(choice, _)| name == choice).map(|(_, chosen)| (*chosen, name.clone()))
        });
        if chosen.is_none() {
            errors.at(&value, format!("`{key}` is {}", one_of(choices.iter().map(|(choice, _)| choice))));
        }
        chosen
    }

    /// The value of `key`, a number from 1 on.
    pub fn take_count(&mut self, key: &str, errors: &Errors) -> Option<u32> {
        let value = self.take(key)?;
        let count = integer(&value).filter(|count| *count > 0);
        if count.is_none() {
            errors.at(&value, format!("`{key}` is a number from 1 on"));
        }
        count
    }
}

/// The expression as a single name.
pub fn name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

/// The expression as an unsigned number.
pub fn integer(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}
