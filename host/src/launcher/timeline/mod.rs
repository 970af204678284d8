//! What the CTAs of a launch did when: how computing and communicating overlapped.

mod chrome;
mod clocks;
mod read;
mod slices;
mod svg;
mod text;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use entwine_device::abi::{ChannelArg, MAX_AXES, NONE};
pub use entwine_device::log::{EventKind, Recorder};

pub use self::clocks::Clock;
pub use self::slices::{Activity, Slice, Summary};
use crate::log::Row;
use crate::spec::KernelSpec;

/// The record of one launch. Displays as one line for each CTA, from left to right.
#[derive(Debug, Clone)]
pub struct Timeline {
    kernel: &'static KernelSpec,
    called: Instant,
    /// By rank, CTA and recorder, and in the order in which they happened there.
    events: Vec<Event>,
    dropped: u64,
    clocks: Vec<Clock>,
    /// What rank 0's clock showed at the first event.
    origin: i64,
}

/// Something that a role of a CTA did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// The CTA's rank.
    pub rank: u32,
    /// The CTA.
    pub cta: u32,
    /// Which of its roles.
    pub recorder: Recorder,
    /// The stage's index in the kernel, or [`NONE`].
    pub stage: u32,
    /// The tile's coordinates; [`NONE`] beyond the stage's arity, or where it isn't known.
    pub tile: [u32; MAX_AXES],
    /// The channel's index, or [`NONE`].
    pub channel: u32,
    /// The slot's coordinates; [`NONE`] beyond the channel's arity.
    pub slot: [u32; MAX_AXES],
    /// The piece of the slot, or [`NONE`] where slots are sent as a whole.
    pub piece: u32,
    /// The rank that was sent to, or received from; [`NONE`] for all others, or where it can't be told.
    pub peer: u32,
    /// When: nanoseconds from the first event of the launch, on the clock of rank 0.
    pub at: u64,
}

/// A slot of one receiver, or a piece of it: channel, coordinates, piece, and the receiver's rank.
type Arrival = (u32, [u32; MAX_AXES], u32, u32);

impl Event {
    /// The slots that a send fills, or the one that a receive waited for.
    fn arrivals(&self, world: u32) -> Vec<Arrival> {
        let of = |receiver| (self.channel, self.slot, self.piece, receiver);
        match self.kind {
            EventKind::Send if self.peer == NONE => (0..world).filter(|rank| *rank != self.rank).map(of).collect(),
            EventKind::Send => vec![of(self.peer)],
            EventKind::Ready if self.channel != NONE => vec![of(self.rank)],
            _ => Vec::new(),
        }
    }
}

impl Timeline {
    /// Reads a launch's log, with the channels as the launch had them; `one_clock` says that all ranks have the same.
    pub(crate) fn new(
        kernel: &'static KernelSpec,
        world: usize,
        channels: &[ChannelArg],
        rows: &[Row],
        one_clock: bool,
        called: Instant,
    ) -> Self {
        let dropped = rows.iter().map(|row| row.dropped).sum();
        let mut timed = read::events(kernel, channels, rows);
        let clocks = if one_clock { vec![Clock::SHARED; world] } else { clocks::estimate(&timed, world) };
        for (event, at) in &mut timed {
            *at -= clocks[event.rank as usize].offset_ns;
        }
        let origin = timed.iter().map(|(_, at)| *at).min().unwrap_or(0);
        let events = timed.into_iter().map(|(event, at)| Event { at: (at - origin) as u64, ..event }).collect();
        Timeline { kernel, called, events, dropped, clocks, origin }
    }

    /// The events, by rank, CTA and recorder, and in the order in which they happened there.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many events there was no room for: the last ones of some CTAs.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How each rank's clock relates to that of rank 0.
    pub fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    /// The time of an event on its rank's own clock, in nanoseconds: on a GPU, what `%globaltimer` showed.
    pub fn on_own_clock(&self, event: &Event) -> u64 {
        (self.origin + event.at as i64 + self.clocks[event.rank as usize].offset_ns) as u64
    }

    /// When the launch was called on the host, without the time that it took to make room for the record.
    pub fn called(&self) -> Instant {
        self.called
    }

    /// From the first event to the last.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end())
    }

    /// How many tiles a rank sent, and how many of them while it had tiles left to begin with.
    pub fn sends(&self, rank: u32) -> (usize, usize) {
        let of = |kind| self.events.iter().filter(move |event| event.rank == rank && event.kind == kind);
        let last_begin = of(EventKind::Begin).map(|event| event.at).max();
        let overlapped = of(EventKind::Send).filter(|event| last_begin.is_some_and(|last| event.at < last));
        (of(EventKind::Send).count(), overlapped.count())
    }

    /// Each send with the receives that it released: for each receiver the first wait for that slot to end.
    pub fn arrows(&self) -> Vec<(&Event, &Event)> {
        let mut ready: HashMap<Arrival, &Event> = HashMap::new();
        for event in self.events.iter().filter(|event| event.kind == EventKind::Ready) {
            for arrival in event.arrivals(self.world()) {
                let first = ready.entry(arrival).or_insert(event);
                if event.at < first.at {
                    *first = event;
                }
            }
        }
        let sends = self.events.iter().filter(|event| event.kind == EventKind::Send);
        sends
            .flat_map(|send| send.arrivals(self.world()).into_iter().map(move |arrival| (send, arrival)))
            .filter_map(|(send, arrival)| Some((send, *ready.get(&arrival)?)))
            .collect()
    }

    /// Writes the record to a file: as a trace for Perfetto or Chrome (`.json`), or as a picture (`.svg`).
    ///
    /// # Errors
    /// The file's name ends otherwise, or it can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => {
                let mut file = BufWriter::new(File::create(path)?);
                self.write_chrome_trace(&mut file)?;
                file.flush()
            }
            Some("svg") => std::fs::write(path, self.to_svg()),
            _ => {
                let problem = format!("expected a name that ends in .json or .svg, found `{}`", path.display());
                Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
            }
        }
    }

    fn world(&self) -> u32 {
        self.clocks.len() as u32
    }

    fn end(&self) -> u64 {
        self.events.iter().map(|event| event.at).max().unwrap_or(0)
    }

    /// The events of each role of each CTA.
    fn rows(&self) -> impl Iterator<Item = &[Event]> {
        self.events.chunk_by(|a, b| (a.rank, a.cta, a.recorder) == (b.rank, b.cta, b.recorder))
    }

    /// A stage's name.
    fn stage(&self, stage: u32) -> &'static str {
        self.kernel.stages.get(stage as usize).map_or("between tiles", |stage| stage.name)
    }

    /// What is known of the clocks, for readers.
    fn clock_notes(&self) -> Vec<String> {
        let notes = self.clocks.iter().enumerate().skip(1).map(|(rank, clock)| match clock.uncertainty_ns {
            Some(0) if *clock == Clock::SHARED => "All ranks have one clock.".to_owned(),
            Some(uncertainty) => format!("The clock of rank {rank} is aligned to ±{:.2} µs.", uncertainty as f64 / 1e3),
            None => format!("The clock of rank {rank} could not be aligned: its first event is put at the start."),
        });
        let mut notes: Vec<_> = notes.collect();
        notes.dedup();
        if self.dropped > 0 {
            notes.push(format!("{} events are missing: there was no room for them.", self.dropped));
        }
        notes
    }
}

/// Coordinates, as far as there are any.
fn coordinates(coordinates: &[u32; MAX_AXES]) -> &[u32] {
    let arity = coordinates.iter().position(|coordinate| *coordinate == NONE).unwrap_or(MAX_AXES);
    &coordinates[..arity]
}

#[cfg(test)]
mod testing {
    use entwine_device::log::{Mark, NOBODY, coordinates};

    use super::*;
    use crate::testing::SPEC;

    /// A row of events, each with its peer and its time; those with a peer concern the slot of channel 0 that has the
    /// sender's number.
    pub(super) fn row(rank: u32, cta: u32, recorder: Recorder, events: &[(EventKind, u32, u64)]) -> Row {
        let mut entries = Vec::new();
        for &(kind, peer, at) in events {
            let of = if peer != NOBODY || kind == EventKind::Begin { 0 } else { NOBODY };
            let signal = if kind == EventKind::Send { rank } else { peer };
            entries.push(Mark { kind, of, peer, signal }.entry(at));
            if kind == EventKind::Begin && recorder != Recorder::Math {
                entries.push(coordinates([rank, cta, 0, NONE]));
            }
        }
        Row { rank, cta, recorder, entries, dropped: 0 }
    }

    pub(super) fn timeline(world: usize, rows: &[Row], one_clock: bool) -> Timeline {
        let channel = ChannelArg { slots: [world as u32, 1, 1, 1], pieces: 1, ..ChannelArg::default() };
        Timeline::new(&SPEC, world, &[channel], rows, one_clock, Instant::now())
    }

    /// Two ranks on one clock: rank 0 computes and receives what rank 1 sends.
    pub(super) fn two_ranks() -> Timeline {
        use EventKind::*;
        let quiet = |kind, at: u64| (kind, NOBODY, at * 1_000_000);
        let one = [
            quiet(Begin, 100),
            quiet(End, 136),
            quiet(Begin, 136),
            (Wait, 1, 140_000_000),
            (Ready, 1, 160_000_000),
            quiet(End, 172),
        ];
        let other = [quiet(Begin, 100), quiet(Begin, 136), (Send, 0, 150_000_000), quiet(End, 154)];
        timeline(2, &[row(0, 0, Recorder::Whole, &one), row(1, 0, Recorder::Whole, &other)], true)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::*;
    use super::*;

    #[test]
    fn sends_before_the_last_tile_overlap() {
        let timeline = two_ranks();
        assert_eq!(timeline.sends(0), (0, 0));
        assert_eq!(timeline.sends(1), (1, 0));
    }

    #[test]
    fn an_arrow_goes_from_a_send_to_what_it_released() {
        let timeline = two_ranks();
        let arrows = timeline.arrows();
        let [(send, ready)] = arrows[..] else { panic!("{arrows:?}") };
        assert_eq!((send.kind, send.rank, send.at), (EventKind::Send, 1, 50_000_000));
        assert_eq!((ready.kind, ready.rank, ready.at), (EventKind::Ready, 0, 60_000_000));
    }

    #[test]
    fn a_file_is_written_by_its_extension() {
        let folder = std::env::temp_dir().join(format!("entwine-timeline-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let timeline = two_ranks();
        for name in ["a.json", "a.svg"] {
            timeline.save(folder.join(name)).unwrap();
            assert!(std::fs::metadata(folder.join(name)).unwrap().len() > 0);
        }
        let error = timeline.save(folder.join("a.txt")).unwrap_err();
        assert!(error.to_string().contains("ends in .json or .svg"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
