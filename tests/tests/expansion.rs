//! What the macro makes of every kernel in this workspace, as text. The kernels are compiled where they stand, so
//! that the text is known to be good code.
//!
//! `INSTA_UPDATE=always cargo test -p entwine-tests --test expansion` accepts new expansions.

use std::fs;
use std::path::{Path, PathBuf};

use entwine_weave::{Build, DeviceCode};
use insta::assert_snapshot;
use quote::ToTokens;
use syn::{Item, ItemMod, Meta};

/// The Rust files under a folder of the workspace, in a fixed order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let files = entries.into_iter().flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// The modules of a file that are kernels, each with the attribute taken off and its arguments.
fn kernels(file: &Path) -> impl Iterator<Item = (proc_macro2::TokenStream, ItemMod)> {
    let file = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
    file.items.into_iter().filter_map(|item| {
        let Item::Mod(mut module) = item else { return None };
        let is_kernel = |attribute: &syn::Attribute| {
            attribute.path().segments.iter().map(|segment| segment.ident.to_string()).eq(["entwine", "kernel"])
        };
        let index = module.attrs.iter().position(is_kernel)?;
        let arguments = match module.attrs.remove(index).meta {
            Meta::List(list) => list.tokens,
            _ => Default::default(),
        };
        Some((arguments, module))
    })
}

fn expand(arguments: proc_macro2::TokenStream, module: ItemMod, package: &str) -> String {
    let build = Build { crate_name: package.into(), codes: DeviceCode::all().collect(), refusal: None };
    let woven = entwine_weave::kernel(arguments, module.into_token_stream(), &build);
    prettyplease::unparse(&syn::parse2(woven).unwrap())
}

fn every_kernel_of(package: &str, folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    for (arguments, module) in sources(&folder).iter().flat_map(|file| kernels(file)) {
        let name = format!("{package}__{}", module.ident);
        assert_snapshot!(name, expand(arguments, module, package));
    }
}

#[test]
fn small_kernels() {
    every_kernel_of("entwine-tests", "src/kernels");
}

#[test]
fn ready_made_kernels() {
    every_kernel_of("entwine-kernels", "../kernels/src");
}

#[test]
fn kernels_of_the_examples() {
    every_kernel_of("entwine-examples", "../examples");
}

/// A kernel with an error keeps its launcher and an outline of its stages for the compiler, and its whole body for editors.
#[test]
fn a_kernel_with_an_error() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("compile-fail/cases/together/what_is_launched_stays_known.rs");
    for (arguments, module) in kernels(&file) {
        assert_snapshot!("with_an_error", expand(arguments, module, "entwine-tests"));
    }
}
