//! Events as spans of time: what each role did from when to when, and what a rank's time went into.

use std::time::Duration;

use entwine_device::log::{EventKind, Recorder};

use super::{Event, Timeline};

/// What a role does during a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// It multiplies.
    Multiply,
    /// It works on a tile otherwise: loads operands, adds to the product, converts it, hands it over.
    Work,
    /// It waits: for a signal, for operands, or for another role.
    Wait,
    /// It fetches what was received, stores and signals.
    Communicate,
}

/// A span of time in which a role did one thing.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// What it did.
    pub activity: Activity,
    /// When it began with it, with which tile, and for a wait with which slot.
    pub event: Event,
    /// When it ended with it, as [`Event::at`].
    pub end: u64,
}

/// What the time of a rank's CTAs went into, from the launch's first event to the rank's last: the median over the CTAs
/// that multiply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Until the CTA first multiplied.
    pub start: Duration,
    /// While it multiplied.
    pub multiply: Duration,
    /// Between two products.
    pub between: Duration,
    /// After its last product.
    pub end: Duration,
}

impl Timeline {
    /// What each role did from when to when, by rank, CTA and recorder, in order. Time in which it had nothing to do is
    /// left out.
    pub fn slices(&self) -> impl Iterator<Item = Slice> {
        self.rows().flat_map(|row| {
            row.windows(2).filter_map(|pair| {
                let activity = activity(&pair[0], &pair[1])?;
                Some(Slice { activity, event: pair[0], end: pair[1].at })
            })
        })
    }

    /// The part of its busy time that a rank's CTAs spent waiting for signals, from 0 to 1.
    pub fn waiting(&self, rank: u32) -> f64 {
        let (mut busy, mut waiting) = (0, 0);
        for slice in self.slices().filter(|slice| slice.event.rank == rank && computes(slice.event.recorder)) {
            let time = slice.end - slice.event.at;
            busy += time;
            if slice.activity == Activity::Wait {
                waiting += time;
            }
        }
        if busy == 0 { 0.0 } else { waiting as f64 / busy as f64 }
    }

    /// What a rank's time went into.
    pub fn summary(&self, rank: u32) -> Summary {
        let end = self.events.iter().filter(|event| event.rank == rank).map(|event| event.at).max().unwrap_or(0);
        let rows = self.rows().filter(|row| row[0].rank == rank && computes(row[0].recorder));
        let parts: Vec<_> = rows.filter_map(|row| parts(row, end)).collect();
        let part = |index: usize| Duration::from_nanos(median(parts.iter().map(|parts| parts[index]).collect()));
        Summary { start: part(0), multiply: part(1), between: part(2), end: part(3) }
    }
}

/// The parts of a CTA's time, as in [`Summary`], if it multiplies.
fn parts(row: &[Event], end: u64) -> Option<[u64; 4]> {
    let first = row.iter().find(|event| event.kind == EventKind::Multiply)?.at;
    let last = row.iter().rfind(|event| event.kind == EventKind::Multiplied)?.at;
    let products = row.windows(2).filter(|pair| pair[0].kind == EventKind::Multiply);
    let multiply = products.map(|pair| pair[1].at - pair[0].at).sum();
    Some([first, multiply, (last - first).saturating_sub(multiply), end - last])
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Whether a role computes.
pub(super) fn computes(recorder: Recorder) -> bool {
    matches!(recorder, Recorder::Math | Recorder::Whole)
}

/// What a role does between two events; `None` if nothing.
fn activity(event: &Event, next: &Event) -> Option<Activity> {
    let moves = matches!(event.recorder, Recorder::Communication | Recorder::Mover);
    match event.kind {
        EventKind::Start | EventKind::End => None,
        EventKind::Wait => Some(Activity::Wait),
        EventKind::Multiply => Some(Activity::Multiply),
        // The operands are on their way.
        EventKind::Begin if event.recorder == Recorder::Math => Some(Activity::Wait),
        // Nothing is to be stored yet.
        EventKind::Begin | EventKind::Send if moves => None,
        EventKind::Store | EventKind::Ready if moves => Some(Activity::Communicate),
        EventKind::Stored if moves => (next.kind == EventKind::Send).then_some(Activity::Communicate),
        EventKind::Store | EventKind::Stored if event.recorder == Recorder::Whole => Some(Activity::Communicate),
        _ => Some(Activity::Work),
    }
}

#[cfg(test)]
mod tests {
    use entwine_device::log::NOBODY;

    use super::super::testing::*;
    use super::*;
    use EventKind::*;

    #[test]
    fn waiting_is_part_of_busy_time() {
        let timeline = two_ranks();
        let waiting = timeline.waiting(0);
        assert!((waiting - 20.0 / 72.0).abs() < 1e-9, "{waiting}");
        assert_eq!(timeline.waiting(1), 0.0);
    }

    #[test]
    fn each_role_has_slices_of_its_own() {
        let quiet = |kind, at| (kind, NOBODY, at);
        let math = [
            quiet(Begin, 10),
            quiet(Multiply, 12),
            quiet(Multiplied, 20),
            quiet(Wait, 21),
            quiet(Ready, 22),
            quiet(Staged, 24),
            quiet(Begin, 25),
            quiet(Multiply, 25),
            quiet(Multiplied, 30),
            quiet(End, 31),
        ];
        let communication = [quiet(Begin, 10), quiet(Store, 24), quiet(Stored, 27), (Send, 1, 28), quiet(End, 35)];
        let rows = [row(0, 0, Recorder::Communication, &communication), row(0, 0, Recorder::Math, &math)];
        let timeline = timeline(2, &rows, true);
        let slices: Vec<_> = timeline.slices().map(|slice| (slice.activity, slice.event.at, slice.end)).collect();
        let [multiply, work, wait, communicate] =
            [Activity::Multiply, Activity::Work, Activity::Wait, Activity::Communicate];
        let stored = [(communicate, 14, 17), (communicate, 17, 18)];
        let computed = [(wait, 0, 2), (multiply, 2, 10), (work, 10, 11), (wait, 11, 12), (work, 12, 14)];
        let then = [(work, 14, 15), (wait, 15, 15), (multiply, 15, 20), (work, 20, 21)];
        assert_eq!(slices, [&stored[..], &computed, &then].concat());
        let nanos = Duration::from_nanos;
        let summary = Summary { start: nanos(2), multiply: nanos(13), between: nanos(5), end: nanos(5) };
        assert_eq!(timeline.summary(0), summary);
        assert_eq!(timeline.summary(1), Summary::default(), "nothing was recorded there");
    }
}
