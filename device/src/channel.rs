//! Channels: how tiles reach other ranks.

use core::marker::PhantomData;

use crate::abi::{ChannelArg, MAX_AXES, MatrixArg, NONE};
use crate::element::Element;
use crate::matrix::Panel;
use crate::place::{PanelPlace, Place, SlotPlace};
use crate::role::Role;
use crate::shape::{Shape, TileShape};
use crate::tile::{Storable, Tile};

/// Who receives what is stored into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The rank that the tile function names.
    One,
    /// Every other rank.
    Peers,
    /// Every rank, the sender too.
    All,
}

/// A channel's type. Implemented by `#[channel]`.
pub trait Channel {
    /// Its index in the kernel.
    const INDEX: u32;
    /// Who receives.
    const ROUTE: Route;
    /// A slot is reused only once its receiver has finished the launch that filled it. Not needed where every
    /// rank waits, in each launch, for those that it sends to.
    const ACKNOWLEDGED: bool = true;
    /// It stays on its rank.
    const LOCAL: bool = false;
    /// A slot's coordinates, `[u32; arity]`.
    type Index: Into<SlotIndex>;
    /// What a slot holds: [`TileItem`], [`PanelItem`], [`GateItem`] or [`RoutingItem`].
    type Item;
}

/// A slot's coordinates, filled up with zeros, and their number.
#[doc(hidden)]
pub struct SlotIndex(pub [u32; MAX_AXES], pub u32);

macro_rules! slot_index {
    ($($arity:literal => [$($i:literal),+]),+) => {
        $(impl From<[u32; $arity]> for SlotIndex {
            #[inline(always)]
            fn from(index: [u32; $arity]) -> Self {
                let mut all = [0; MAX_AXES];
                $(all[$i] = index[$i];)+
                SlotIndex(all, $arity)
            }
        })+
    };
}
slot_index!(1 => [0], 2 => [0, 1], 3 => [0, 1, 2], 4 => [0, 1, 2, 3]);

/// Slots of `Tile<E, M, N>`.
pub struct TileItem<E: Element, const M: usize, const N: usize>(PhantomData<E>);
/// Slots of `Panel<E, M>`: `M` rows by as many columns as the launch says.
pub struct PanelItem<E: Element, const M: usize>(PhantomData<E>);

/// Slots that hold nothing, and open when as many tiles as they are told have been counted.
pub struct GateItem;
/// What a [`Routing`](crate::Routing) needs.
pub struct RoutingItem;

/// What a stage may do with a channel.
pub trait Direction {}
/// A direction that may send.
#[diagnostic::on_unimplemented(
    message = "this stage only receives on the channel",
    note = "mark the parameter `#[send]` to store into it"
)]
pub trait SendPort: Direction {}
/// A direction that may receive.
#[diagnostic::on_unimplemented(
    message = "this stage only sends on the channel",
    note = "mark the parameter `#[recv]` to load from it"
)]
pub trait ReceivePort: Direction {}
/// A parameter marked `#[send]`.
pub struct Send;
/// A parameter marked `#[recv]`.
pub struct Receive;
/// A parameter marked both `#[send]` and `#[recv]`.
pub struct SendReceive;
impl Direction for Send {}
impl Direction for Receive {}
impl Direction for SendReceive {}
impl SendPort for Send {}
impl SendPort for SendReceive {}
impl ReceivePort for Receive {}
impl ReceivePort for SendReceive {}

/// A stage's end of a channel. In a tile function it is written as the channel's name.
pub struct Port<'c, C: Channel, D: Direction, R: Role> {
    role: &'c R,
    arg: ChannelArg,
    into: Option<MatrixArg>,
    to: u32,
    channel: PhantomData<(C, D)>,
}

impl<C: Channel, D: Direction, R: Role> Clone for Port<'_, C, D, R> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: Channel, D: Direction, R: Role> Copy for Port<'_, C, D, R> {}

impl<'c, C: Channel, D: Direction, R: Role> Port<'c, C, D, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn woven(role: &'c R, arg: &ChannelArg) -> Self {
        Port { role, arg: *arg, into: None, to: NONE, channel: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn woven_into(role: &'c R, arg: &ChannelArg, matrix: &MatrixArg) -> Self {
        Port { into: Some(*matrix), ..Port::woven(role, arg) }
    }

    /// The slots of `rank`, to be stored to. A channel whose route is `peers` needs no `to`.
    #[inline(always)]
    pub fn to(self, rank: u32) -> Self
    where
        D: SendPort,
    {
        Port { to: rank, ..self }
    }

    /// The slot with these coordinates.
    #[inline(always)]
    pub fn slot(self, index: C::Index) -> Slot<'c, C::Item, D, R> {
        let SlotIndex(index, axes) = index.into();
        let place = SlotPlace {
            channel: C::INDEX,
            arg: self.arg,
            index,
            axes,
            piece: NONE,
            route: C::ROUTE,
            acknowledged: C::ACKNOWLEDGED,
            to: if C::LOCAL { self.role.head().rank } else { self.to },
            into: self.into,
        };
        Slot { role: self.role, place, holds: PhantomData }
    }
}

/// One slot of a channel that holds `I`.
pub struct Slot<'c, I, D: Direction, R: Role> {
    role: &'c R,
    place: SlotPlace,
    holds: PhantomData<(I, D)>,
}

impl<I, D: Direction, R: Role> Slot<'_, I, D, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn place(&self) -> SlotPlace {
        self.place
    }
}

impl<'c, E: Element, const M: usize, const N: usize, D: Direction, R: Role> Slot<'c, TileItem<E, M, N>, D, R>
where
    Shape<M, N>: TileShape,
{
    /// Sends a tile: stores it, releases it and signals the receiver.
    #[inline(always)]
    pub fn store(self, tile: impl Storable<E, M, N, R>)
    where
        D: SendPort,
    {
        tile.store_at(&Place::Slot(self.place));
    }

    /// The tile that this rank receives in this slot. What uses it waits for its signal.
    #[inline(always)]
    pub fn load(self) -> Incoming<'c, E, M, N, R>
    where
        D: ReceivePort,
    {
        Incoming { role: self.role, place: Place::Slot(self.place), element: PhantomData }
    }
}

impl<'c, E: Element, const M: usize, D: Direction, R: Role> Slot<'c, PanelItem<E, M>, D, R> {
    /// Sends a panel: copies it, releases it and signals the receiver, each piece if the channel's panels are cut.
    ///
    /// # Panics
    /// On simulated ranks: it has other columns than the channel's panels. On GPUs those that it lacks are zero.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn store(self, panel: Panel<'c, E, M, R>)
    where
        D: SendPort,
    {
        check_columns(&panel, &self.place);
        self.role.transfer_panel::<E, M>(&panel.place, &self.place);
    }

    /// The piece at this index of a panel that is cut along its columns, to be sent alone.
    #[inline(always)]
    pub fn piece(self, index: u32) -> Piece<'c, E, M, R>
    where
        D: SendPort,
    {
        Piece { role: self.role, place: self.place.at_piece(index), element: PhantomData }
    }

    /// The panel that this rank receives in this slot. What uses it waits for its signal, or for those of its pieces
    /// as it comes to them.
    #[inline(always)]
    pub fn load(self) -> Panel<'c, E, M, R>
    where
        D: ReceivePort,
    {
        Panel { role: self.role, place: PanelPlace::Slot(self.place), element: PhantomData }
    }
}

/// On simulated ranks: a panel that is sent is as wide as the channel's.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
fn check_columns<E: Element, const M: usize, R: Role>(panel: &Panel<'_, E, M, R>, to: &SlotPlace) {
    let (found, wanted) = (panel.place.columns(), to.arg.columns);
    assert!(
        cfg!(target_arch = "nvptx64") || found == wanted,
        "a panel of {found} columns can't be sent on a channel whose panels have {wanted}"
    );
}

impl<D: Direction, R: Role> Slot<'_, GateItem, D, R> {
    /// Counts this tile: what it has stored so far is there for those who [`wait`](Slot::wait) until `of` tiles of this
    /// rank have been counted. All of them name the same `of`.
    ///
    /// # Faults
    /// On simulated ranks: more than `of` are counted.
    #[inline(always)]
    pub fn arrive(self, of: u32)
    where
        D: SendPort,
    {
        self.role.arrive(&self.place, of);
    }

    /// Waits until all have been counted that were to be.
    #[inline(always)]
    pub fn wait(self)
    where
        D: ReceivePort,
    {
        self.role.pass(&self.place);
    }
}

/// One piece of a slot that holds a panel: as many of its columns as one signal stands for.
pub struct Piece<'c, E: Element, const M: usize, R: Role> {
    role: &'c R,
    place: SlotPlace,
    element: PhantomData<E>,
}

impl<'c, E: Element, const M: usize, R: Role> Piece<'c, E, M, R> {
    /// Sends the piece's columns of `panel`: copies them, releases them and signals the receiver.
    ///
    /// # Panics
    /// As where a panel is sent as a whole.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn store(self, panel: Panel<'c, E, M, R>) {
        check_columns(&panel, &self.place);
        self.role.transfer_panel::<E, M>(&panel.place, &self.place);
    }
}

/// A tile that lies in a matrix or in a slot and has not been fetched yet.
///
/// Added to a tile (`sum += incoming`) it is fetched while the CTA computes; stored somewhere else it
/// moves without passing through registers; [`read`](Incoming::read) brings it into a tile.
#[must_use = "a tile that is neither added, stored nor read is not waited for"]
pub struct Incoming<'c, E: Element, const M: usize, const N: usize, R: Role> {
    pub(crate) role: &'c R,
    pub(crate) place: Place,
    pub(crate) element: PhantomData<E>,
}

impl<'c, E: Element, const M: usize, const N: usize, R: Role> Incoming<'c, E, M, N, R>
where
    Shape<M, N>: TileShape,
{
    /// The tile itself.
    #[inline(always)]
    pub fn read(self) -> Tile<'c, E, M, N, R> {
        Tile::from_fragment(self.role, self.role.load::<E, Shape<M, N>>(&self.place))
    }
}
