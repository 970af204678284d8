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
use std::path::PathBuf;

use proc_macro2::TokenStream;
use syn::Item;

use crate::errors::Errors;

/// What is known of the build that the kernel is compiled in.
pub struct Build {
    /// The name of the kernel's crate.
    pub crate_name: String,
    /// The crate's compiled device code.
    pub codes: Vec<DeviceCode>,
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
        Build { crate_name: env::var("CARGO_PKG_NAME").unwrap_or_default(), codes: codes.collect() }
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
        None => emit::kernel(&kernel, build),
        Some(errors) => [errors, emit::fallback(&kernel, build)].into_iter().collect(),
    }
}
