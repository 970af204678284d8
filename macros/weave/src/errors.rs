//! The collector of errors: it reports all of them together, and none can be lost.

use std::cell::RefCell;
use std::fmt::Display;
use std::thread;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// Errors found so far. It must be looked at with [`into_compile_errors`](Errors::into_compile_errors);
/// dropping it before is a bug of this crate, and panics.
pub struct Errors {
    found: RefCell<Option<Vec<syn::Error>>>,
}

impl Errors {
    pub fn new() -> Self {
        Errors { found: RefCell::new(Some(Vec::new())) }
    }

    /// Adds an error that points at `tokens`.
    pub fn at(&self, tokens: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(tokens.into_token_stream(), message));
    }

    /// Adds an error.
    pub fn push(&self, error: syn::Error) {
        self.found.borrow_mut().as_mut().expect("errors are added before they are looked at").push(error);
    }

    /// The value, or `None` after adding its error.
    pub fn keep<T>(&self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// No error was found so far.
    pub fn is_empty(&self) -> bool {
        self.found.borrow().as_ref().is_some_and(Vec::is_empty)
    }

    /// One `compile_error!` for each error; `None` if there was none.
    pub fn into_compile_errors(self) -> Option<TokenStream> {
        let found = self.found.take().expect("errors are looked at once");
        (!found.is_empty()).then(|| found.iter().map(syn::Error::to_compile_error).collect())
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        if self.found.borrow().is_some() && !thread::panicking() {
            panic!("errors were dropped without a look at them");
        }
    }
}

/// "`a`, `b` or `c`".
pub fn one_of(names: impl IntoIterator<Item = impl Display>) -> String {
    listed(names, "or")
}

/// "`a`, `b` and `c`".
pub fn all_of(names: impl IntoIterator<Item = impl Display>) -> String {
    listed(names, "and")
}

fn listed(names: impl IntoIterator<Item = impl Display>, conjunction: &str) -> String {
    let mut names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.pop() {
        None => "nothing".into(),
        Some(last) if names.is_empty() => last,
        Some(last) => format!("{} {conjunction} {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_are_reported_together() {
        let errors = Errors::new();
        errors.at(quote::quote!(first), "one");
        assert_eq!(errors.keep(Err::<(), _>(syn::Error::new_spanned(quote::quote!(second), "two"))), None);
        let reported = errors.into_compile_errors().unwrap().to_string();
        assert!(reported.contains("one") && reported.contains("two"));
    }

    #[test]
    #[should_panic = "without a look"]
    fn errors_can_not_be_lost() {
        Errors::new().at(quote::quote!(here), "lost");
    }

    #[test]
    fn lists_read_like_prose() {
        assert_eq!(one_of(["a"]), "`a`");
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(all_of(["a", "b"]), "`a` and `b`");
    }
}
