//! Names among tokens.

use proc_macro2::{Ident, TokenStream, TokenTree};

/// Some name among the tokens is `wanted`.
pub fn mentions(tokens: TokenStream, wanted: &impl Fn(&Ident) -> bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => wanted(&name),
        TokenTree::Group(group) => mentions(group.stream(), wanted),
        _ => false,
    })
}
