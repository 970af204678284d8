//! Who holds what of a tile, and how it comes from memory and goes there.
//!
//! A row is held by a *group* of 16 or 32 threads that follow each other, so that it passes in full lines: a thread holds
//! a *quad* of it, four columns. A group holds rows that follow each other.

use crate::element::Element;
use crate::gpu::area::Area;
use crate::gpu::area::PIECE;
use crate::layout::streaming::threads;
use crate::ptx::*;
use crate::shape::TileShape;

/// Threads that hold 64 rows.
const THREADS: usize = threads(64) as usize;
/// Columns of a quad.
pub(super) const QUAD: usize = 4;
/// The most rows that a thread holds a part of.
pub(super) const ROWS: usize = 8;

/// Threads that hold a row.
#[inline(always)]
const fn group<S: TileShape>() -> usize {
    assert!(S::COLUMNS <= 128, "threads that have one role hold at most 128 columns");
    S::COLUMNS / QUAD
}

/// Rows that a thread holds a quad of.
#[inline(always)]
pub(super) const fn rows_held<S: TileShape>() -> usize {
    64 * group::<S>() / THREADS
}

/// The row, of those that a thread holds, that the pair at an index lies in.
#[inline(always)]
pub(super) fn row_of<S: TileShape>(pair: usize) -> usize {
    pair / 2
}

/// `f` over the values that the threads of a group have, as a tree.
///
/// # Safety
/// All lanes of the warp must take part.
#[inline(always)]
pub(super) unsafe fn reduce<S: TileShape>(mut value: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    for lanes in [1, 2, 4, 8, 16] {
        if lanes < group::<S>() as u32 {
            value = f(value, unsafe { shuffle_xor(value, lanes) });
        }
    }
    value
}

/// A thread's place among those that hold a tile.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    /// The first of the rows that it holds a part of.
    pub row: u32,
    /// Its place in its group.
    pub lane: u32,
}

impl Seat {
    /// This thread's.
    #[inline(always)]
    pub fn this<S: TileShape>() -> Self {
        let (thread, group) = (thread_idx_x_anew(), group::<S>() as u32);
        Seat { row: thread / group * rows_held::<S>() as u32, lane: thread % group }
    }

    /// Where its quads start in their rows.
    #[inline(always)]
    pub fn byte<E: Element>(self) -> u32 {
        self.lane * QUAD as u32 * E::SIZE
    }
}

/// Four neighbours in a row as they lie in memory: in two words, or four.
pub(super) type Quad = [u32; 4];

/// The quads that a thread holds of a tile, a row each.
pub(super) type Quads = [Quad; ROWS];
/// None of them.
pub(super) const NOTHING: Quads = [[0; 4]; ROWS];

/// The values of a quad.
#[inline(always)]
pub(super) fn values<E: Element>(quad: Quad) -> [(f32, f32); 2] {
    if const { E::SIZE == 4 } {
        let [a, b, c, d] = quad.map(f32::from_bits);
        [(a, b), (c, d)]
    } else {
        [E::unpack_pair(quad[0]), E::unpack_pair(quad[1])]
    }
}

/// The quad of such values.
#[inline(always)]
pub(super) fn quad<E: Element>([first, second]: [(f32, f32); 2]) -> Quad {
    if const { E::SIZE == 4 } {
        [first.0, first.1, second.0, second.1].map(f32::to_bits)
    } else {
        [E::pack_pair(first), E::pack_pair(second), 0, 0]
    }
}

/// Bytes of a quad.
#[inline(always)]
const fn quad_bytes<E: Element>() -> u32 {
    QUAD as u32 * E::SIZE
}

/// The address of the quad at `byte` of a row, and how many of its bytes there are.
#[inline(always)]
fn find<E: Element>(area: &Area, row: u32, byte: u32) -> (u64, u32) {
    let within = byte % PIECE;
    let address = area.row(row) + area.offset(row, byte - within) + within as u64;
    let valid = if row < area.rows { area.bytes.saturating_sub(byte).min(quad_bytes::<E>()) } else { 0 };
    (address, valid)
}

/// Whether all of a tile's quads are there, aligned, so that nothing needs to be asked of each.
#[inline(always)]
fn is_whole<E: Element, S: TileShape>(area: &Area) -> bool {
    let aligned = (area.start | area.row_stride as u64) % quad_bytes::<E>() as u64 == 0;
    aligned && area.rows >= S::ROWS as u32 && area.bytes >= S::COLUMNS as u32 * E::SIZE
}

/// The quad at `byte` of a row; zeros for what there is not.
///
/// # Safety
/// What there is must be readable.
#[inline(always)]
unsafe fn load<E: Element>(area: &Area, row: u32, byte: u32) -> Quad {
    let (address, valid) = find::<E>(area, row, byte);
    let mut quad = [0; 4];
    for_elements::<E>(address, valid, |address, element| unsafe {
        if const { E::SIZE == 4 } {
            quad[element] = load_global(address);
        } else {
            quad[element / 2] |= load_global_half(address) << (element % 2 * 16);
        }
    });
    quad
}

/// The quad at `byte` of a row of what [`is_whole`].
///
/// # Safety
/// It must be readable.
#[inline(always)]
unsafe fn load_whole<E: Element>(area: &Area, row: u32, byte: u32) -> Quad {
    unsafe { load_quad::<E>(find::<E>(area, row, byte).0) }
}

/// The whole quad at an address that it is aligned to.
///
/// # Safety
/// It must be readable.
#[inline(always)]
pub(super) unsafe fn load_quad<E: Element>(address: u64) -> Quad {
    if const { E::SIZE == 4 } {
        unsafe { load_global_16(address) }
    } else {
        let [first, second] = unsafe { load_global_8(address) };
        [first, second, 0, 0]
    }
}

/// Stores the quad at `byte` of a row, as far as there is room for it.
///
/// # Safety
/// What there is must be writable.
#[inline(always)]
unsafe fn store<E: Element>(area: &Area, row: u32, byte: u32, quad: Quad) {
    let (address, valid) = find::<E>(area, row, byte);
    for_elements::<E>(address, valid, |address, element| unsafe {
        if const { E::SIZE == 4 } {
            store_global(address, quad[element])
        } else {
            store_global_half(address, quad[element / 2] >> (element % 2 * 16))
        }
    });
}

/// Stores the quad at `byte` of a row of what [`is_whole`].
///
/// # Safety
/// It must be writable.
#[inline(always)]
unsafe fn store_whole<E: Element>(area: &Area, row: u32, byte: u32, quad: Quad) {
    let (address, _) = find::<E>(area, row, byte);
    unsafe {
        if const { E::SIZE == 4 } {
            store_global_16(address, quad)
        } else {
            store_global_8(address, [quad[0], quad[1]])
        }
    }
}

/// Calls `each` with the address and the index of each element of the quad at `byte` of a row that there is.
#[inline(always)]
pub(super) fn for_each_element<E: Element>(area: &Area, row: u32, byte: u32, each: impl FnMut(u64, usize)) {
    let (address, valid) = find::<E>(area, row, byte);
    for_elements::<E>(address, valid, each);
}

#[inline(always)]
fn for_elements<E: Element>(address: u64, valid: u32, mut each: impl FnMut(u64, usize)) {
    // Written out: as a loop it was not unrolled in large functions, and what `each` indexes lay in local memory.
    let mut at = |element: usize| {
        let offset = element as u32 * E::SIZE;
        if offset < valid {
            each(address + offset as u64, element);
        }
    };
    at(0);
    at(1);
    at(2);
    at(3);
}

/// What this thread holds of the tile at an area's start.
///
/// # Safety
/// What there is of it must be readable.
#[inline(always)]
pub(super) unsafe fn gather<E: Element, S: TileShape>(area: &Area) -> Quads {
    let (Seat { row, .. }, byte) = (Seat::this::<S>(), Seat::this::<S>().byte::<E>());
    let mut quads = NOTHING;
    if is_whole::<E, S>(area) {
        for held in 0..rows_held::<S>() {
            quads[held] = unsafe { load_whole::<E>(area, row + held as u32, byte) };
        }
    } else {
        for held in 0..rows_held::<S>() {
            quads[held] = unsafe { load::<E>(area, row + held as u32, byte) };
        }
    }
    quads
}

/// What this thread holds of the row at a matrix's start, the same in each of its rows of a tile; zeros for what there is not.
///
/// # Safety
/// What there is of it must be readable.
#[inline(always)]
pub(super) unsafe fn gather_row<E: Element, S: TileShape>(area: &Area) -> Quad {
    let byte = Seat::this::<S>().byte::<E>();
    // Rows of a matrix start at multiples of 16.
    match find::<E>(area, 0, byte) {
        (address, valid) if valid == quad_bytes::<E>() => unsafe { load_quad::<E>(address) },
        _ => unsafe { load::<E>(area, 0, byte) },
    }
}

/// Stores what this thread holds of a tile at an area's start.
///
/// # Safety
/// What there is room for must be writable.
#[inline(always)]
pub(super) unsafe fn scatter<E: Element, S: TileShape>(quads: &Quads, area: &Area) {
    let (Seat { row, .. }, byte) = (Seat::this::<S>(), Seat::this::<S>().byte::<E>());
    if is_whole::<E, S>(area) {
        for held in 0..rows_held::<S>() {
            unsafe { store_whole::<E>(area, row + held as u32, byte, quads[held]) };
        }
    } else {
        for held in 0..rows_held::<S>() {
            unsafe { store::<E>(area, row + held as u32, byte, quads[held]) };
        }
    }
}

/// Lets a tile hold these values as the quad of a thread's row.
#[inline(always)]
pub(super) fn set<E: Element, S: TileShape>(tile: &mut E::Held<S>, held: usize, [first, second]: [(f32, f32); 2]) {
    E::set_pair::<S>(tile, 2 * held, first);
    E::set_pair::<S>(tile, 2 * held + 1, second);
}

/// The values of the quad of a thread's row.
#[inline(always)]
pub(super) fn get<E: Element, S: TileShape>(tile: &E::Held<S>, held: usize) -> [(f32, f32); 2] {
    [E::pair::<S>(tile, 2 * held), E::pair::<S>(tile, 2 * held + 1)]
}
