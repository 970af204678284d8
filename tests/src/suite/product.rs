//! The kernels' matrix products, and what they should be: computed in f64 from the same operands.

use std::marker::PhantomData;
use std::ops::Range;

use anyhow::{Result, ensure};
use entwine::{Arguments, Kernel, KernelType, RawMatrix, Tensor, World};
use entwine_kernels::{all_gather_gemm, gemm, gemm_all_reduce, gemm_reduce_scatter, gemv_all_reduce};
use ndarray::Array2;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::number::{self, Number};
use crate::kernels::all_gather_gemm as arriving_gemm;

/// One of the kernels, by what it does to the product of each rank's A and B.
pub trait Product: 'static {
    /// The kernel.
    type Kernel: KernelType;

    /// A is split by rows over the ranks, and each multiplies all of it.
    const GATHERS: bool;
    /// The ranks' products are added.
    const SUMS: bool;
    /// Each rank keeps its share of the result's rows.
    const SCATTERS: bool;

    /// Its launch arguments.
    type Args<'a, T: Number>: Arguments<'a, Kernel = Self::Kernel>;

    /// The arguments for these tensors.
    fn args<'a, T: Number>(a: &'a Tensor<T>, b: &'a Tensor<T>, c: &'a mut Tensor<T>) -> Self::Args<'a, T>;

    /// The kernel's name.
    fn name() -> &'static str {
        Self::Kernel::SPEC.name
    }
}

macro_rules! products {
    ($($(#[$doc:meta])* $product:ident: $kernel:ident, gathers $gathers:literal, sums $sums:literal, scatters $scatters:literal;)+) => {
        $(
            $(#[$doc])*
            pub struct $product;

            impl Product for $product {
                type Kernel = $kernel::Woven;
                const GATHERS: bool = $gathers;
                const SUMS: bool = $sums;
                const SCATTERS: bool = $scatters;

                type Args<'a, T: Number> = $kernel::Args<'a, T>;

                fn args<'a, T: Number>(a: &'a Tensor<T>, b: &'a Tensor<T>, c: &'a mut Tensor<T>) -> Self::Args<'a, T> {
                    $kernel::Args { a, b, c }
                }
            }
        )+
    };
}
products! {
    /// The product alone.
    Alone: gemm, gathers false, sums false, scatters false;
    /// The product, then a reduce-scatter.
    ReduceScatter: gemm_reduce_scatter, gathers false, sums true, scatters true;
    /// The product, then an all-reduce.
    AllReduce: gemm_all_reduce, gathers false, sums true, scatters false;
    /// The product of a few rows, then an all-reduce.
    Decode: gemv_all_reduce, gathers false, sums true, scatters false;
    /// An all-gather, then the product.
    AllGather: all_gather_gemm, gathers true, sums false, scatters false;
    /// The same from panels that are sent as a whole, in pieces, and multiplied as they arrive.
    Arriving: arriving_gemm, gathers true, sums false, scatters false;
}

/// C has `m` rows and `n` columns; each rank's A and B have `k` columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows of A, of all ranks if it is gathered.
    pub m: usize,
    /// Rows of each rank's B.
    pub n: usize,
    /// Columns of each rank's A and B.
    pub k: usize,
}

/// The rows that a rank owns of `rows` split evenly.
pub fn share(rows: usize, ranks: usize, rank: usize) -> Range<usize> {
    let each = rows.div_ceil(ranks);
    (rank * each).min(rows)..((rank + 1) * each).min(rows)
}

/// Each rank's A and B, row-major.
pub struct Operands<T> {
    a: Vec<Vec<T>>,
    b: Vec<Vec<T>>,
}

impl<T: Number> Operands<T> {
    /// Random ones.
    pub fn random<P: Product>(ranks: usize, size: Size, seed: u64) -> Self {
        let [mut of_a, mut of_b] = [seed, !seed].map(SmallRng::seed_from_u64);
        let a = |_, rows: Range<usize>| number::random(&mut of_a, rows.len() * size.k);
        Self::of::<P>(ranks, size, a, |_| number::random(&mut of_b, size.n * size.k))
    }

    /// `a` makes these rows of a rank's A, or of the one that there is if it is gathered; `b` a rank's B.
    pub fn of<P: Product>(
        ranks: usize,
        size: Size,
        mut a: impl FnMut(usize, Range<usize>) -> Vec<T>,
        b: impl FnMut(usize) -> Vec<T>,
    ) -> Self {
        let rows_of_a = |rank| if P::GATHERS { a(0, share(size.m, ranks, rank)) } else { a(rank, 0..size.m) };
        Operands { a: (0..ranks).map(rows_of_a).collect(), b: (0..ranks).map(b).collect() }
    }
}

/// A kernel's tensors, with what they hold.
pub struct Problem<P, T> {
    size: Size,
    operands: Operands<T>,
    a: Tensor<T>,
    b: Tensor<T>,
    c: Tensor<T>,
    product: PhantomData<P>,
}

impl<P: Product, T: Number> Problem<P, T> {
    /// Random operands, and a result that is NaN throughout.
    pub fn random(world: &World, size: Size, seed: u64) -> Result<Self> {
        Self::new(world, size, Operands::random::<P>(world.ranks(), size, seed))
    }

    /// These operands, and a result that is NaN throughout.
    pub fn new(world: &World, size: Size, operands: Operands<T>) -> Result<Self> {
        let Size { m, n, k } = size;
        let rows = |rank| if P::GATHERS { share(m, world.ranks(), rank).len() } else { m };
        let a = world.per_rank(|rank| ([rows(rank), k], operands.a[rank].clone()))?;
        let b = world.per_rank(|rank| ([n, k], operands.b[rank].clone()))?;
        let mut c = if P::SCATTERS { world.zeros_scattered([m, n])? } else { world.zeros([m, n])? };
        c.fill(T::from_f32(f32::NAN))?;
        Ok(Problem { size, operands, a, b, c, product: PhantomData })
    }

    /// The arguments for a launch on them.
    pub fn args(&mut self) -> P::Args<'_, T> {
        P::args(&self.a, &self.b, &mut self.c)
    }

    /// Where a rank's A, B and C lie.
    pub fn raw(&self, rank: usize) -> [RawMatrix; 3] {
        [&self.a, &self.b, &self.c].map(|tensor| tensor.raw(rank))
    }

    /// Runs the kernel on them and holds the whole result against the reference.
    pub fn run_and_check(&mut self, kernel: &Kernel<P::Kernel>) -> Result<()> {
        kernel.launch(self.args())?.wait()?;
        self.check()
    }

    /// The bits of the whole results, row-major: each rank's, or one if the ranks have shares of it.
    pub fn bits(&self) -> Result<Vec<Vec<u16>>> {
        let ranks = (0..self.operands.a.len()).map(|rank| Ok(number::bits(&self.c.to_vec(rank)?)));
        let ranks = ranks.collect::<Result<Vec<_>>>()?;
        Ok(if P::SCATTERS { vec![ranks.concat()] } else { ranks })
    }

    /// Fills the result with NaN again.
    pub fn poison(&mut self) -> Result<()> {
        Ok(self.c.fill(T::from_f32(f32::NAN))?)
    }

    /// Holds the whole result against the reference.
    pub fn check(&self) -> Result<()> {
        let every = |count| (0..count).collect::<Vec<_>>();
        self.check_where(&every(self.size.m), &every(self.size.n))
    }

    /// Holds these rows and columns of the result against the reference.
    pub fn check_where(&self, rows: &[usize], columns: &[usize]) -> Result<()> {
        let ranks = self.operands.a.len();
        for rank in 0..ranks {
            let owned = if P::SCATTERS { share(self.size.m, ranks, rank) } else { 0..self.size.m };
            let rows: Vec<_> = rows.iter().copied().filter(|row| owned.contains(row)).collect();
            let Expected { value, tolerance } = self.expected(rank, &rows, columns);
            let result = self.c.to_vec(rank)?;
            for (y, row) in rows.iter().enumerate() {
                for (x, column) in columns.iter().enumerate() {
                    let found = result[(row - owned.start) * self.size.n + column].value();
                    let (value, tolerance) = (value[[y, x]], tolerance[[y, x]]);
                    ensure!(
                        (found - value).abs() <= tolerance || same(found, value),
                        "{}, {:?}, rank {rank}: C[{row}, {column}] is {found}, not {value} ± {tolerance:.2e}",
                        P::name(),
                        self.size
                    );
                }
            }
        }
        Ok(())
    }

    fn expected(&self, rank: usize, rows: &[usize], columns: &[usize]) -> Expected {
        let ranks = self.operands.a.len();
        let summed = if P::SUMS { 0..ranks } else { rank..rank + 1 };
        let shape = [rows.len(), columns.len()];
        let mut value = Array2::<f64>::zeros(shape);
        let mut rounded = Array2::<f64>::zeros(shape);
        let mut magnitude = Array2::<f64>::zeros(shape);
        for summand in summed {
            let a = self.rows_of_a(summand, rows);
            let b = self.block(columns.iter().map(|&column| (&self.operands.b[summand], column)));
            let product = a.dot(&b.t());
            magnitude += &a.mapv(f64::abs).dot(&b.t().mapv(f64::abs));
            if P::SUMS {
                rounded += &product.mapv(f64::abs);
            }
            value += &product;
        }
        rounded += &value.mapv(f64::abs);
        // Twice the roundings to the element type, and f32's.
        let tolerance = 2.0 * T::ROUNDOFF * rounded + magnitude / (1 << 20) as f64 + 2.0 * T::SMALLEST;
        Expected { value, tolerance }
    }

    fn rows_of_a(&self, rank: usize, rows: &[usize]) -> Array2<f64> {
        let ranks = self.operands.a.len();
        let each = self.size.m.div_ceil(ranks).max(1);
        let lies = |row| if P::GATHERS { (row / each, row % each) } else { (rank, row) };
        self.block(rows.iter().map(|&row| lies(row)).map(|(owner, row)| (&self.operands.a[owner], row)))
    }

    /// Rows of operands, as f64.
    fn block<'o>(&self, rows: impl ExactSizeIterator<Item = (&'o Vec<T>, usize)>) -> Array2<f64> {
        let k = self.size.k;
        let shape = [rows.len(), k];
        let values = rows.flat_map(|(data, row)| &data[row * k..(row + 1) * k]).map(|number| number.value());
        Array2::from_shape_vec(shape, values.collect()).expect("every row has k elements")
    }
}

/// What a block of a result should be, and how far it may be off.
struct Expected {
    value: Array2<f64>,
    tolerance: Array2<f64>,
}

/// Equal, or both NaN.
fn same(found: f64, expected: f64) -> bool {
    found == expected || found.is_nan() && expected.is_nan()
}
