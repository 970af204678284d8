//! Rows that are summed, each of which lies where the arrangement has what a choice made of it.

use super::quad::{QUAD, transpose};
use crate::abi::Head;
use crate::element::Element;
use crate::memory::word;
use crate::order::tiles;
use crate::place::MatrixPlace;
use crate::ptx::*;
use crate::routing::{Entry, Routed, RoutingPlace};
use crate::shape::TileShape;

/// Elements of a tile that a lane loads at a time.
const EACH: usize = 8;
/// Loads of a row that a lane has under way.
const AT_ONCE: usize = 4;
/// Columns that a quad loads at a time.
const CHUNK: usize = QUAD as usize * EACH;

/// Rows of a matrix, by where the arrangement has what a rank's rows chose.
pub(super) struct Gathered {
    routed: Routed,
    /// Rows of the rank.
    rows: u32,
    /// Choices of a row.
    choices: u32,
    /// Address of the first row, at the column that is read first.
    start: u64,
    pitch: u64,
    /// Columns from there on.
    columns: u32,
}

/// What a choice of a row comes to: the row of the matrix, and its weight.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub row: u32,
    pub weight: f32,
}

impl Part {
    /// What adds nothing.
    const NONE: Part = Part { row: 0, weight: 0.0 };
}

impl Gathered {
    /// What is looked up once.
    #[inline(always)]
    pub fn new<E: Element>(routing: &RoutingPlace, head: &Head, source: u32, from: &MatrixPlace) -> Self {
        Gathered {
            routed: routing.arranged(head).rows_of(source),
            rows: routing.size.rows,
            choices: anew(routing.size.choices),
            start: from.matrix.data + (from.column * E::SIZE) as u64,
            pitch: from.matrix.pitch,
            columns: from.matrix.columns.saturating_sub(from.column),
        }
    }

    /// What a row's choice is, for [`part`](Gathered::part). To be asked some time before: a look takes a while.
    #[inline(always)]
    pub fn look(&self, row: u32, choice: u32) -> Option<(Entry, f32)> {
        (row < self.rows && choice < self.choices).then(|| {
            let entry = self.routed.entry(row, choice);
            (entry, entry.weight())
        })
    }

    /// Where what the group of a choice made of its row is, if that is here, and the weight.
    #[inline(always)]
    pub fn part(&self, choice: Option<(Entry, f32)>) -> Option<Part> {
        let (entry, weight) = choice?;
        self.routed.place(&entry).map(|place| Part { row: place.row, weight })
    }

    /// The address of a row, `column` columns from the first that is read on.
    #[inline(always)]
    pub fn address<E: Element>(&self, row: u32, column: u32) -> u64 {
        self.start + row as u64 * self.pitch + (column * E::SIZE) as u64
    }

    /// The weighted sums of what the choices of two rows made of them, as a lane of a quad holds them in a fragment of the math
    /// warpgroups. Choices are added in their order.
    ///
    /// The lanes of a quad have the same rows. Each looks up every fourth choice; then all add one choice after the other of
    /// those that are here.
    ///
    /// # Safety
    /// All lanes of a warp must come here together.
    #[inline(always)]
    pub unsafe fn weighted_sum<E: Element, S: TileShape>(&self, rows: [u32; 2], lane: u32) -> S::Values {
        let wide = const { E::SIZE == 2 && S::COLUMNS % CHUNK == 0 };
        let (turn, leader) = (lane % QUAD, lane / QUAD * QUAD);
        let mut sum = f32::zeros::<S>();
        let look = |round: u32| {
            let choice = round * QUAD + turn;
            [self.look(rows[0], choice), self.look(rows[1], choice)]
        };
        let rounds = tiles(self.choices, QUAD);
        let mut ahead = look(0);
        for round in 0..rounds {
            let parts = [self.part(ahead[0]), self.part(ahead[1])];
            if round + 1 < rounds {
                ahead = look(round + 1);
            }
            let of_quad = |part: Option<Part>| unsafe { lanes_where(part.is_some()) } >> leader & ((1 << QUAD) - 1);
            let (mut first, mut second) = (of_quad(parts[0]), of_quad(parts[1]));
            while unsafe { lanes_where(first | second != 0) } != 0 {
                let chosen = unsafe { [part_of(parts[0], leader, first), part_of(parts[1], leader, second)] };
                first &= first.wrapping_sub(1);
                second &= second.wrapping_sub(1);
                if wide {
                    self.add_wide::<E, S>(chosen, turn, &mut sum);
                } else {
                    self.add_pairs::<E, S>(chosen, turn, &mut sum);
                }
            }
        }
        if wide {
            unsafe { to_fragment::<S>(&mut sum, turn) };
        }
        sum
    }

    /// Adds parts of two rows, eight columns at a time: of the `c`-th 32 columns this lane has the eight from `8 · turn` on, at
    /// `8c` of its values for the one row, and behind all of these for the other.
    #[inline(always)]
    fn add_wide<E: Element, S: TileShape>(&self, parts: [Option<Part>; 2], turn: u32, sum: &mut S::Values) {
        let column = turn * EACH as u32;
        for block in (0..S::COLUMNS / CHUNK).step_by(AT_ONCE) {
            // Of both rows, so that loads overlap.
            let mut loaded = [[[0; 4]; AT_ONCE]; 2];
            for half in 0..2 {
                let Some(Part { row, .. }) = parts[half] else { continue };
                let address = self.address::<E>(row, column);
                for chunk in 0..AT_ONCE {
                    let offset = (block + chunk) * CHUNK;
                    if offset < S::COLUMNS {
                        // Rows are padded to 16 bytes.
                        let there = self.has(column + offset as u32);
                        loaded[half][chunk] =
                            unsafe { load_global_16_if(address + (offset as u32 * E::SIZE) as u64, there) };
                    }
                }
            }
            for half in 0..2 {
                let Part { weight, .. } = parts[half].unwrap_or(Part::NONE);
                for chunk in 0..AT_ONCE {
                    if (block + chunk) * CHUNK < S::COLUMNS {
                        for word in 0..4 {
                            let (low, high) = E::unpack_pair(loaded[half][chunk][word]);
                            let at = half * (S::COLUMNS / 4) + (block + chunk) * EACH + 2 * word;
                            let values = sum.values_mut();
                            values[at] += weight * low;
                            values[at + 1] += weight * high;
                        }
                    }
                }
            }
        }
    }

    /// Adds parts of two rows, pair by pair, as a fragment has them.
    #[inline(always)]
    fn add_pairs<E: Element, S: TileShape>(&self, parts: [Option<Part>; 2], turn: u32, sum: &mut S::Values) {
        for (half, part) in parts.into_iter().enumerate() {
            let Some(Part { row, weight }) = part else { continue };
            for column in (0..S::COLUMNS).step_by(8) {
                let at = column as u32 + 2 * turn;
                if self.has(at) {
                    let (low, high) = unsafe { pair::<E>(self.address::<E>(row, at)) };
                    let values = sum.values_mut();
                    values[column / 2 + 2 * half] += weight * low;
                    values[column / 2 + 2 * half + 1] += weight * high;
                }
            }
        }
    }

    /// Whether there are columns so far on.
    #[inline(always)]
    pub fn has(&self, column: u32) -> bool {
        column < self.columns
    }
}

/// The part of the first of some lanes of a quad, if any are left.
///
/// # Safety
/// All lanes of a warp must come here together.
#[inline(always)]
unsafe fn part_of(part: Option<Part>, leader: u32, left: u32) -> Option<Part> {
    let (lane, Part { row, weight }) = (leader + left.trailing_zeros() % QUAD, part.unwrap_or(Part::NONE));
    let (row, weight) = unsafe { (shuffle(row, lane), shuffle(weight.to_bits(), lane)) };
    (left != 0).then_some(Part { row, weight: f32::from_bits(weight) })
}

/// A pair of neighbours.
///
/// # Safety
/// They must lie there, aligned to their size.
#[inline(always)]
pub(super) unsafe fn pair<E: Element>(address: u64) -> (f32, f32) {
    if const { E::SIZE == 2 } {
        E::unpack_pair(word(address))
    } else {
        (f32::from_bits(word(address)), f32::from_bits(word(address + 4)))
    }
}

/// From the order of [`add_wide`](Gathered::add_wide) to that of a fragment: of eight columns, which one lane of a quad has,
/// each lane gets the pair at its turn.
///
/// # Safety
/// All lanes of a warp must come here together.
#[inline(always)]
unsafe fn to_fragment<S: TileShape>(sum: &mut S::Values, turn: u32) {
    let mut of_fragment = f32::zeros::<S>();
    for half in 0..2 {
        for chunk in 0..S::COLUMNS / CHUNK {
            let first = half * (S::COLUMNS / 4) + chunk * EACH;
            let mut words = [[0; 4]; 2];
            for (index, words) in words.iter_mut().enumerate() {
                for (pair, word) in words.iter_mut().enumerate() {
                    *word = sum.values_mut()[first + 2 * pair + index].to_bits();
                }
                unsafe { transpose(words, turn) };
            }
            for block in 0..4 {
                let at = (chunk * QUAD as usize + block) * 4 + 2 * half;
                of_fragment.values_mut()[at] = f32::from_bits(words[0][block]);
                of_fragment.values_mut()[at + 1] = f32::from_bits(words[1][block]);
            }
        }
    }
    *sum = of_fragment;
}
