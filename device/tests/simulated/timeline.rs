//! What the fabric records of a launch.

use entwine_device::cpu::{Event, EventKind};

use crate::all_gather;
use crate::ranks::Ranks;

fn events(recording: bool) -> Vec<Event> {
    let ranks = Ranks::new(2, 2);
    ranks.fabric.record_events(recording);
    all_gather::Problem::new(2, [512, 128, 8], false).launch::<false>(&ranks).join();
    ranks.fabric.take_events()
}

#[test]
fn every_tile_begins_and_ends() {
    let events = events(true);
    let of = |kind| events.iter().filter(move |event| event.kind == kind);
    // Each rank gathers two panels and computes two columns of tiles for all four.
    assert_eq!(of(EventKind::Begin).count(), 2 * (2 + 8));
    assert_eq!(of(EventKind::Send).count(), 2 * 2);
    assert_eq!(of(EventKind::Ready).count(), 2 * 4);
    let pairs = |from, to| of(from).all(|first| of(to).any(|then| same_place(first, then) && then.at >= first.at));
    assert!(pairs(EventKind::Begin, EventKind::End));
    assert!(pairs(EventKind::Wait, EventKind::Ready));
    for ready in of(EventKind::Ready) {
        let [owner, row, ..] = ready.tile;
        assert_eq!((ready.stage, ready.channel, &ready.slot[..2]), (1, 0, &[owner, row][..]));
        let sent = of(EventKind::Send).find(|sent| sent.slot == ready.slot).expect("what arrived was sent");
        assert!(sent.rank == owner && ready.rank != owner);
    }
}

fn same_place(left: &Event, right: &Event) -> bool {
    let place = |event: &Event| (event.rank, event.cta, event.stage, event.tile, event.slot);
    place(left) == place(right)
}

#[test]
fn nothing_is_recorded_unless_asked_for() {
    assert!(events(false).is_empty());
}
