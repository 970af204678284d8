//! Everything that must hold before a change is merged.

use anyhow::{Result, bail};

use crate::cargo::{cargo, succeed, with_device_code};
use crate::{gates, setup};

/// Installs what is missing, then checks format, lints, PTX and tests, the tests last; a failing check doesn't
/// keep the following ones from running.
pub fn everything() -> Result<()> {
    setup::compiler()?;
    setup::assembler()?;
    let run = |arguments: &[&str]| succeed(with_device_code(&mut cargo(arguments)));
    let outcomes = [
        ("format", run(&["fmt", "--all", "--check"])),
        ("lints", run(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])),
        ("PTX", gates::check_all(&mut cargo(&["test", "--workspace", "--no-run"]))),
        ("tests", run(&["test", "--workspace", "--no-fail-fast"])),
    ];
    let failures: Vec<_> = outcomes.into_iter().filter_map(|(check, outcome)| Some((check, outcome.err()?))).collect();
    for (check, error) in &failures {
        eprintln!("{check}: {error:#}");
    }
    if !failures.is_empty() {
        bail!("{} of 4 checks failed", failures.len());
    }
    Ok(())
}
