//! What the CTAs of a launch did when: how computing and communicating overlapped.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use entwine_device::cpu::{Event, EventKind};

use crate::spec::KernelSpec;

/// Characters of a rendered line.
const WIDTH: usize = 72;

/// The record of one launch. Displays as one line for each CTA, from left to right.
#[derive(Debug, Clone)]
pub struct Timeline {
    kernel: &'static KernelSpec,
    events: Vec<Event>,
}

impl Timeline {
    pub(crate) fn new(kernel: &'static KernelSpec, events: Vec<Event>) -> Self {
        Timeline { kernel, events }
    }

    /// The events, in the order in which they happened on each CTA.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// From the first event to the last.
    pub fn duration(&self) -> Duration {
        self.span().map_or(Duration::ZERO, |(start, end)| end - start)
    }

    /// How many tiles a rank sent, and how many of them while it had tiles left to begin with.
    pub fn sends(&self, rank: u32) -> (usize, usize) {
        let of = |kind| self.events.iter().filter(move |event| event.rank == rank && event.kind == kind);
        let last_begin = of(EventKind::Begin).map(|event| event.at).max();
        let overlapped = of(EventKind::Send).filter(|event| last_begin.is_some_and(|last| event.at < last));
        (of(EventKind::Send).count(), overlapped.count())
    }

    /// The part of its busy time that a rank's CTAs spent waiting for signals, from 0 to 1.
    pub fn waiting(&self, rank: u32) -> f64 {
        let mut busy = Duration::ZERO;
        let mut waiting = Duration::ZERO;
        for events in self.ctas().into_iter().filter(|((of, _), _)| *of == rank).map(|(_, events)| events) {
            for pair in events.windows(2) {
                let time = pair[1].at - pair[0].at;
                match pair[0].kind {
                    EventKind::End => {}
                    EventKind::Wait => (busy, waiting) = (busy + time, waiting + time),
                    _ => busy += time,
                }
            }
        }
        if busy.is_zero() { 0.0 } else { waiting.as_secs_f64() / busy.as_secs_f64() }
    }

    fn span(&self) -> Option<(Instant, Instant)> {
        let times = || self.events.iter().map(|event| event.at);
        Some((times().min()?, times().max()?))
    }

    /// The events of each rank and CTA.
    fn ctas(&self) -> BTreeMap<(u32, u32), Vec<&Event>> {
        let mut ctas: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for event in &self.events {
            ctas.entry((event.rank, event.cta)).or_default().push(event);
        }
        ctas
    }

    /// One CTA's line.
    fn line(&self, start: Instant, events: &[&Event]) -> String {
        let total = self.duration().as_secs_f64().max(f64::MIN_POSITIVE);
        let cell = |at: Instant| (((at - start).as_secs_f64() / total * WIDTH as f64) as usize).min(WIDTH - 1);
        let mut cells = [' '; WIDTH];
        for pair in events.windows(2) {
            let mark = match pair[0].kind {
                EventKind::End => continue,
                EventKind::Wait => '·',
                _ => letter(pair[0].stage),
            };
            for cell in &mut cells[cell(pair[0].at)..=cell(pair[1].at)] {
                *cell = mark;
            }
        }
        for event in events.iter().filter(|event| event.kind == EventKind::Send) {
            cells[cell(event.at)] = '>';
        }
        cells.iter().collect::<String>()
    }
}

/// How a stage is drawn.
fn letter(stage: u32) -> char {
    (b'A' + (stage % 26) as u8) as char
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((start, _)) = self.span() else { return writeln!(f, "{}: nothing was recorded", self.kernel.name) };
        writeln!(f, "{}: {:.1?} from left to right", self.kernel.name, self.duration())?;
        let ctas = self.ctas();
        for (&(rank, cta), events) in &ctas {
            writeln!(f, "  rank {rank} CTA {cta:<3} |{}|", self.line(start, events))?;
        }
        let stages =
            self.kernel.stages.iter().zip(0..).map(|(stage, index)| format!("{} {}", letter(index), stage.name));
        writeln!(f, "  {}, > a tile is sent, · waits for one", stages.collect::<Vec<_>>().join(", "))?;
        let mut ranks: Vec<_> = ctas.keys().map(|(rank, _)| *rank).collect();
        ranks.dedup();
        for rank in ranks {
            let (sent, overlapped) = self.sends(rank);
            let waiting = self.waiting(rank) * 100.0;
            writeln!(
                f,
                "  rank {rank}: {overlapped} of {sent} tiles sent while it still had tiles to begin; {waiting:.0} % of the \
                 time waiting"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;
    use EventKind::{Begin, End, Ready, Send, Wait};

    fn timeline() -> Timeline {
        let start = Instant::now();
        let event = |kind, rank, at| Event {
            kind,
            rank,
            cta: 0,
            stage: 0,
            tile: [0; 4],
            channel: 0,
            slot: [0; 4],
            at: start + Duration::from_millis(at),
        };
        let one = [(Begin, 0), (Send, 30), (End, 36), (Begin, 36), (Wait, 40), (Ready, 60), (End, 72)];
        let other = [(Begin, 0), (End, 36), (Begin, 36), (Send, 50), (End, 54)];
        let events = one.map(|(kind, at)| event(kind, 0, at)).into_iter();
        Timeline::new(&SPEC, events.chain(other.map(|(kind, at)| event(kind, 1, at))).collect())
    }

    #[test]
    fn sends_before_the_last_tile_overlap() {
        let timeline = timeline();
        assert_eq!(timeline.sends(0), (1, 1));
        assert_eq!(timeline.sends(1), (1, 0));
    }

    #[test]
    fn waiting_is_part_of_busy_time() {
        let waiting = timeline().waiting(0);
        assert!((waiting - 20.0 / 72.0).abs() < 1e-9, "{waiting}");
        assert_eq!(timeline().waiting(1), 0.0);
    }

    #[test]
    fn lines_show_work_sends_waits_and_idleness() {
        let text = timeline().to_string();
        let lines: Vec<_> = text.lines().collect();
        let work = "A".repeat(30) + ">" + &"A".repeat(9) + &"·".repeat(20) + &"A".repeat(12);
        assert_eq!(lines[1], format!("  rank 0 CTA 0   |{work}|"));
        assert!(lines[2].ends_with(&format!("A{}|", " ".repeat(17))), "{}", lines[2]);
        assert_eq!(lines[3], "  A sum, > a tile is sent, · waits for one");
    }
}
