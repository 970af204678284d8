//! The vendor's libraries: found where the system or a Python package has them, and bound at run time.

use std::iter;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use libloading::Library;

/// Loads the first of `names` that is in one of `folders`; or else the first that the system's loader knows or that a Python
/// package of NVIDIA's brings. It stays loaded.
///
/// # Errors
/// It is nowhere.
pub fn open(names: &[&str], folders: &[PathBuf]) -> Result<&'static Library> {
    let mut reasons = Vec::new();
    for path in candidates(names, folders, &package_folders()) {
        // SAFETY: the vendor's libraries may be loaded at any time.
        match unsafe { Library::new(&path) } {
            Ok(library) => {
                eprintln!("using {}", path.display());
                return Ok(Box::leak(Box::new(library)));
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    bail!(
        "couldn't load {}; say with `--library-path` in which folder it is, or install NVIDIA's Python package of it:\n{}",
        names.join(" or "),
        reasons.join("\n")
    )
}

/// Where a library may be, likely places first. A name alone is for the system's loader to find.
fn candidates(names: &[&str], folders: &[PathBuf], packages: &[PathBuf]) -> Vec<PathBuf> {
    let within = |folders: &[PathBuf], name: &str| -> Vec<_> {
        folders.iter().map(|folder| folder.join(name)).filter(|file| file.exists()).collect()
    };
    let given = names.iter().flat_map(|name| within(folders, name));
    let found = names.iter().flat_map(|name| iter::once(PathBuf::from(name)).chain(within(packages, name)));
    given.chain(found).collect()
}

/// Where Python looks for packages.
pub fn python_folders() -> Vec<PathBuf> {
    let python = Command::new("python3").args(["-c", "import sys; print('\\n'.join(sys.path))"]).output();
    let paths = python.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    paths.lines().map(PathBuf::from).collect()
}

/// The `lib` folders of NVIDIA's packages, wherever Python looks for packages.
fn package_folders() -> Vec<PathBuf> {
    let folders = python_folders();
    let packages = folders.iter().filter_map(|folder| folder.join("nvidia").read_dir().ok()).flatten();
    packages.filter_map(|package| Some(package.ok()?.path().join("lib"))).filter(|folder| folder.is_dir()).collect()
}

/// Fails with a library's own words for a status other than 0.
///
/// # Errors
/// The status is not 0.
pub fn check(library: &str, action: &str, status: i32, words: impl FnOnce(i32) -> String) -> Result<()> {
    if status != 0 {
        bail!("{library} could not {action}: {} (status {status})", words(status));
    }
    Ok(())
}

/// A version that is given as `major · 10000 + minor · 100 + patch`.
pub fn version(number: usize) -> String {
    format!("{}.{}.{}", number / 10000, number / 100 % 100, number % 100)
}

/// A struct of a library's functions, which `load` finds in it by name. Statuses are declared as `i32`, since newer
/// libraries may have others than their headers had.
macro_rules! functions {
    ($(#[$meta:meta])* struct $name:ident { $($field:ident: fn($($argument:ty),* $(,)?) -> $result:ty = $symbol:literal;)* }) => {
        $(#[$meta])*
        struct $name { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl $name {
            fn load(library: &'static libloading::Library) -> anyhow::Result<Self> {
                // SAFETY: the signatures are those of the library's header.
                Ok($name { $($field: *unsafe { library.get($symbol) }.context(concat!("the library has no `", $symbol, "`"))?,)* })
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn a_missing_library_is_named_with_what_to_do() {
        let error = open(&["libno-such-thing.so.1", "libno-such-thing.so"], &[PathBuf::from("/nowhere")]).unwrap_err();
        assert!(error.to_string().starts_with("couldn't load libno-such-thing.so.1 or libno-such-thing.so; say with"));
    }

    #[test]
    fn folders_come_before_the_system_and_packages_after_it() {
        let folder = std::env::temp_dir().join(format!("entwine-bench-library-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libb.so"), "").unwrap();
        let (names, nowhere) = (["liba.so", "libb.so"], PathBuf::from("/nowhere"));
        let given = candidates(&names, &[nowhere.clone(), folder.clone()], &[]);
        assert_eq!(given, [folder.join("libb.so"), "liba.so".into(), "libb.so".into()]);
        let packaged = candidates(&names, &[nowhere], slice::from_ref(&folder));
        assert_eq!(packaged, ["liba.so".into(), "libb.so".into(), folder.join("libb.so")]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn statuses_are_put_into_words() {
        assert!(check("NCCL", "sum", 0, |_| unreachable!("all is well")).is_ok());
        let error = check("NCCL", "sum", 3, |_| "internal error".into()).unwrap_err();
        assert_eq!(error.to_string(), "NCCL could not sum: internal error (status 3)");
        assert_eq!(version(130_201), "13.2.1");
        assert_eq!(version(22_907), "2.29.7");
    }
}
