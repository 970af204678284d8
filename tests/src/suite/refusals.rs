//! What is refused before anything runs, each time with the argument and what was expected.

use std::fmt::Debug;

use anyhow::{Result, bail, ensure};
use entwine::device::{bf16, f16};
use entwine::{Error, Kernel, RawMatrix, Tensor, World};
use entwine_kernels::{gemm_reduce_scatter, moe_gemm_combine};

use super::ranks::Ranks;

/// Checks that an error's text has each of these words in it.
fn refused<V: Debug>(result: Result<V, Error>, words: &[&str]) -> Result<()> {
    match result {
        Ok(value) => bail!("not refused: {value:?} (expected an error with {words:?})"),
        Err(error) => {
            let text = error.to_string();
            ensure!(words.iter().all(|word| text.contains(word)), "the error lacks some of {words:?}: {text}");
            Ok(())
        }
    }
}

/// Cases 13 and 18: tensors of another shape, world or element than the launch needs.
pub fn tensors(ranks: &Ranks) -> Result<()> {
    const M: usize = 256;
    let (world, other) = (ranks.world()?, ranks.own_world()?);
    let kernel = gemm_reduce_scatter::load(&world)?;
    let (a, b) = (world.zeros::<bf16>([M, 64])?, world.zeros::<bf16>([128, 64])?);
    let mut c = world.zeros_scattered::<bf16>([M, 128])?;
    let refuse = |a: &Tensor<bf16>, b: &Tensor<bf16>, c: &mut Tensor<bf16>, words: &[&str]| {
        refused(kernel.launch(gemm_reduce_scatter::Args { a, b, c }), words)
    };
    let k = ["argument `b`", "expected 64 columns (`k`) on rank 0, found 65"];
    refuse(&a, &world.zeros([128, 65])?, &mut c, &k)?;
    let n = ["argument `c`", "expected 127 columns (`n`) on rank 0, found 128"];
    refuse(&a, &world.zeros([127, 64])?, &mut c, &n)?;
    let share = M.div_ceil(ranks.count());
    let rows = [&*format!("argument `c`: expected {share} rows (`m / world`) on rank 0"), "m = 256"];
    refuse(&a, &b, &mut world.zeros_scattered([M - ranks.count(), 128])?, &rows)?;
    let foreign = ["argument `a`", "another world"];
    refuse(&other.zeros([M, 64])?, &b, &mut c, &foreign)?;
    let last = ranks.count() - 1;
    let uneven = world.per_rank(|rank| ([M + rank, 64], vec![bf16::ZERO; (M + rank) * 64]))?;
    if last > 0 {
        refuse(&uneven, &b, &mut c, &["argument `a`: expected 256 rows (`m`) on rank 1, found 257"])?;
    }
    let columns = world.per_rank(|rank| ([1, 8 + rank], vec![bf16::ZERO; 8 + rank]));
    if last > 0 {
        refused(columns, &["as many columns on every rank", "8 on rank 0, but 9 on rank 1"])?;
    }
    refused(world.zeros::<bf16>([1 << 31, 1]), &["at most 2³¹ − 1 rows and columns, not 2147483648 × 1"])?;
    refused(world.zeros::<bf16>([i32::MAX as usize; 2]), &["rank 0: could not allocate"])?;
    refused(world.scatter([1 << 63, 2], &[] as &[bf16]), &["elements are expected, and 0 were given"])?;
    refused(world.scatter([3, 3], &[bf16::ZERO; 8]), &["3 × 3 elements", "8 were given"])?;
    kernel.launch(gemm_reduce_scatter::Args { a: &a, b: &b, c: &mut c })?.wait()?;
    Ok(())
}

/// Case 18 and 24: memory of others that is misaligned, or not row-major.
pub fn foreign_memory(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let raw = RawMatrix { address: 4096, rows: 128, columns: 64, pitch: 128 };
    let refuse = |raw: RawMatrix, words: &[&str]| {
        // SAFETY: it is refused before the memory is accessed.
        refused(unsafe { Tensor::<f16>::from_raw(&world, &vec![raw; ranks.count()]) }, words)
    };
    refuse(RawMatrix { address: 4104, ..raw }, &["address must be a multiple of 16", "0x1008"])?;
    refuse(RawMatrix { pitch: 136, ..raw }, &["pitch must be a multiple of 16 bytes", "136"])?;
    refuse(RawMatrix { pitch: 16, ..raw }, &["pitch of 16 bytes is less than a row's 128"])?;
    // SAFETY: as above.
    let too_many = unsafe { Tensor::<f16>::from_raw(&world, &vec![raw; ranks.count() + 1]) };
    refused(too_many, &["one matrix for each of the"])
}

/// More experts, and more choices, than a routing can tell apart.
pub fn routings(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel = moe_gemm_combine::load(&world)?;
    let launch = |choices: usize, experts: usize| {
        const ROOM: usize = 128;
        let tokens = ranks.count();
        kernel.launch(moe_gemm_combine::Args {
            choices: &world.zeros_scattered([tokens, choices])?,
            weights: &world.zeros_scattered([tokens, choices])?,
            loads: &mut world.zeros([1, experts])?,
            hidden: &world.zeros::<bf16>([ROOM, 8])?,
            down: &world.zeros([experts.div_ceil(tokens) * 8, 8])?,
            outputs: &mut world.zeros([ROOM, 8])?,
            y: &mut world.zeros_scattered([tokens, 8])?,
        })
    };
    let experts = ["channel `Experts`: expected at most 512 groups (`e`), found 513", "e = 513"];
    refused(launch(1, 513), &experts)?;
    let choices = ["fewer than 1048576 choices of a rank's rows, found 1048576", "choose 1048576 (`k`) each"];
    refused(launch(1 << 20, 8), &choices)
}

/// A tile that no variant was compiled for, and worlds that can't be.
pub fn settings(ranks: &Ranks) -> Result<()> {
    let world = ranks.world()?;
    let kernel: Kernel<gemm_reduce_scatter::Woven> = Kernel::load(&world)?;
    let tile = kernel.with_tile((64, 64));
    refused(tile, &["not compiled for a tile of 64×64", "bf16 128×256", "f16 128×128"])?;
    refused(World::simulated(0), &["1 to 8 ranks, not 0"])?;
    refused(World::simulated(9), &["1 to 8 ranks, not 9"])
}
