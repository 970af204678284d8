//! A timeline as text.

use std::fmt;

use entwine_device::log::EventKind;

use super::slices::computes;
use super::{Activity, Slice, Timeline};

/// Characters of a rendered line.
const WIDTH: usize = 72;
/// CTAs of a rank that have a line.
const LINES: usize = 8;

impl Timeline {
    /// One CTA's line.
    fn line(&self, slices: &[Slice], sends: &[u64]) -> String {
        let total = self.end().max(1);
        let cell = |at: u64| ((at as u128 * WIDTH as u128 / total as u128) as usize).min(WIDTH - 1);
        let mut cells = [' '; WIDTH];
        for slice in slices {
            let mark = match slice.activity {
                Activity::Wait => '·',
                _ => letter(slice.event.stage),
            };
            cells[cell(slice.event.at)..=cell(slice.end)].fill(mark);
        }
        for at in sends {
            cells[cell(*at)] = '>';
        }
        cells.iter().collect()
    }

    /// Of the CTAs of a rank, so many that they can be shown, from the first to the last.
    pub(super) fn shown_ctas(&self, rank: u32, most: usize) -> Vec<u32> {
        let mut ctas: Vec<_> = self.events.iter().filter(|event| event.rank == rank).map(|event| event.cta).collect();
        ctas.dedup();
        let shown = most.min(ctas.len());
        (0..shown).map(|index| ctas[index * (ctas.len() - 1) / (shown - 1).max(1)]).collect()
    }
}

/// How a stage is drawn.
fn letter(stage: u32) -> char {
    (b'A' + (stage % 26) as u8) as char
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            return writeln!(f, "{}: nothing was recorded", self.kernel.name);
        }
        writeln!(f, "{}: {:.1?} from left to right", self.kernel.name, self.duration())?;
        for rank in 0..self.world() {
            for cta in self.shown_ctas(rank, LINES) {
                let here = |of: (u32, u32)| of == (rank, cta);
                let slices = self.slices().filter(|slice| here((slice.event.rank, slice.event.cta)));
                let slices: Vec<_> = slices.filter(|slice| computes(slice.event.recorder)).collect();
                let sends = self.events.iter().filter(|event| here((event.rank, event.cta)));
                let sends: Vec<_> = sends.filter(|event| event.kind == EventKind::Send).map(|event| event.at).collect();
                writeln!(f, "  rank {rank} CTA {cta:<3} |{}|", self.line(&slices, &sends))?;
            }
        }
        let stages =
            self.kernel.stages.iter().zip(0..).map(|(stage, index)| format!("{} {}", letter(index), stage.name));
        writeln!(f, "  {}, > a tile is sent, · waits", stages.collect::<Vec<_>>().join(", "))?;
        for note in self.clock_notes() {
            writeln!(f, "  {note}")?;
        }
        for rank in 0..self.world() {
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
    use entwine_device::log::{NOBODY, Recorder};

    use super::super::testing::*;
    use EventKind::*;

    #[test]
    fn lines_show_work_sends_waits_and_idleness() {
        let text = two_ranks().to_string();
        let lines: Vec<_> = text.lines().collect();
        let work = "A".repeat(40) + &"·".repeat(20) + &"A".repeat(12);
        assert_eq!(lines[1], format!("  rank 0 CTA 0   |{work}|"));
        let sent = "A".repeat(50) + ">" + "AAAA" + &" ".repeat(17);
        assert_eq!(lines[2], format!("  rank 1 CTA 0   |{sent}|"));
        assert_eq!(lines[3..5], ["  A sum, > a tile is sent, · waits", "  All ranks have one clock."]);
    }

    use super::*;

    #[test]
    fn of_many_ctas_the_first_the_last_and_some_between_are_shown() {
        let rows: Vec<_> =
            (0..132).map(|cta| row(0, cta, Recorder::Whole, &[(Begin, NOBODY, 0), (End, NOBODY, 5)])).collect();
        let timeline = timeline(1, &rows, true);
        assert_eq!(timeline.shown_ctas(0, 4), [0, 43, 87, 131]);
        assert_eq!(timeline.shown_ctas(0, 1), [0]);
        assert_eq!(timeline.shown_ctas(1, 4), [0; 0]);
    }
}
