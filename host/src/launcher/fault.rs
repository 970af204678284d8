//! A fault's record, given names: what a launch was waiting for when it was given up.

use std::fmt;

use entwine_device::abi::{FaultKind, FaultRecord, NONE};

use crate::spec::{ArgumentKind, ElementSpec, ElementType, Extent, ItemSpec, KernelSpec};

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
    /// The piece of the slot, where the channel's panels are cut.
    pub piece: Option<u32>,
    /// The rank that should have sent, or that was to be sent to, where it can be told.
    pub peer: Option<u32>,
    /// The count that was waited for.
    pub expected: u32,
    /// The count that was seen last.
    pub seen: u32,
    /// The matrix concerned, where it is known: a symmetric one, or one of a simulated rank.
    pub argument: Option<&'static str>,
    /// The row and the column of its word, or of a tile; the list and the position of a bag's index, or the number of an offset.
    pub word: Vec<u32>,
    /// What was waited for in a word, or needed of a matrix, and what there was instead, as text.
    pub compared: Option<(String, String)>,
    /// Source file and line of a panic.
    pub location: Option<(String, u32)>,
    /// What a panic said, on simulated ranks.
    pub message: Option<String>,
}

impl Fault {
    /// The fault that a rank's record tells of; `None` if it tells of none.
    pub(crate) fn read(spec: &KernelSpec, record: &FaultRecord) -> Option<Self> {
        let kind = kind(record.kind)?;
        let length = (record.file_length as usize).min(record.file.len());
        let file = String::from_utf8_lossy(&record.file[..length]).into_owned();
        let channel = spec.channels.get(record.channel as usize);
        // Kernels take the first coordinate of a slot for the sender if there are as many as ranks, by chance too.
        let by_rank = channel.is_none_or(|channel| matches!(channel.slots.first(), Some(Extent::World)));
        let of_receiver = matches!(kind, FaultKind::NotAcknowledged | FaultKind::SlotOutOfRange | FaultKind::SentTwice);
        let one_sided = record.channel == NONE && !matches!(kind, FaultKind::Panic);
        let (misfit, outside) = (kind == FaultKind::Misfit, kind == FaultKind::Outside);
        let gate = channel.is_some_and(|channel| matches!(channel.item, ItemSpec::Gate));
        let argument = (one_sided || misfit).then(|| matrix(spec, record.argument)).flatten();
        let message = &record.message[..(record.message_length as usize).min(record.message.len())];
        Some(Fault {
            kind,
            argument: argument.map(|(name, _)| name),
            word: if one_sided { coordinates(&record.word) } else { Vec::new() },
            compared: match kind {
                FaultKind::NotHeld => Some(compared(record, argument.map(|(_, element)| element))),
                _ if gate => Some(counts(record)),
                _ if misfit => Some(misfits(record)),
                _ if outside => Some(outlines(record)),
                _ => None,
            },
            kernel: spec.name,
            rank: record.rank,
            stage: spec.stages.get(record.stage as usize).map(|stage| stage.name),
            tile: coordinates(&record.tile),
            channel: channel.map(|channel| channel.name),
            slot: if misfit { Vec::new() } else { coordinates(&record.slot) },
            piece: (record.piece != NONE).then_some(record.piece),
            peer: (record.peer != NONE && (by_rank || of_receiver)).then_some(record.peer),
            expected: record.expected,
            seen: record.seen,
            location: (length > 0).then_some((file, record.line)),
            message: (!message.is_empty()).then(|| String::from_utf8_lossy(message).into_owned()),
        })
    }
}

fn kind(word: u32) -> Option<FaultKind> {
    use FaultKind::*;
    let kinds = [
        MissingSignal,
        SlotOutOfRange,
        Panic,
        NotAcknowledged,
        Deadlock,
        Race,
        Capacity,
        OutOfRange,
        NotHeld,
        TooNarrow,
        BadIndex,
        BadOffset,
        Misfit,
        Outside,
        Overcounted,
        SentTwice,
        NotTheSender,
        Spun,
    ];
    kinds.into_iter().find(|kind| *kind as u32 == word)
}

/// The matrix of this index among a kernel's, and what it holds.
fn matrix(spec: &KernelSpec, index: u32) -> Option<(&'static str, ElementSpec)> {
    let matrices = spec.arguments.iter().filter_map(|argument| match argument.kind {
        ArgumentKind::Matrix { element, .. } => Some((argument.name, element)),
        ArgumentKind::Scalar(_) => None,
    });
    matrices.into_iter().nth(index as usize)
}

/// What was waited for, and what was seen.
fn compared(record: &FaultRecord, element: Option<ElementSpec>) -> (String, String) {
    let relation = ["equal to ", "other than ", "less than ", "at most ", "more than ", "at least "];
    let relation = relation.get(record.comparison as usize).copied().unwrap_or_default();
    let text = |low: u32, high: u32| {
        let bits = u64::from(high) << 32 | u64::from(low);
        match element {
            Some(ElementSpec::Fixed(ElementType::F32)) => f32::from_bits(low).to_string(),
            Some(ElementSpec::Fixed(ElementType::I32)) => (low as i32).to_string(),
            Some(ElementSpec::Fixed(ElementType::I64)) => (bits as i64).to_string(),
            Some(ElementSpec::Fixed(ElementType::U32 | ElementType::U64)) => bits.to_string(),
            _ => format!("{bits:#x}"),
        }
    };
    (format!("{relation}{}", text(record.expected, record.high[0])), text(record.seen, record.high[1]))
}

/// How many tiles a gate waits for, and how many were counted, as far as it is known.
fn counts(record: &FaultRecord) -> (String, String) {
    match record.word {
        [NONE, _] => ("enough tiles".into(), "fewer".into()),
        [0, _] => ("some tiles".into(), "none".into()),
        [counted, NONE] => ("more tiles".into(), counted.to_string()),
        [counted, of] => (format!("{of} tiles"), counted.to_string()),
    }
}

/// What a routing needs, and what there is.
fn misfits(record: &FaultRecord) -> (String, String) {
    let operands = [
        "the matrix of choices",
        "the matrix of weights",
        "the matrix of loads",
        "the matrix whose rows are scattered",
        "the matrix that rows are scattered to",
        "the gates that count scattered rows",
        "the matrix that is summed",
    ];
    let needs = ["at least {} rows", "at most {} rows", "{} columns", "at least {} columns", "at least {} slots"];
    let [operand, need, ..] = record.slot.map(|index| index as usize);
    let (operand, need) = (operands.get(operand).unwrap_or(&"a matrix"), needs.get(need).unwrap_or(&"{}"));
    (format!("{} in {operand}", need.replace("{}", &record.expected.to_string())), record.seen.to_string())
}

/// What lies outside of a matrix, and what the matrix is.
fn outlines(record: &FaultRecord) -> (String, String) {
    let [part, parts] = record.high;
    let size = format!("{} rows and {} columns", record.expected, record.seen);
    match coordinates(&record.word)[..] {
        [row, column] if parts > 1 => {
            (format!("a tile at row {row} and column {column} of part {part}"), format!("parts of {size}"))
        }
        [row, column] => (format!("a tile at row {row} and column {column}"), size),
        _ => (format!("part {part}"), format!("{parts} parts")),
    }
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
        let gate = self.compared.as_ref().filter(|_| !matches!(self.kind, FaultKind::Misfit));
        let slot = match self.channel {
            Some(channel) if gate.is_some() => format!("slot {:?} of gate `{channel}`", self.slot),
            Some(channel) => {
                let piece = self.piece.map(|piece| format!("piece {piece} of ")).unwrap_or_default();
                format!("{piece}slot {:?} of channel `{channel}`", self.slot)
            }
            None => "a slot".into(),
        };
        let peer = match self.peer {
            Some(rank) => format!("rank {rank}"),
            None => "another rank".into(),
        };
        let counts = format!("expected count {}, seen {}; each launch counts one", self.expected, self.seen);
        let word = match (self.argument, &*self.word) {
            (Some(argument), []) => format!("`{argument}` on {peer}"),
            (Some(argument), word) => format!("`{argument}{word:?}` on {peer}"),
            (None, _) => format!("the memory of {peer}"),
        };
        if let Some((wanted, counted)) = gate {
            match self.kind {
                FaultKind::MissingSignal => {
                    return write!(f, "waited in vain at {slot} for {wanted}; {counted} came");
                }
                FaultKind::Deadlock => {
                    return write!(
                        f,
                        "deadlock: every CTA waits and none can go on; here at {slot} for {wanted}, and {counted} came"
                    );
                }
                _ => {}
            }
        }
        match self.kind {
            FaultKind::None => Ok(()),
            FaultKind::MissingSignal if self.channel.is_none() => {
                write!(f, "waited in vain for the launch to end on {peer} ({counts})")
            }
            FaultKind::NotAcknowledged if self.channel.is_none() => {
                write!(f, "could not reach {word} before the deadline; {peer} has not started the launch ({counts})")
            }
            FaultKind::OutOfRange => write!(f, "{word} does not exist"),
            FaultKind::NotHeld => {
                let (wanted, seen) = self.compared.clone().unwrap_or_default();
                write!(f, "waited in vain for {word} to be {wanted}; it is {seen}")
            }
            FaultKind::Spun => {
                write!(f, "looked at {word} again and again, for longer than the deadline: `wait_until` waits")
            }
            FaultKind::TooNarrow => {
                write!(f, "{word} is accessed at a scope that does not reach everybody who accesses it")
            }
            FaultKind::BadIndex => write!(
                f,
                "position {} of the indices, in list {}, names row {} of a table that has {} rows",
                self.word.get(1).copied().unwrap_or_default(),
                self.word.first().copied().unwrap_or_default(),
                self.seen,
                self.expected
            ),
            FaultKind::BadOffset => write!(
                f,
                "offset {} of list {} is {}: a bag begins or ends beyond the {} indices, or ends before it begins",
                self.word.get(1).copied().unwrap_or_default(),
                self.word.first().copied().unwrap_or_default(),
                self.seen,
                self.expected
            ),
            FaultKind::Misfit => {
                let (wanted, found) = self.compared.clone().unwrap_or_default();
                write!(f, "routing `{}` needs {wanted}; ", self.channel.unwrap_or_default())?;
                match self.argument {
                    Some(argument) => write!(f, "`{argument}` has {found}"),
                    None => write!(f, "it has {found}"),
                }
            }
            FaultKind::Outside => {
                let (what, size) = self.compared.clone().unwrap_or_default();
                let argument = self.argument.map_or("a matrix".into(), |argument| format!("`{argument}`"));
                write!(f, "{what} lies wholly outside of {argument}, which has {size}")
            }
            FaultKind::Overcounted => {
                write!(f, "{slot} is counted more often than the {} tiles that it waits for", self.expected)
            }
            FaultKind::SentTwice => write!(f, "{slot} is sent to {peer} twice in a launch; each is sent once at most"),
            FaultKind::NotTheSender => {
                write!(
                    f,
                    "{slot} is {peer}'s to send: its first coordinate, of as many as there are ranks, is the sender"
                )
            }
            FaultKind::MissingSignal => {
                write!(f, "waited in vain for {slot}; {peer} never sent it here ({counts})")
            }
            FaultKind::SlotOutOfRange => write!(f, "{slot} (sent to {peer}) does not exist"),
            FaultKind::Panic => {
                f.write_str("the tile function panicked")?;
                if let Some((file, line)) = &self.location {
                    write!(f, " at {file}:{line}")?;
                }
                self.message.iter().try_for_each(|message| write!(f, ": {message}"))
            }
            FaultKind::NotAcknowledged => write!(
                f,
                "could not send {slot} before the deadline; {peer} has not started the launch that frees it ({counts})"
            ),
            FaultKind::Deadlock => {
                write!(f, "deadlock: every CTA waits and none can go on; here for {slot} from {peer} ({counts})")
            }
            FaultKind::Capacity => write!(
                f,
                "the rows that are routed here make {} blocks, and there is room for {}",
                self.seen, self.expected
            ),
            FaultKind::Race => {
                write!(f, "race on {slot} with {peer}: read without its signal, or overwritten while it could be read")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ChannelSpec, ItemSpec};
    use crate::testing::SPEC;

    fn record(kind: FaultKind) -> FaultRecord {
        FaultRecord {
            kind: kind as u32,
            rank: 1,
            stage: 0,
            tile: [1, 2, 3, NONE],
            channel: 0,
            slot: [0, 2, 3, NONE],
            piece: NONE,
            peer: 0,
            expected: 7,
            seen: 6,
            argument: NONE,
            word: [NONE; 2],
            comparison: 0,
            high: [0; 2],
            line: 0,
            file_length: 0,
            file: [0; 128],
            message_length: 0,
            message: [0; 256],
        }
    }

    #[test]
    fn a_missing_signal_names_everything() {
        let fault = Fault::read(&SPEC, &record(FaultKind::MissingSignal)).unwrap();
        assert_eq!(
            fault.to_string(),
            "kernel `gather_sum`, rank 1, stage `sum`, tile [1, 2, 3]: waited in vain for slot [0, 2, 3] of channel `Part`; \
             rank 0 never sent it here (expected count 7, seen 6; each launch counts one)"
        );
        let fault = Fault::read(&SPEC, &FaultRecord { piece: 5, ..record(FaultKind::MissingSignal) }).unwrap();
        assert!(
            fault.to_string().contains("waited in vain for piece 5 of slot [0, 2, 3] of channel `Part`; "),
            "{fault}"
        );
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
        let peer = |kind| Fault::read(&spec, &record(kind)).unwrap().peer;
        assert_eq!(peer(FaultKind::MissingSignal), None);
        assert_eq!(peer(FaultKind::Deadlock), None);
        assert_eq!(peer(FaultKind::NotAcknowledged), Some(0), "a receiver is named by its sender");
    }

    #[test]
    fn an_empty_record_is_no_fault() {
        let record: FaultRecord = unsafe { std::mem::zeroed() };
        assert_eq!(Fault::read(&SPEC, &record), None);
    }
}
