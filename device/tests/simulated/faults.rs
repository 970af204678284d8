//! What goes wrong ends the launch on every rank, is named, and leaves the ranks usable.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use entwine_device::abi::{self, Control, FaultKind, FaultRecord, Head, MatrixArg, NONE};
use entwine_device::cpu::{Launch, Simulate, Whole, run};
use entwine_device::order::{ROWS_TOGETHER, row_major};
use entwine_device::{At, Channel, Matrix, Port, Route, SendReceive, Share, Stage, TileItem, bf16, walk};

use crate::ranks::{Ranks, Slots};
use crate::{all_gather, reduce_scatter};

struct Probe;

impl Channel for Probe {
    const INDEX: u32 = 0;
    const ROUTE: Route = Route::One;
    type Index = [u32; 2];
    type Item = TileItem<bf16, 64, 64>;
}

type Params = abi::Params<1, 1, 0>;
type ProbePort<'r> = Port<'r, Probe, SendReceive, Whole>;

/// Runs one tile on each rank.
unsafe fn probe(
    params: *const Head,
    cta: u32,
    tile: impl Fn(At<'_, 1, Whole>, ProbePort<'_>, Matrix<'_, bf16, Whole>, &Head),
) {
    let weave = |role: &Whole, params: &Params| {
        let stage = Stage {
            index: 7,
            grid: [1],
            share: Share { first: 0, count: 1 },
            from_end: false,
            rows_together: ROWS_TOGETHER,
        };
        let matrix = || Matrix::woven(role, &params.matrices[0]);
        walk(role, stage, row_major, |at| {
            tile(at, Port::woven(role, &params.channels[0]), matrix(), &params.head);
        });
    };
    unsafe { run(params, cta, weave) }
}

pub fn launch(ranks: &Ranks<1>, simulate: Simulate) -> Launch {
    let slots = [ranks.world, 2, 1, 1];
    let probes = Slots { slots, rows: 64, columns: 64, element: 2, pull: false, pieces: 1 };
    let empty = MatrixArg { parts: 1, ..MatrixArg::default() };
    // SAFETY: every test joins its launch before it drops the ranks.
    unsafe {
        ranks.launch(simulate, &[], [probes], |head, channels| Params {
            head,
            matrices: [empty],
            channels,
            scalars: [],
        })
    }
}

fn faults(world: u32, simulate: Simulate) -> Vec<FaultRecord> {
    let mut ranks = Ranks::new(world, 1);
    launch(&ranks, simulate).join();
    let faults = ranks.take_faults();
    still_works(&mut ranks);
    faults
}

fn still_works(ranks: &mut Ranks<1>) {
    ranks.lost = None;
    let problem = reduce_scatter::Problem::new(ranks.world, [200, 130, 8], 3, false);
    problem.launch(ranks).join();
    assert!(ranks.take_faults().is_empty());
    problem.check();
}

#[test]
fn a_lost_signal_is_named() {
    for pull in [false, true] {
        let mut ranks = Ranks::new(3, 2);
        let problem = reduce_scatter::Problem::new(3, [3 * 128, 256, 8], 0, pull);
        // What rank 2 sends as its tile [0, 1, 0] goes to slot [2, 1, 0].
        assert_eq!(problem.slots(), [3, 2, 2]);
        ranks.lost = Some((2, 0, 2 * 4 + 2));
        for epoch in [1, 3] {
            // Sent to rank 0 and to rank 1; both miss it.
            problem.launch(&ranks).join();
            let faults = ranks.take_faults();
            assert!(!faults.is_empty());
            for fault in faults {
                assert_eq!(fault.kind, FaultKind::MissingSignal as u32);
                assert_eq!((fault.stage, fault.tile), (0, [fault.rank, 1, 0, NONE]));
                assert_eq!((fault.channel, fault.slot, fault.peer), (0, [2, 1, 0, NONE], 2));
                assert_eq!(fault.expected, epoch);
                assert!(fault.seen < epoch);
            }
            still_works(&mut ranks);
            ranks.lost = Some((2, 0, 2 * 4 + 2));
        }
    }
}

/// Rank 1 waits for what rank 0 never sends, while rank 0 is busy until the launch is given up.
unsafe fn waits_for_a_busy_rank(params: *const Head, cta: u32) {
    let tile = |at: At<'_, 1, Whole>, port: ProbePort<'_>, mut matrix: Matrix<'_, bf16, Whole>, head: &Head| {
        if at.rank() == 1 {
            return matrix.tile([0, 0]).store(port.slot([0, 1]).load());
        }
        // SAFETY: the table of regions starts with that of rank 0, which starts with its control block.
        let abort = unsafe { AtomicU32::from_ptr(&raw mut (**(head.regions as *const *mut Control)).abort) };
        while abort.load(Ordering::Acquire) == 0 {
            sleep(Duration::from_millis(1));
        }
    };
    unsafe { probe(params, cta, tile) }
}

#[test]
fn a_wait_ends_at_its_deadline_while_others_are_busy() {
    let mut ranks = Ranks::new(2, 1);
    ranks.deadline = Duration::from_millis(50);
    launch(&ranks, waits_for_a_busy_rank).join();
    let [fault] = ranks.take_faults()[..] else { panic!("only the rank that waited has a fault") };
    assert_eq!((fault.kind, fault.rank, fault.stage), (FaultKind::MissingSignal as u32, 1, 7));
    assert_eq!((fault.slot, fault.peer), ([0, 1, NONE, NONE], 0));
    assert_eq!((fault.expected, fault.seen), (1, 0));
    ranks.deadline = Duration::from_secs(60);
    still_works(&mut ranks);
}

/// Every rank waits for the one before it, and would then send to the one after it.
pub unsafe fn waits_in_a_circle(params: *const Head, cta: u32) {
    let tile = |at: At<'_, 1, Whole>, port: ProbePort<'_>, mut matrix: Matrix<'_, bf16, Whole>, _: &Head| {
        matrix.tile([0, 0]).store(port.slot([(at.rank() + at.world() - 1) % at.world(), 0]).load());
        port.to((at.rank() + 1) % at.world()).slot([at.rank(), 0]).store(matrix.load([0, 0]));
    };
    unsafe { probe(params, cta, tile) }
}

#[test]
fn a_circle_is_a_deadlock() {
    let faults = faults(3, waits_in_a_circle);
    assert_eq!(faults.len(), 3);
    for fault in faults {
        assert_eq!(fault.kind, FaultKind::Deadlock as u32);
        assert_eq!(fault.peer, (fault.rank + 2) % 3);
        assert_eq!(fault.slot, [fault.peer, 0, NONE, NONE]);
    }
}

unsafe fn reads_beyond_an_array(params: *const Head, cta: u32) {
    let tile = |at: At<'_, 1, Whole>, port: ProbePort<'_>, mut matrix: Matrix<'_, bf16, Whole>, _: &Head| {
        if at.rank() == 1 {
            let table = &[0u32; 4][..at.coordinates().len()];
            assert_eq!(table[at.rank() as usize], 0);
        }
        matrix.tile([0, 0]).store(port.slot([1, 0]).load());
    };
    unsafe { probe(params, cta, tile) }
}

#[test]
fn a_panic_is_named_by_its_place() {
    let [fault] = faults(4, reads_beyond_an_array)[..] else { panic!("only the rank that panicked has a fault") };
    assert_eq!((fault.kind, fault.rank), (FaultKind::Panic as u32, 1));
    assert_eq!((fault.stage, fault.tile), (7, [0, NONE, NONE, NONE]));
    let file = std::str::from_utf8(&fault.file[..fault.file_length as usize]).unwrap();
    assert!(file.ends_with("faults.rs"), "{file}");
    let source = include_str!("faults.rs").lines().nth(fault.line as usize - 1).unwrap();
    assert!(source.contains("table[at.rank() as usize]"), "{source}");
}

unsafe fn sends_beyond_the_slots(params: *const Head, cta: u32) {
    let tile = |at: At<'_, 1, Whole>, port: ProbePort<'_>, matrix: Matrix<'_, bf16, Whole>, _: &Head| {
        if at.rank() == 0 {
            port.to(1).slot([0, 2]).store(matrix.load([0, 0]));
        }
    };
    unsafe { probe(params, cta, tile) }
}

unsafe fn sends_beyond_the_world(params: *const Head, cta: u32) {
    let tile = |at: At<'_, 1, Whole>, port: ProbePort<'_>, matrix: Matrix<'_, bf16, Whole>, _: &Head| {
        if at.rank() == 0 {
            port.to(at.world()).slot([0, 1]).store(matrix.load([0, 0]));
        }
    };
    unsafe { probe(params, cta, tile) }
}

unsafe fn receives_beyond_the_slots(params: *const Head, cta: u32) {
    let tile = |at: At<'_, 1, Whole>, port: ProbePort<'_>, mut matrix: Matrix<'_, bf16, Whole>, _: &Head| {
        if at.rank() == 0 {
            matrix.tile([0, 0]).store(port.slot([at.world(), 0]).load());
        }
    };
    unsafe { probe(params, cta, tile) }
}

#[test]
fn a_lost_signal_is_named_where_tiles_are_visited_as_they_arrive() {
    let mut ranks = Ranks::new(2, 1);
    ranks.lost = Some((0, 0, 1));
    let problem = all_gather::Problem::new(2, [4 * 128, 128, 8], false, 1);
    problem.launch::<true>(&ranks).join();
    let [fault] = ranks.take_faults()[..] else { panic!("only rank 1 misses a panel") };
    assert_eq!((fault.kind, fault.rank, fault.peer), (FaultKind::MissingSignal as u32, 1, 0));
    assert_eq!((fault.stage, fault.tile), (1, [0, 1, 0, NONE]));
    assert_eq!((fault.channel, fault.slot, fault.piece), (0, [0, 1, NONE, NONE], NONE));
}

#[test]
fn a_lost_signal_of_a_piece_is_named() {
    let mut ranks = Ranks::new(2, 3);
    ranks.lost = Some((0, 0, 0));
    let problem = all_gather::Problem::new(2, [4 * 128, 64, 300], false, 4);
    problem.launch::<false>(&ranks).join();
    let [fault] = ranks.take_faults()[..] else { panic!("only rank 1 misses a panel") };
    assert_eq!((fault.kind, fault.rank, fault.peer), (FaultKind::MissingSignal as u32, 1, 0));
    assert_eq!((fault.channel, fault.slot, fault.piece), (0, [0, 0, NONE, NONE], 0));
}

#[test]
fn a_piece_out_of_range_is_named() {
    let mut ranks = Ranks::new(2, 1);
    let mut problem = all_gather::Problem::new(2, [128, 64, 300], false, 2);
    problem.sent = 3;
    problem.launch::<false>(&ranks).join();
    let faults = ranks.take_faults();
    assert!(!faults.is_empty());
    for fault in faults {
        assert_eq!((fault.kind, fault.stage), (FaultKind::SlotOutOfRange as u32, 0));
        assert_eq!((fault.channel, fault.slot, fault.piece), (0, [fault.rank, 0, NONE, NONE], 2));
    }
}

#[test]
fn places_out_of_range_are_named() {
    let cases: [(Simulate, [u32; 2]); 3] =
        [(sends_beyond_the_slots, [0, 2]), (sends_beyond_the_world, [0, 1]), (receives_beyond_the_slots, [2, 0])];
    for (simulate, [first, second]) in cases {
        let [fault] = faults(2, simulate)[..] else { panic!("only rank 0 has a fault") };
        assert_eq!((fault.kind, fault.rank, fault.stage), (FaultKind::SlotOutOfRange as u32, 0, 7));
        assert_eq!((fault.channel, fault.slot), (0, [first, second, NONE, NONE]));
    }
}
