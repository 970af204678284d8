//! Events, as a log's rows tell of them.

use entwine_device::abi::{ChannelArg, MAX_AXES, NONE};
use entwine_device::log::{EventKind, Mark, NOBODY, Recorder};

use super::Event;
use crate::log::Row;
use crate::spec::{Extent, KernelSpec};

/// The events of all rows, each with its time on its rank's clock.
pub(super) fn events(kernel: &KernelSpec, channels: &[ChannelArg], rows: &[Row]) -> Vec<(Event, i64)> {
    let mut events = Vec::new();
    for cta in rows.chunk_by(|a, b| (a.rank, a.cta) == (b.rank, b.cta)) {
        let known = cta.iter().find(|row| row.recorder == Recorder::Communication);
        let known: Vec<_> = known.map(|row| decode(kernel, channels, row, &[])).unwrap_or_default();
        let tiles: Vec<_> =
            known.iter().filter(|(event, _)| event.kind == EventKind::Begin).map(|(event, _)| event.tile).collect();
        for row in cta {
            events.extend(decode(kernel, channels, row, &tiles));
        }
    }
    events
}

/// A row's events. `tiles` are those of the math warpgroups, which note none.
fn decode(kernel: &KernelSpec, channels: &[ChannelArg], row: &Row, tiles: &[[u32; MAX_AXES]]) -> Vec<(Event, i64)> {
    let mut events: Vec<(Event, i64)> = Vec::new();
    let mut entries = row.entries.iter();
    let mut tiles = tiles.iter();
    let (mut stage, mut tile) = (NONE, [NONE; MAX_AXES]);
    while let Some((mark, at)) = entries.next().and_then(|entry| Mark::read(*entry)) {
        let at = at as i64;
        let mut push = |kind, stage, tile| {
            let channel = if kind == EventKind::Begin { NOBODY } else { mark.of };
            let of = channels.get(channel as usize);
            let axes = kernel.channels.get(channel as usize).map_or(&[][..], |channel| channel.slots);
            let arity = axes.len();
            // A receiver knows its sender by the slot alone, and takes the first coordinate for it if there are as many as
            // ranks, by chance too.
            let told = kind == EventKind::Send || matches!(axes.first(), Some(Extent::World));
            let event = Event {
                kind,
                rank: row.rank,
                cta: row.cta,
                recorder: row.recorder,
                stage,
                tile,
                channel: if of.is_some() { channel } else { NONE },
                slot: of.map_or([NONE; MAX_AXES], |of| split(mark.signal / of.pieces, &of.slots, arity)),
                piece: of.map_or(NONE, |of| if of.pieces > 1 { mark.signal % of.pieces } else { NONE }),
                peer: if mark.peer == NOBODY || !told { NONE } else { mark.peer },
                at: 0,
            };
            events.push((event, at));
        };
        match mark.kind {
            EventKind::Begin => {
                // A role goes on to its next tile without a word.
                if stage != NONE {
                    push(EventKind::End, stage, tile);
                }
                stage = mark.of;
                let noted = if row.recorder == Recorder::Math { tiles.next() } else { entries.next() };
                tile = noted.copied().unwrap_or([NONE; MAX_AXES]);
                push(EventKind::Begin, stage, tile);
            }
            EventKind::End => {
                push(EventKind::End, stage, tile);
                (stage, tile) = (NONE, [NONE; MAX_AXES]);
            }
            kind => push(kind, stage, tile),
        }
    }
    events
}

/// The coordinates of a position among slots.
fn split(position: u32, extents: &[u32; MAX_AXES], arity: usize) -> [u32; MAX_AXES] {
    let mut coordinates = [NONE; MAX_AXES];
    let mut rest = position;
    for axis in (0..MAX_AXES).rev() {
        let extent = extents[axis].max(1);
        if axis < arity {
            coordinates[axis] = rest % extent;
        }
        rest /= extent;
    }
    coordinates
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::super::testing::*;
    use super::*;
    use crate::spec::{ChannelSpec, ElementSpec, ItemSpec};
    use crate::testing::SPEC;
    use EventKind::*;

    #[test]
    fn positions_are_split_into_coordinates() {
        assert_eq!(split(23, &[2, 3, 4, 1], 3), [1, 2, 3, NONE]);
        assert_eq!(split(4, &[9, 1, 1, 1], 1), [4, NONE, NONE, NONE]);
    }

    #[test]
    fn a_tile_ends_where_the_next_begins_and_the_math_warpgroups_tiles_are_those_of_the_communication_thread() {
        let events = [(Begin, NOBODY, 5), (Begin, NOBODY, 9), (End, NOBODY, 12)];
        let rows = [row(1, 4, Recorder::Communication, &events), row(1, 4, Recorder::Math, &events)];
        let timeline = timeline(2, &rows, true);
        for recorder in [Recorder::Communication, Recorder::Math] {
            let of = timeline.events().iter().filter(|event| event.recorder == recorder);
            let seen: Vec<_> = of.map(|event| (event.kind, event.tile[1], event.at)).collect();
            assert_eq!(seen, [(Begin, 4, 0), (End, 4, 4), (Begin, 4, 4), (End, 4, 7)], "{recorder:?}");
        }
    }

    #[test]
    fn what_happens_between_tiles_belongs_to_none() {
        let events = [(Begin, NOBODY, 1), (End, NOBODY, 2), (Wait, NOBODY, 2), (Ready, NOBODY, 3), (Begin, NOBODY, 4)];
        let timeline = timeline(2, &[row(0, 0, Recorder::Loader, &events)], true);
        let stages: Vec<_> = timeline.events().iter().map(|event| event.stage).collect();
        assert_eq!(stages, [0, 0, NONE, NONE, 0]);
    }

    #[test]
    fn a_slot_is_named_by_its_coordinates_and_its_peer() {
        let timeline = two_ranks();
        let ready = timeline.events().iter().find(|event| event.kind == Ready).unwrap();
        assert_eq!((ready.channel, ready.slot, ready.peer), (0, [1, 0, 0, NONE], 1));
    }

    #[test]
    fn a_sender_that_the_slot_does_not_tell_is_not_named() {
        let item =
            ItemSpec::Tile { element: ElementSpec::Variant, rows: Extent::TileRows, columns: Extent::TileColumns };
        let channel = ChannelSpec {
            slots: &[Extent::Dim(0), Extent::Dim(1)],
            item,
            pieces: Extent::Literal(1),
            height: Extent::Literal(u32::MAX),
            ..SPEC.channels[0]
        };
        let spec = KernelSpec { channels: vec![channel].leak(), ..SPEC };
        let row = row(0, 0, Recorder::Whole, &[(Send, 1, 1), (Wait, 1, 2), (Ready, 1, 3)]);
        let channel = ChannelArg { slots: [2, 1, 1, 1], pieces: 1, ..ChannelArg::default() };
        let peers =
            |spec| events(spec, &[channel], slice::from_ref(&row)).iter().map(|(event, _)| event.peer).collect();
        let told: Vec<_> = peers(&SPEC);
        assert_eq!(told, [1, 1, 1]);
        let told: Vec<_> = peers(&spec);
        assert_eq!(told, [1, NONE, NONE]);
    }
}
