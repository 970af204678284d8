//! What the fused kernels compete with: cuBLASLt's matrix product, alone or with NCCL's collective before or after it.

use anyhow::Result;
use entwine::{Tensor, World};
use half::bf16;

use crate::cublaslt::Product;
use crate::gpus::Gpus;
use crate::nccl::{Collective, Nccl};
use crate::operands::{Inputs, random};
use crate::record::Timing;
use crate::shapes::{Operation, Shape};
use crate::timing::{Batch, Contestant, capture};

/// Seed of what the product alone multiplies in place of gathered rows.
const GATHERED_SEED: u64 = 1 << 20;

/// One after the other.
pub struct Unfused<'a> {
    gpus: &'a Gpus,
    product: Product<'a>,
    collective: Option<(&'a Nccl, Collective)>,
    shape: Shape,
    inputs: &'a [Inputs],
    /// Gathered rows of A, if the operation gathers; for each set.
    gathered: Vec<Tensor<bf16>>,
    /// Products that are still to be scattered or exchanged; for each set.
    partial: Vec<Tensor<bf16>>,
    outputs: Vec<Tensor<bf16>>,
}

/// What NCCL has to do for an operation.
pub fn collective(operation: Operation) -> Option<Collective> {
    match operation {
        Operation::Gemm => None,
        Operation::GemmReduceScatter => Some(Collective::ReduceScatter),
        Operation::GemmAllReduce => Some(Collective::AllReduce),
        Operation::AllGatherGemm => Some(Collective::AllGather),
        Operation::GemmAllToAll => Some(Collective::AllToAll),
        Operation::GemvAllReduce => Some(Collective::AllReduce),
    }
}

impl<'a> Unfused<'a> {
    /// The product of an operation's inputs, with the collective or without.
    ///
    /// # Errors
    /// Memory ran out.
    pub fn new(
        world: &World,
        gpus: &'a Gpus,
        product: Product<'a>,
        collective: Option<(&'a Nccl, Collective)>,
        (operation, shape): (Operation, Shape),
        inputs: &'a [Inputs],
    ) -> Result<Self> {
        let Shape { m, n, k } = shape;
        let sets = inputs.len();
        let zeros = |shape| (0..sets).map(move |_| Ok(world.zeros(shape)?)).collect::<Result<Vec<_>>>();
        let whole = match collective {
            Some((_, Collective::AllToAll)) => [world.ranks() * m, n / world.ranks()],
            _ => [m, n],
        };
        let (partial, output) = match collective {
            Some((_, Collective::ReduceScatter)) => (Some(whole), [m / world.ranks(), n]),
            Some((_, Collective::AllToAll)) => (Some(whole), whole),
            _ => (None, whole),
        };
        let gathered = match operation {
            Operation::AllGatherGemm if world.ranks() > 1 => {
                (0..sets).map(|_| random(world, [m, k], GATHERED_SEED)).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        let partial = partial.map_or(Ok(Vec::new()), zeros)?;
        let outputs = zeros(output)?;
        Ok(Unfused { gpus, product, collective, shape, inputs, gathered, partial, outputs })
    }

    /// The product, to choose another algorithm.
    pub fn product(&mut self) -> &mut Product<'a> {
        &mut self.product
    }

    fn enqueue(&self, set: usize) -> Result<()> {
        let Shape { m, n, k } = self.shape;
        let ranks = self.gpus.streams.len();
        let address = |tensor: &Tensor<bf16>, rank| tensor.raw(rank).address;
        let communicate = |from: &Tensor<bf16>, into: &Tensor<bf16>, count| {
            let Some((nccl, collective)) = self.collective else { return Ok(()) };
            let ends: Vec<_> = (0..ranks).map(|rank| (address(from, rank), address(into, rank))).collect();
            // SAFETY: the tensors live as long as this, have the collective's shapes, and all that works on them is
            // on the same streams.
            unsafe { nccl.enqueue(self.gpus, collective, &ends, count) }
        };
        let Inputs { a, b } = &self.inputs[set];
        let output = &self.outputs[set];
        let left = self.gathered.get(set).unwrap_or(a);
        let product = self.partial.get(set).unwrap_or(output);
        let collective = self.collective.map(|(_, collective)| collective);

        if collective == Some(Collective::AllGather) {
            communicate(a, left, m / ranks * k)?;
        }
        for rank in 0..ranks {
            let operands = [left, b, product].map(|tensor| address(tensor, rank));
            // SAFETY: as above, of the product.
            unsafe { self.product.enqueue(self.gpus, rank, operands)? };
        }
        match collective {
            Some(Collective::ReduceScatter | Collective::AllToAll) => communicate(product, output, m * n / ranks),
            Some(Collective::AllReduce) => communicate(output, output, m * n),
            Some(Collective::AllGather) | None => Ok(()),
        }
    }

    fn enqueue_in_turns(&self, calls: usize) -> Result<()> {
        (0..calls).try_for_each(|call| self.enqueue(call % self.inputs.len()))
    }
}

impl Contestant for Unfused<'_> {
    fn batch(&mut self, calls: usize, timing: Timing) -> Result<Batch<'_>> {
        if timing == Timing::Eager {
            return Ok(Box::new(move || self.enqueue_in_turns(calls).map(|()| Vec::new())));
        }
        // What the libraries set up on first use is no part of a graph.
        self.enqueue_in_turns(1)?;
        self.gpus.synchronize()?;
        let graphs = capture(self.gpus, || self.enqueue_in_turns(calls))?;
        Ok(Box::new(move || {
            graphs.iter().try_for_each(|graph| graph.launch())?;
            Ok(Vec::new())
        }))
    }

    fn outputs(&mut self) -> &mut [Tensor<bf16>] {
        &mut self.outputs
    }
}
