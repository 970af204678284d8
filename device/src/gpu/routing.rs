//! Routings, as the threads that compute make and read them: a rank's table, its arrangement, and what is gathered by it.

use super::cta::{Config, Cta};
use crate::abi::{Head, MatrixArg};
use crate::element::Element;
use crate::layout::routing::*;
use crate::memory::word;
use crate::order::{MEMBERS, Member, tiles};
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
    /// Shared address of the memory.
    pub shared: u32,
    /// Its bytes.
    pub room: u32,
}

/// The choices of a rank, in their order.
#[derive(Clone, Copy)]
struct Choices {
    choices: MatrixArg,
    size: RoutingSize,
}

impl Choices {
    /// A choice's row, and its column; `None` for a row that this rank doesn't have.
    #[inline(always)]
    fn place(&self, index: u32) -> Option<(u32, u32)> {
        let row = index.checked_div(anew(self.size.choices)).unwrap_or(0);
        (row < self.choices.rows).then_some((row, index - row * self.size.choices))
    }

    /// A choice below `end`.
    #[inline(always)]
    fn choice(&self, index: u32, end: u32) -> Choice {
        match if index < end { self.place(index) } else { None } {
            Some((row, column)) => Choice { group: element(&self.choices, (row, column)), row, column },
            None => Choice { group: NOWHERE, row: 0, column: 0 },
        }
    }
}

/// A choice: its group, and where it stands.
#[derive(Clone, Copy)]
struct Choice {
    group: u32,
    row: u32,
    column: u32,
}

/// The address of what this rank's CTAs have counted.
#[inline(always)]
fn counts_of<C: Config>(cta: &Cta<'_, C>, routing: &RoutingPlace) -> u64 {
    let slot = routing.counted(cta.head);
    cta.region_of(cta.head.rank) + slot.data_offset(slot.index[0], 0)
}

/// A routing's sizes, of which what is computed here is not kept for later: products need the registers.
#[inline(always)]
pub(super) fn anew_size(routing: &RoutingPlace) -> RoutingSize {
    let RoutingSize { rows, choices, groups, capacity, block_rows } = routing.size;
    RoutingSize { rows: anew(rows), choices: anew(choices), groups: anew(groups), capacity, block_rows }
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

    /// The warps that count: as many as have room for a counter of each group, and for two more numbers of each.
    #[inline(always)]
    fn counting(&self) -> u32 {
        (self.threads / 32).min(self.room / (4 * MAX_GROUPS) - 2)
    }

    /// A warp's counter of a group.
    #[inline(always)]
    fn counter(&self, size: &RoutingSize, warp: u32, group: u32) -> u32 {
        self.shared + 4 * (warp * size.groups + group)
    }

    /// The part of a rank's choices that falls to this warp, of those of all CTAs that share them out: the first, and the end.
    #[inline(always)]
    fn part(&self, size: &RoutingSize, member: Member) -> (u32, u32) {
        let (total, warps, warp) = (size.rows * size.choices, self.counting(), self.thread / 32);
        let each = tiles(total, 32 * warps * member.of) * 32;
        let start = if warp < warps { (member.index * warps + warp) * each } else { total };
        let start = if start < total { start } else { total };
        (start, if total - start < each { total } else { start + each })
    }

    /// Replaces each of `count` numbers by the sum of those before it. The sum of all.
    ///
    /// # Safety
    /// All lanes of a warp must come here together, `at` being the shared address of a number.
    #[inline(always)]
    unsafe fn add_up(&self, count: u32, at: impl Fn(u32) -> u32) -> u32 {
        let (lane, mut before) = (self.thread % 32, 0);
        every(0, count, 32, |first| {
            let index = first + lane;
            let number = if index < count { unsafe { load_shared(at(index)) } } else { 0 };
            let mut sum = number;
            let mut step = 1;
            while step < 32 {
                let other = unsafe { shuffle(sum, lane.wrapping_sub(step)) };
                sum += if lane >= step { other } else { 0 };
                step = anew(2 * step);
            }
            if index < count {
                unsafe { store_shared(at(index), before + sum - number) };
            }
            before += unsafe { shuffle(sum, 31) };
        });
        before
    }

    /// Counts this CTA's part of the choices, group by group, each warp its own, and leaves the sums to the rank's other CTAs.
    ///
    /// # Safety
    /// All threads of the team must come here together, and meet in `sync`.
    #[inline(always)]
    pub unsafe fn count<C: Config>(
        &self,
        cta: &Cta<'_, C>,
        routing: &RoutingPlace,
        choices: &MatrixArg,
        sync: impl Fn(),
    ) {
        let (size, member) = (anew_size(routing), routing.member);
        let choices = Choices { choices: *choices, size };
        let (warp, warps, lane) = (self.thread / 32, self.counting(), self.thread % 32);
        self.share_out(warps * size.groups, |index| unsafe { store_shared(self.shared + 4 * index, 0) });
        sync();
        let (start, end) = self.part(&size, member);
        let group_alone = |index: u32| choices.choice(index, end).group;
        self.for_choices(start, end, group_alone, |_, group| {
            let same = unsafe { lanes_with_same(group) };
            if group < size.groups && same.trailing_zeros() == lane {
                let at = self.counter(&size, warp, group);
                unsafe { store_shared(at, load_shared(at) + same.count_ones()) };
            }
            unsafe { sync_warp() };
        });
        sync();
        let counts = counts_of(cta, routing);
        self.share_out(size.groups, |group| {
            let mut count = 0;
            every(0, warps, 1, |warp| {
                let at = self.counter(&size, warp, group);
                unsafe {
                    let here = load_shared(at);
                    store_shared(at, count);
                    count += here;
                }
            });
            unsafe { store_global(counts + 4 * (counted(size.groups, member.index) + group) as u64, count) };
        });
    }

    /// Writes this CTA's part of the rank's table on every rank, after all have [counted](Team::count), what that left in shared
    /// memory still there. The first one adds how many of the rank's rows choose each group. Whatever the others have
    /// counted, nothing is written outside of the table.
    ///
    /// # Safety
    /// As [`count`](Team::count).
    #[inline(always)]
    pub unsafe fn tabulate<C: Config>(
        &self,
        cta: &Cta<'_, C>,
        routing: &RoutingPlace,
        choices: &MatrixArg,
        weights: &MatrixArg,
        sync: impl Fn(),
    ) {
        let (head, size, member) = (cta.head, anew_size(routing), routing.member);
        let choices = Choices { choices: *choices, size };
        let (warp, warps, lane) = (self.thread / 32, self.counting(), self.thread % 32);
        let counter = |group: u32| self.counter(&size, warp, group);
        // Behind the counters lies what is before a group in the list, and how many of it the CTAs before this one have.
        let before = |group: u32| self.counter(&size, warps, group);
        let of_others = |group: u32| self.counter(&size, warps + 1, group);
        let counts = counts_of(cta, routing);
        self.share_out(size.groups, |group| {
            let here: [u32; MEMBERS as usize] = core::array::from_fn(|index| {
                let index = if (index as u32) < member.of { index as u32 } else { 0 };
                word(counts + 4 * (counted(size.groups, index) + group) as u64)
            });
            let (mut all, mut others) = (0u32, 0u32);
            for (index, count) in here.into_iter().enumerate() {
                all = all.wrapping_add(if (index as u32) < member.of { count } else { 0 });
                others = others.wrapping_add(if (index as u32) < member.index { count } else { 0 });
            }
            unsafe { store_shared(before(group), all) };
            unsafe { store_shared(of_others(group), others) };
        });
        let offset = routing.table(head.rank).data_offset(head.rank, cta.epoch());
        let tell = |at: u64, value: u32| {
            every(0, head.world, 1, |rank| unsafe { store_global(cta.region_of(rank) + offset + at, value) });
        };
        let tell_numbers = |first: u32| {
            if member.index == 0 {
                self.share_out(size.groups, |group| {
                    tell(4 * (first + group) as u64, unsafe { load_shared(before(group)) })
                });
            }
        };
        sync();
        tell_numbers(0);
        sync();
        if warp == 0 {
            unsafe { self.add_up(size.groups, before) };
        }
        sync();
        tell_numbers(numbers(size.groups));
        if warp < warps {
            every(lane, size.groups, 32, |group| unsafe {
                let others = load_shared(before(group)).wrapping_add(load_shared(of_others(group)));
                store_shared(counter(group), load_shared(counter(group)).wrapping_add(others));
            });
        }
        unsafe { sync_warp() };

        let (start, end) = self.part(&size, member);
        let total = size.rows * size.choices;
        let first_entry = 4 * entries(size.groups) as u64;
        let first_listed = 4 * list(size.rows, size.choices, size.groups);
        let with_weight = |index: u32| {
            let choice = choices.choice(index, end);
            let weight = if choice.group < size.groups { element(weights, (choice.row, choice.column)) } else { 0 };
            (choice.group, choice.row, weight)
        };
        self.for_choices(start, end, with_weight, |index, (group, row, weight)| {
            let same = unsafe { lanes_with_same(group) };
            let chooses = group < size.groups;
            let at = counter(if chooses { group } else { 0 });
            let here = unsafe { load_shared(at) };
            unsafe { sync_warp() };
            if chooses && same.trailing_zeros() == lane {
                unsafe { store_shared(at, here.wrapping_add(same.count_ones())) };
            }
            unsafe { sync_warp() };
            if index < end {
                let position = here.wrapping_add((same & ((1 << lane) - 1)).count_ones());
                let what = if chooses { Entry::packed(group, position) } else { NOWHERE };
                every(0, head.world, 1, |rank| {
                    let table = cta.region_of(rank) + offset;
                    unsafe { store_global_u32x2(table + first_entry + 4 * (index * ENTRY) as u64, [what, weight]) };
                    if chooses && position < total {
                        unsafe { store_global(table + first_listed + 4 * position as u64, row) };
                    }
                });
            }
        });
    }

    /// Calls `each` with the index of every choice from `start` to `end` and what was looked up for it, a warp's lanes side by
    /// side; beyond the end with a choice that there is not.
    #[inline(always)]
    fn for_choices<L: Copy>(&self, start: u32, end: u32, look_up: impl Fn(u32) -> L, each: impl Fn(u32, L)) {
        let lane = self.thread % 32;
        every(start, end, 32 * AT_ONCE, |first| {
            let look_up = |index: u32| look_up(first + 32 * index + lane);
            let found = [look_up(0), look_up(1), look_up(2), look_up(3)];
            every(0, AT_ONCE, 1, |index| {
                let found = match index {
                    0 => found[0],
                    1 => found[1],
                    2 => found[2],
                    _ => found[3],
                };
                each(first + 32 * index + lane, found);
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
        let (head, size, epoch) = (cta.head, anew_size(routing), cta.epoch());
        let (rank, world) = (head.rank, anew(head.world));
        let at = cta.region_of(rank) + routing.arrangement(head).data_offset(world, 0);
        let each = groups_each(size.groups, world);
        // In shared memory: of each rank and each group of this rank's, how many rows there are, and how many for the groups
        // before; then the blocks before a group.
        let count_of = |source: u32, group: u32| self.shared + 4 * (source * each + group);
        let before_of = |source: u32, group: u32| count_of(world + source, group);
        let blocks_before = |group: u32| count_of(2 * world, group);
        self.share_out(world * each, |group| {
            let (here, exists) = (group.wrapping_sub(rank * each), group < size.groups);
            let mut rows = 0;
            every(0, world, 1, |source| {
                let table = cta.region_of(rank) + routing.table(source).data_offset(source, epoch);
                let number = |index: u32| if exists { word(table + 4 * index as u64) } else { 0 };
                let count = number(group);
                rows += count;
                if here < each {
                    unsafe { store_shared(count_of(source, here), count) };
                    unsafe { store_shared(before_of(source, here), number(numbers(size.groups) + group)) };
                }
            });
            if here < each {
                unsafe { store_shared(blocks_before(here), tiles(rows, size.block_rows)) };
            }
            if exists {
                unsafe { store_global(loads.data + 4 * group as u64, rows) };
            }
        });
        sync();
        if self.thread < 32 {
            let all = unsafe { self.add_up(each, blocks_before) };
            if self.thread == 0 {
                unsafe { store_global_u32x2(at, [all, epoch]) };
            }
        }
        sync();
        self.share_out(each, |group| {
            let first = unsafe { load_shared(blocks_before(group)) };
            let mut row = first * size.block_rows;
            let write = |index: u32, value: u32| unsafe { store_global(at + 4 * (index + group) as u64, value) };
            every(0, world, 1, |turn| {
                let source = if rank + turn < world { rank + turn } else { rank + turn - world };
                write(starts(size.groups, world) + source * each, row);
                let before = unsafe { load_shared(before_of(source, group)) };
                write(HEADER + source * each, row.wrapping_sub(before));
                row += unsafe { load_shared(count_of(source, group)) };
            });
            let rows = row - first * size.block_rows;
            let room = size.blocks().saturating_sub(first);
            every(0, tiles(rows, size.block_rows).min(room), 1, |block| {
                let left = rows - block * size.block_rows;
                let here = if left < size.block_rows { left } else { size.block_rows };
                let to = at + 4 * (blocks(size.groups, world) as u64 + ((first + block) * BLOCK) as u64);
                unsafe { store_global_u32x2(to, [group, here]) };
            });
        });
    }
}
