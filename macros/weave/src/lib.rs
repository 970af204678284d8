//! What `#[entwine::kernel]` does, over plain token streams: a module is parsed into a model, the model is
//! checked against the rules of the protocol, and three faces of it are written out: the woven tile
//! functions for GPUs and simulated ranks, the specification for the launcher, and the launcher's types.

mod check;
mod emit;
mod errors;
mod extent;
mod model;
mod parse;
mod products;
mod roles;
mod setting;
mod tokens;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use proc_macro2::TokenStream;
use quote::quote;
use syn::Item;

use crate::errors::Errors;

/// What is known of the build that the kernel is compiled in.
pub struct Build {
    /// The name of the kernel's crate.
    pub crate_name: String,
    /// The crate's compiled device code.
    pub codes: Vec<DeviceCode>,
    /// Why there is none, if the compiler for the device refused the crate.
    pub refusal: Option<String>,
}

/// Device code that was compiled, and the environment variable that names its file.
pub struct DeviceCode {
    /// The variant of `entwine::spec::Target`.
    pub target: &'static str,
    /// It records what it does when.
    pub timeline: bool,
    /// The environment variable with the path of all of it. Each kernel's own is in a file beside that, with the kernel's name
    /// added.
    pub variable: String,
    /// What that variable says, where the files are looked at: code is taken to hold every kernel otherwise.
    pub path: Option<PathBuf>,
}

/// The targets that code may have been compiled for, preferred ones first: variants of `entwine::spec::Target`, and what
/// `entwine_build` calls them in the names of environment variables.
const TARGETS: [(&str, &str); 2] = [("Sm90a", "SM_90A"), ("Sm80", "SM_80")];

impl Build {
    /// What cargo and `entwine_build::compile()` say.
    pub fn from_environment() -> Self {
        let codes = DeviceCode::all().filter_map(|code| {
            let path = env::var_os(&code.variable)?.into();
            Some(DeviceCode { path: Some(path), ..code })
        });
        let refusal = env::var_os("ENTWINE_DEVICE_ERRORS").map(|path| {
            fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", PathBuf::from(path).display()))
        });
        let crate_name = env::var("CARGO_PKG_NAME").unwrap_or_default();
        Build { crate_name, codes: codes.collect(), refusal }
    }
}

impl DeviceCode {
    /// Whether a kernel, named as its entries begin, is in it. One that is compiled for hosts alone is not, in a test say.
    fn has(&self, kernel: &str) -> bool {
        self.path.as_ref().is_none_or(|path| {
            let mut file = path.clone().into_os_string();
            file.push(".");
            file.push(kernel);
            PathBuf::from(file).exists()
        })
    }

    /// All that there can be.
    pub fn all() -> impl Iterator<Item = DeviceCode> {
        TARGETS.into_iter().flat_map(|(target, name)| {
            [(false, ""), (true, "_TIMELINE")].map(|(timeline, suffix)| DeviceCode {
                target,
                timeline,
                variable: format!("ENTWINE_PTX_{name}{suffix}"),
                path: None,
            })
        })
    }
}

/// Weaves `module` into a kernel. In case of errors they are all in the result, beside the user's own items.
///
/// The rules of the protocol are only judged once the whole module could be parsed, so that one mistake
/// gives one error.
pub fn kernel(arguments: TokenStream, module: TokenStream, build: &Build) -> TokenStream {
    let module = match syn::parse2(module) {
        Ok(Item::Mod(module)) => module,
        Ok(other) => {
            return syn::Error::new_spanned(other, "a kernel is a module: `#[entwine::kernel] pub mod name { … }`")
                .into_compile_error();
        }
        Err(error) => return error.into_compile_error(),
    };
    let errors = Errors::new();
    let kernel = parse::kernel(arguments, module, &errors);
    if errors.is_empty() {
        check::check(&kernel, &errors);
    }
    match errors.into_compile_errors() {
        None => [emit::kernel(&kernel, build), refused(build)].into_iter().collect(),
        Some(errors) => [errors, emit::fallback(&kernel, build)].into_iter().collect(),
    }
}

/// An error that says why the crate has no device code, if the compiler for the device refused it. Where the kernel itself has errors, they
/// say so; and one of a crate's kernels is enough.
fn refused(build: &Build) -> TokenStream {
    static SAID: AtomicBool = AtomicBool::new(false);
    match &build.refusal {
        Some(refusal) if !SAID.swap(true, Ordering::Relaxed) => quote!(::core::compile_error!(#refusal);),
        _ => TokenStream::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_crates_kernels_says_why_there_is_no_device_code() {
        let refusal = Some("the device code doesn't compile".to_owned());
        let build = Build { crate_name: "kernels".into(), codes: Vec::new(), refusal };
        let woven = |module| kernel(TokenStream::new(), module, &build).to_string();
        let right = || {
            quote!(
                mod right {
                    use super::*;
                    #[stage(grid = [1])]
                    fn fill(at: At<1>, #[shape(m, n)] y: &mut Matrix<T>) {}
                }
            )
        };
        let wrong = woven(quote!(
            mod wrong {
                use super::*;
                #[stage(grid = [])]
                fn fill() {}
            }
        ));
        assert!(!wrong.contains("the device code"), "it has errors of its own: {wrong}");
        let says = [woven(right()), woven(right())].map(|text| text.matches("the device code doesn't compile").count());
        assert_eq!(says, [1, 0]);
    }
}
