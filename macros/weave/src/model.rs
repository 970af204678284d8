//! The model of a kernel: what parsing finds, checking judges and emission writes out.

use std::fmt::{self, Display, Formatter};

use proc_macro2::{Ident, Span};
use syn::{Attribute, Expr, ExprArray, Item, ItemFn, Type, Visibility};

use crate::extent::Extent;

/// The largest number of axes of a grid or of a channel's slots, as in `entwine_device::abi`.
pub const MAX_AXES: usize = 4;
/// The largest number of named dimensions, as in `entwine_device::abi`.
pub const MAX_DIMS: usize = 8;
/// The largest number of stages, as in `entwine_device::abi`.
pub const MAX_STAGES: usize = 32;
/// The largest number of groups of a routing, as in `entwine_device::layout::routing`.
pub const MAX_GROUPS: u32 = 512;
/// The rows of a rank have fewer choices than that in all, as in `entwine_device::layout::routing`.
pub const MAX_CHOICES: u32 = 1 << 20;
/// The fewest rows that a tile has.
pub const LEAST_TILE_ROWS: u32 = 64;

/// A kernel module.
pub struct Kernel {
    /// Its documentation and other attributes.
    pub attributes: Vec<Attribute>,
    /// Those written inside of the module.
    pub inner_attributes: Vec<Attribute>,
    pub visibility: Visibility,
    pub name: Ident,
    /// `(BM, BN)` of the variants, preferred ones first.
    pub tiles: Vec<(u32, u32)>,
    /// All threads of a CTA carry out each operation together, and stream; else they have roles of their own.
    pub together: bool,
    /// `T` of the variants, preferred ones first.
    pub elements: Vec<ElementType>,
    /// The named dimensions, in the order of their first appearance.
    pub dims: Vec<Ident>,
    pub channels: Vec<Channel>,
    pub stages: Vec<Stage>,
    /// The launch arguments, in the order of their first appearance.
    pub arguments: Vec<Argument>,
    /// Everything else in the module.
    pub items: Vec<Item>,
}

/// A channel.
pub struct Channel {
    /// Its documentation and other attributes.
    pub attributes: Vec<Attribute>,
    pub visibility: Visibility,
    pub name: Ident,
    pub slots: Vec<Extent>,
    pub holds: Holds,
    pub route: Route,
    /// How what is sent comes to its receiver; `None` leaves it to the launcher.
    pub carriage: Option<Carriage>,
    /// The argument in which the slots lie, where they are tiles of a matrix.
    pub into: Option<Ident>,
    /// Into how many pieces, along their columns, panels are cut, each with a signal of its own.
    pub pieces: Option<Extent>,
    /// So many rows of what a slot holds are sent, if it has more.
    pub height: Option<Extent>,
    /// The declared number of sending stages.
    pub senders: u32,
    /// `acknowledge = never`, where it is written: slots are reused without asking the receiver.
    pub unacknowledged: Option<Ident>,
}

/// What one slot of a channel holds.
pub enum Holds {
    /// `Tile<element, rows, columns>`
    Tile { element: Element, rows: Extent, columns: Extent, written: Type },
    /// `Panel<element, rows>`
    Panel { element: Element, rows: Extent, columns: Extent, written: Type },
    /// `Gate`: nothing but a count of tiles, before what they wrote in a matrix is read.
    Gate { guards: Option<Ident>, written: Type },
    /// `Routing`
    Routing { size: RoutingSize, written: Type },
}

/// The sizes of a routing.
pub struct RoutingSize {
    /// Rows of a rank.
    pub rows: Extent,
    /// Groups that each of them chooses.
    pub choices: Extent,
    /// Groups of all ranks.
    pub groups: Extent,
    /// Rows that a rank has room for.
    pub capacity: Extent,
}

impl RoutingSize {
    pub fn extents(&self) -> [&Extent; 4] {
        [&self.rows, &self.choices, &self.groups, &self.capacity]
    }
}

/// Who receives what is stored.
#[derive(Clone, Copy, PartialEq)]
pub enum Route {
    One,
    Peers,
    All,
}

/// How what is sent comes to its receiver.
#[derive(Clone, Copy, PartialEq)]
pub enum Carriage {
    /// The sender stores it in the receiver's memory.
    Push,
    /// The sender keeps it, and the receiver loads it from there.
    Pull,
}

/// An element type as written.
#[derive(Clone, Copy, PartialEq)]
pub enum Element {
    /// `T`
    Variant,
    Fixed(ElementType),
}

/// The element types.
#[derive(Clone, Copy, PartialEq)]
pub enum ElementType {
    Bf16,
    F16,
    F32,
    /// In matrices alone, as the whole numbers after it: numbers that control flow and coordinates go by.
    U32,
    I32,
    U64,
    I64,
}

/// A stage.
pub struct Stage {
    /// The tile function as written, less the attributes that are understood here.
    pub function: ItemFn,
    pub grid: Vec<Extent>,
    /// The grid as written.
    pub written_grid: Option<Expr>,
    pub order: Order,
    /// The CTAs that it has to itself.
    pub ctas: Option<u32>,
    /// The movers carry it, beside the other stages.
    pub moved: bool,
    /// The stage between whose tiles its own are taken as they become ready.
    pub beside: Option<Ident>,
    /// The routing whose blocks the first axis of the grid is.
    pub within: Option<Ident>,
    /// The name of the first parameter.
    pub at: Ident,
    /// The parameters after the first.
    pub parameters: Vec<Parameter>,
}

impl Stage {
    pub fn name(&self) -> &Ident {
        &self.function.sig.ident
    }

    /// Its ends of channels, with the parameters' names.
    pub fn ports(&self) -> impl Iterator<Item = (&Ident, &Port)> {
        self.parameters.iter().filter_map(|parameter| match &parameter.binding {
            Binding::Port(port) => Some((&parameter.name, &**port)),
            _ => None,
        })
    }

    /// Its end of the channel of this index.
    pub fn port(&self, channel: usize) -> Option<&Port> {
        self.ports().map(|(_, port)| port).find(|port| port.channel == channel)
    }
}

/// The order in which a stage's tiles are visited.
pub struct Order {
    pub kind: OrderKind,
    /// Its name as written, or the default's.
    pub name: Ident,
}

/// The kinds of orders.
#[derive(Clone, Copy, PartialEq)]
pub enum OrderKind {
    Grouped,
    RowMajor,
    PeersFirst,
    Ring,
    ReadyFirst,
    /// A function of the module.
    Function,
}

/// A parameter of a tile function.
pub struct Parameter {
    pub name: Ident,
    /// Its type as written.
    pub written: Type,
    pub binding: Binding,
}

/// What a parameter stands for.
pub enum Binding {
    /// The launch argument of this index, a matrix.
    Matrix { argument: usize, mutable: bool },
    /// The launch argument of this index, a scalar.
    Scalar { argument: usize },
    /// An end of a channel.
    Port(Box<Port>),
}

/// A stage's end of a channel.
pub struct Port {
    pub channel: usize,
    /// The name in `#[send]`.
    pub send: Option<Ident>,
    pub receive: Option<Receive>,
}

/// `#[recv]`, `#[recv(slot = …)]` or `#[recv(slot = …, unless = …)]`.
pub struct Receive {
    /// The name in `#[recv]`.
    pub marker: Ident,
    /// The slot that a tile waits for.
    pub slot: Option<ExprArray>,
    /// Which tiles wait for none.
    pub unless: Option<Expr>,
}

/// A launch argument.
pub struct Argument {
    /// Its documentation.
    pub attributes: Vec<Attribute>,
    pub name: Ident,
    pub kind: ArgumentKind,
}

/// The kinds of launch arguments.
#[derive(PartialEq)]
pub enum ArgumentKind {
    Matrix(Matrix),
    /// A scalar of this type.
    Scalar(Ident),
}

/// A matrix that is a launch argument.
#[derive(PartialEq)]
pub struct Matrix {
    pub element: Element,
    pub sharded: bool,
    /// Every rank reaches it on every other.
    pub symmetric: bool,
    /// It is a column of so many matrices, which have `rows` rows together.
    pub groups: Option<Extent>,
    /// Other ranks read it, too.
    pub lent: bool,
    pub rows: Extent,
    pub columns: Extent,
    /// Some stage writes it.
    pub mutable: bool,
}

impl Kernel {
    /// The stages that send on a channel, by index, at their `#[send]`.
    pub fn senders(&self, channel: usize) -> impl Iterator<Item = (usize, &Ident)> {
        let ports = self.stages.iter().enumerate();
        ports.filter_map(move |(stage, found)| Some((stage, found.port(channel)?.send.as_ref()?)))
    }

    /// The stages that receive on a channel, by index, at their `#[recv]`.
    pub fn receivers(&self, channel: usize) -> impl Iterator<Item = (usize, &Ident)> {
        let ports = self.stages.iter().enumerate();
        ports.filter_map(move |(stage, found)| Some((stage, &found.port(channel)?.receive.as_ref()?.marker)))
    }

    /// Calls `f` with every extent: of slots, grids and shapes.
    pub fn for_each_extent<'a>(&'a self, f: &mut impl FnMut(&'a Extent)) {
        for channel in &self.channels {
            channel.slots.iter().for_each(&mut *f);
            match &channel.holds {
                Holds::Panel { columns, .. } => f(columns),
                Holds::Routing { size, .. } => size.extents().into_iter().for_each(&mut *f),
                Holds::Tile { .. } | Holds::Gate { .. } => {}
            }
            channel.pieces.iter().chain(&channel.height).for_each(&mut *f);
        }
        self.stages.iter().flat_map(|stage| &stage.grid).for_each(&mut *f);
        for (_, matrix) in self.matrices() {
            f(&matrix.rows);
            f(&matrix.columns);
        }
    }

    /// The arguments that are matrices, with their names.
    pub fn matrices(&self) -> impl Iterator<Item = (&Ident, &Matrix)> {
        self.arguments.iter().filter_map(|argument| match &argument.kind {
            ArgumentKind::Matrix(matrix) => Some((&argument.name, matrix)),
            ArgumentKind::Scalar(_) => None,
        })
    }

    /// The argument of this name, by its index, and the matrix that it is.
    pub fn matrix(&self, name: &Ident) -> Option<(usize, &Matrix)> {
        let arguments = self.arguments.iter().enumerate();
        arguments.filter(|(_, argument)| argument.name == *name).find_map(|(index, argument)| match &argument.kind {
            ArgumentKind::Matrix(matrix) => Some((index, matrix)),
            ArgumentKind::Scalar(_) => None,
        })
    }

    /// The argument's index among those of its kind, as the launch parameters have them.
    pub fn index_among_kind(&self, argument: usize) -> usize {
        let is_matrix = |argument: &Argument| matches!(argument.kind, ArgumentKind::Matrix(_));
        let kind = is_matrix(&self.arguments[argument]);
        self.arguments[..argument].iter().filter(|earlier| is_matrix(earlier) == kind).count()
    }

    /// Some argument is symmetric, so that launches begin and end on all ranks together.
    pub fn lends(&self) -> bool {
        self.matrices().any(|(_, matrix)| matrix.symmetric)
    }

    /// The launch arguments depend on the variant's element type.
    pub fn generic_arguments(&self) -> bool {
        self.matrices().any(|(_, matrix)| matrix.element == Element::Variant)
    }
}

impl Holds {
    pub fn written(&self) -> &Type {
        match self {
            Holds::Tile { written, .. }
            | Holds::Panel { written, .. }
            | Holds::Gate { written, .. }
            | Holds::Routing { written, .. } => written,
        }
    }

    /// It stays on the rank that sends it.
    pub fn is_local(&self) -> bool {
        matches!(self, Holds::Gate { .. })
    }
}

impl Order {
    /// The orders that have a name of their own.
    pub const NAMED: [(&str, OrderKind); 5] = [
        ("grouped", OrderKind::Grouped),
        ("row_major", OrderKind::RowMajor),
        ("peers_first", OrderKind::PeersFirst),
        ("ring", OrderKind::Ring),
        ("ready_first", OrderKind::ReadyFirst),
    ];

    /// What can be written, for messages.
    pub fn choices() -> String {
        let named = Self::NAMED.map(|(name, _)| format!("`{name}`, ")).concat();
        format!("{named}or a function of this module, `fn(Step<D>) -> [u32; D]`")
    }

    pub fn from_name(name: Ident) -> Self {
        let named = Self::NAMED.iter().find(|(known, _)| name == known);
        Order { kind: named.map_or(OrderKind::Function, |(_, kind)| *kind), name }
    }
}

impl Default for Order {
    fn default() -> Self {
        Order { kind: OrderKind::Grouped, name: Ident::new("grouped", Span::call_site()) }
    }
}

impl ElementType {
    /// Those of tiles.
    pub const ALL: [ElementType; 3] = [ElementType::Bf16, ElementType::F16, ElementType::F32];
    /// What else words are.
    pub const WHOLE: [ElementType; 4] = [ElementType::U32, ElementType::I32, ElementType::U64, ElementType::I64];

    /// Bytes of one element.
    pub fn size(self) -> u32 {
        match self {
            ElementType::Bf16 | ElementType::F16 => 2,
            ElementType::F32 | ElementType::U32 | ElementType::I32 => 4,
            ElementType::U64 | ElementType::I64 => 8,
        }
    }

    /// The Rust type's name.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::Bf16 => "bf16",
            ElementType::F16 => "f16",
            ElementType::F32 => "f32",
            ElementType::U32 => "u32",
            ElementType::I32 => "i32",
            ElementType::U64 => "u64",
            ElementType::I64 => "i64",
        }
    }

    pub fn from_name(name: &Ident) -> Option<Self> {
        Self::ALL.into_iter().find(|element| name == element.name())
    }
}

impl Element {
    /// The element type in a variant whose `T` is `variant`.
    pub fn in_variant(self, variant: ElementType) -> ElementType {
        match self {
            Element::Variant => variant,
            Element::Fixed(element) => element,
        }
    }
}

impl Display for Element {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self {
            Element::Variant => write!(out, "T"),
            Element::Fixed(element) => write!(out, "{}", element.name()),
        }
    }
}
