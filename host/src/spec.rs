//! The description of a kernel that `#[entwine::kernel]` leaves for the launcher: what its stages,
//! channels and arguments are, and which entries were compiled for it. Plain static data; everything
//! that is done with it is ordinary code in this crate.

use std::fmt;
use std::str::FromStr;

use entwine_device::abi::Head;
use serde::{Deserialize, Serialize};

use crate::Error;

/// A whole kernel.
#[derive(Debug)]
pub struct KernelSpec {
    /// The kernel module's name.
    pub name: &'static str,
    /// The kernel's compiled device code, preferred first; empty if it was built without.
    pub codes: &'static [DeviceCode],
    /// The named dimensions, in the order of [`Head::dims`].
    pub dims: &'static [&'static str],
    /// The stages, in the order in which every CTA walks them.
    pub stages: &'static [StageSpec],
    /// The channels, in the order of their declarations.
    pub channels: &'static [ChannelSpec],
    /// The launch arguments, in the order of the fields of the generated `Args`.
    pub arguments: &'static [ArgumentSpec],
    /// The compiled variants, preferred ones first.
    pub variants: &'static [VariantSpec],
}

impl KernelSpec {
    /// Whether its ranks have anything to do with each other.
    pub fn communicates(&self) -> bool {
        let symmetric = |argument: &ArgumentSpec| matches!(argument.kind, ArgumentKind::Matrix { symmetric: true, .. });
        !self.channels.is_empty() || self.arguments.iter().any(symmetric)
    }
}

/// A kernel's device code. The entries are the same in each, but for tiles that not every target has.
#[derive(Debug)]
pub struct DeviceCode {
    /// The GPUs that it is for.
    pub target: Target,
    /// Its kernels record what they do when.
    pub timeline: bool,
    /// PTX text.
    pub ptx: &'static str,
}

/// The GPUs that device code is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// Hopper, with its architecture-specific instructions: compute capability 9.0 alone.
    #[serde(rename = "sm_90a")]
    Sm90a,
    /// Every GPU from Ampere on: compute capability 8.0 and later.
    #[serde(rename = "sm_80")]
    Sm80,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::Sm90a, Target::Sm80];

    /// Whether a GPU of this compute capability, `(major, minor)`, runs it.
    pub fn runs_on(self, capability: (i32, i32)) -> bool {
        match self {
            Target::Sm90a => capability == (9, 0),
            Target::Sm80 => capability >= (8, 0),
        }
    }

    /// Whether its code has entries for a tile of this size, where a kernel has a variant for it.
    pub fn has_tile(self, (_, columns): (u32, u32)) -> bool {
        match self {
            Target::Sm90a => true,
            Target::Sm80 => columns.is_multiple_of(64),
        }
    }

    /// As the compiler calls it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sm90a => "sm_90a",
            Target::Sm80 => "sm_80",
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    /// The target that [`Target::name`] calls so.
    fn from_str(name: &str) -> Result<Self, Error> {
        Target::ALL.into_iter().find(|target| target.name() == name).ok_or_else(|| Error::NoSuchTarget(name.to_owned()))
    }
}

impl fmt::Display for DeviceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.target.name())?;
        f.write_str(if self.timeline { " with a timeline" } else { "" })
    }
}

/// A stage: a tile function and the grid of tiles it covers on each rank.
#[derive(Debug)]
pub struct StageSpec {
    /// The tile function's name.
    pub name: &'static str,
    /// Tiles along each axis.
    pub grid: &'static [Extent],
    /// The order's name, as written.
    pub order: &'static str,
    /// The CTAs that carry this stage alone; `None` for all that no other stage has to itself.
    pub ctas: Option<u32>,
    /// A thread of every CTA carries it, beside the other stages.
    pub moved: bool,
    /// The index of the routing whose blocks are the first axis of the grid, which bounds them.
    pub within: Option<usize>,
    /// The inner extents of the matrix products that each tile computes, as far as its function shows them.
    pub products: &'static [Extent],
    /// Indices of the channels that it sends on.
    pub sends: &'static [usize],
    /// Indices of the channels that it receives on.
    pub receives: &'static [usize],
}

/// A channel from one stage to another.
#[derive(Debug)]
pub struct ChannelSpec {
    /// The channel's type name.
    pub name: &'static str,
    /// Slots along each axis.
    pub slots: &'static [Extent],
    /// What one slot holds.
    pub item: ItemSpec,
    /// Who receives what is stored.
    pub route: Route,
    /// How what is sent comes to its receiver; `None` leaves it to the launcher.
    pub carriage: Option<Carriage>,
    /// The matrix, by its index among the matrices, of which the slots are tiles; the channel has no memory of its own.
    pub into: Option<usize>,
    /// Pieces, along its columns, into which a panel is cut, each with a signal of its own; at least 1, which is what a
    /// tile has.
    pub pieces: Extent,
    /// Rows of what a slot holds that are sent, if it has as many.
    pub height: Extent,
    /// A slot is used again only when its receiver has finished the launch that used it last.
    pub acknowledged: bool,
}

/// What one slot of a channel holds.
#[derive(Debug)]
pub enum ItemSpec {
    /// `Tile<E, rows, columns>`.
    Tile {
        /// The element type, which may be the variant's.
        element: ElementSpec,
        /// Rows.
        rows: Extent,
        /// Columns.
        columns: Extent,
    },
    /// `Panel<E, rows>`: `rows` rows by as many columns as the launch says.
    Panel {
        /// The element type, which may be the variant's.
        element: ElementSpec,
        /// Rows.
        rows: Extent,
        /// Columns.
        columns: Extent,
    },
    /// `Gate`: nothing but a count, on each rank for itself.
    Gate,
    /// `Routing`: a slot for what each rank's rows chose, one for where the rows of this rank's groups lie, and one for what its CTAs
    /// have counted.
    Routing {
        /// Rows of a rank.
        rows: Extent,
        /// Groups that each of them chooses.
        choices: Extent,
        /// Groups of all ranks.
        groups: Extent,
        /// Rows that a rank has room for.
        capacity: Extent,
    },
}

/// Who receives what is stored into a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The rank that the tile function names.
    One,
    /// Every other rank.
    Peers,
    /// Every rank, the sender too.
    All,
}

/// How what is sent on a channel comes to its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carriage {
    /// The sender stores it in the receiver's memory.
    Push,
    /// The sender keeps it in its own memory, and the receiver loads it from there.
    Pull,
}

impl Carriage {
    /// As `by = …` says it.
    pub fn name(self) -> &'static str {
        match self {
            Carriage::Push => "push",
            Carriage::Pull => "pull",
        }
    }
}

/// A launch argument.
#[derive(Debug)]
pub struct ArgumentSpec {
    /// The field's name.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgumentKind,
}

/// The kinds of launch arguments.
#[derive(Debug)]
pub enum ArgumentKind {
    /// A matrix.
    Matrix {
        /// The element type, which may be the variant's.
        element: ElementSpec,
        /// Rows: a named dimension alone binds it, anything else is checked. `x / world` alone is
        /// rank `r`'s share of `x` rows: `min(⌈x / world⌉, x − r·⌈x / world⌉)`, not below 0.
        rows: Extent,
        /// Columns, likewise.
        columns: Extent,
        /// The tile functions see its rows in `world` parts.
        sharded: bool,
        /// Every rank reaches it on every other.
        symmetric: bool,
        /// They see its rows in so many parts.
        groups: Option<Extent>,
        /// Other ranks read it, too.
        lent: bool,
        /// It is written.
        mutable: bool,
    },
    /// A scalar, passed in the low bytes of a word.
    Scalar(&'static str),
}

/// An element type as the signature names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementSpec {
    /// The kernel's element type `T`, another one in each variant.
    Variant,
    /// One type in every variant.
    Fixed(ElementType),
}

/// The element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// `half::bf16`
    Bf16,
    /// `half::f16`
    F16,
    /// `f32`
    F32,
    /// `u32`
    U32,
    /// `i32`
    I32,
    /// `u64`
    U64,
    /// `i64`
    I64,
}

/// A size in terms of the launch.
#[derive(Debug)]
pub enum Extent {
    /// The named dimension of this index.
    Dim(usize),
    /// The number of ranks.
    World,
    /// A number.
    Literal(u32),
    /// `BM`, the variant's tile rows.
    TileRows,
    /// `BN`, the variant's tile columns.
    TileColumns,
    /// A sum.
    Add(&'static Extent, &'static Extent),
    /// A difference.
    Sub(&'static Extent, &'static Extent),
    /// A product.
    Mul(&'static Extent, &'static Extent),
    /// A quotient, rounded up: as many tiles as it takes.
    DivCeil(&'static Extent, &'static Extent),
}

/// One compiled form of a kernel.
#[derive(Debug)]
pub struct VariantSpec {
    /// The PTX entry.
    pub entry: &'static str,
    /// `T`.
    pub element: ElementType,
    /// `BM`, `BN`.
    pub tile: (u32, u32),
    /// A CTA in code for Hopper.
    pub sm_90a: CtaSpec,
    /// A CTA in code for every GPU from Ampere on.
    pub sm_80: CtaSpec,
    /// Walks every stage as CTA `cta` of a simulated rank.
    ///
    /// `params` points at the kernel's `Params`, laid out as for the entry.
    pub simulate: unsafe fn(params: *const Head, cta: u32),
}

impl VariantSpec {
    /// A CTA in code for a target.
    pub fn cta(&self, target: Target) -> CtaSpec {
        match target {
            Target::Sm90a => self.sm_90a,
            Target::Sm80 => self.sm_80,
        }
    }
}

/// What a CTA takes.
#[derive(Debug, Clone, Copy, Hash)]
pub struct CtaSpec {
    /// Threads.
    pub threads: u32,
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_on_the_gpus_that_it_is_for() {
        let targets = |capability| Target::ALL.map(|target| target.runs_on(capability));
        assert_eq!(targets((7, 5)), [false, false]);
        assert_eq!(targets((8, 0)), [false, true]);
        assert_eq!(targets((8, 9)), [false, true]);
        assert_eq!(targets((9, 0)), [true, true]);
        assert_eq!(targets((10, 0)), [false, true]);
    }

    #[test]
    fn targets_are_told_by_their_names() {
        for target in Target::ALL {
            assert_eq!(target.name().parse::<Target>().unwrap(), target);
        }
        let error = "sm_70".parse::<Target>().unwrap_err();
        assert_eq!(error.to_string(), "`sm_70` is no target of device code; expected `sm_90a` or `sm_80`");
    }
}
