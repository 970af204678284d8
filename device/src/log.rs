//! What the roles of a CTA note of a launch for a timeline, and how it lies in memory.
//!
//! A rank's log has a row for each role of each CTA: a row is a [`count`], then room for `capacity` entries of 16
//! bytes. An event is one entry, and [`EventKind::Begin`] a second one, the tile's coordinates, except in the row of
//! the math warpgroups, which don't know them: theirs are those of the communication thread, in the same order.

use crate::abi::MAX_AXES;

/// What happened.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The CTA began with the launch.
    Start = 1,
    /// The role began with a tile.
    Begin,
    /// It began to wait: for a slot's signal, or for another role.
    Wait,
    /// What it waited for was there.
    Ready,
    /// It began to multiply: the first operands were there.
    Multiply,
    /// The product was complete.
    Multiplied,
    /// A computed tile lay in the staging buffer, for the communication thread to store.
    Staged,
    /// It began to store a tile or a panel.
    Store,
    /// What it stored in a slot was complete; what it stored in a matrix was on its way, and its source free.
    Stored,
    /// What it stored in a slot was released, and its receivers were signalled next.
    Send,
    /// It was done with the tile, or with the launch.
    End,
}

impl EventKind {
    const ALL: [EventKind; 11] = {
        use EventKind::*;
        [Start, Begin, Wait, Ready, Multiply, Multiplied, Staged, Store, Stored, Send, End]
    };
}

/// The roles, by their rows.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recorder {
    /// The thread that loads operands.
    Loader,
    /// The thread that brings and stores tiles, and signals.
    Communication,
    /// The thread that carries the stages which only move tiles.
    Mover,
    /// The thread that looks for what arrives for the loader.
    Poller,
    /// The warpgroups that compute.
    Math,
    /// One that does all of it: a CTA of a simulated rank.
    Whole,
}

impl Recorder {
    /// All of them, in the order of their rows.
    pub const ALL: [Recorder; 6] = {
        use Recorder::*;
        [Loader, Communication, Mover, Poller, Math, Whole]
    };
}

/// Bytes of an entry.
pub const ENTRY: u64 = 16;
/// "None", where an entry names a stage, a channel or a rank.
pub const NOBODY: u32 = 0xff;

/// Bytes of a log.
pub const fn bytes(ctas: u32, capacity: u64) -> u64 {
    row(0, ctas, 0, capacity)
}

/// Address of a row in the log at `log`.
#[inline(always)]
pub const fn row(log: u64, cta: u32, recorder: u32, capacity: u64) -> u64 {
    log + (cta * Recorder::ALL.len() as u32 + recorder) as u64 * (capacity + 1) * ENTRY
}

/// What an event is about, besides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What happened.
    pub kind: EventKind,
    /// The stage of [`EventKind::Begin`], else the channel; [`NOBODY`] where none is concerned.
    pub of: u32,
    /// The rank at the other end of the channel; [`NOBODY`] for all, or where it can't be told.
    pub peer: u32,
    /// The signal's position among the channel's: the slot's, or the piece's.
    pub signal: u32,
}

impl Mark {
    /// An event that concerns no channel.
    #[inline(always)]
    pub const fn of(kind: EventKind) -> Self {
        Mark { kind, of: NOBODY, peer: NOBODY, signal: 0 }
    }

    /// The entry of the event, at `at` nanoseconds.
    #[inline(always)]
    pub const fn entry(self, at: u64) -> [u32; 4] {
        let what = self.kind as u32 | (self.of & 0xff) << 8 | (self.peer & 0xff) << 16;
        [at as u32, (at >> 32) as u32, what, self.signal]
    }

    /// The event of an entry, and its time; `None` if it can't be one.
    pub fn read(entry: [u32; 4]) -> Option<(Self, u64)> {
        let [low, high, what, signal] = entry;
        let kind = EventKind::ALL.into_iter().find(|kind| *kind as u32 == what & 0xff)?;
        let mark = Mark { kind, of: what >> 8 & 0xff, peer: what >> 16 & 0xff, signal };
        Some((mark, low as u64 | (high as u64) << 32))
    }
}

/// The entry that begins a row: how many entries there would be, had there been room for all.
#[inline(always)]
pub const fn count(entries: u32) -> [u32; 4] {
    [entries, 0, 0, 0]
}

/// The second entry of [`EventKind::Begin`].
#[inline(always)]
pub const fn coordinates(tile: [u32; MAX_AXES]) -> [u32; 4] {
    tile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_are_written() {
        for kind in EventKind::ALL {
            let mark = Mark { kind, of: 3, peer: NOBODY, signal: u32::MAX };
            assert_eq!(Mark::read(mark.entry(u64::MAX - 1)), Some((mark, u64::MAX - 1)));
        }
        assert_eq!(Mark::read([0; 4]), None);
    }

    #[test]
    fn rows_do_not_overlap() {
        assert_eq!(row(64, 0, 0, 7), 64);
        assert_eq!(row(0, 1, 2, 7) - row(0, 1, 1, 7), 8 * ENTRY);
        assert_eq!(row(0, 2, 0, 7) - row(0, 1, Recorder::Whole as u32, 7), 8 * ENTRY);
        assert_eq!(bytes(3, 7), row(0, 2, Recorder::Whole as u32, 7) + 8 * ENTRY);
    }
}
