//! Tiles that are taken from a queue: each once, by whoever is free, and those that aren't ready later.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use entwine_device::abi::{self, Head};
use entwine_device::cpu::{Simulate, Whole, run};
use entwine_device::order::row_major;
use entwine_device::{
    At, Channel, Course, Matrix, Port, Role, Route, SendReceive, Share, Stage, TileItem, bf16, walk_beside,
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
    Stage { index, grid: [tiles], share: Share { first: 0, count: ctas }, from_end: false, rows_together: 16 }
}

/// Sends a tile to this rank itself, in a slot.
fn send(at: &At<'_, 1, Whole>, role: &Whole, params: &Params, slot: u32) {
    let from = Matrix::<bf16, _>::woven(role, &params.matrices[0]);
    port(role, params).to(at.rank()).slot([at.rank(), slot]).store(from.load::<64, 64>([0, 0]));
}

/// Launches a kernel so often, each time after the one before.
fn launch(ranks: &mut Ranks<1>, simulate: Simulate, times: u32) {
    let from = Tensor::<bf16>::from_fn(64, 64, |row, column| sample(0, row, column));
    for _ in 0..times {
        let slots = Slots { slots: [ranks.world, 2, 1, 1], rows: 64, columns: 64, element: 2, pull: false, pieces: 1 };
        // SAFETY: the launch is joined before the tensor and the ranks are dropped.
        let launch = unsafe {
            ranks.launch(simulate, &[], [slots], |head, channels| Params {
                head,
                matrices: [from.arg(1)],
                channels,
                scalars: [],
            })
        };
        launch.join();
        assert!(ranks.take_faults().is_empty());
    }
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

#[test]
fn more_tiles_wait_than_a_cta_puts_by() {
    static VISITED: Visits = Mutex::new(Vec::new());
    unsafe fn simulate(params: *const Head, cta: u32) {
        let weave = |role: &Whole, params: &Params| {
            let rank = params.head.rank;
            // All but the last wait for the last, which another CTA comes to if this one has no room for more.
            let slot = |[tile]: [u32; 1]| (tile < 40).then(|| port(role, params).slot([rank, 0]).place());
            walk_ready_first(role, stage(0, 41, 2), slot, |at| {
                let [tile] = at.coordinates();
                VISITED.lock().unwrap().push((tile, role.cta()));
                if tile == 40 {
                    send(&at, role, params, 0);
                }
            });
        };
        unsafe { run(params, cta, weave) }
    }
    let mut ranks = Ranks::new(2, 2);
    launch(&mut ranks, simulate, 3);
    let mut visited: Vec<_> = visits(&VISITED).into_iter().map(|(tile, _)| tile).collect();
    visited.sort_unstable();
    // Of two ranks, in three launches.
    assert!(visited.chunks(6).map(|tiles| (tiles[0], tiles[5])).eq((0..41).map(|tile| (tile, tile))), "{visited:?}");
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
