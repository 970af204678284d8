//! What must hold of a kernel's PTX, whatever the compiler made of the Rust that it came from.

use entwine::spec::Target;
use entwine_build::ptx::{Function, Module};

/// CTA barriers of an entry for Hopper whose threads have roles: one, once its shared memory is set up; after that its roles meet at mbarriers. More
/// of them mean that the compiler copied it into both arms of a branch.
pub const CTA_BARRIERS: usize = 1;

/// What code for every GPU from Ampere on must do without.
const OF_HOPPER: [&str; 8] = [
    "wgmma.",
    "cp.async.bulk.",
    "mbarrier.",
    "fence.proxy.",
    "fence.mbarrier",
    "setmaxnreg.",
    "stmatrix.",
    "griddepcontrol.",
];

/// What is wrong with the entries of a module that was compiled for a target; empty if nothing is.
pub fn violations(module: &Module, target: Target) -> Vec<String> {
    module.entries().flat_map(|entry| entry_violations(&entry, target)).collect()
}

/// Whether the threads of an entry for Hopper have roles of their own, which meet at mbarriers.
pub fn has_roles(entry: &Function<'_>) -> bool {
    instructions(entry.text).any(|instruction| instruction.starts_with("mbarrier."))
}

/// The instructions of an entry that begin like this.
pub fn instructions_like<'t>(entry: &Function<'t>, prefix: &str) -> Vec<&'t str> {
    instructions(entry.text).filter(|instruction| instruction.starts_with(prefix)).collect()
}

/// The matrix instructions of an entry.
pub fn matrix_instructions(entry: &Function<'_>) -> usize {
    let multiplies = |opcode: &str| opcode.starts_with("wgmma.mma_async.") || opcode.starts_with("mma.sync.");
    instructions(entry.text).filter(|instruction| multiplies(instruction)).count()
}

/// The CTA barriers of an entry.
pub fn cta_barriers(entry: &Function<'_>) -> usize {
    instructions(entry.text).filter(|instruction| is_cta_barrier(instruction)).count()
}

/// How many instructions of an entry all lanes of a warp must come to together.
pub fn synchronized_instructions(entry: &Function<'_>) -> usize {
    instructions(entry.text).filter(|instruction| instruction.contains(".sync.")).count()
}

fn entry_violations(entry: &Function<'_>, target: Target) -> Vec<String> {
    let all: Vec<_> = instructions(entry.text).collect();
    let mut violations = Vec::new();
    let mut require = |holds: bool, rule: String| {
        if !holds {
            violations.push(format!("`{}`: {rule}", entry.name));
        }
    };

    let has = |prefix: &str| all.iter().any(|instruction| instruction.starts_with(prefix));
    match target {
        Target::Sm90a if has_roles(entry) => {
            let barriers = cta_barriers(entry);
            require(barriers == CTA_BARRIERS, format!("{barriers} CTA barriers, expected {CTA_BARRIERS}"));
        }
        Target::Sm90a => {}
        Target::Sm80 => {
            for prefix in OF_HOPPER {
                require(!has(prefix), format!("`{prefix}` needs a GPU of the Hopper generation"));
            }
        }
    }
    if target == Target::Sm80 || !has_roles(entry) {
        let divergent = entry.text.lines().any(|line| line.contains('@') && line.contains("bar.sync"));
        require(!divergent, "a CTA barrier that some threads may pass by".to_owned());
        if has("st.relaxed.sys.") {
            require(has("fence.acq_rel.sys"), "slots are signalled without a release".to_owned());
            require(has("ld.acquire.sys."), "slots are read without an acquire".to_owned());
        }
    }
    require(entry.text.contains("\n.maxntid "), "no `.maxntid`".to_owned());
    for instruction in &all {
        require(!instruction.contains(".nc."), format!("may read what another rank writes: `{instruction}`"));
        require(!is_weak_signal(instruction), format!("signals are not volatile: `{instruction}`"));
        require(is_wide_enough(instruction), format!("does not reach another GPU's threads: `{instruction}`"));
    }

    if has("cp.async.bulk.global.") {
        require(has("cp.async.bulk.wait_group 0"), "bulk stores are signalled before they are complete".to_owned());
        require(has("fence.acq_rel.sys"), "bulk stores are signalled without a release".to_owned());
    }
    if has("cp.async.bulk.shared::cluster.global.") {
        require(has("ld.acquire.sys."), "slots are read without an acquire".to_owned());
        require(has("fence.proxy.async.global"), "slots are read without a proxy fence".to_owned());
    }
    violations
}

/// The other barriers are those at which some warps meet.
fn is_cta_barrier(instruction: &str) -> bool {
    let mut words = instruction.split_whitespace();
    let waits = words.next().is_some_and(|opcode| opcode.starts_with("bar.sync") || opcode.starts_with("barrier.sync"));
    waits && words.next() == Some("0")
}

fn is_weak_signal(instruction: &str) -> bool {
    let opcode = opcode(instruction);
    opcode.contains(".volatile") && !opcode.contains(".shared")
}

/// Another rank's memory is reached at system scope. The scope of the GPU is for counters that the CTAs of one
/// rank share, which only relaxed accesses and read-modify-writes touch.
fn is_wide_enough(instruction: &str) -> bool {
    let opcode = opcode(instruction);
    !opcode.contains(".gpu") || opcode.contains(".relaxed.") || opcode.starts_with("atom.")
}

fn opcode(instruction: &str) -> &str {
    instruction.split_whitespace().next().unwrap_or_default()
}

/// The instructions of a function's text, without predicates, labels, directives and comments.
fn instructions(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let statements = code.flat_map(|line| line.split(';'));
    let bare = statements.map(|statement| statement.trim_start_matches(['{', '}', ' ', '\t']).trim_end());
    let unpredicated = bare.map(|statement| match statement.strip_prefix('@') {
        Some(predicated) => predicated.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start()),
        None => statement,
    });
    unpredicated.filter(|statement| statement.starts_with(|first: char| first.is_ascii_lowercase()))
}
