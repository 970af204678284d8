//! PTX text: the launch bounds that kernels ask for are put on their entries, and what a driver couldn't load is
//! refused.
//!
//! Rust has no attribute for an entry's bounds, so a kernel leaves a marker beside it, by `global_asm!`:
//! `// entwine: entry <name> maxntid <threads of a CTA> minctas <CTAs on a multiprocessor>`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The PTX of a kernel crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    text: String,
}

/// An entry, or a function that was not inlined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'m> {
    /// Its symbol.
    pub name: &'m str,
    /// It can be launched.
    pub is_entry: bool,
    /// From the directive that opens it to its closing brace.
    pub text: &'m str,
}

/// Why a module can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A marker line that can't be read.
    Marker(String),
    /// Two markers name the same entry.
    MarkedTwice(String),
    /// A marker names an entry that isn't there.
    NoSuchEntry(String),
    /// An entry has no marker.
    Unmarked(String),
    /// A function is called that is defined nowhere.
    Unresolved(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Marker(line) => {
                write!(f, "`{line}` is no marker: expected `{MARKER}entry <name> maxntid <n> minctas <n>`")
            }
            Fault::MarkedTwice(name) => write!(f, "two markers name the entry `{name}`: rename one of the kernels"),
            Fault::NoSuchEntry(name) => write!(f, "a marker names `{name}`, but there is no such entry"),
            Fault::Unmarked(name) => write!(
                f,
                "the entry `{name}` doesn't say its launch bounds: leave `{MARKER}entry {name} maxntid <n> minctas <n>` \
                 beside it by `global_asm!`"
            ),
            Fault::Unresolved(name) => {
                write!(f, "`{name}` is called but defined nowhere: device code has `core`, and no C or maths library")
            }
        }
    }
}

const MARKER: &str = "// entwine: ";

/// What a marker asks for.
struct Bounds {
    threads: u32,
    ctas: u32,
}

impl Module {
    /// Takes the compiler's text: moves each marker onto its entry, and checks that nothing is missing.
    pub fn from_compiler(text: &str) -> Result<Module, Vec<Fault>> {
        let mut faults: Vec<_> = unresolved(text).map(Fault::Unresolved).collect();
        let mut bounds = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with(MARKER)) {
            match marker(line) {
                Some((name, asked)) => {
                    if bounds.insert(name, asked).is_some() {
                        faults.push(Fault::MarkedTwice(name.to_owned()));
                    }
                }
                None => faults.push(Fault::Marker(line.to_owned())),
            }
        }

        let mut bounded = String::with_capacity(text.len());
        let mut opened = None;
        for line in text.lines().filter(|line| !line.starts_with(MARKER)) {
            opened = entry_name(line).or(opened);
            if line == "{"
                && let Some(name) = opened.take()
            {
                match bounds.remove(name) {
                    Some(Bounds { threads, ctas }) => {
                        bounded.push_str(&format!(".maxntid {threads}\n.minnctapersm {ctas}\n"));
                    }
                    None => faults.push(Fault::Unmarked(name.to_owned())),
                }
            }
            bounded.push_str(line);
            bounded.push('\n');
        }
        faults.extend(bounds.into_keys().map(|name| Fault::NoSuchEntry(name.to_owned())));
        if faults.is_empty() { Ok(Module { text: bounded }) } else { Err(faults) }
    }

    /// Takes the text of a module that [`from_compiler`](Module::from_compiler) made.
    pub fn from_text(text: impl Into<String>) -> Module {
        Module { text: text.into() }
    }

    /// The modules of single kernels, by what the names of their entries have in common: their own entries, and what is not
    /// in an entry. The driver compiles all that it is given, and a program that loads one of ten kernels should not wait
    /// for the others.
    pub fn by_kernel(&self) -> BTreeMap<&str, Module> {
        let kernels: BTreeSet<_> = self.entries().filter_map(|entry| kernel_name(entry.name)).collect();
        kernels.into_iter().map(|kernel| (kernel, self.of_kernel(kernel))).collect()
    }

    fn of_kernel(&self, kernel: &str) -> Module {
        let mut text = String::new();
        let mut left_out = false;
        for line in self.text.split_inclusive('\n') {
            if let Some(name) = entry_name(line.trim_end()) {
                left_out = kernel_name(name) != Some(kernel);
            }
            if !left_out {
                text.push_str(line);
            }
            // The brace that closes an entry is the only one at the beginning of a line.
            left_out &= line.trim_end() != "}";
        }
        Module { text }
    }

    /// The PTX.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Entries and functions, in the order of the text.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        let mut rest = self.text.as_str();
        std::iter::from_fn(move || {
            loop {
                if rest.is_empty() {
                    return None;
                }
                let line = rest.lines().next().unwrap_or_default();
                let Some((name, is_entry)) = definition(line) else {
                    rest = after_line(rest);
                    continue;
                };
                let end = rest.find("\n}\n").map_or(rest.len(), |brace| brace + 3);
                let declared = rest.find(";\n").unwrap_or(rest.len()) < rest.find("\n{\n").unwrap_or(rest.len());
                if declared {
                    rest = after_line(rest);
                    continue;
                }
                let (text, following) = rest.split_at(end);
                rest = following;
                return Some(Function { name, is_entry, text });
            }
        })
    }

    /// The entries, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = Function<'_>> {
        self.functions().filter(|function| function.is_entry)
    }

    /// Names of the entries and functions that keep variables in local memory.
    pub fn functions_with_local_memory(&self) -> impl Iterator<Item = &str> {
        self.functions().filter(|function| function.text.contains("\t.local ")).map(|function| function.name)
    }
}

fn marker(line: &str) -> Option<(&str, Bounds)> {
    let words: Vec<_> = line.strip_prefix(MARKER)?.split_whitespace().collect();
    let ["entry", name, "maxntid", threads, "minctas", ctas] = words[..] else { return None };
    Some((name, Bounds { threads: threads.parse().ok()?, ctas: ctas.parse().ok()? }))
}

/// The name of the function or entry that this line begins to define or declare, and whether it is an entry.
fn definition(line: &str) -> Option<(&str, bool)> {
    let (kind, rest) = line.split_once(".entry ").map(|(before, rest)| ((before, true), rest)).or_else(|| {
        let (before, rest) = line.split_once(".func ")?;
        Some(((before, false), rest))
    })?;
    let (before, is_entry) = kind;
    if !matches!(before.trim(), "" | ".visible" | ".weak" | ".common") {
        return None;
    }
    let symbol = rest.trim_start();
    // A function that returns something names the place of its result first, in parentheses.
    let symbol = if symbol.starts_with('(') { symbol.split_once(')')?.1.trim_start() } else { symbol };
    let end = symbol.find(|character: char| character == '(' || character.is_whitespace()).unwrap_or(symbol.len());
    Some((&symbol[..end], is_entry))
}

/// An entry's name without the element and the tile of its variant.
fn kernel_name(entry: &str) -> Option<&str> {
    let (rest, _tile) = entry.rsplit_once('_')?;
    rest.rsplit_once('_').map(|(kernel, _element)| kernel)
}

fn entry_name(line: &str) -> Option<&str> {
    definition(line).filter(|(_, is_entry)| *is_entry).map(|(name, _)| name)
}

fn unresolved(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let declaration = line.trim_start().strip_prefix(".extern ")?;
        definition(declaration).map(|(name, _)| name.to_owned())
    })
}

fn after_line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, following)| following)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_ENTRIES: &str = "\
.version 8.5
.target sm_90a

// entwine: entry scale maxntid 384 minctas 1
// entwine: entry shift maxntid 128 minctas 2

.func  (.param .b32 func_retval0) helper
(
\t.param .b32 helper_param_0
)
;

.visible .entry scale(
\t.param .u64 scale_param_0
)
{
\tret;
\t{
\t}
}

.visible .entry shift()
{
\t.local .align 16 .b8 \t__local_depot1[16];
\tret;
}

.func  (.param .b32 func_retval0) helper(
\t.param .b32 helper_param_0
)
{
\tret;
}
";

    #[test]
    fn bounds_go_onto_the_entries() {
        let module = Module::from_compiler(TWO_ENTRIES).unwrap();
        assert!(module.text().contains("scale_param_0\n)\n.maxntid 384\n.minnctapersm 1\n{\n"));
        assert!(module.text().contains("shift()\n.maxntid 128\n.minnctapersm 2\n{\n"));
        assert!(!module.text().contains("entwine:"));
    }

    #[test]
    fn functions_are_found_whole() {
        let module = Module::from_compiler(TWO_ENTRIES).unwrap();
        let functions: Vec<_> = module.functions().collect();
        let names: Vec<_> = functions.iter().map(|function| (function.name, function.is_entry)).collect();
        assert_eq!(names, [("scale", true), ("shift", true), ("helper", false)]);
        assert!(functions.iter().all(|function| function.text.ends_with("\n}\n")));
        assert_eq!(module.functions_with_local_memory().collect::<Vec<_>>(), ["shift"]);
        assert_eq!(module.entries().count(), 2);
    }

    #[test]
    fn every_entry_needs_its_marker() {
        let unmarked = TWO_ENTRIES.replace("// entwine: entry scale maxntid 384 minctas 1\n", "");
        assert_eq!(Module::from_compiler(&unmarked), Err(vec![Fault::Unmarked("scale".into())]));
    }

    #[test]
    fn every_marker_needs_its_entry() {
        let misspelt = TWO_ENTRIES.replace("entry scale maxntid", "entry scales maxntid");
        let faults = vec![Fault::Unmarked("scale".into()), Fault::NoSuchEntry("scales".into())];
        assert_eq!(Module::from_compiler(&misspelt), Err(faults));
    }

    #[test]
    fn markers_are_read_strictly() {
        let twice = TWO_ENTRIES.replace("entry shift maxntid", "entry scale maxntid");
        assert!(Module::from_compiler(&twice).unwrap_err().contains(&Fault::MarkedTwice("scale".into())));
        let wordy = "// entwine: entry shift maxntid many minctas 2";
        let unread = TWO_ENTRIES.replace("// entwine: entry shift maxntid 128 minctas 2", wordy);
        assert!(Module::from_compiler(&unread).unwrap_err().contains(&Fault::Marker(wordy.into())));
    }

    #[test]
    fn functions_without_a_definition_are_named() {
        let text = format!("{TWO_ENTRIES}\n.extern .func  (.param .b32 func_retval0) expf\n(\n\t.param .b32 p\n)\n;\n");
        assert_eq!(Module::from_compiler(&text), Err(vec![Fault::Unresolved("expf".into())]));
    }
}
