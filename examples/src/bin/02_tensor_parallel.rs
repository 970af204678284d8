//! The three fused kernels of tensor parallelism: each against a reference, with a picture of how computing and
//! communicating overlapped. On this machine's GPUs if there are at least two, else on simulated ranks.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use entwine::device::bf16;
use entwine::{Error, Tensor, World};
use entwine_examples::matrices;
use entwine_kernels::{all_gather_gemm, gemm_all_reduce, gemm_reduce_scatter};
use ndarray::{Array2, Axis, concatenate};

/// Runs the fused kernels on four simulated ranks, or on the GPUs of this machine.
#[derive(Parser)]
struct Options {
    /// Simulate this many ranks, even where there are GPUs
    #[arg(long)]
    simulate: Option<usize>,
}

struct Demo {
    world: World,
    simulated: bool,
    m: usize,
    n: usize,
    k: usize,
}

fn main() -> Result<()> {
    let demo = Demo::new(Options::parse())?;
    demo.run()?;
    if !demo.recorded() {
        println!(
            "\nThis program was built without code that records what GPUs do when (`ENTWINE_TIMELINE=1` adds it). On as \
             many simulated ranks, computing and communicating overlap so:"
        );
        Demo::simulate(demo.world.ranks())?.run()?;
    }
    println!("\nAll results are right.");
    Ok(())
}

impl Demo {
    fn new(options: Options) -> Result<Self> {
        if let Some(ranks) = options.simulate {
            return Demo::simulate(ranks);
        }
        match World::open() {
            Ok(world) if world.ranks() > 1 => {
                println!("{} GPUs", world.ranks());
                Ok(Demo { world, simulated: false, m: 2048, n: 2048, k: 1024 })
            }
            Ok(_) => {
                print!("One GPU has nobody to communicate with; ");
                Demo::simulate(4)
            }
            Err(reason) => {
                println!("No GPUs here: {reason}.");
                Demo::simulate(4)
            }
        }
    }

    fn simulate(ranks: usize) -> Result<Self> {
        println!("{ranks} simulated ranks");
        Ok(Demo { world: World::simulated(ranks)?, simulated: true, m: 1024, n: 512, k: 256 })
    }

    /// Whether there is a picture of what happens when.
    fn recorded(&self) -> bool {
        self.simulated || gemm_reduce_scatter::SPEC.codes.iter().any(|code| code.timeline)
    }

    fn run(&self) -> Result<()> {
        self.reduce_scatter().context("gemm_reduce_scatter")?;
        self.all_reduce().context("gemm_all_reduce")?;
        self.all_gather().context("all_gather_gemm")
    }

    /// Σ A·Bᵀ over the ranks, each keeping its share of the rows.
    fn reduce_scatter(&self) -> Result<()> {
        let (a, b, expected) = self.split_products();
        let (a, b) = (self.per_rank(&a)?, self.per_rank(&b)?);
        let mut c = self.world.zeros_scattered([self.m, self.n])?;
        let kernel = gemm_reduce_scatter::load(&self.world)?;
        self.time("gemm_reduce_scatter", || {
            kernel.launch(gemm_reduce_scatter::Args { a: &a, b: &b, c: &mut c })?.wait()
        })?;
        report([matrices::error(&c.gather()?, &expected)?]);
        if self.recorded() {
            print!("{}", kernel.record(gemm_reduce_scatter::Args { a: &a, b: &b, c: &mut c })?);
        }
        Ok(())
    }

    /// Σ A·Bᵀ over the ranks, whole on each.
    fn all_reduce(&self) -> Result<()> {
        let (a, b, expected) = self.split_products();
        let (a, b) = (self.per_rank(&a)?, self.per_rank(&b)?);
        let mut c = self.world.zeros([self.m, self.n])?;
        let kernel = gemm_all_reduce::load(&self.world)?;
        self.time("gemm_all_reduce", || kernel.launch(gemm_all_reduce::Args { a: &a, b: &b, c: &mut c })?.wait())?;
        let ranks = (0..self.world.ranks()).map(|rank| matrices::error(&c.to_vec(rank)?, &expected));
        report(ranks.collect::<Result<Vec<_>>>()?);
        if self.recorded() {
            print!("{}", kernel.record(gemm_all_reduce::Args { a: &a, b: &b, c: &mut c })?);
        }
        Ok(())
    }

    /// A·Bᵀ on each rank, which has rows of A, and a B of its own.
    fn all_gather(&self) -> Result<()> {
        let Demo { world, m, n, k, .. } = self;
        let whole = matrices::random([*m, *k], 1.0, 7);
        let b: Vec<_> = (0..world.ranks()).map(|rank| matrices::random([*n, *k], 1.0, 8 + rank as u64)).collect();
        let a = world.scatter([*m, *k], &matrices::elements(&whole))?;
        let b_there = self.per_rank(&b)?;
        let mut c = world.zeros([*m, *n])?;
        let kernel = all_gather_gemm::load(world)?;
        self.time("all_gather_gemm", || {
            kernel.launch(all_gather_gemm::Args { a: &a, b: &b_there, c: &mut c })?.wait()
        })?;
        let ranks = b.iter().enumerate().map(|(rank, b)| matrices::error(&c.to_vec(rank)?, &whole.dot(&b.t())));
        report(ranks.collect::<Result<Vec<_>>>()?);
        if self.recorded() {
            print!("{}", kernel.record(all_gather_gemm::Args { a: &a, b: &b_there, c: &mut c })?);
        }
        Ok(())
    }

    /// Each rank's slice of A and B along their columns, and the product of the whole.
    fn split_products(&self) -> (Vec<Array2<f32>>, Vec<Array2<f32>>, Array2<f32>) {
        let slices = |rows, seed| -> Vec<_> {
            (0..self.world.ranks()).map(|rank| matrices::random([rows, self.k], 1.0, seed + rank as u64)).collect()
        };
        let (a, b) = (slices(self.m, 10), slices(self.n, 30));
        let whole = |slices: &[Array2<f32>]| -> Array2<f32> {
            let slices: Vec<_> = slices.iter().map(|slice| slice.view()).collect();
            concatenate(Axis(1), &slices).expect("the slices have as many rows")
        };
        let expected = whole(&a).dot(&whole(&b).t());
        (a, b, expected)
    }

    fn per_rank(&self, matrices: &[Array2<f32>]) -> Result<Tensor<bf16>, Error> {
        self.world.per_rank(|rank| (matrices[rank].dim().into(), matrices::elements(&matrices[rank])))
    }

    /// Runs a kernel once to warm it up, and once to time it.
    fn time(&self, name: &str, mut launch: impl FnMut() -> Result<(), Error>) -> Result<()> {
        let Demo { m, n, k, .. } = self;
        print!("\n{name}: C[{m}, {n}], {k} columns of A and B on each rank");
        launch()?;
        let begun = Instant::now();
        launch()?;
        println!(", {:.1?}", begun.elapsed());
        Ok(())
    }
}

fn report(errors: impl IntoIterator<Item = f32>) {
    let worst = errors.into_iter().fold(0.0, f32::max);
    println!("  right on every rank: the largest error is {:.2} % of the largest element", worst * 100.0);
}
