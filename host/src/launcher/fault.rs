//! A fault's record, given names: what a launch was waiting for when it was given up.

use std::fmt;

use entwine_device::abi::{FaultKind, FaultRecord, NONE};

use crate::spec::KernelSpec;

/// Why a launch was given up, by the first rank that noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: &'static str,
    /// The rank that noticed.
    pub rank: u32,
    /// The stage that it was in, if it was in one.
    pub stage: Option<&'static str>,
    /// The tile's coordinates in the stage's grid.
    pub tile: Vec<u32>,
    /// The channel concerned.
    pub channel: Option<&'static str>,
    /// The slot's coordinates.
    pub slot: Vec<u32>,
    /// The rank that should have sent, or that was to be sent to, where it can be told.
    pub peer: Option<u32>,
    /// The count that was waited for.
    pub expected: u32,
    /// The count that was seen last.
    pub seen: u32,
    /// Source file and line of a panic.
    pub location: Option<(String, u32)>,
}

impl Fault {
    /// The fault that a rank's record tells of; `None` if it tells of none.
    pub(crate) fn read(spec: &KernelSpec, record: &FaultRecord) -> Option<Self> {
        let kind = kind(record.kind)?;
        let length = (record.file_length as usize).min(record.file.len());
        let file = String::from_utf8_lossy(&record.file[..length]).into_owned();
        Some(Fault {
            kind,
            kernel: spec.name,
            rank: record.rank,
            stage: spec.stages.get(record.stage as usize).map(|stage| stage.name),
            tile: coordinates(&record.tile),
            channel: spec.channels.get(record.channel as usize).map(|channel| channel.name),
            slot: coordinates(&record.slot),
            peer: (record.peer != NONE).then_some(record.peer),
            expected: record.expected,
            seen: record.seen,
            location: (length > 0).then_some((file, record.line)),
        })
    }
}

fn kind(word: u32) -> Option<FaultKind> {
    use FaultKind::*;
    let kinds = [MissingSignal, SlotOutOfRange, Panic, NotAcknowledged, Deadlock, Race];
    kinds.into_iter().find(|kind| *kind as u32 == word)
}

fn coordinates(words: &[u32]) -> Vec<u32> {
    words.iter().copied().take_while(|word| *word != NONE).collect()
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`, rank {}", self.kernel, self.rank)?;
        if let Some(stage) = self.stage {
            write!(f, ", stage `{stage}`, tile {:?}", self.tile)?;
        }
        f.write_str(": ")?;
        let slot = match self.channel {
            Some(channel) => format!("slot {:?} of channel `{channel}`", self.slot),
            None => "a slot".into(),
        };
        let peer = match self.peer {
            Some(rank) => format!("rank {rank}"),
            None => "another rank".into(),
        };
        let counts = format!("expected count {}, seen {}", self.expected, self.seen);
        match self.kind {
            FaultKind::None => Ok(()),
            FaultKind::MissingSignal => {
                write!(f, "waited for {slot} until the deadline; {peer} never sent it ({counts})")
            }
            FaultKind::SlotOutOfRange => write!(f, "{slot} (sent to {peer}) does not exist"),
            FaultKind::Panic => match &self.location {
                Some((file, line)) => write!(f, "the tile function panicked at {file}:{line}"),
                None => write!(f, "the tile function panicked"),
            },
            FaultKind::NotAcknowledged => write!(
                f,
                "could not send {slot} before the deadline; {peer} has not started the launch before this one ({counts})"
            ),
            FaultKind::Deadlock => {
                write!(f, "deadlock: every CTA waits and none can go on; here for {slot} from {peer} ({counts})")
            }
            FaultKind::Race => {
                write!(f, "race on {slot} with {peer}: read without its signal, or overwritten while it could be read")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    #[test]
    fn a_missing_signal_names_everything() {
        let record = FaultRecord {
            kind: FaultKind::MissingSignal as u32,
            rank: 1,
            stage: 0,
            tile: [1, 2, 3, NONE],
            channel: 0,
            slot: [0, 2, 3, NONE],
            peer: 0,
            expected: 7,
            seen: 6,
            line: 0,
            file_length: 0,
            file: [0; 128],
        };
        let fault = Fault::read(&SPEC, &record).unwrap();
        assert_eq!(
            fault.to_string(),
            "kernel `gather_sum`, rank 1, stage `sum`, tile [1, 2, 3]: waited for slot [0, 2, 3] of channel `Part` until \
             the deadline; rank 0 never sent it (expected count 7, seen 6)"
        );
    }

    #[test]
    fn an_empty_record_is_no_fault() {
        let record: FaultRecord = unsafe { std::mem::zeroed() };
        assert_eq!(Fault::read(&SPEC, &record), None);
    }
}
