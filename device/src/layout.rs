//! A CTA's threads and shared memory, as the entry and the launcher must agree on them.
//!
//! Shared memory holds a header (barriers, and what a panic needs to find), a ring of slots that the
//! loader fills ahead of the math warpgroups, a staging buffer for one tile on its way out or in, and a buffer for
//! one box if the kernel has a mover.

pub mod ampere;

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

/// Bytes of the staging buffer: one tile.
pub const fn staging(rows: usize, columns: usize, element: u32) -> u32 {
    (rows * columns) as u32 * element
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
