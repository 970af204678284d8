//! The search for the fastest choice.

use crate::choice::Choice;
use crate::error::Error;

/// The most choices that are measured of those that differ much: the ones that are expected to be the fastest.
const MOST: usize = 12;
/// Rounds that count, after one that does not. In each, all take their turn.
const ROUNDS: usize = 5;

/// What times launches.
pub(crate) trait Stopwatch {
    /// Makes ready to time launches that are carried out so.
    fn enter(&mut self, choice: &Choice) -> Result<(), Error>;

    /// The time of a launch in µs, for the contestant of this index, counted from the first that was entered.
    fn time(&mut self, contestant: usize) -> Result<f64, Error>;
}

/// Measures the first of `ranked`, then those that are `near` the fastest. All that was measured, the
/// fastest of the latter first.
///
/// # Errors
/// A launch failed.
pub(crate) fn search(
    ranked: Vec<Choice>,
    near: impl FnOnce(&Choice) -> Vec<Choice>,
    stopwatch: &mut impl Stopwatch,
) -> Result<Vec<(Choice, f64)>, Error> {
    let ranked: Vec<_> = ranked.into_iter().take(MOST).collect();
    let first = compare(&ranked, 0, stopwatch)?;
    let Some((fastest, _)) = first.first() else { return Ok(first) };
    // The fastest runs again beside those near to it, so that the same conditions hold for all of them.
    let close: Vec<_> = [fastest.clone()].into_iter().chain(near(fastest)).collect();
    let mut measured = compare(&close, ranked.len(), stopwatch)?;
    measured.extend(first.into_iter().skip(1));
    measured[1..].sort_by(|(_, one), (_, other)| one.total_cmp(other));
    Ok(measured)
}

/// Choices with their median times, the fastest first. `entered` contestants have been measured before.
fn compare(choices: &[Choice], entered: usize, stopwatch: &mut impl Stopwatch) -> Result<Vec<(Choice, f64)>, Error> {
    choices.iter().try_for_each(|choice| stopwatch.enter(choice))?;
    let mut times = vec![Vec::new(); choices.len()];
    for round in 0..1 + ROUNDS {
        for turn in 0..choices.len() {
            let index = (round + turn) % choices.len();
            let us = stopwatch.time(entered + index)?;
            if round > 0 {
                times[index].push(us);
            }
        }
    }
    let mut medians: Vec<_> = choices.iter().cloned().zip(times.into_iter().map(median)).collect();
    medians.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    Ok(medians)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock on which each choice takes what a function says, but for its first and its third time.
    struct Fake<F> {
        us: F,
        entered: Vec<(Choice, usize)>,
    }

    impl<F: Fn(&Choice) -> f64> Stopwatch for Fake<F> {
        fn enter(&mut self, choice: &Choice) -> Result<(), Error> {
            self.entered.push((choice.clone(), 0));
            Ok(())
        }

        fn time(&mut self, contestant: usize) -> Result<f64, Error> {
            let (choice, times) = &mut self.entered[contestant];
            *times += 1;
            let disturbance = if matches!(times, 1 | 3) { 1e6 } else { 0.0 };
            Ok((self.us)(choice) + disturbance)
        }
    }

    fn choice(link_limit: u32, span: u32) -> Choice {
        Choice { tile: (128, 128), carriages: Vec::new(), link_limit, span, fused: true }
    }

    #[test]
    fn the_fastest_of_all_and_of_those_near_it_wins() {
        let mut clock =
            Fake { us: |choice: &Choice| 100.0 - choice.link_limit as f64 + choice.span as f64, entered: vec![] };
        let ranked = (0..20).map(|limit| choice(limit, 5)).collect();
        let near = |fastest: &Choice| {
            assert_eq!(*fastest, choice(MOST as u32 - 1, 5), "the last of the first {MOST}");
            vec![choice(fastest.link_limit, 7), choice(fastest.link_limit, 2)]
        };
        let measured = search(ranked, near, &mut clock).unwrap();
        assert_eq!(measured[0], (choice(11, 2), 91.0));
        assert_eq!(measured[1], (choice(11, 5), 94.0));
        assert_eq!(measured.len(), MOST + 2, "each choice once");
        assert!(clock.entered.iter().all(|(_, times)| *times == 1 + ROUNDS));
    }

    #[test]
    fn one_choice_is_measured_all_the_same() {
        let mut clock = Fake { us: |_: &Choice| 3.0, entered: vec![] };
        assert_eq!(search(vec![choice(0, 0)], |_| vec![], &mut clock).unwrap(), [(choice(0, 0), 3.0)]);
    }
}
