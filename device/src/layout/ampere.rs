//! The same for GPUs without TMA (compute capability 8.x): all threads of a CTA do everything together, and shared
//! memory holds a header and one buffer, which is the ring of a matmul and the staging buffer in turns.

use super::{staging, warpgroups};

/// Bytes of shared memory that a CTA may have on each of these GPUs: those of 8.6 and 8.9 have the least.
pub const SHARED_LIMIT: u32 = 99 * 1024;
/// Bytes of the header: what reports of faults need, a choice, and the values of rows on their way between warps.
pub const HEADER: u32 = 3072;
/// Bytes of a row that a ring slot holds of each operand.
pub const STEP: u32 = 64;
/// Slots of the ring.
pub const DEPTH: u32 = 4;

/// Threads of a CTA: a warp holds a quarter of the columns of 64 rows of a tile.
pub const fn threads(rows: usize) -> u32 {
    128 * warpgroups(rows)
}

/// Bytes of a ring slot: a step of each operand of a matmul.
pub const fn ring_slot(rows: usize, columns: usize) -> u32 {
    (rows + columns) as u32 * STEP
}

/// Bytes of dynamic shared memory of a CTA.
pub const fn shared_bytes(rows: usize, columns: usize, element: u32) -> u32 {
    let ring = DEPTH * ring_slot(rows, columns);
    let staging = staging(rows, columns, element);
    let bytes = HEADER + if ring > staging { ring } else { staging };
    assert!(bytes <= SHARED_LIMIT, "this tile and element don't fit into the shared memory of every GPU from sm_80 on");
    bytes
}
