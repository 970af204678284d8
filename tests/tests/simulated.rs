//! The suite on simulated ranks, in worlds of several sizes.

use std::process::ExitCode;

use entwine_tests::suite::{self, Ranks};
use libtest_mimic::{Arguments, Trial};

/// Ranks, and CTAs of each: as few as it takes, fewer than stages ask for, and more.
const WORLDS: [(usize, u32); 5] = [(1, 2), (2, 12), (3, 1), (4, 2), (8, 2)];

fn main() -> ExitCode {
    let trials = WORLDS.into_iter().flat_map(|(count, ctas)| {
        let cases = suite::everywhere().into_iter().chain(suite::simulated()).filter(move |case| case.ranks <= count);
        cases.map(move |case| {
            let ranks = Ranks::simulated(count, ctas);
            let name = format!("{ranks}::{}", case.name);
            Trial::test(name, move || (case.run)(&ranks).map_err(|error| format!("{error:#}").into()))
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
