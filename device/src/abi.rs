//! What crosses from the host to a running kernel: the launch parameters, the control block at the
//! start of every rank's symmetric region, and the record of a fault.
//!
//! The launcher writes these as bytes and the woven entry reads them, on a GPU and on a simulated
//! rank alike, so every type here is `repr(C)` and made of fixed-size words. Addresses are `u64`:
//! device addresses on a GPU, host addresses on a simulated rank.

/// The largest world one launch can span.
pub const MAX_WORLD: usize = 8;
/// Most stages of a kernel.
pub const MAX_STAGES: usize = 32;
/// The largest number of axes of a stage's grid or of a channel's slots.
pub const MAX_AXES: usize = 4;
/// The largest number of named dimensions (`m`, `n`, `k`, …) of a kernel.
pub const MAX_DIMS: usize = 8;
/// "None", where a field holds an index.
pub const NONE: u32 = u32::MAX;

/// What every launch carries, whatever the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// The number of CTAs of the grid; all of them are resident.
    pub ctas: u32,
    /// How many transfers of this rank may drive the link at once; 0 means any number.
    pub link_limit: u32,
    /// A wait gives up this many nanoseconds after every rank has started. Never 0.
    pub deadline_ns: u64,
    /// Address of this rank's [`Control`], which is where the kernel's symmetric region starts.
    pub region: u64,
    /// Address of a table of `world` words: the base of the kernel's symmetric region on each rank.
    pub regions: u64,
    /// Address of this rank's [`FaultRecord`], in memory that the host can read at any time.
    pub fault: u64,
    /// Simulated ranks: address of the fabric that signals and waits go through. 0 on a GPU.
    pub fabric: u64,
    /// Address of this rank's [`log`](crate::log); 0 where none is kept.
    pub log: u64,
    /// Entries in a row of the log.
    pub log_capacity: u64,
    /// Columns of tiles that `peers_first` and `ring` visit for all owners before they go on to the next; 0 means all.
    pub span: u32,
    /// Not 0: every CTA carries all stages, one after the other, also those that ask for CTAs of their own.
    pub in_turn: u32,
    /// Fault injection: the channel whose signal this rank withholds, or [`NONE`].
    pub drop_channel: u32,
    /// Fault injection: the (linear) slot whose signals are withheld.
    pub drop_slot: u32,
    /// Fault injection: the ranks (a bit each) that those who read what they lend take for not started…
    pub late: u32,
    /// … for so many nanoseconds.
    pub late_ns: u32,
    /// The sizes bound to the kernel's named dimensions, in the order of its specification.
    pub dims: [u32; MAX_DIMS],
}

/// A matrix in one rank's memory, row-major, `pitch` bytes from row to row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixArg {
    /// Address of the first element, 16-byte aligned.
    pub data: u64,
    /// Bytes from one row to the next, a multiple of 16.
    pub pitch: u64,
    /// Address of six TMA descriptors (`CUtensorMap`, 128 bytes each) whose boxes are 8, 16, 32, 64, 128 and
    /// 256 rows tall, 1 part deep and 128 bytes wide, with the 128-byte swizzle. Each describes
    /// `[parts][part_rows][columns]`. 0 where there is none: on a simulated rank, or for an empty matrix.
    pub maps: u64,
    /// Address of a table of `world` matrices: this argument on each rank, with descriptors for this one. 0 if no channel
    /// lies in the matrix and it is neither lent nor symmetric.
    pub ranks: u64,
    /// Rows in all.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
    /// Rows of one part: ⌈rows / world⌉ for a sharded matrix, or those of one group for a grouped one. Where there is one part,
    /// all rows, or as many as the rank with the most has.
    pub part_rows: u32,
    /// Parts: 1, the number of ranks for a sharded matrix, or the groups of a grouped one.
    pub parts: u32,
}

/// A channel's place in the symmetric region, the same on every rank.
///
/// A rank's region holds, for each channel, two data buffers (for even and odd epochs) of
/// `product(slots)` slots, and one signal word for each piece of each slot. A channel that lies in a matrix has no buffers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelArg {
    /// Slots along each axis; 1 beyond the channel's arity.
    pub slots: [u32; MAX_AXES],
    /// Offset in the region of the data buffer of even epochs, 128-byte aligned.
    pub data: u64,
    /// Bytes from the buffer of even epochs to that of odd ones.
    pub parity_stride: u64,
    /// Bytes of one slot, a multiple of 128.
    pub slot_bytes: u64,
    /// Offset in the region of the signals, one `u32` for each piece, those of a slot one after the other; 128-byte aligned.
    pub signals: u64,
    /// Columns of a panel slot; the tile's columns for a tile slot.
    pub columns: u32,
    /// 1: the sender keeps the tile in its own region and the receiver loads it from there.
    /// 0: the sender stores it into the receiver's region.
    pub pull: u32,
    /// Pieces, along its columns, into which a panel is cut; 1 where slots are sent as a whole.
    pub pieces: u32,
    /// Boxes (128 bytes of each row) of a piece. The last pieces may have fewer, or none.
    pub piece_boxes: u32,
    /// Rows of a slot that are sent, if it has as many; the others read as anything.
    pub rows: u32,
    /// 1: the first axis is that of the ranks, each of which sends in its own slots.
    pub by_rank: u32,
    /// Offset in the region of the counters of a channel of gates, one `u32` for each slot. They are 0 between launches.
    pub counters: u64,
}

/// The parameters of an entry, in the order in which the launcher lays them out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params<const MATRICES: usize, const CHANNELS: usize, const SCALARS: usize> {
    /// What every launch carries.
    pub head: Head,
    /// The matrices, in the order of the kernel's arguments.
    pub matrices: [MatrixArg; MATRICES],
    /// The channels, in the order of their declarations.
    pub channels: [ChannelArg; CHANNELS],
    /// Scalars, each in the low bytes of a word.
    pub scalars: [u64; SCALARS],
}

/// A scalar that a kernel takes, and the word that carries it: its bits in the low bytes.
pub trait Scalar: Copy {
    /// The word.
    fn to_word(self) -> u64;
    /// The scalar in a word.
    fn from_word(word: u64) -> Self;
}

macro_rules! scalars {
    ($($scalar:ty: |$value:ident| $to:expr, |$word:ident| $from:expr;)+) => {
        $(impl Scalar for $scalar {
            #[inline(always)]
            fn to_word(self) -> u64 {
                let $value = self;
                $to
            }
            #[inline(always)]
            fn from_word($word: u64) -> Self {
                $from
            }
        })+
    };
}
scalars! {
    u32: |value| value as u64, |word| word as u32;
    i32: |value| value as u32 as u64, |word| word as i32;
    u64: |value| value, |word| word;
    i64: |value| value as u64, |word| word as i64;
    f32: |value| value.to_bits() as u64, |word| f32::from_bits(word as u32);
    f64: |value| value.to_bits(), |word| f64::from_bits(word);
    bool: |value| value as u64, |word| word as u8 != 0;
}

impl<const MATRICES: usize, const CHANNELS: usize, const SCALARS: usize> Params<MATRICES, CHANNELS, SCALARS> {
    /// The number of channels.
    pub const CHANNELS: usize = CHANNELS;
}

/// The control block at offset 0 of every rank's symmetric region.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Control {
    /// A launch's epoch is this plus one. The last CTA to count itself in `left` advances it.
    pub epoch: u32,
    /// CTAs that have read the epoch and will not read it again in this launch.
    pub left: u32,
    /// Not 0: every wait ends at once and nothing more is sent.
    pub abort: u32,
    /// Set by the first thread that records a fault.
    pub faulted: u32,
    _pad0: [u32; 28],
    /// The epoch that rank `i` last started, written by rank `i`: it has read its slots of all epochs before, which may
    /// be overwritten.
    pub started: [u32; MAX_WORLD],
    _pad1: [u32; 24],
    /// Simulation: the epoch that rank `i` last finished, written by rank `i`.
    pub finished: [u32; MAX_WORLD],
    _pad2: [u32; 24],
    /// The epoch in which rank `i` last was done with what this rank lends, written by rank `i`.
    pub returned: [u32; MAX_WORLD],
    /// CTAs that are done with what others lend.
    pub returning: u32,
    _pad3: [u32; 23],
    /// How many tiles of each stage have been taken from a queue. They are 0 between launches.
    pub taken: [u32; MAX_STAGES],
    /// The link limit's tickets taken, out and in…
    pub link_taken: [Ticket; 2],
    /// … and given back.
    pub link_returned: [Ticket; 2],
}

/// A count that many CTAs change, on a line of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Ticket(pub u32);

/// Why a launch was given up.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// No fault.
    None = 0,
    /// A signal did not arrive before the deadline.
    MissingSignal = 1,
    /// A slot index, or a rank to send to, was out of range.
    SlotOutOfRange = 2,
    /// The tile function panicked (an index out of bounds, say).
    Panic = 3,
    /// A slot's receiver did not start the launch that frees it: the one before or, in a matrix, this one.
    NotAcknowledged = 4,
    /// Simulation: every CTA waits and none can go on.
    Deadlock = 5,
    /// Simulation: a slot was read without its signal, or overwritten while it could still be read.
    Race = 6,
    /// A routing sends a rank more blocks of rows than it has room for.
    Capacity = 7,
    /// A rank, or a row or column of a symmetric matrix, was out of range.
    OutOfRange = 8,
    /// A word was not what was waited for before the deadline.
    NotHeld = 9,
    /// Simulation: a word was accessed at a scope that doesn't reach others who accessed it.
    TooNarrow = 10,
    /// An index of a bag was not that of a row.
    BadIndex = 11,
    /// A bag began or ended beyond the indices, or ended before it began.
    BadOffset = 12,
    /// What goes by a routing was not as large as the routing says.
    Misfit = 13,
    /// Simulation: a tile that was stored, or values that were used for a tile's columns, lay wholly outside of their matrix, or a part of a
    /// matrix was used that it doesn't have.
    Outside = 14,
    /// Simulation: more tiles were counted at a gate than it was to wait for.
    Overcounted = 15,
    /// Simulation: a slot, or a piece of one, was sent to the same rank a second time in a launch.
    SentTwice = 16,
    /// Simulation: a rank sent in the slot of another one.
    NotTheSender = 17,
    /// Simulation: a word was looked at again and again, and nothing else done, for twice as long as a wait may take.
    Spun = 18,
}

/// What the first fault of a rank leaves behind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FaultRecord {
    /// A [`FaultKind`].
    pub kind: u32,
    /// The rank that noticed.
    pub rank: u32,
    /// The stage's index in the kernel.
    pub stage: u32,
    /// The tile's coordinates in the stage's grid; [`NONE`] beyond its arity.
    pub tile: [u32; MAX_AXES],
    /// The channel's index, or [`NONE`].
    pub channel: u32,
    /// The slot's coordinates; [`NONE`] beyond the arity. Of a misfit, the [`Operand`](crate::Operand) and its
    /// [`Need`](crate::Need).
    pub slot: [u32; MAX_AXES],
    /// The piece of the slot, or [`NONE`] where slots are sent as a whole.
    pub piece: u32,
    /// The rank that should have sent, or was to be sent to; [`NONE`] where it can't be told.
    pub peer: u32,
    /// The count that was waited for; what was needed of a matrix, or its rows.
    pub expected: u32,
    /// The count that was seen last; what there was instead, or a matrix's columns.
    pub seen: u32,
    /// The matrix, by its index among the kernel's matrices, or [`NONE`].
    pub argument: u32,
    /// The row and the column of its word, or of a tile; the list and the position of a bag's index; at a gate, how many tiles
    /// were counted, and of how many.
    pub word: [u32; 2],
    /// The [`Comparison`](crate::Comparison) that was waited for.
    pub comparison: u32,
    /// The high halves of what was expected and seen, for words of 64 bits; the part of a matrix, and their number.
    pub high: [u32; 2],
    /// Source line of a panic.
    pub line: u32,
    /// Length of `file`.
    pub file_length: u32,
    /// Source file of a panic, UTF-8, its end if it is longer.
    pub file: [u8; 128],
    /// Length of `message`.
    pub message_length: u32,
    /// Simulation: what a panic said, UTF-8, its beginning if it is longer.
    pub message: [u8; 256],
}

const _: () = {
    assert!(
        size_of::<Head>().is_multiple_of(8)
            && size_of::<MatrixArg>().is_multiple_of(8)
            && size_of::<ChannelArg>().is_multiple_of(8)
    );
    assert!(size_of::<Control>().is_multiple_of(128));
};
