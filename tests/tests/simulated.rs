//! The suite on simulated ranks, in worlds of several sizes.

use std::process::ExitCode;

use entwine_tests::suite::{self, Ranks};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let trials = [1, 2, 3, 4, 8].into_iter().map(Ranks::simulated).flat_map(|ranks| {
        let cases = suite::everywhere().into_iter().filter(move |case| case.ranks <= ranks.count());
        cases.map(move |case| {
            let name = format!("ranks_{}::{}", ranks.count(), case.name);
            Trial::test(name, move || (case.run)(ranks).map_err(|error| format!("{error:#}").into()))
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
