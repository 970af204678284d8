//! In which order, and for whose threads, words of memory are accessed: as types, so that what can't be is no program.

/// What an access orders beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    Relaxed,
    /// What comes after it is not done before.
    Acquire,
    /// What came before it is done for whoever acquires what it wrote.
    Release,
    /// Both.
    AcqRel,
}

/// Whose threads an access is ordered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Those of the CTA.
    Cta,
    /// Those of the rank.
    Gpu,
    /// Those of all ranks.
    Sys,
}

/// An order, as a type: [`Relaxed`], [`Acquire`], [`Release`] or [`AcqRel`].
pub trait Ordering {
    /// The order.
    const ORDER: Order;
}
/// An order of loads.
#[diagnostic::on_unimplemented(message = "a load is not `{Self}`", note = "it is `Relaxed` or `Acquire`")]
pub trait LoadOrdering: Ordering {}
/// An order of stores.
#[diagnostic::on_unimplemented(message = "a store is not `{Self}`", note = "it is `Relaxed` or `Release`")]
pub trait StoreOrdering: Ordering {}

/// A scope, as a type: [`Cta`], [`Gpu`] or [`Sys`].
pub trait Scope {
    /// Whom it reaches.
    const REACH: Reach;
}
/// A scope that reaches everybody who accesses memory of this kind: [`Here`] or [`There`].
#[diagnostic::on_unimplemented(
    message = "the scope `{Self}` does not reach the threads of another rank",
    note = "words on a rank that is named are accessed at the scope `Sys`; `here()` is this rank's own memory"
)]
pub trait Reaches<Side>: Scope {}

macro_rules! markers {
    ($($(#[$doc:meta])* $name:ident: $trait:ident, $constant:ident = $value:expr;)+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl $trait for $name {
            const $constant: markers!(@type $trait) = $value;
        })+
    };
    (@type Ordering) => { Order };
    (@type Scope) => { Reach };
}
markers! {
    /// Orders nothing beside itself.
    Relaxed: Ordering, ORDER = Order::Relaxed;
    /// What comes after it is not done before.
    Acquire: Ordering, ORDER = Order::Acquire;
    /// What came before it is done for whoever acquires what it wrote.
    Release: Ordering, ORDER = Order::Release;
    /// Both.
    AcqRel: Ordering, ORDER = Order::AcqRel;
    /// The threads of the CTA.
    Cta: Scope, REACH = Reach::Cta;
    /// The threads of the rank.
    Gpu: Scope, REACH = Reach::Gpu;
    /// The threads of all ranks.
    Sys: Scope, REACH = Reach::Sys;
}
impl LoadOrdering for Relaxed {}
impl LoadOrdering for Acquire {}
impl StoreOrdering for Relaxed {}
impl StoreOrdering for Release {}

/// Memory of this rank.
pub struct Here;
/// Memory of a rank that is named, be it another or this one.
pub struct There;
impl<S: Scope> Reaches<Here> for S {}
impl Reaches<There> for Sys {}

impl Order {
    /// It acquires.
    #[inline(always)]
    pub fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcqRel)
    }

    /// It releases.
    #[inline(always)]
    pub fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcqRel)
    }
}
