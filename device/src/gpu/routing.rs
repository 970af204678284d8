//! Routings, as the threads that compute make and read them: a rank's table, its arrangement, and what is gathered by it.

use super::cta::{Config, Cta};
use crate::abi::{Head, MatrixArg};
use crate::element::Element;
use crate::layout::routing::*;
use crate::memory::word;
use crate::order::tiles;
use crate::place::MatrixPlace;
use crate::ptx::*;
use crate::routing::{Entry, Routed, RoutingPlace, RoutingSize};

/// Choices that a lane looks at at a time, so that their loads overlap.
const AT_ONCE: u32 = 4;

/// A thread of those that work on a routing together, and memory of theirs.
#[derive(Clone, Copy)]
pub(super) struct Team {
    /// Its index among them.
    pub thread: u32,
    /// Their number, a multiple of 32.
    pub threads: u32,
    /// Shared address of a word for each warp and group.
    pub shared: u32,
}

/// The choices of a rank, in their order.
#[derive(Clone, Copy)]
struct Choices {
    choices: MatrixArg,
    size: RoutingSize,
}

impl Choices {
    /// The offset of a choice's row, and its column; `None` for a row that this rank doesn't have.
    #[inline(always)]
    fn place(&self, index: u32) -> Option<(u32, u32)> {
        let row = index.checked_div(anew(self.size.choices)).unwrap_or(0);
        (row < self.choices.rows).then_some((row, index - row * self.size.choices))
    }

    /// The group of a choice below `end`.
    #[inline(always)]
    fn group(&self, index: u32, end: u32) -> u32 {
        let place = if index < end { self.place(index) } else { None };
        match place {
            Some(place) => element(&self.choices, place),
            None => NOWHERE,
        }
    }
}

/// The word at a row and a column.
#[inline(always)]
fn element(matrix: &MatrixArg, (row, column): (u32, u32)) -> u32 {
    word(matrix.data + row as u64 * matrix.pitch + 4 * column as u64)
}

/// Calls `f` with every `step`-th index from `first` on. The loop stays one: this code runs once in a launch, and takes
/// longer to be fetched than to run.
#[inline(always)]
pub(super) fn every(first: u32, end: u32, step: u32, mut f: impl FnMut(u32)) {
    let mut index = first;
    while index < end {
        f(index);
        index = anew(index + step);
    }
}

impl Team {
    /// Calls `f` with the indices that fall to this thread.
    #[inline(always)]
    fn share_out(&self, count: u32, f: impl FnMut(u32)) {
        every(self.thread, count, self.threads, f);
    }

    /// Writes this rank's table on every rank: how many of its rows choose each group, and which number each has there.
    ///
    /// Each warp counts its part of the choices, group by group; then all parts before its own are known to each, and it
    /// goes through them again.
    ///
    /// # Safety
    /// All threads of the team must come here together, and meet in `sync`.
    #[inline(always)]
    pub unsafe fn tabulate<C: Config>(
        &self,
        cta: &Cta<'_, C>,
        routing: &RoutingPlace,
        choices: &MatrixArg,
        weights: &MatrixArg,
        sync: impl Fn(),
    ) {
        let (head, size) = (cta.head, routing.size);
        let choices = Choices { choices: *choices, size };
        let (warp, warps, lane) = (self.thread / 32, self.threads / 32, self.thread % 32);
        let counter = |warp: u32, group: u32| self.shared + 4 * (warp * size.groups + group);
        self.share_out(warps * size.groups, |index| unsafe { store_shared(self.shared + 4 * index, 0) });
        sync();
        let total = size.rows * size.choices;
        let each = tiles(total, self.threads) * 32;
        let start = if warp * each < total { warp * each } else { total };
        let end = if total - start < each { total } else { start + each };

        self.for_choices(&choices, start, end, |_, group| {
            let same = unsafe { lanes_with_same(group) };
            if group < size.groups && same.trailing_zeros() == lane {
                let at = counter(warp, group);
                unsafe { store_shared(at, load_shared(at) + same.count_ones()) };
            }
            unsafe { sync_warp() };
        });
        sync();
        let offset = routing.table(head.rank).data_offset(head.rank, cta.epoch());
        self.share_out(size.groups, |group| {
            let mut before = 0;
            every(0, warps, 1, |warp| {
                let at = counter(warp, group);
                unsafe {
                    let here = load_shared(at);
                    store_shared(at, before);
                    before += here;
                }
            });
            every(0, head.world, 1, |rank| unsafe {
                store_global(cta.region_of(rank) + offset + 4 * group as u64, before);
            });
        });
        sync();
        let entries = offset + 4 * counts(size.groups) as u64;
        self.for_choices(&choices, start, end, |index, group| {
            let same = unsafe { lanes_with_same(group) };
            let chooses = group < size.groups;
            let at = counter(warp, if chooses { group } else { 0 });
            let before = unsafe { load_shared(at) };
            let number = before + (same & ((1 << lane) - 1)).count_ones();
            unsafe { sync_warp() };
            if chooses && same.trailing_zeros() == lane {
                unsafe { store_shared(at, before + same.count_ones()) };
            }
            unsafe { sync_warp() };
            if index < end {
                let what = if chooses { Entry::packed(group, number) } else { NOWHERE };
                let weight = if chooses { choices.place(index).map_or(0, |place| element(weights, place)) } else { 0 };
                every(0, head.world, 1, |rank| {
                    let to = cta.region_of(rank) + entries + 4 * (index * ENTRY) as u64;
                    unsafe { store_global_u32x2(to, [what, weight]) };
                });
            }
        });
    }

    /// Calls `each` with the index and the group of every choice from `start` to `end`, a warp's lanes side by side; beyond
    /// the end with a group that there is not.
    #[inline(always)]
    fn for_choices(&self, choices: &Choices, start: u32, end: u32, each: impl Fn(u32, u32)) {
        let lane = self.thread % 32;
        every(start, end, 32 * AT_ONCE, |first| {
            let group = |index: u32| choices.group(first + 32 * index + lane, end);
            let groups = [group(0), group(1), group(2), group(3)];
            every(0, AT_ONCE, 1, |index| {
                let group = match index {
                    0 => groups[0],
                    1 => groups[1],
                    2 => groups[2],
                    _ => groups[3],
                };
                each(first + 32 * index + lane, group);
            });
        });
    }

    /// Writes this rank's arrangement, once all tables are there. Its number of blocks is right even if there is no room for
    /// so many.
    ///
    /// # Safety
    /// As [`tabulate`](Team::tabulate).
    #[inline(always)]
    pub unsafe fn arrange<C: Config>(
        &self,
        cta: &Cta<'_, C>,
        routing: &RoutingPlace,
        loads: &MatrixArg,
        sync: impl Fn(),
    ) {
        let (head, size, epoch) = (cta.head, routing.size, cta.epoch());
        let Head { rank, world, .. } = *head;
        let at = cta.region_of(rank) + routing.arrangement(head).data_offset(world, 0);
        let each = groups_each(size.groups, world);
        let count = |source: u32, group: u32| {
            let table = cta.region_of(rank) + routing.table(source).data_offset(source, epoch);
            if group < size.groups { word(table + 4 * group as u64) } else { 0 }
        };
        let rows_of = |group: u32| {
            let mut rows = 0;
            every(0, world, 1, |source| rows += count(source, group));
            rows
        };
        self.share_out(size.groups, |group| unsafe { store_global(loads.data + 4 * group as u64, rows_of(group)) });
        let blocks_before = |group: u32| self.shared + 4 * group;
        self.share_out(each, |group| unsafe {
            store_shared(blocks_before(group), tiles(rows_of(rank * each + group), size.block_rows));
        });
        sync();
        if self.thread == 0 {
            let mut blocks = 0;
            every(0, each, 1, |group| unsafe {
                let here = load_shared(blocks_before(group));
                store_shared(blocks_before(group), blocks);
                blocks += here;
            });
            unsafe { store_global_u32x2(at, [blocks, epoch]) };
        }
        sync();
        self.share_out(each, |group| {
            let first = unsafe { load_shared(blocks_before(group)) };
            let mut rows = 0;
            every(0, world, 1, |turn| {
                let source = if rank + turn < world { rank + turn } else { rank + turn - world };
                let start = at + 4 * (HEADER + source * each + group) as u64;
                unsafe { store_global(start, first * size.block_rows + rows) };
                rows += count(source, rank * each + group);
            });
            let blocks = tiles(rows, size.block_rows);
            every(0, blocks.min(size.blocks().saturating_sub(first)), 1, |block| {
                let left = rows - block * size.block_rows;
                let here = if left < size.block_rows { left } else { size.block_rows };
                let to = at + 4 * (starts(size.groups, world) as u64 + ((first + block) * BLOCK) as u64);
                unsafe { store_global_u32x2(to, [group, here]) };
            });
        });
    }
}

/// Rows of a matrix, by where the arrangement has what a rank's rows chose.
pub(super) struct Gathered {
    routed: Routed,
    /// Rows of the rank.
    rows: u32,
    /// Address of the first row, at the column that is read first.
    start: u64,
    pitch: u64,
    /// Columns from there on.
    columns: u32,
}

impl Gathered {
    /// What is looked up once. `column` is the first of those that are read, from the place's on.
    #[inline(always)]
    pub fn new<E: Element>(routing: &RoutingPlace, head: &Head, source: u32, from: &MatrixPlace, column: u32) -> Self {
        let column = from.column + column;
        Gathered {
            routed: routing.arranged(head).rows_of(source),
            rows: routing.size.rows,
            start: from.matrix.data + (column * E::SIZE) as u64,
            pitch: from.matrix.pitch,
            columns: from.matrix.columns.saturating_sub(column),
        }
    }

    /// What a row's choice is, for [`part`](Gathered::part). To be asked some time before: a look takes a while.
    #[inline(always)]
    pub fn look(&self, row: u32, choice: u32) -> Option<(Entry, f32)> {
        (row < self.rows).then(|| {
            let entry = self.routed.entry(row, choice);
            (entry, entry.weight())
        })
    }

    /// The address of what the group of a choice made of its row, if that is here, and the weight.
    #[inline(always)]
    pub fn part(&self, choice: Option<(Entry, f32)>) -> Option<(u64, f32)> {
        let (entry, weight) = choice?;
        self.routed.place(&entry).map(|place| (self.start + place as u64 * self.pitch, weight))
    }

    /// Whether there are columns so far on.
    #[inline(always)]
    pub fn has(&self, column: u32) -> bool {
        column < self.columns
    }

    /// The pair of neighbours `column` columns further on.
    ///
    /// # Safety
    /// The address must be that of a part, which has so many columns.
    #[inline(always)]
    pub unsafe fn pair<E: Element>(&self, address: u64, column: u32) -> (f32, f32) {
        let address = address + (column * E::SIZE) as u64;
        if const { E::SIZE == 2 } {
            E::unpack_pair(word(address))
        } else {
            (f32::from_bits(word(address)), f32::from_bits(word(address + 4)))
        }
    }
}
