//! Tiles that are taken from a queue: each once, by whoever is free, and those that aren't ready later.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use entwine_device::abi::{self, FaultKind, FaultRecord, Head};
use entwine_device::cpu::{Simulate, Whole, run};
use entwine_device::order::{ROWS_TOGETHER, row_major};
use entwine_device::{
    At, Channel, Course, Matrix, Port, Queue, Role, Route, SendReceive, Share, Stage, TileItem, bf16, walk_beside,
    walk_ready_first,
};

use crate::ranks::{Ranks, Slots};
use crate::tensor::{Tensor, sample};

struct Word;

impl Channel for Word {
    const INDEX: u32 = 0;
    const ROUTE: Route = Route::One;
    type Index = [u32; 2];
    type Item = TileItem<bf16, 64, 64>;
}

type Params = abi::Params<1, 1, 0>;

fn port<'r>(role: &'r Whole, params: &Params) -> Port<'r, Word, SendReceive, Whole> {
    Port::woven(role, &params.channels[0])
}

fn stage(index: u32, tiles: u32, ctas: u32) -> Stage<1> {
    Stage {
        index,
        grid: [tiles],
        share: Share { first: 0, count: ctas },
        from_end: false,
        rows_together: ROWS_TOGETHER,
    }
}

/// Sends a tile to this rank itself, in a slot.
fn send(at: &At<'_, 1, Whole>, role: &Whole, params: &Params, slot: u32) {
    let from = Matrix::<bf16, _>::woven(role, &params.matrices[0]);
    port(role, params).to(at.rank()).slot([at.rank(), slot]).store(from.load::<64, 64>([0, 0]));
}

/// Launches a kernel so often, each time after the one before.
fn launch(ranks: &mut Ranks<1>, simulate: Simulate, times: u32) {
    for _ in 0..times {
        assert!(faults_of(ranks, simulate).is_empty());
    }
}

/// What went wrong with a launch.
fn faults_of(ranks: &mut Ranks<1>, simulate: Simulate) -> Vec<FaultRecord> {
    let from = Tensor::<bf16>::from_fn(64, 64, |row, column| sample(0, row, column));
    let slots = Slots { slots: [ranks.world, 2, 1, 1], rows: 64, columns: 64, element: 2, pull: false, pieces: 1 };
    let matrices = [from.arg(1)];
    // SAFETY: the launch is joined before the tensor and the ranks are dropped.
    let launch = unsafe {
        ranks.launch(simulate, &[], [slots], |head, channels| Params { head, matrices, channels, scalars: [] })
    };
    launch.join();
    ranks.take_faults()
}

/// The tiles that were visited, and by which CTA.
type Visits = Mutex<Vec<(u32, u32)>>;

fn visits(visited: &Visits) -> Vec<(u32, u32)> {
    std::mem::take(&mut *visited.lock().unwrap())
}

#[test]
fn who_is_free_takes_the_next() {
    static VISITED: Visits = Mutex::new(Vec::new());
    unsafe fn simulate(params: *const Head, cta: u32) {
        let weave = |role: &Whole, _: &Params| {
            walk_ready_first(
                role,
                stage(0, 30, 3),
                |_| None,
                |at| {
                    VISITED.lock().unwrap().push((at.coordinates()[0], role.cta()));
                    sleep(Duration::from_millis(if role.cta() == 0 { 300 } else { 5 }));
                },
            );
        };
        unsafe { run(params, cta, weave) }
    }
    let mut ranks = Ranks::new(1, 3);
    for _ in 0..2 {
        launch(&mut ranks, simulate, 1);
        let mut visited = visits(&VISITED);
        assert!(visited.iter().filter(|(_, cta)| *cta == 0).count() < 10, "the first CTA was held up: {visited:?}");
        visited.sort_unstable();
        assert!(visited.iter().map(|(tile, _)| *tile).eq(0..30), "{visited:?}");
    }
}

#[test]
fn what_is_not_ready_is_come_back_to() {
    static VISITED: Visits = Mutex::new(Vec::new());
    unsafe fn simulate(params: *const Head, cta: u32) {
        let weave = |role: &Whole, params: &Params| {
            let rank = params.head.rank;
            let slot = |[tile]: [u32; 1]| (tile < 2).then(|| port(role, params).slot([rank, tile]).place());
            walk_ready_first(role, stage(3, 8, 1), slot, |at| {
                let [tile] = at.coordinates();
                VISITED.lock().unwrap().push((tile, role.cta()));
                match tile {
                    // The second is ready before the first.
                    4 => send(&at, role, params, 1),
                    6 => send(&at, role, params, 0),
                    _ => {}
                }
            });
        };
        unsafe { run(params, cta, weave) }
    }
    let mut ranks = Ranks::new(1, 1);
    launch(&mut ranks, simulate, 1);
    let visited: Vec<_> = visits(&VISITED).into_iter().map(|(tile, _)| tile).collect();
    assert_eq!(visited, [2, 3, 4, 1, 5, 6, 0, 7]);
}

/// Two CTAs, of which the second begins later, visit tiles that all wait for the last of them: who visits that.
unsafe fn wait_for_the_last<const TILES: u32, const LAST: u32>(params: *const Head, cta: u32, visited: &Visits) {
    let weave = |role: &Whole, params: &Params| {
        if role.cta() == 1 {
            sleep(Duration::from_millis(200));
        }
        let rank = params.head.rank;
        let slot = |[tile]: [u32; 1]| (tile < LAST).then(|| port(role, params).slot([rank, 0]).place());
        walk_ready_first(role, stage(0, TILES, 2), slot, |at| {
            let [tile] = at.coordinates();
            visited.lock().unwrap().push((tile, role.cta()));
            if tile == LAST {
                send(&at, role, params, 0);
            }
        });
    };
    unsafe { run(params, cta, weave) }
}

#[test]
fn a_cta_puts_no_more_by_than_there_is_room_for() {
    static VISITED: Visits = Mutex::new(Vec::new());
    unsafe fn simulate(params: *const Head, cta: u32) {
        unsafe { wait_for_the_last::<100, { Queue::PUT_BY + 3 }>(params, cta, &VISITED) }
    }
    for _ in 0..2 {
        launch(&mut Ranks::new(1, 2), simulate, 1);
        let mut visited = visits(&VISITED);
        assert!(visited.contains(&(Queue::PUT_BY + 3, 1)), "the first CTA had room for more: {visited:?}");
        visited.sort_unstable();
        assert!(visited.iter().map(|(tile, _)| *tile).eq(0..100), "{visited:?}");
    }
}

#[test]
fn a_cta_puts_no_more_by_than_an_even_share() {
    static VISITED: Visits = Mutex::new(Vec::new());
    unsafe fn simulate(params: *const Head, cta: u32) {
        unsafe { wait_for_the_last::<20, 15>(params, cta, &VISITED) }
    }
    launch(&mut Ranks::new(1, 2), simulate, 1);
    let visited = visits(&VISITED);
    assert!(visited.contains(&(15, 1)), "the first CTA drew more: {visited:?}");
    assert_eq!(visited.len(), 20);
}

#[test]
fn a_slot_that_is_not_there_is_blamed_on_the_tile_that_waits_for_it() {
    unsafe fn simulate(params: *const Head, cta: u32) {
        let weave = |role: &Whole, params: &Params| {
            let slot = |[tile]: [u32; 1]| (tile == 2).then(|| port(role, params).slot([params.head.rank, 2]).place());
            walk_ready_first(role, stage(4, 5, 1), slot, |_| {});
        };
        unsafe { run(params, cta, weave) }
    }
    let mut ranks = Ranks::new(1, 1);
    let faults = faults_of(&mut ranks, simulate);
    assert_eq!((faults[0].kind, faults[0].stage), (FaultKind::SlotOutOfRange as u32, 4));
    assert_eq!((faults[0].tile[0], faults[0].slot[1]), (2, 2));
}

#[test]
fn tiles_beside_others_are_taken_when_they_are_ready() {
    static VISITED: Visits = Mutex::new(Vec::new());
    unsafe fn simulate(params: *const Head, cta: u32) {
        let weave = |role: &Whole, params: &Params| {
            let rank = params.head.rank;
            let note = |tile| VISITED.lock().unwrap().push((tile, role.cta()));
            walk_beside(
                role,
                stage(0, 6, 1),
                row_major,
                |at: At<'_, 1, Whole>| {
                    let [tile] = at.coordinates();
                    note(tile);
                    if tile % 3 == 1 {
                        send(&at, role, params, tile / 3);
                    }
                },
                Course::new(role, stage(1, 2, 1), row_major),
                |[tile]| Some(port(role, params).slot([rank, tile]).place()),
                |at: At<'_, 1, Whole>| note(100 + at.coordinates()[0]),
            );
        };
        unsafe { run(params, cta, weave) }
    }
    let mut ranks = Ranks::new(1, 1);
    launch(&mut ranks, simulate, 1);
    let visited: Vec<_> = visits(&VISITED).into_iter().map(|(tile, _)| tile).collect();
    assert_eq!(visited, [0, 1, 100, 2, 3, 4, 101, 5]);
}
