//! Operations on words, exact, of every type, in every order, at every scope and between every pair of ranks.

use anyhow::{Result, ensure};
use entwine::device::{Change, Summand, bf16, f16};
use entwine::{Arguments, Kernel, KernelType, Tensor, TensorElement};

use super::ranks::{Ranks, check_guards};
use crate::kernels;

/// Orders of a read-modify-write, and of a load or a store.
const ORDERS: usize = 4;
const SIMPLE_ORDERS: usize = 2;
/// Places and scopes that each is tried with: three on the rank itself, one on another.
const SCOPES: usize = 4;

/// A type of words, with the kernel that does everything to them.
pub trait Tried: Summand + TensorElement {
    /// The kernel.
    type Kernel: KernelType;
    /// Its arguments.
    type Args<'a>: Arguments<'a, Kernel = Self::Kernel>;
    /// What it does after loads, stores, exchanges and comparisons.
    const CHANGES: &'static [Changed];

    /// The arguments for these tensors.
    fn args<'a>(
        distance: u32,
        operand: &'a mut Tensor<Self>,
        words: &'a mut Tensor<Self>,
        kept: &'a mut Tensor<Self>,
    ) -> Self::Args<'a>;

    /// A word that is like no other.
    fn of(number: usize) -> Self;
}

/// A change, of the operand or of what it is with the other sign.
#[derive(Debug, Clone, Copy)]
pub struct Changed(Change, bool);

const EXCHANGED: Changed = Changed(Change::Exchange, false);
const SUMS: [Changed; 3] = [EXCHANGED, Changed(Change::Add, false), Changed(Change::Add, true)];
const FLOATS: [Changed; 5] = [SUMS[0], SUMS[1], SUMS[2], Changed(Change::Min, false), Changed(Change::Max, false)];
const ALL: [Changed; 8] = [
    FLOATS[0],
    FLOATS[1],
    FLOATS[2],
    FLOATS[3],
    FLOATS[4],
    Changed(Change::And, false),
    Changed(Change::Or, false),
    Changed(Change::Xor, false),
];

macro_rules! tried {
    ($($word:ident: $kernel:ident, $changes:ident, |$number:ident| $of:expr;)+) => {
        $(impl Tried for $word {
            type Kernel = kernels::$kernel::Woven;
            type Args<'a> = kernels::$kernel::Args<'a>;
            const CHANGES: &'static [Changed] = &$changes;

            fn args<'a>(
                distance: u32,
                operand: &'a mut Tensor<Self>,
                words: &'a mut Tensor<Self>,
                kept: &'a mut Tensor<Self>,
            ) -> Self::Args<'a> {
                kernels::$kernel::Args { distance, operand, words, kept }
            }
            fn of($number: usize) -> Self {
                $of
            }
        })+
    };
}
tried! {
    u32: words_u32, ALL, |number| (number as u32).wrapping_mul(0x9e37_79b1);
    i32: words_i32, ALL, |number| (number as u32).wrapping_mul(0x9e37_79b1) as i32;
    u64: words_u64, ALL, |number| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    i64: words_i64, ALL, |number| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
    f32: words_f32, FLOATS, |number| float(number);
    f16: words_f16, FLOATS, |number| f16::from_f32(float(number));
    bf16: words_bf16, FLOATS, |number| bf16::from_f32(float(number));
}

/// Numbers of both signs around the operands; now and then a subnormal one, or a NaN of either sign with other bits than GPUs give
/// one: such bits stay as they are where nothing is computed, and only there.
fn float(number: usize) -> f32 {
    match number % 22 {
        4 => f32::NAN,
        15 => -f32::NAN,
        7 => 1e-39,
        10 => -2e-39,
        _ => (number * 389 % 1000) as f32 * 0.37 - 200.0,
    }
}

/// Cases 25 and 27: each operation gives what was there before and leaves what it should, on the rank itself and on each other one.
pub fn every_operation<W: Tried>(ranks: &Ranks) -> Result<()> {
    let (world, count) = (ranks.world()?, ranks.count());
    let kernel = Kernel::<W::Kernel>::load(&world)?;
    let rows = SCOPES * (2 * SIMPLE_ORDERS + ORDERS * (2 + W::CHANGES.len()));
    let before = |rank: usize, row: usize, column: usize| W::of(row * count + column + 7 * rank);
    // Operands between the words; one that is a NaN of floats, and one that is subnormal.
    let turns = (0..count).flat_map(|distance| [None, Some(1005), Some(1019)].map(|special| (distance, special)));
    for (distance, special) in turns {
        let operand = |rank: usize| W::of(special.unwrap_or(1006 + rank));
        let mut operands = world.per_rank(|rank| ([1, 1], vec![operand(rank)]))?;
        let mut words = world.per_rank(|rank| {
            let words = (0..rows * count).map(|index| before(rank, index / count, index % count));
            ([rows, count], words.collect())
        })?;
        let mut kept = world.filled([rows, 1], W::of(5))?;
        kernel.launch(W::args(distance as u32, &mut operands, &mut words, &mut kept))?.wait()?;
        check_guards(&world)?;

        let mut expected: Vec<Vec<W>> =
            (0..count).map(|rank| words_of(rows * count, |i| before(rank, i / count, i % count))).collect();
        for rank in 0..count {
            let kept = kept.to_vec(rank)?;
            for row in 0..rows {
                let operation = (row + distance) % rows;
                let there = if operation % SCOPES == SCOPES - 1 { (rank + distance) % count } else { rank };
                let word = &mut expected[there][row * count + rank];
                let held = *word;
                let (found, left) = outcome(operation, held, operand(rank));
                *word = left;
                ensure!(
                    kept[row].to_bits() == found.to_bits(),
                    "rank {rank}, distance {distance}, operand {:#x}, row {row}: gave {:#x}, not {:#x}",
                    operand(rank).to_bits(),
                    kept[row].to_bits(),
                    found.to_bits()
                );
            }
        }
        for (rank, expected) in expected.iter().enumerate() {
            for (index, (found, expected)) in words.to_vec(rank)?.iter().zip(expected).enumerate() {
                ensure!(
                    found.to_bits() == expected.to_bits(),
                    "distance {distance}, operand {:#x}: word {index} on rank {rank} is {:#x}, not {:#x}",
                    operand(index % count).to_bits(),
                    found.to_bits(),
                    expected.to_bits()
                );
            }
        }
    }
    Ok(())
}

fn words_of<W>(count: usize, word: impl FnMut(usize) -> W) -> Vec<W> {
    (0..count).map(word).collect()
}

/// What an operation gives, and what it leaves.
fn outcome<W: Tried>(operation: usize, held: W, operand: W) -> (W, W) {
    let mut of_kind = operation / SCOPES;
    let mut taken = |orders: usize| {
        let found = of_kind < orders;
        of_kind = of_kind.wrapping_sub(if found { 0 } else { orders });
        found
    };
    if taken(SIMPLE_ORDERS) {
        return (held, held);
    }
    if taken(SIMPLE_ORDERS) {
        return (operand, operand);
    }
    if taken(ORDERS) {
        return (held, operand);
    }
    if taken(ORDERS) {
        return (held, held);
    }
    let Changed(change, negated) = W::CHANGES[of_kind / ORDERS];
    let operand = if negated { operand.negated() } else { operand };
    (held, held.changed(change, operand))
}
