//! The `key = value` arguments of an attribute.

use proc_macro2::{Ident, Span, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Lit, Meta, Token};

use crate::errors::{Errors, all_of, one_of};

/// One attribute's arguments, each to be taken by its key.
pub struct Settings {
    span: Span,
    given: Vec<Setting>,
    /// Something is wrong with the arguments already, so that what is missing may be there in another form.
    flawed: bool,
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
    /// Parses the arguments of `attribute`, which knows the keys `known`.
    pub fn of(attribute: &Attribute, known: &[&str], errors: &Errors) -> Self {
        let name = attribute.path().get_ident().map(Ident::to_string).unwrap_or_default();
        let span = attribute.path().span();
        match &attribute.meta {
            Meta::Path(_) => Settings { span, given: Vec::new(), flawed: false },
            Meta::List(list) => Settings::parse(&name, known, list.tokens.clone(), span, errors),
            Meta::NameValue(value) => {
                errors.at(value, format!("`#[{name}]` has its arguments in parentheses: `#[{name}(key = value, …)]`"));
                Settings { span, given: Vec::new(), flawed: true }
            }
        }
    }

    /// Parses `arguments`, those of an attribute `name` at `span`.
    pub fn parse(name: &str, known: &[&str], arguments: TokenStream, span: Span, errors: &Errors) -> Self {
        let mut settings = Settings { span, given: Vec::new(), flawed: false };
        let parsed = errors.keep(Punctuated::<Setting, Token![,]>::parse_terminated.parse2(arguments));
        settings.flawed = parsed.is_none();
        for setting in parsed.into_iter().flatten() {
            let key = &setting.key;
            if !known.iter().any(|known| key == known) {
                errors.at(key, format!("`#[{name}]` has no argument `{key}`: it takes {}", all_of(known)));
                settings.flawed = true;
            } else if settings.given.iter().any(|earlier| earlier.key == *key) {
                errors.at(key, format!("`{key}` is given twice"));
            } else {
                settings.given.push(setting);
            }
        }
        settings
    }

    /// Says that `key` is missing, and what it would look like.
    pub fn missing(&self, key: &str, example: &str, errors: &Errors) {
        if !self.flawed {
            errors.push(syn::Error::new(self.span, format!("`{key}` is missing: `{key} = {example}`")));
        }
    }

    /// The value of `key`, if it is given, to be taken later.
    pub fn value(&self, key: &str) -> Option<&Expr> {
        self.given.iter().find(|setting| setting.key == key).map(|setting| &setting.value)
    }

    /// The value of `key`, if it is given.
    pub fn take(&mut self, key: &str) -> Option<Expr> {
        let index = self.given.iter().position(|setting| setting.key == key)?;
        Some(self.given.swap_remove(index).value)
    }

    /// Refuses whatever has not been taken: `what` has `those` settings alone.
    pub fn refuse_others(&self, what: &str, those: &str, errors: &Errors) {
        for Setting { key, .. } in &self.given {
            errors.at(key, format!("{what} has no `{key}`: it takes {those}"));
        }
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
