//! What a late launch costs: the first half of a layer of experts with one rank late, `ready_first` and block after block, in
//! turns. Both orders wait alike, since no rank knows where rows lie before it has all choices.

use std::ffi::CString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use cudarc::driver::{CudaStream, result, sys};
use entwine::{Kernel, World};
use entwine_kernels::moe_dispatch_gemm;
use entwine_kernels::probes::dispatch_in_order;
use jiff::Timestamp;
use serde::Serialize;

use super::layer::{Experts, Layer, Model};
use super::record::Shape;
use crate::gpus::{self, Gpus};
use crate::limit::median_and_spread;
use crate::timing::Stopwatch;
use crate::watchdog;

/// Holds a stream up for so many nanoseconds.
const PTX: &str = r#"
.version 7.0
.target sm_70
.address_size 64

.visible .entry hold(.param .u64 nanos)
{
    .reg .u64 %nanos, %since, %now;
    .reg .pred %p;
    ld.param.u64 %nanos, [nanos];
    mov.u64 %since, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %since;
    setp.lt.u64 %p, %now, %nanos;
    @%p bra AGAIN;
    ret;
}
"#;

/// What both kernels are compiled for.
const TILE: (u32, u32) = (128, 256);
/// Idle time before each launch.
const IDLE: Duration = Duration::from_millis(20);

/// What to measure, on all GPUs
#[derive(Debug, Args)]
pub struct Options {
    /// The model whose layer it is
    #[arg(long, default_value = "qwen2moe")]
    model: Model,
    /// Tokens of each rank
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 4096])]
    tokens: Vec<usize>,
    /// By how many µs the last rank is late
    #[arg(long = "late", value_name = "MICROSECONDS", value_delimiter = ',', default_values_t = [0, 100, 200, 400])]
    late_us: Vec<u64>,
    /// Launches of each, of which the median counts
    #[arg(long, default_value_t = 20)]
    repeats: usize,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

/// One measured row.
#[derive(Debug, Serialize)]
struct Record {
    op: &'static str,
    dtype: &'static str,
    world: usize,
    shape: Shape,
    /// The order of the products.
    variant: &'static str,
    /// By how much the last rank's launch, and with it its tokens, are late.
    late_us: u64,
    /// From when all ranks are to begin until the last of those that are not late is done.
    ours_us: f64,
    /// Until each rank is done.
    by_rank_us: Vec<f64>,
    spread: f64,
    date: String,
    device: String,
    driver: String,
}

/// Both orders.
struct Kernels {
    ready_first: Kernel<moe_dispatch_gemm::Woven>,
    in_order: Kernel<dispatch_in_order::Woven>,
}

const ORDERS: [&str; 2] = ["ready_first", "grouped"];

/// Measures what the options say, prints it and writes the records.
///
/// # Errors
/// There is one GPU, a launch failed, or the two orders differ in their results.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.repeats > 0, "there must be at least one repeat");
    watchdog::start();
    watchdog::step("opening the GPUs");
    let world = World::open()?;
    ensure!(world.ranks() > 1, "a rank can be late where there are several GPUs; there is one");
    let gpus = Gpus::of(&world)?;
    let stopwatch = Stopwatch::new(&gpus)?;
    let late = Delay::new(gpus.streams.last().context("there are no GPUs")?)?;
    watchdog::compile_step("loading both orders");
    let kernels = Kernels {
        ready_first: moe_dispatch_gemm::load(&world)?.with_tile(TILE)?,
        in_order: dispatch_in_order::load(&world)?.with_tile(TILE)?,
    };
    let experts = Experts::new(&world, options.model.widths())?;
    let mut records = Vec::new();
    for &tokens in &options.tokens {
        watchdog::step(format!("{}, {tokens} tokens", options.model));
        let mut layer = Layer::new(&world, &experts, tokens)?;
        check(&world, &kernels, &mut layer)?;
        let launch = |layer: &mut Layer<'_>, order: usize, late_us: u64| {
            let mut batch: crate::timing::Batch<'_> = Box::new(|| {
                if late_us > 0 {
                    late.enqueue(Duration::from_micros(late_us))?;
                }
                Ok(vec![match order {
                    0 => kernels.ready_first.launch_on(&gpus.streams, layer.first_half())?,
                    _ => kernels.in_order.launch_on(&gpus.streams, layer.first_half_in_order())?,
                }])
            });
            thread::sleep(IDLE);
            stopwatch.times_by_rank(&mut batch, 1)
        };
        let cases: Vec<_> = options.late_us.iter().flat_map(|late_us| [(0, *late_us), (1, *late_us)]).collect();
        let mut times = vec![Vec::new(); cases.len()];
        for round in 0..=options.repeats {
            for turn in 0..cases.len() {
                let index = (round + turn) % cases.len();
                let (order, late_us) = cases[index];
                let time = launch(&mut layer, order, late_us)?;
                // The first round only warms up.
                if round > 0 {
                    times[index].push(time);
                }
            }
        }
        for ((order, late_us), times) in cases.into_iter().zip(&times) {
            let (ours_us, spread, by_rank_us) = summary(times);
            let variant = ORDERS[order];
            println!(
                "{} T={tokens}, {late_us} µs late, {variant}: {ours_us:.1} µs; by rank {by_rank_us:.1?}",
                options.model
            );
            records.push(Record {
                op: "moe_dispatch_gemm",
                dtype: "bf16",
                world: world.ranks(),
                shape: Shape { model: options.model, tokens },
                variant,
                late_us,
                ours_us,
                by_rank_us,
                spread,
                date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
                device: gpus.name()?,
                driver: gpus::driver()?,
            });
        }
        fs::write(&options.out, serde_json::to_string_pretty(&records)? + "\n")?;
    }
    Ok(())
}

/// Of the times of launches by rank: the median of the last punctual rank and its spread, and the medians of all.
fn summary(times: &[Vec<f64>]) -> (f64, f64, Vec<f64>) {
    let ranks = times[0].len();
    let punctual: Vec<_> = times.iter().map(|times| times[..ranks - 1].iter().copied().fold(0.0, f64::max)).collect();
    let (ours_us, spread) = median_and_spread(&punctual);
    let of_rank = |rank| median_and_spread(&times.iter().map(|times: &Vec<f64>| times[rank]).collect::<Vec<_>>()).0;
    (ours_us, spread, (0..ranks).map(of_rank).collect())
}

/// Both orders must leave the same bits.
fn check(world: &World, kernels: &Kernels, layer: &mut Layer<'_>) -> Result<()> {
    layer.clear()?;
    kernels.ready_first.launch(layer.first_half())?.wait()?;
    let expected = (0..world.ranks()).map(|rank| layer.hidden(rank)).collect::<Result<Vec<_>>>()?;
    layer.clear()?;
    kernels.in_order.launch(layer.first_half_in_order())?.wait()?;
    for (rank, expected) in expected.iter().enumerate() {
        let found = layer.hidden(rank)?;
        let same = found.iter().zip(expected).all(|(found, expected)| found.to_bits() == expected.to_bits());
        ensure!(same, "the two orders have different results on rank {rank}");
    }
    Ok(())
}

/// What holds a stream up.
struct Delay {
    stream: Arc<CudaStream>,
    module: sys::CUmodule,
    function: sys::CUfunction,
}

impl Delay {
    fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        stream.context().bind_to_thread()?;
        let ptx = CString::new(PTX).expect("PTX has no NUL");
        // SAFETY: the PTX ends with NUL.
        unsafe {
            let module = result::module::load_data(ptx.as_ptr().cast()).context("couldn't load the delay")?;
            let function = result::module::get_function(module, c"hold".into())?;
            // Loaded late it could wait for a stream that waits for it.
            sys::cuFuncLoad(function).result()?;
            // As the kernels have it, so that the SMs need not be set anew between the two.
            let carveout = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            sys::cuFuncSetAttribute(function, carveout, 100).result()?;
            Ok(Delay { stream: stream.clone(), module, function })
        }
    }

    fn enqueue(&self, by: Duration) -> Result<()> {
        self.stream.context().bind_to_thread()?;
        let mut nanos = by.as_nanos() as u64;
        let parameters = &mut [(&raw mut nanos).cast()];
        // SAFETY: the kernel takes this one word, which the driver copies.
        unsafe { result::launch_kernel(self.function, (1, 1, 1), (1, 1, 1), 0, self.stream.cu_stream(), parameters) }
            .context("couldn't hold a stream up")
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        // SAFETY: it was loaded in `new`. The process is about to end, and nothing can be done about a failure.
        let _ = self.stream.synchronize().and_then(|()| unsafe { result::module::unload(self.module) });
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer::Widths;
    use super::*;

    #[test]
    fn both_orders_have_the_same_results() {
        let world = World::simulated(2).unwrap();
        let experts = Experts::new(&world, Widths { columns: 64, hidden: 128, experts: 4, choices: 2 }).unwrap();
        let mut layer = Layer::new(&world, &experts, 24).unwrap();
        let ready_first = moe_dispatch_gemm::load(&world).unwrap().with_tile(TILE).unwrap();
        let in_order = dispatch_in_order::load(&world).unwrap().with_tile(TILE).unwrap();
        check(&world, &Kernels { ready_first, in_order }, &mut layer).unwrap();
        assert!(layer.hidden(0).unwrap().iter().any(|x| x.to_f32() != 0.0 && !x.is_nan()));
    }

    #[test]
    fn the_punctual_ranks_count() {
        let times = [vec![10.0, 250.0], vec![14.0, 260.0], vec![12.0, 240.0]];
        assert_eq!(summary(&times), (12.0, 4.0 / 12.0, vec![12.0, 250.0]));
    }
}
