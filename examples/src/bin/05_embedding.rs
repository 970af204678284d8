//! The embedding exchange of a recommendation model (DLRM): tables are split over the ranks, samples too.
//!
//! Every rank pools rows of its tables for all samples, and sends each pooled block to the rank that owns the samples, the
//! moment it is there. Bags are ragged: a sample may name no row of a table, or one row several times.

use anyhow::{Result, ensure};
use entwine::World;
use entwine_kernels::embedding_all_to_all;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Rows of each of a rank's tables.
const HEIGHTS: [u32; 3] = [1000, 50, 7];
const WIDTH: usize = 64;
const SAMPLES: usize = 300;
/// The most rows that a sample names of a table.
const LONGEST: usize = 20;

fn main() -> Result<()> {
    let world = World::simulated(4)?;
    let ranks = world.ranks();
    let mut generator = SmallRng::seed_from_u64(5);

    // Where each table begins among a rank's rows.
    let begins: Vec<u32> = (0..=HEIGHTS.len()).map(|table| HEIGHTS[..table].iter().sum()).collect();
    let rows = begins[HEIGHTS.len()] as usize;
    let mut tables = Vec::new();
    let (mut offsets, mut indices) = (Vec::new(), Vec::new());
    for _ in 0..ranks {
        tables.push((0..rows * WIDTH).map(|_| generator.random_range(-8..8) as f32).collect::<Vec<_>>());
        let (mut bags_begin, mut named) = (Vec::new(), Vec::new());
        for height in HEIGHTS {
            bags_begin.push(named.len() as u32);
            for _ in 0..SAMPLES {
                let length = generator.random_range(0..=LONGEST);
                named.extend((0..length).map(|_| generator.random_range(0..height)));
                bags_begin.push(named.len() as u32);
            }
        }
        offsets.push(bags_begin);
        indices.push(named);
    }
    let room = indices.iter().map(Vec::len).max().expect("there are ranks");
    let padded = |rank: usize| [&indices[rank][..], &vec![0; room - indices[rank].len()]].concat();

    let there = world.per_rank(|rank| ([rows, WIDTH], tables[rank].clone()))?;
    let begins_there = world.replicate([1, HEIGHTS.len() + 1], &begins)?;
    let offsets_there = world.per_rank(|rank| ([HEIGHTS.len(), SAMPLES + 1], offsets[rank].clone()))?;
    let indices_there = world.per_rank(|rank| ([1, room], padded(rank)))?;
    let mut pooled = world.zeros_scattered([SAMPLES, ranks * HEIGHTS.len() * WIDTH])?;

    let kernel = embedding_all_to_all::load(&world)?;
    kernel
        .launch(embedding_all_to_all::Args {
            table: &there,
            begins: &begins_there,
            offsets: &offsets_there,
            indices: &indices_there,
            mean: false,
            out: &mut pooled,
        })?
        .wait()?;

    let pooled = pooled.gather()?;
    let columns = ranks * HEIGHTS.len() * WIDTH;
    for (at, found) in pooled.iter().enumerate() {
        let (sample, table, column) = (at / columns, at % columns / WIDTH, at % WIDTH);
        let (rank, table) = (table / HEIGHTS.len(), table % HEIGHTS.len());
        let first = table * (SAMPLES + 1) + sample;
        let bag = offsets[rank][first] as usize..offsets[rank][first + 1] as usize;
        let row = |index: &u32| (begins[table] + index) as usize;
        let expected: f32 = indices[rank][bag].iter().map(|index| tables[rank][row(index) * WIDTH + column]).sum();
        ensure!(*found == expected, "column {column} of sample {sample} in table {table} of rank {rank} is {found}");
    }
    println!("{SAMPLES} samples, {} tables on each of {ranks} ranks", HEIGHTS.len());
    println!("right: every rank has its samples' rows, pooled from all tables");
    Ok(())
}
