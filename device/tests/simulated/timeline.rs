//! What the CTAs note of a launch.

use entwine_device::log::{EventKind, Mark, Recorder};

use crate::all_gather;
use crate::ranks::{Entry, Ranks};

/// An event, with its rank and the tile that it belongs to.
#[derive(Debug, PartialEq)]
struct Noted {
    rank: u32,
    tile: [u32; 4],
    mark: Mark,
    at: u64,
}

fn events() -> Vec<Noted> {
    let mut ranks = Ranks::new(2, 2);
    ranks.keep_logs();
    all_gather::Problem::new(2, [512, 128, 8], false, 1).launch::<false>(&ranks).join();
    let rows = (0..2).flat_map(|rank| ranks.log(rank).into_iter().map(move |row| (rank, row)));
    rows.flat_map(|(rank, row)| read(rank, &row)).collect()
}

fn read(rank: u32, row: &[Entry]) -> Vec<Noted> {
    let mut tile = [0; 4];
    let mut entries = row.iter();
    let mut events = Vec::new();
    while let Some(entry) = entries.next() {
        let (mark, at) = Mark::read(*entry).expect("an event");
        if mark.kind == EventKind::Begin {
            tile = *entries.next().expect("the tile's coordinates");
        }
        events.push(Noted { rank, tile, mark, at });
    }
    events
}

#[test]
fn every_tile_is_noted_with_what_it_sends_and_waits_for() {
    let events = events();
    let of = |kind| events.iter().filter(move |event| event.mark.kind == kind);
    // Each rank gathers two panels and computes two columns of tiles for all four.
    assert_eq!(of(EventKind::Begin).count(), 2 * (2 + 8));
    assert_eq!(of(EventKind::Multiply).count(), 2 * 8);
    assert_eq!(of(EventKind::Multiplied).count(), 2 * 8);
    assert_eq!(of(EventKind::Send).count(), 2 * 2);
    assert_eq!([EventKind::Start, EventKind::End].map(|kind| of(kind).count()), [4, 4]);
    assert_eq!([EventKind::Wait, EventKind::Ready].map(|kind| of(kind).count()), [2 * 4, 2 * 4]);
    for ready in of(EventKind::Ready) {
        let [owner, row, ..] = ready.tile;
        let Mark { of: channel, peer, signal, .. } = ready.mark;
        assert_eq!((channel, peer, signal), (0, owner, owner * 2 + row));
        let sent = of(EventKind::Send).find(|sent| sent.mark.signal == signal).expect("what arrived was sent");
        assert!((sent.rank, sent.mark.peer) == (owner, ready.rank) && sent.at <= ready.at);
    }
}

#[test]
fn a_full_log_counts_what_it_has_no_room_for() {
    let mut ranks = Ranks::new(1, 1);
    ranks.keep_logs();
    all_gather::Problem::new(1, [128 * 64, 128, 8], false, 1).launch::<false>(&ranks).join();
    let row = Recorder::Whole as usize;
    assert_eq!(ranks.log(0)[row].len(), 256);
    assert!(ranks.noted(0)[row] > 256);
}
