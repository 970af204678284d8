//! Routings: which rows go to which groups, of whatever rank, and where they come to lie there.
//!
//! Each rank lists the rows that choose a group, group by group, and tells every rank in a *table*. From all tables a
//! rank knows the *arrangement* of its own groups' rows: group after group, in blocks of rows that belong to one group;
//! in a group its own rows first, then those of the ranks after it in turn, each rank's in their order. All of it lies
//! in a channel: a slot for each rank's table, and a last one for the arrangement, which stays on its rank.

use core::marker::PhantomData;

use crate::abi::{ChannelArg, Head, MatrixArg, NONE};
use crate::channel::{Channel, Direction, GateItem, Port, ReceivePort, Route, Send, SendPort};
use crate::element::Element;
use crate::layout::routing::*;
use crate::matrix::Matrix;
use crate::memory::word;
use crate::place::SlotPlace;
use crate::role::Role;
use crate::shape::{Shape, TileShape};
use crate::tile::Tile;

/// The sizes of a routing.
#[derive(Clone, Copy, Debug)]
pub struct RoutingSize {
    /// Rows of a rank; the last ranks may have fewer.
    pub rows: u32,
    /// Groups that each row chooses.
    pub choices: u32,
    /// Groups of all ranks.
    pub groups: u32,
    /// Rows that a rank has room for.
    pub capacity: u32,
    /// Rows of a block.
    pub block_rows: u32,
}

impl RoutingSize {
    /// Blocks that a rank has room for.
    #[inline(always)]
    pub fn blocks(&self) -> u32 {
        self.capacity.checked_div(self.block_rows).unwrap_or(0)
    }
}

/// A routing, as roles are told of it.
#[derive(Clone, Copy, Debug)]
pub struct RoutingPlace {
    /// The channel's index in the kernel.
    pub channel: u32,
    /// Its place in the symmetric region.
    pub arg: ChannelArg,
    /// Its sizes.
    pub size: RoutingSize,
}

impl RoutingPlace {
    /// Whether these are as large as the routing says, so that nothing beyond them is read or written.
    #[inline(always)]
    pub fn fits(&self, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) -> bool {
        let RoutingSize { rows, choices: each, groups, .. } = self.size;
        let of_rows = choices.columns == each && weights.columns == each && choices.rows == weights.rows;
        of_rows && choices.rows <= rows && loads.rows > 0 && loads.columns >= groups
    }

    /// The slot of a rank's table, which goes to every rank.
    #[inline(always)]
    pub fn table(&self, source: u32) -> SlotPlace {
        self.slot(source, self.arg, Route::All, NONE)
    }

    /// The slot of this rank's arrangement. It has one buffer, since nobody reads it when the next launch begins.
    #[inline(always)]
    pub fn arrangement(&self, head: &Head) -> SlotPlace {
        self.slot(head.world, ChannelArg { parity_stride: 0, ..self.arg }, Route::One, head.rank)
    }

    #[inline(always)]
    fn slot(&self, index: u32, arg: ChannelArg, route: Route, to: u32) -> SlotPlace {
        SlotPlace {
            channel: self.channel,
            arg,
            index: [index, 0, 0, 0],
            axes: 1,
            piece: NONE,
            route,
            acknowledged: route == Route::All,
            to,
            into: None,
        }
    }

    /// The arrangement, once it is there.
    #[inline(always)]
    pub fn arranged(&self, head: &Head) -> Arrangement {
        let at = head.region + self.arrangement(head).data_offset(head.world, 0);
        Arrangement { at, place: *self, rank: head.rank, world: head.world, region: head.region }
    }
}

/// What a table says of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The group, and the place of the choice in its rank's list; or [`NOWHERE`].
    what: u32,
    /// The address of the weight.
    weight: u64,
}

impl Entry {
    /// The entry of a choice of `group`, which is the `position`-th of its rank's list.
    #[inline(always)]
    pub fn packed(group: u32, position: u32) -> u32 {
        group << POSITION_BITS | position
    }

    /// The weight.
    #[inline(always)]
    pub fn weight(&self) -> f32 {
        f32::from_bits(word(self.weight))
    }
}

/// Where the rows of a rank's groups lie.
#[derive(Clone, Copy, Debug)]
pub struct Arrangement {
    at: u64,
    place: RoutingPlace,
    rank: u32,
    world: u32,
    region: u64,
}

impl Arrangement {
    /// The number of blocks.
    #[inline(always)]
    pub fn blocks(&self) -> u32 {
        word(self.at)
    }

    /// The group of a block, among this rank's.
    #[inline(always)]
    pub fn group(&self, block: u32) -> u32 {
        word(self.block(block))
    }

    /// The rows of a block that belong to its group; what lies behind them means nothing.
    #[inline(always)]
    pub fn rows(&self, block: u32) -> u32 {
        word(self.block(block) + 4)
    }

    #[inline(always)]
    fn block(&self, block: u32) -> u64 {
        let RoutingSize { groups, .. } = self.place.size;
        self.at + 4 * (blocks(groups, self.world) as u64 + block as u64 * BLOCK as u64)
    }

    /// Where the rows of a rank start in a group; for `world` in place of a rank, where the group's end.
    #[inline(always)]
    pub fn start(&self, source: u32, group: u32) -> u32 {
        word(self.at + 4 * (starts(self.place.size.groups, self.world) + source * self.each() + group) as u64)
    }

    /// The rows of a group.
    #[inline(always)]
    pub fn rows_of_group(&self, group: u32) -> u32 {
        // Its first rows are this rank's own.
        self.start(self.world, group) - self.start(self.rank, group)
    }

    #[inline(always)]
    fn each(&self) -> u32 {
        groups_each(self.place.size.groups, self.world)
    }

    /// The rows of a rank.
    #[inline(always)]
    pub fn rows_of(&self, source: u32) -> Routed {
        let RoutingSize { rows, choices, groups, .. } = self.place.size;
        let (epoch, each) = (word(self.at + 4), self.each());
        let table = self.region + self.place.table(source).data_offset(source, epoch);
        Routed {
            entries: table + 4 * entries(groups) as u64,
            list: table + 4 * list(rows, choices, groups),
            distances: self.at + 4 * (HEADER + source * each) as u64,
            choices,
            first: self.rank * each,
            each,
        }
    }
}

/// Where the rows of one rank lie.
#[derive(Clone, Copy, Debug)]
pub struct Routed {
    /// Address of the rank's entries.
    entries: u64,
    /// Address of its list.
    list: u64,
    /// Address of how far its list is from where the rows lie, in each group.
    distances: u64,
    choices: u32,
    /// This rank's groups.
    first: u32,
    each: u32,
}

/// Where a choice's row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its group, among this rank's.
    pub group: u32,
    /// The row at which it lies.
    pub row: u32,
}

impl Routed {
    /// What a row chose.
    #[inline(always)]
    pub fn entry(&self, row: u32, choice: u32) -> Entry {
        let index = row as u64 * self.choices as u64 + choice as u64;
        let entry = self.entries + 4 * index * ENTRY as u64;
        Entry { what: word(entry), weight: entry + 4 }
    }

    /// Where the row of a choice lies, if its group is one of this rank's.
    #[inline(always)]
    pub fn place(&self, entry: &Entry) -> Option<Placed> {
        let group = (entry.what >> POSITION_BITS).wrapping_sub(self.first);
        if entry.what == NOWHERE || group >= self.each {
            return None;
        }
        let row = (entry.what & (MAX_CHOICES - 1)).wrapping_add(self.distance(group));
        Some(Placed { group, row })
    }

    /// The row of the rank that lies at a row of the arrangement which belongs to the rank and the group.
    #[inline(always)]
    pub fn row_at(&self, row: u32, group: u32) -> u32 {
        word(self.list + 4 * row.wrapping_sub(self.distance(group)) as u64)
    }

    #[inline(always)]
    fn distance(&self, group: u32) -> u32 {
        word(self.distances + 4 * group as u64)
    }
}

/// Rows to be copied to where an arrangement has them.
#[derive(Clone, Copy, Debug)]
pub struct Scattered {
    /// The first row, as they are arranged: it and those after it belong to one block.
    pub first: u32,
    /// Their number, as far as the block has so many.
    pub count: u32,
    /// The block.
    pub block: u32,
    /// The matrix that they lie in, as this rank has its own.
    pub from: MatrixArg,
    /// The matrix that they are copied to.
    pub to: MatrixArg,
    /// A slot of the gates, which are by group.
    pub gate: SlotPlace,
}

/// A stage's end of a routing. In a tile function it is written as the routing's name.
pub struct Routing<'c, C: Channel, D: Direction, R: Role> {
    role: &'c R,
    place: RoutingPlace,
    channel: PhantomData<(C, D)>,
}

impl<'c, C: Channel, D: Direction, R: Role> Routing<'c, C, D, R> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn woven(role: &'c R, arg: &ChannelArg, size: RoutingSize) -> Self {
        let place = RoutingPlace { channel: C::INDEX, arg: *arg, size };
        Routing { role, place, channel: PhantomData }
    }

    /// Arranges the rows of this rank's groups. `choices` has a row for each of this rank's rows, with the groups that it
    /// chooses; a number that is no group's chooses none. `weights` has their weights. `loads` is told how many
    /// rows each group of all ranks gets.
    ///
    /// A rank that gets more rows than it has room for gives the launch up on all.
    ///
    /// # Panics
    /// `choices` and `weights` have not as many columns as the routing has choices, or more rows than it has; or `loads`
    /// fewer columns than it has groups.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn arrange(self, choices: &Matrix<'c, u32, R>, weights: &Matrix<'c, f32, R>, loads: &mut Matrix<'c, u32, R>)
    where
        D: SendPort,
    {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            self.place.fits(&choices.arg, &weights.arg, &loads.arg),
            "the matrices are not as large as the routing"
        );
        self.role.arrange(&self.place, &choices.arg, &weights.arg, &loads.arg);
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn await_blocks(&self) -> u32
    where
        D: ReceivePort,
    {
        self.role.arranged(&self.place)
    }

    /// The number of blocks of rows that this rank's groups have.
    #[inline(always)]
    pub fn blocks(&self) -> u32
    where
        D: ReceivePort,
    {
        self.arrangement().blocks()
    }

    /// The group of a block, counted from this rank's first.
    #[inline(always)]
    pub fn group(&self, block: u32) -> u32
    where
        D: ReceivePort,
    {
        self.arrangement().group(block)
    }

    /// Copies what belongs into `ROWS` rows of a block, those from row `part · ROWS` on, from whatever rank's matrix `from` it
    /// lies in to this rank's `to`. A row that several groups chose is copied to all of its places with the first, so that it
    /// crosses the link once. Each is counted in the gate of its group.
    ///
    /// Products of a group that begin together read its weights together: that is why gates are by group, and why rows come
    /// group after group.
    #[inline(always)]
    pub fn scatter<const ROWS: u32, E: Element, G: Channel<Item = GateItem, Index = [u32; 1]>>(
        &self,
        [block, part]: [u32; 2],
        from: &Matrix<'c, E, R>,
        to: &mut Matrix<'c, E, R>,
        gates: Port<'c, G, Send, R>,
    ) where
        D: ReceivePort,
    {
        let (gate, first) = (gates.slot([0]).place(), block * self.place.size.block_rows + part * ROWS);
        let rows = Scattered { first, count: ROWS, block, from: from.arg, to: to.arg, gate };
        self.role.scatter::<E>(&self.place, &rows);
    }

    /// The sums of what this rank's groups made of the rows of `source`, each with its weight: for `M` rows from row
    /// `row · M` on, the tile of `N` columns at `column`. What they made of them lies in `from`, as arranged. A row that
    /// chose none of this rank's groups gets zeros.
    #[inline(always)]
    pub fn weighted_sum<E: Element, const M: usize, const N: usize>(
        &self,
        [source, row, column]: [u32; 3],
        from: &Matrix<'c, E, R>,
    ) -> Tile<'c, f32, M, N, R>
    where
        D: ReceivePort,
        Shape<M, N>: TileShape,
    {
        let columns = from.place::<M, N>(0, column);
        let sum = self.role.weighted_sum::<E, Shape<M, N>>(&self.place, source, row * M as u32, &columns);
        Tile::from_fragment(self.role, sum)
    }

    #[inline(always)]
    fn arrangement(&self) -> Arrangement {
        self.place.arranged(self.role.head())
    }
}
