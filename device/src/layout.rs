//! A CTA's threads and shared memory, as the entry and the launcher must agree on them.
//!
//! Shared memory holds a header (barriers, and what a panic needs to find), a ring of slots that the
//! loader fills ahead of the math warpgroups, a staging buffer for one tile on its way out or in, and a buffer for
//! one box if the kernel has a mover.

pub mod ampere;
pub mod routing;
pub mod streaming;

/// Bytes of shared memory that a CTA may have on Hopper.
pub const SHARED_LIMIT: u32 = 227 * 1024;
/// Bytes of the header.
pub const HEADER: u32 = 1024;
/// Bytes of one row of a box: the span of TMA's 128-byte swizzle.
pub const ROW: u32 = 128;
/// Deepest ring worth having.
const MAX_DEPTH: u32 = 8;

/// Warpgroups that multiply, one for each 64 rows of a tile.
pub const fn warpgroups(rows: usize) -> u32 {
    rows as u32 / 64
}

/// Threads of a CTA: a warpgroup for the loader and the communication thread, and the math warpgroups.
pub const fn threads(rows: usize) -> u32 {
    128 + 128 * warpgroups(rows)
}

/// Bytes of a ring slot: one box of each operand of a matmul.
pub const fn ring_slot(rows: usize, columns: usize) -> u32 {
    (rows + columns) as u32 * ROW
}

/// Boxes of a tile.
pub const fn boxes(columns: usize, element: u32) -> u32 {
    (columns as u32 * element).div_ceil(ROW)
}

/// The column of a tile, or of a panel, that a box starts at: where the box before it ends, but of the last box of a tile
/// where it ends with the tile. So no box sticks out, and the columns that two boxes have are the same in both.
pub const fn box_column(index: u32, columns: u32, element: u32) -> u32 {
    let width = ROW / element;
    let (regular, last) = (index * width, columns.saturating_sub(width));
    if regular < last { regular } else { last }
}

/// Bytes of the staging buffer: one tile, in boxes.
pub const fn staging(rows: usize, columns: usize, element: u32) -> u32 {
    rows as u32 * boxes(columns, element) * ROW
}

/// Bytes of the mover's buffer: one box.
const fn move_buffer(rows: usize, moves: bool) -> u32 {
    if moves { rows as u32 * ROW } else { 0 }
}

/// Slots of the ring: as many as fit beside the buffers.
pub const fn ring_depth(rows: usize, columns: usize, element: u32, moves: bool) -> u32 {
    let buffers = staging(rows, columns, element) + move_buffer(rows, moves);
    let depth = (SHARED_LIMIT - HEADER - buffers) / ring_slot(rows, columns);
    assert!(depth >= 3, "this tile and element leave no room in shared memory for a ring of three slots");
    if depth > MAX_DEPTH { MAX_DEPTH } else { depth }
}

/// Bytes of dynamic shared memory of a CTA.
pub const fn shared_bytes(rows: usize, columns: usize, element: u32, moves: bool) -> u32 {
    let ring = ring_depth(rows, columns, element, moves) * ring_slot(rows, columns);
    HEADER + ring + staging(rows, columns, element) + move_buffer(rows, moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_cover_a_tile_and_no_more() {
        for (columns, element) in [(64, 2), (96, 2), (96, 4), (128, 2), (168, 2), (224, 2), (256, 2), (168, 4), (64, 4)]
        {
            let starts = (0..boxes(columns, element)).map(|index| box_column(index, columns as u32, element));
            let mut covered = 0;
            for start in starts {
                assert!(start <= covered && start % 8 == 0, "{columns} columns of {element} bytes");
                covered = start + ROW / element;
            }
            assert_eq!(covered, columns as u32);
        }
    }

    #[test]
    fn a_panel_ends_where_its_last_box_does() {
        assert_eq!(box_column(3, u32::MAX, 2), 192);
    }
}
