//! The fused kernels, as contestants: each operation's, in a variant.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use anyhow::{Context, Result};
use entwine::spec::Carriage;
use entwine::{Kernel, KernelType, Launch, Stream, Tensor, Timeline, Tuned, World};
use entwine_kernels::{all_gather_gemm, gemm, gemm_all_reduce, gemm_all_to_all, gemm_reduce_scatter, gemv_all_reduce};
use half::bf16;

use crate::gpus::Gpus;
use crate::operands::Inputs;
use crate::record::Timing;
use crate::shapes::{Operation, Shape};
use crate::timing::{Batch, Contestant};

/// How a kernel is set, as far as it is not left to the launcher: written as `TILE[@LIMIT][+push|+pull][~SPAN]`, as in
/// `auto`, `128x256` or `auto@12+push~4`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Variant {
    tile: Option<(u32, u32)>,
    /// How many transfers may drive the link at once.
    link_limit: Option<u32>,
    /// How what is sent comes to its receiver, on the channels whose declarations leave it open.
    carriage: Option<Carriage>,
    /// Columns of tiles that orders by blocks visit before the next.
    span: Option<u32>,
}

const EXAMPLES: &str = "`auto`, `128x256` or `auto@12+push~4`";

impl Variant {
    /// The kernel, set so.
    ///
    /// # Errors
    /// It has no such tile or channel.
    pub fn set<K: KernelType>(self, mut kernel: Kernel<K>) -> Result<Kernel<K>> {
        if let Some(tile) = self.tile {
            kernel = kernel.with_tile(tile)?;
        }
        if let Some(limit) = self.link_limit {
            kernel = kernel.with_link_limit(limit);
        }
        if let Some(carriage) = self.carriage {
            for channel in K::SPEC.channels.iter().filter(|channel| channel.carriage.is_none()) {
                kernel = kernel.with_carriage(channel.name, carriage)?;
            }
        }
        if let Some(span) = self.span {
            kernel = kernel.with_span(span);
        }
        Ok(kernel)
    }
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut variant = Variant::default();
            let mut rest = text;
            if let Some((before, span)) = rest.split_once('~') {
                (rest, variant.span) = (before, Some(span.parse().ok()?));
            }
            if let Some((before, carriage)) = rest.split_once('+') {
                let known = [Carriage::Push, Carriage::Pull].into_iter().find(|known| known.name() == carriage);
                (rest, variant.carriage) = (before, Some(known?));
            }
            if let Some((before, limit)) = rest.split_once('@') {
                (rest, variant.link_limit) = (before, Some(limit.parse().ok()?));
            }
            match rest.split_once('x') {
                Some((rows, columns)) => variant.tile = Some((rows.parse().ok()?, columns.parse().ok()?)),
                None => (rest == "auto").then_some(())?,
            }
            Some(variant)
        };
        parse().with_context(|| format!("expected a variant like {EXAMPLES}, found `{text}`"))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tile {
            Some((rows, columns)) => write!(f, "{rows}x{columns}")?,
            None => write!(f, "auto")?,
        }
        if let Some(limit) = self.link_limit {
            write!(f, "@{limit}")?;
        }
        if let Some(carriage) = self.carriage {
            write!(f, "+{}", carriage.name())?;
        }
        self.span.map_or(Ok(()), |span| write!(f, "~{span}"))
    }
}

/// A loaded kernel, whichever it is.
pub struct FusedKernel {
    pub variant: Variant,
    prepare: Prepare,
    tune: Tune,
    launch: Single<Launch>,
    record: Single<Timeline>,
}

/// One call of a fused kernel.
type Single<R> = Box<dyn Fn(&Inputs, &mut Tensor<bf16>) -> Result<R>>;

type Tune = Single<Tuned>;
type Prepare = Box<dyn for<'a> Fn(Calls<'a>) -> Result<Batch<'a>>>;

/// What a batch of a fused kernel's calls works on.
struct Calls<'a> {
    streams: &'a [Stream],
    inputs: &'a [Inputs],
    outputs: &'a mut [Tensor<bf16>],
    calls: usize,
    timing: Timing,
}

/// The kernels' argument types differ, though their fields don't.
macro_rules! prepare {
    ($kernel:ident, $world:expr, $variant:expr) => {{
        let kernel = Rc::new($variant.set($kernel::load($world)?)?);
        let [tuned, launched, recorded] = [(); 3].map(|()| kernel.clone());
        let tune: Tune = Box::new(move |Inputs { a, b }, c| Ok(tuned.tune($kernel::Args { a, b, c })?));
        let launch: Single<Launch> =
            Box::new(move |Inputs { a, b }, c| Ok(launched.launch($kernel::Args { a, b, c })?));
        let record: Single<Timeline> =
            Box::new(move |Inputs { a, b }, c| Ok(recorded.record($kernel::Args { a, b, c })?));
        let prepare: Prepare = Box::new(move |Calls { streams, inputs, outputs, calls, timing }| {
            if timing == Timing::Graph {
                let arguments = inputs.iter().zip(outputs).map(|(Inputs { a, b }, c)| $kernel::Args { a, b, c });
                let graph = kernel.graph_in_turns(calls as u32, arguments)?;
                return Ok(Box::new(move || Ok(vec![graph.launch_on(streams)?])));
            }
            let kernel = kernel.clone();
            Ok(Box::new(move || {
                let call = |call: usize| {
                    let Inputs { a, b } = &inputs[call % inputs.len()];
                    let c = &mut outputs[call % inputs.len()];
                    Ok(kernel.launch_on(streams, $kernel::Args { a, b, c })?)
                };
                (0..calls).map(call).collect()
            }))
        });
        (prepare, tune, launch, record)
    }};
}

impl FusedKernel {
    /// Loads an operation's kernel.
    ///
    /// # Errors
    /// The kernel cannot be loaded, or has no such tile.
    pub fn load(world: &World, operation: Operation, variant: Variant) -> Result<Self> {
        let (prepare, tune, launch, record) = match operation {
            Operation::Gemm => prepare!(gemm, world, variant),
            Operation::GemmReduceScatter => prepare!(gemm_reduce_scatter, world, variant),
            Operation::GemmAllReduce => prepare!(gemm_all_reduce, world, variant),
            Operation::AllGatherGemm => prepare!(all_gather_gemm, world, variant),
            Operation::GemmAllToAll => prepare!(gemm_all_to_all, world, variant),
            Operation::GemvAllReduce => prepare!(gemv_all_reduce, world, variant),
        };
        Ok(FusedKernel { variant, prepare, tune, launch, record })
    }

    /// Launches it once.
    ///
    /// # Errors
    /// The launch failed.
    pub fn launch(&self, inputs: &Inputs, output: &mut Tensor<bf16>) -> Result<Launch> {
        (self.launch)(inputs, output)
    }

    /// Records one launch.
    ///
    /// # Errors
    /// The launch failed, or this program was built without code that records.
    pub fn record(&self, inputs: &Inputs, output: &mut Tensor<bf16>) -> Result<Timeline> {
        (self.record)(inputs, output)
    }
}

/// A tensor for the result of an operation.
///
/// # Errors
/// Memory ran out.
pub fn output(world: &World, operation: Operation, shape: Shape) -> Result<Tensor<bf16>> {
    let Shape { m, n, .. } = shape;
    Ok(world.zeros(match operation {
        Operation::GemmReduceScatter => [m / world.ranks(), n],
        Operation::GemmAllToAll => [m * world.ranks(), n / world.ranks()],
        _ => [m, n],
    })?)
}

/// A fused kernel with its operands.
pub struct Fused<'a> {
    kernel: &'a FusedKernel,
    gpus: &'a Gpus,
    inputs: &'a [Inputs],
    outputs: Vec<Tensor<bf16>>,
}

impl<'a> Fused<'a> {
    /// # Errors
    /// Memory ran out.
    pub fn new(
        world: &World,
        gpus: &'a Gpus,
        kernel: &'a FusedKernel,
        (operation, shape): (Operation, Shape),
        inputs: &'a [Inputs],
    ) -> Result<Self> {
        let outputs = inputs.iter().map(|_| output(world, operation, shape)).collect::<Result<_>>()?;
        Ok(Fused { kernel, gpus, inputs, outputs })
    }

    /// Measures the kernel's ways to carry a call out, and takes the fastest from then on.
    ///
    /// # Errors
    /// A call failed.
    pub fn tune(&mut self) -> Result<Tuned> {
        (self.kernel.tune)(&self.inputs[0], &mut self.outputs[0])
    }

    /// The kernel's variant.
    pub fn variant(&self) -> Variant {
        self.kernel.variant
    }
}

impl Contestant for Fused<'_> {
    fn batch(&mut self, calls: usize, timing: Timing) -> Result<Batch<'_>> {
        let Fused { kernel, gpus, inputs, outputs } = self;
        (kernel.prepare)(Calls { streams: &gpus.streams, inputs, outputs, calls, timing })
    }

    fn outputs(&mut self) -> &mut [Tensor<bf16>] {
        &mut self.outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_written_as_they_are_read() {
        for text in ["auto", "128x256", "auto@12", "128x128@0", "auto~4", "128x256@12+push~4", "auto+pull"] {
            assert_eq!(text.parse::<Variant>().unwrap().to_string(), text);
        }
        for text in
            ["", "128", "128x", "best", "auto@", "auto@many", "x@3", "auto~", "auto+", "auto+carry", "auto~4@12"]
        {
            let error = text.parse::<Variant>().unwrap_err().to_string();
            assert_eq!(error, format!("expected a variant like {EXAMPLES}, found `{text}`"));
        }
    }
}
