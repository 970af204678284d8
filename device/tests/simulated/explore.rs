//! Interleavings picked by a scheduler: the protocol holds in all of them, and each way to break it is found.

use entwine_device::abi::{FaultKind, FaultRecord, NONE};
use entwine_device::cpu::{Break, explore};

use crate::ranks::Ranks;
use crate::{all_gather, faults, forward, reduce_scatter};

const ITERATIONS: usize = 200;

/// Overlapping launches of `forward` on two ranks of two CTAs; what they compute counts if nothing failed.
fn forwards(broken: Option<Break>) -> Vec<FaultRecord> {
    let mut ranks = Ranks::new(2, 2);
    if let Some(broken) = broken {
        ranks.fabric.break_protocol(broken);
    }
    let problems: Vec<_> = (0..4).map(|seed| forward::Problem::new(2, [64, 128], seed, seed % 2 == 0)).collect();
    let launches: Vec<_> = problems.iter().map(|problem| problem.launch(&ranks)).collect();
    drop(launches);
    let faults = ranks.take_faults();
    if faults.is_empty() {
        problems.iter().for_each(forward::Problem::check);
    }
    faults
}

#[test]
fn forward_holds() {
    explore(ITERATIONS, || assert!(forwards(None).is_empty()));
}

#[test]
fn reduce_scatter_holds() {
    explore(ITERATIONS, || {
        let mut ranks = Ranks::new(3, 1);
        let problems: Vec<_> =
            (0..3).map(|seed| reduce_scatter::Problem::new(3, [150, 200, 4], seed, seed == 1)).collect();
        let launches: Vec<_> = problems.iter().map(|problem| problem.launch(&ranks)).collect();
        drop(launches);
        assert!(ranks.take_faults().is_empty());
        problems.iter().for_each(reduce_scatter::Problem::check);
    });
}

#[test]
fn all_gather_holds() {
    explore(ITERATIONS, || {
        let mut ranks = Ranks::new(2, 2);
        let problems = [1, 2].map(|pieces| all_gather::Problem::new(2, [300, 100, 70], pieces == 1, pieces));
        let launches = problems.each_ref().map(|problem| problem.launch::<true>(&ranks));
        drop(launches);
        assert!(ranks.take_faults().is_empty());
        problems.iter().for_each(all_gather::Problem::check);
    });
}

/// Every interleaving has races, and they are named, whether or not it happened to go well.
fn finds(broken: Break) {
    explore(ITERATIONS, move || {
        let faults = forwards(Some(broken));
        assert!(!faults.is_empty());
        for fault in faults {
            let [row, column, ..] = fault.tile;
            assert_eq!(fault.kind, FaultKind::Race as u32);
            assert_eq!((fault.stage, fault.channel, fault.slot), (0, 0, [0, row, column, NONE]));
        }
    });
}

#[test]
fn an_early_overwrite_is_found() {
    finds(Break::OverwriteEarly);
}

#[test]
fn an_early_read_is_found() {
    finds(Break::ReadEarly);
}

#[test]
fn an_early_signal_is_found() {
    finds(Break::SignalEarly);
}

#[test]
fn an_early_read_of_a_piece_is_found() {
    explore(ITERATIONS, || {
        let mut ranks = Ranks::new(2, 2);
        ranks.fabric.break_protocol(Break::ReadEarly);
        all_gather::Problem::new(2, [128, 64, 128], false, 2).launch::<false>(&ranks).join();
        let faults = ranks.take_faults();
        assert!(!faults.is_empty());
        for fault in faults {
            assert_eq!((fault.kind, fault.stage, fault.channel), (FaultKind::Race as u32, 1, 0));
            assert_eq!(fault.slot, [fault.peer, 0, NONE, NONE]);
            assert!(fault.piece < 2);
        }
    });
}

#[test]
fn a_deadlock_is_found() {
    explore(ITERATIONS, || {
        let mut ranks = Ranks::new(3, 1);
        faults::launch(&ranks, faults::waits_in_a_circle).join();
        let faults = ranks.take_faults();
        assert!(faults.len() == 3 && faults.iter().all(|fault| fault.kind == FaultKind::Deadlock as u32));
    });
}
