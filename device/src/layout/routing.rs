//! What a routing keeps in a region, in words: a table from each rank, this rank's arrangement, and what each of the CTAs that
//! make the table has counted.

use crate::order::{MEMBERS, tiles};

/// Words of a line.
const LINE: u32 = 32;
/// Words of a choice in a table: where it goes, and its weight.
pub const ENTRY: u32 = 2;
/// Words of a block in an arrangement: its group, and its rows.
pub const BLOCK: u32 = 2;
/// Words before the rest of an arrangement: the number of its blocks, and its epoch.
pub const HEADER: u32 = LINE;

/// The bits of an entry that say where in its rank's list it is.
pub const POSITION_BITS: u32 = 20;
/// An entry that goes nowhere.
pub const NOWHERE: u32 = u32::MAX;
/// The most groups that there can be: their counts are kept in shared memory, for each warp.
pub const MAX_GROUPS: u32 = 512;
/// The most choices that a rank's rows can have in all.
pub const MAX_CHOICES: u32 = 1 << POSITION_BITS;

/// Words of a number for each group: in a table, how many rows the rank has for it, and then how many for those before.
#[inline(always)]
pub fn numbers(groups: u32) -> u32 {
    tiles(groups, LINE) * LINE
}

/// Words before a table's entries.
#[inline(always)]
pub fn entries(groups: u32) -> u32 {
    2 * numbers(groups)
}

/// Words before a table's list of rows, group by group, which lies behind the entries.
#[inline(always)]
pub fn list(rows: u32, choices: u32, groups: u32) -> u64 {
    entries(groups) as u64 + rows as u64 * choices as u64 * ENTRY as u64
}

/// Bytes of a table.
pub fn table_bytes(rows: u32, choices: u32, groups: u32) -> u64 {
    4 * (list(rows, choices, groups) + rows as u64 * choices as u64)
}

/// Groups of a rank.
#[inline(always)]
pub fn groups_each(groups: u32, world: u32) -> u32 {
    tiles(groups, world)
}

/// Words before what an arrangement says of where the rows of each rank start in each of this rank's groups. Before them, after
/// the header, is how far each rank's list is from where its rows lie.
#[inline(always)]
pub fn starts(groups: u32, world: u32) -> u32 {
    HEADER + world * groups_each(groups, world)
}

/// Words before an arrangement's blocks.
#[inline(always)]
pub fn blocks(groups: u32, world: u32) -> u32 {
    tiles(starts(groups, world) + world * groups_each(groups, world), LINE) * LINE
}

/// Bytes of an arrangement.
pub fn arrangement_bytes(groups: u32, world: u32, blocks: u32) -> u64 {
    4 * (self::blocks(groups, world) as u64 + blocks as u64 * BLOCK as u64)
}

/// Words before what a CTA has counted of those who choose each group, among what all CTAs have.
#[inline(always)]
pub fn counted(groups: u32, member: u32) -> u32 {
    member * numbers(groups)
}

/// Bytes of what all CTAs have counted.
pub fn counted_bytes(groups: u32) -> u64 {
    4 * counted(groups, MEMBERS) as u64
}
