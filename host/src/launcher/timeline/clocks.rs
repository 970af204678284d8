//! One clock for all ranks: how far each GPU's is ahead of rank 0's, estimated from the launch's own signals.
//!
//! What a rank sends arrives no earlier than it was sent. So the least that passes from a send to the wait that it ends,
//! read off two clocks, bounds their difference from above, and the least on the way back bounds it from below. The
//! estimate is the middle, as in NTP, and half the distance its uncertainty.

use std::collections::HashMap;

use entwine_device::log::EventKind;

use super::{Arrival, Event};

/// How a rank's clock relates to that of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// How far it is ahead, in nanoseconds.
    pub offset_ns: i64,
    /// How far the estimate may be off, in nanoseconds, to either side; `None` where no signals went both ways, so that
    /// there is none: then the offset puts the rank's first event at the time of rank 0's.
    pub uncertainty_ns: Option<u64>,
}

impl Clock {
    /// The very clock of rank 0.
    pub(super) const SHARED: Clock = Clock { offset_ns: 0, uncertainty_ns: Some(0) };
}

/// The ranks' clocks, by events with their times on these clocks.
pub(super) fn estimate(events: &[(Event, i64)], world: usize) -> Vec<Clock> {
    let delays = delays(events, world);
    let resolution: Vec<_> = (0..world).map(|rank| resolution(events, rank)).collect();
    // The shortest way from rank 0 to each rank, with the uncertainty as length.
    let mut clocks: Vec<Option<Clock>> = vec![None; world];
    let mut settled = vec![false; world];
    clocks[0] = Some(Clock::SHARED);
    while let Some(from) = next(&clocks, &settled) {
        settled[from] = true;
        let near = clocks[from].expect("the next rank has an estimate");
        for to in (0..world).filter(|to| !settled[*to]) {
            let (Some(there), Some(back)) = (delays[from][to], delays[to][from]) else { continue };
            let step = (there + back).max(0) as u64 / 2 + resolution[from].max(resolution[to]);
            let candidate = Clock {
                offset_ns: near.offset_ns + (there - back) / 2,
                uncertainty_ns: near.uncertainty_ns.map(|near| near + step),
            };
            if clocks[to].is_none_or(|known| candidate.uncertainty_ns < known.uncertainty_ns) {
                clocks[to] = Some(candidate);
            }
        }
    }
    let first = |rank: usize| events.iter().filter(|(event, _)| event.rank as usize == rank).map(|(_, at)| *at).min();
    let unaligned = |rank| Clock {
        offset_ns: first(rank).zip(first(0)).map_or(0, |(first, of_rank_0)| first - of_rank_0),
        uncertainty_ns: None,
    };
    clocks.into_iter().enumerate().map(|(rank, clock)| clock.unwrap_or_else(|| unaligned(rank))).collect()
}

/// The rank with the least uncertain estimate among those whose neighbours have not been looked at.
fn next(clocks: &[Option<Clock>], settled: &[bool]) -> Option<usize> {
    let open = clocks.iter().enumerate().filter(|(rank, clock)| !settled[*rank] && clock.is_some());
    open.min_by_key(|(_, clock)| clock.and_then(|clock| clock.uncertainty_ns)).map(|(rank, _)| rank)
}

/// From each rank to each other: the least that passed from a send to the end of a wait for it.
fn delays(events: &[(Event, i64)], world: usize) -> Vec<Vec<Option<i64>>> {
    let mut sent: HashMap<Arrival, (usize, i64)> = HashMap::new();
    for (event, at) in events.iter().filter(|(event, _)| event.kind == EventKind::Send) {
        for arrival in event.arrivals(world as u32) {
            sent.insert(arrival, (event.rank as usize, *at));
        }
    }
    let mut delays = vec![vec![None; world]; world];
    for (event, at) in events.iter().filter(|(event, _)| event.kind == EventKind::Ready) {
        for arrival in event.arrivals(world as u32) {
            let Some((from, sent)) = sent.get(&arrival) else { continue };
            let least: &mut Option<i64> = &mut delays[*from][event.rank as usize];
            *least = Some(least.map_or(at - sent, |least| least.min(at - sent)));
        }
    }
    delays
}

/// The step of a rank's clock, in nanoseconds.
fn resolution(events: &[(Event, i64)], rank: usize) -> u64 {
    let mut times = events.iter().filter(|(event, _)| event.rank as usize == rank).map(|(_, at)| *at);
    let first = times.next().unwrap_or(0);
    times.fold(0, |step, at| common_divisor(step, at.abs_diff(first)))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use entwine_device::log::{NOBODY, Recorder};

    use super::super::Timeline;
    use super::super::testing::*;
    use super::*;
    use crate::log::Row;
    use EventKind::*;

    /// A rank whose clock is ahead by `ahead` sends at these times and receives at those, from and to these ranks.
    fn rank(rank: u32, ahead: u64, sends: &[(u32, u64)], receives: &[(u32, u64)]) -> Row {
        let mut events = vec![(Begin, NOBODY, ahead)];
        events.extend(sends.iter().map(|&(to, at)| (Send, to, at + ahead)));
        for &(from, at) in receives {
            events.extend([(Wait, from, at + ahead - 1), (Ready, from, at + ahead)]);
        }
        events.push((End, NOBODY, ahead + 100_001));
        row(rank, 0, Recorder::Whole, &events)
    }

    fn offsets(timeline: &Timeline) -> Vec<(i64, Option<u64>)> {
        timeline.clocks().iter().map(|clock| (clock.offset_ns, clock.uncertainty_ns)).collect()
    }

    #[test]
    fn two_clocks_are_aligned_by_the_fastest_signals_each_way() {
        // 700 ns there, and 500 back: the estimate is off by 100, less than its uncertainty of 600 and the clocks' step.
        let rows = [rank(0, 0, &[(1, 1000)], &[(1, 2500)]), rank(1, 1 << 40, &[(0, 2000)], &[(0, 1700)])];
        let timeline = timeline(2, &rows, false);
        assert_eq!(offsets(&timeline), [(0, Some(0)), ((1 << 40) + 100, Some(601))]);
        assert_eq!(timeline.clock_notes(), ["The clock of rank 1 is aligned to ±0.60 µs."]);
        for (send, ready) in timeline.arrows() {
            assert!(ready.at + 601 >= send.at, "{send:?} {ready:?}");
        }
        let own: Vec<_> = timeline.events().iter().map(|event| timeline.on_own_clock(event)).collect();
        assert!(own.contains(&1000) && own.contains(&((1 << 40) + 1700)), "{own:?}");
    }

    #[test]
    fn a_rank_that_rank_0_does_not_hear_from_is_aligned_by_way_of_others() {
        // Signals between 0 and 1, and between 1 and 2, 400 ns each way.
        let rows = [
            rank(0, 1000, &[(1, 1000)], &[(1, 2400)]),
            rank(1, 5000, &[(0, 2000), (2, 3000)], &[(0, 1400), (2, 4400)]),
            rank(2, 9000, &[(1, 4000)], &[(1, 3400)]),
        ];
        let timeline = timeline(3, &rows, false);
        assert_eq!(offsets(&timeline), [(0, Some(0)), (4000, Some(401)), (8000, Some(802))]);
    }

    #[test]
    fn the_least_uncertain_way_is_taken() {
        // Directly 0 and 3 take 10 µs each way; over 1 it is 400 ns twice.
        let rows = [
            rank(0, 0, &[(1, 1000), (3, 1000)], &[(1, 2400), (3, 31_000)]),
            rank(1, 70, &[(0, 2000), (3, 3000)], &[(0, 1400), (3, 4400)]),
            rank(2, 40, &[], &[]),
            rank(3, 90, &[(0, 21_000), (1, 4000)], &[(0, 11_000), (1, 3400)]),
        ];
        let timeline = timeline(4, &rows, false);
        let found = offsets(&timeline);
        assert_eq!([found[1], found[3]], [(70, Some(401)), (90, Some(802))]);
        assert_eq!(found[2], (40, None), "no signals: the first event is where rank 0's is");
        assert!(timeline.clock_notes()[1].contains("rank 2 could not be aligned"));
    }
}
