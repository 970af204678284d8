//! Many launches, one after the other or overlapping between ranks.

use std::time::Duration;

use crate::ranks::Ranks;
use crate::{forward, reduce_scatter};

#[test]
fn shapes_change_from_launch_to_launch() {
    let mut ranks = Ranks::new(3, 2);
    let shapes = [[192, 128, 16], [65, 300, 8], [1, 1, 1], [500, 64, 24], [2, 257, 0]];
    for launch in 0..100 {
        let problem = reduce_scatter::Problem::new(3, shapes[launch % shapes.len()], launch, launch % 2 == 0);
        problem.launch(&ranks).join();
        assert!(ranks.take_faults().is_empty());
        problem.check();
    }
    assert_eq!(ranks.epochs(), [100; 3]);
}

#[test]
fn launches_overlap_between_ranks() {
    for pull in [false, true] {
        let mut ranks = Ranks::new(4, 2);
        for (rank, delay) in [(1, 3), (2, 7), (3, 1)] {
            ranks.fabric.delay(rank, Duration::from_millis(delay));
        }
        let sums: Vec<_> = (0..10).map(|seed| reduce_scatter::Problem::new(4, [256, 128, 16], seed, pull)).collect();
        let launches: Vec<_> = sums.iter().map(|problem| problem.launch(&ranks)).collect();
        drop(launches);
        assert!(ranks.take_faults().is_empty());
        sums.iter().for_each(reduce_scatter::Problem::check);
    }
}

#[test]
fn a_sender_waits_for_slow_receivers() {
    for pull in [false, true] {
        let mut ranks = Ranks::new(3, 2);
        ranks.fabric.delay(2, Duration::from_millis(20));
        let copies: Vec<_> = (0..8).map(|seed| forward::Problem::new(3, [128, 128], seed, pull)).collect();
        let launches: Vec<_> = copies.iter().map(|problem| problem.launch(&ranks)).collect();
        drop(launches);
        assert!(ranks.take_faults().is_empty());
        copies.iter().for_each(forward::Problem::check);
    }
}

#[test]
fn epochs_wrap() {
    for first in [i32::MAX as u32 - 2, u32::MAX - 2] {
        let mut ranks = Ranks::new(3, 2);
        ranks.set_epoch(first);
        let problems: Vec<_> = (0..8).map(|seed| reduce_scatter::Problem::new(3, [200, 130, 8], seed, false)).collect();
        for problem in &problems {
            problem.launch(&ranks).join();
            assert!(ranks.take_faults().is_empty());
            problem.check();
        }
        assert_eq!(ranks.epochs(), [first.wrapping_add(8); 3]);
    }
}

#[test]
fn a_late_rank_is_waited_for_however_short_the_deadline() {
    let mut ranks = Ranks::new(2, 1);
    ranks.deadline = Duration::from_millis(200);
    ranks.fabric.delay(1, Duration::from_millis(600));
    let problem = reduce_scatter::Problem::new(2, [128, 128, 8], 0, false);
    problem.launch(&ranks).join();
    assert!(ranks.take_faults().is_empty());
    problem.check();
}
