//! Routings: which rows go to which groups, of whatever rank, and where they come to lie there.
//!
//! Each rank lists the rows that choose a group, group by group, and tells every rank in a *table*. From all tables a
//! rank knows the *arrangement* of its own groups' rows: group after group, in blocks of rows that belong to one group;
//! in a group its own rows first, then those of the ranks after it in turn, each rank's in their order. All of it lies
//! in a channel: a slot for each rank's table, one for the arrangement, which stays on its rank, and one for what each of the
//! CTAs that make the table together has counted.

use core::marker::PhantomData;

use crate::abi::{ChannelArg, Head, MatrixArg, NONE};
use crate::channel::{Channel, Direction, GateItem, Port, ReceivePort, Route, Send, SendPort};
use crate::element::Element;
use crate::layout::routing::*;
use crate::matrix::Matrix;
use crate::memory::{anew, word};
use crate::order::Member;
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

    /// Rows that these blocks have.
    #[inline(always)]
    fn rows_of_blocks(&self) -> u32 {
        self.blocks() * self.block_rows
    }
}

/// What goes by a routing.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The groups that rows choose.
    Choices = 0,
    /// Their weights.
    Weights = 1,
    /// The rows of each group.
    Loads = 2,
    /// The rows that are scattered.
    Source = 3,
    /// Where they are scattered to.
    Target = 4,
    /// The gates that count them.
    Gates = 5,
    /// What is summed.
    Summed = 6,
}

/// What a routing needs of it.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// At least so many rows.
    Rows = 0,
    /// No more rows than that.
    RowsAtMost = 1,
    /// So many columns.
    Columns = 2,
    /// At least so many columns.
    ColumnsAtLeast = 3,
    /// At least so many slots.
    Slots = 4,
}

/// What is not as large as a routing says.
#[derive(Clone, Copy, Debug)]
pub struct Misfit {
    /// What it is.
    pub operand: Operand,
    /// The address of the matrix; 0 for gates.
    pub data: u64,
    /// What is needed of it.
    pub need: Need,
    /// How much of that.
    pub needed: u32,
    /// What there is.
    pub found: u32,
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
    /// Which of the CTAs that make the table this is, for who arranges.
    pub member: Member,
}

impl RoutingPlace {
    /// What of these is not as large as the routing says, so that something beyond it would be read or written.
    #[inline(always)]
    pub fn misfit(&self, choices: &MatrixArg, weights: &MatrixArg, loads: &MatrixArg) -> Option<Misfit> {
        let RoutingSize { rows, choices: each, groups, .. } = self.size;
        let of_choices = of(Operand::Choices, choices);
        let (of_weights, of_loads) = (of(Operand::Weights, weights), of(Operand::Loads, loads));
        if choices.columns != each {
            Some(of_choices(Need::Columns, each, choices.columns))
        } else if choices.rows > rows {
            Some(of_choices(Need::RowsAtMost, rows, choices.rows))
        } else if weights.columns != each {
            Some(of_weights(Need::Columns, each, weights.columns))
        } else if weights.rows < choices.rows {
            Some(of_weights(Need::Rows, choices.rows, weights.rows))
        } else if loads.rows == 0 {
            Some(of_loads(Need::Rows, 1, 0))
        } else if loads.columns < groups {
            Some(of_loads(Need::ColumnsAtLeast, groups, loads.columns))
        } else {
            None
        }
    }

    /// What of these is not large enough for whatever rows come, so that something beyond it would be written. How many rows
    /// there are to be scattered on another rank is asked row by row.
    #[inline(always)]
    pub fn misfit_scattered(&self, rows: &Scattered) -> Option<Misfit> {
        let Scattered { from, to, gate, .. } = rows;
        let (needed, blocks) = (self.size.rows_of_blocks(), self.size.blocks());
        if to.columns != from.columns {
            Some(of(Operand::Target, to)(Need::Columns, from.columns, to.columns))
        } else if to.rows < needed {
            Some(of(Operand::Target, to)(Need::Rows, needed, to.rows))
        } else if gate.arg.slots[0] < blocks {
            let found = gate.arg.slots[0];
            Some(Misfit { operand: Operand::Gates, data: 0, need: Need::Slots, needed: blocks, found })
        } else {
            None
        }
    }

    /// That the rows to be scattered end before one that chose a group.
    #[inline(always)]
    pub fn misfit_row(&self, from: &MatrixArg, row: u32) -> Misfit {
        of(Operand::Source, from)(Need::Rows, row + 1, from.rows)
    }

    /// What is to be summed, if it is not large enough for whatever rows there are.
    #[inline(always)]
    pub fn misfit_summed(&self, from: &MatrixArg) -> Option<Misfit> {
        let needed = self.size.rows_of_blocks();
        (from.rows < needed).then(|| of(Operand::Summed, from)(Need::Rows, needed, from.rows))
    }

    /// The slot of a rank's table, which goes to every rank.
    #[inline(always)]
    pub fn table(&self, source: u32) -> SlotPlace {
        self.slot(source, self.arg, Route::All, NONE)
    }

    /// The slot of this rank's arrangement. Nobody reads it any more when the next launch begins.
    #[inline(always)]
    pub fn arrangement(&self, head: &Head) -> SlotPlace {
        self.local(head, 0)
    }

    /// The slot of what the CTAs that make this rank's table have counted, which is there when all of them have.
    #[inline(always)]
    pub fn counted(&self, head: &Head) -> SlotPlace {
        self.local(head, 1)
    }

    /// A slot behind the tables. It has one buffer.
    #[inline(always)]
    fn local(&self, head: &Head, index: u32) -> SlotPlace {
        self.slot(head.world + index, ChannelArg { parity_stride: 0, ..self.arg }, Route::One, head.rank)
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
        Arrangement { at, place: *self, rank: head.rank, world: anew(head.world), region: head.region }
    }
}

/// A misfit of a matrix, but for what is needed, how much of it and what there is.
#[inline(always)]
fn of(operand: Operand, matrix: &MatrixArg) -> impl Fn(Need, u32, u32) -> Misfit {
    let data = matrix.data;
    move |need, needed, found| Misfit { operand, data, need, needed, found }
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

    /// Where the rows of a rank start in a group.
    #[inline(always)]
    pub fn start(&self, source: u32, group: u32) -> u32 {
        word(self.at + 4 * (starts(self.place.size.groups, self.world) + source * self.each() + group) as u64)
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
    /// A slot of the gates, which are by block.
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
        let place = RoutingPlace { channel: C::INDEX, arg: *arg, size, member: Member::ALONE };
        Routing { role, place, channel: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn by(mut self, member: Member) -> Self {
        self.place.member = member;
        self
    }

    /// Arranges the rows of this rank's groups. `choices` has a row for each of this rank's rows, with the groups that it
    /// chooses; a number that is no group's chooses none. `weights` has their weights. `loads` is told how many
    /// rows each group of all ranks gets.
    ///
    /// A rank that gets more rows than it has room for gives the launch up on all.
    ///
    /// # Faults
    /// `choices` and `weights` have not as many columns as the routing has choices, or more rows than it has; or `loads`
    /// fewer columns than it has groups.
    #[inline(always)]
    pub fn arrange(self, choices: &Matrix<'c, u32, R>, weights: &Matrix<'c, f32, R>, loads: &mut Matrix<'c, u32, R>)
    where
        D: SendPort,
    {
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
    ///
    /// # Panics
    /// On simulated ranks: there is no such block. On GPUs it is the last one that there is room for.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn group(&self, block: u32) -> u32
    where
        D: ReceivePort,
    {
        self.arrangement().group(self.checked(block))
    }

    /// A block that may be looked up.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    fn checked(&self, block: u32) -> u32
    where
        D: ReceivePort,
    {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(block < self.blocks(), "there is no block {block} among the {} of this rank", self.blocks());
        // All roles ask, some of which have no registers left for a panic.
        block.min(self.place.size.blocks().saturating_sub(1))
    }

    /// Copies what belongs into `ROWS` rows of a block, those from row `part · ROWS` on, from whatever rank's matrix `from` it
    /// lies in to this rank's `to`. A row that several groups chose is copied to all of its places with the first, so that it
    /// crosses the link once. Each is counted in the gate of its block.
    ///
    /// So rows come group after group, and the blocks of a group are complete at about the same time: products that begin
    /// together read its weights together.
    ///
    /// # Faults
    /// A rank has fewer rows in `from` than rows that choose groups; `to` has other columns than `from`, or fewer rows than the
    /// routing's blocks; or there are fewer gates than blocks. On simulated ranks: there is no such block.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn scatter<const ROWS: u32, E: Element, G: Channel<Item = GateItem, Index = [u32; 1]>>(
        &self,
        [block, part]: [u32; 2],
        from: &Matrix<'c, E, R>,
        to: &mut Matrix<'c, E, R>,
        gates: Port<'c, G, Send, R>,
    ) where
        D: ReceivePort,
    {
        const { assert!(ROWS > 0, "a tile scatters one row or more: `scatter::<8, _, _>(…)`") };
        let block = self.checked(block);
        let (gate, first) = (gates.slot([0]).place(), block * self.place.size.block_rows + part * ROWS);
        let to = if to.part == 0 { to.arg } else { to.alone() };
        let rows = Scattered { first, count: ROWS, block, from: from.arg, to, gate };
        self.role.scatter::<E>(&self.place, &rows);
    }

    /// The sums of what this rank's groups made of the rows of `source`, each with its weight: for `M` rows from row
    /// `row · M` on, the tile of `N` columns at `column`. What they made of them lies in `from`, as arranged. A row that
    /// chose none of this rank's groups gets zeros.
    ///
    /// # Faults
    /// There is no rank `source`, or `from` has fewer rows than the routing's blocks.
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
