//! What a launch would be: the choice that is made for it, what it puts on the wire, and what it is expected to take.

use std::fmt;

use entwine_device::abi::{MAX_DIMS, MAX_WORLD};

use super::chooser::{self, Chosen, Origin};
use super::model::{self, Prediction};
use super::workload::Workload;
use super::{Choice, Device, Pins};
use crate::error::Error;
use crate::extent::Sizes;
use crate::spec::{Carriage, ElementType, KernelSpec};

/// What a launch would be. Displays as a few lines for people.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// What the kernel is.
    pub kernel: &'static KernelSpec,
    /// Its element type `T`.
    pub element: ElementType,
    /// The sizes of its named dimensions.
    pub dims: Vec<(&'static str, u32)>,
    /// The number of ranks.
    pub ranks: u32,
    /// The way in which it would be carried out.
    pub choice: Choice,
    /// Who chose that.
    pub origin: Origin,
    /// Among how many.
    pub candidates: usize,
    /// The second best of them, and what it would take.
    pub next: Option<(Choice, Prediction)>,
    /// Its stages.
    pub stages: Vec<StagePlan>,
    /// Its channels.
    pub channels: Vec<ChannelPlan>,
    /// The GPUs that times are expected of; `None` for simulated ranks, of which none are.
    pub device: Option<Device>,
    /// What it is expected to take.
    pub prediction: Option<Prediction>,
}

/// A stage of a planned launch, on each rank.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StagePlan {
    /// Its name.
    pub name: &'static str,
    /// Its tiles; where a routing makes their blocks, as many as there are expected to be.
    pub tiles: u32,
    /// Steps, of 128 bytes of depth each, through the matrix products of a tile.
    pub steps: u32,
}

/// A channel of a planned launch, on each rank. A rank receives as much as it sends.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ChannelPlan {
    /// Its name.
    pub name: &'static str,
    /// How what is sent comes to its receivers.
    pub carriage: Carriage,
    /// Bytes that a rank sends to all others together. Where the slots are not by rank, all of them are counted.
    pub bytes: u64,
    /// Signals that a rank sends to all others together.
    pub signals: u64,
}

impl Plan {
    /// The plan of a launch on `ranks` GPUs that need not be here.
    ///
    /// ```no_run
    /// # use entwine::spec::{ElementType, KernelSpec};
    /// # fn plan(kernel: &'static KernelSpec) -> Result<(), entwine::Error> {
    /// let dims = [("m", 8192), ("n", 8192), ("k", 3584)];
    /// println!("{}", entwine::Plan::of(kernel, ElementType::Bf16, &dims, 8, &entwine::Device::h200())?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No ranks or too many; a dimension is missing or not the kernel's; no variant has these elements.
    pub fn of(
        kernel: &'static KernelSpec,
        element: ElementType,
        dims: &[(&str, u32)],
        ranks: u32,
        device: &Device,
    ) -> Result<Self, Error> {
        if !(1..=MAX_WORLD as u32).contains(&ranks) {
            return Err(Error::WorldSize(ranks as usize));
        }
        let expected = || Error::Launch {
            kernel: kernel.name,
            problem: format!("a plan needs the sizes of its dimensions, which are {}", kernel.dims.join(", ")),
        };
        let mut sizes = [0; MAX_DIMS];
        for (size, name) in sizes.iter_mut().zip(kernel.dims) {
            *size = dims.iter().find(|(given, _)| given == name).ok_or_else(expected)?.1;
        }
        if dims.len() != kernel.dims.len() {
            return Err(expected());
        }
        let of_any_tile = Sizes { dims: &sizes, world: ranks, tile: (1, 1) };
        let chosen = chooser::by_model(kernel, element, Pins::of(kernel, None).settled(), of_any_tile, device)?;
        Plan::new(kernel, element, &sizes, ranks, &chosen, Some(device.clone()))
    }

    /// The plan of a launch for which this was chosen.
    pub(crate) fn new(
        kernel: &'static KernelSpec,
        element: ElementType,
        dims: &[u32; MAX_DIMS],
        ranks: u32,
        chosen: &Chosen,
        device: Option<Device>,
    ) -> Result<Self, Error> {
        let choice = chosen.choice.clone();
        let workload = Workload::of(kernel, element, &Sizes { dims, world: ranks, tile: choice.tile })?;
        let stages = workload.stages.iter();
        let channels = workload.transfers.iter().zip(&choice.carriages);
        Ok(Plan {
            kernel,
            element,
            dims: kernel.dims.iter().copied().zip(*dims).collect(),
            ranks,
            origin: chosen.origin,
            candidates: chosen.candidates,
            next: chosen.next.clone().filter(|_| device.is_some()),
            stages: stages
                .map(|stage| StagePlan { name: stage.name, tiles: stage.tiles, steps: stage.steps })
                .collect(),
            channels: channels
                .map(|(transfer, &carriage)| ChannelPlan {
                    name: transfer.name,
                    carriage,
                    bytes: transfer.bytes(),
                    signals: transfer.signals(),
                })
                .collect(),
            prediction: device.as_ref().map(|device| model::predict(&workload, &choice, device)),
            device,
            choice,
        })
    }

    /// Bytes that a rank sends to all others together, and receives from them.
    pub fn wire_bytes(&self) -> u64 {
        self.channels.iter().map(|channel| channel.bytes).sum()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { kernel, element, ranks, choice, .. } = self;
        write!(f, "{} of {}", kernel.name, element.name())?;
        for (name, size) in &self.dims {
            write!(f, ", {name} = {size}")?;
        }
        writeln!(f, ", on {ranks} ranks")?;
        writeln!(f, "  choice     {}", choice.text(kernel))?;
        writeln!(f, "  chosen by  {}", self.why())?;
        for stage in &self.stages {
            writeln!(f, "  stage      {}: {} tiles of {} steps on each rank", stage.name, stage.tiles, stage.steps)?;
        }
        for channel in &self.channels {
            let each = channel.bytes / (*ranks as u64 - 1).max(1);
            writeln!(
                f,
                "  channel    {}: {} MB and {} signals from each rank, {} MB to each other",
                channel.name,
                megabytes(channel.bytes),
                channel.signals,
                megabytes(each)
            )?;
        }
        let (Some(prediction), Some(device)) = (&self.prediction, &self.device) else {
            return writeln!(f, "  expected   nothing: simulated ranks are not timed");
        };
        let Prediction { compute_us, link_us, exposed_us, drag_us, .. } = prediction;
        let (limit_us, total_us) = (prediction.limit_us(), prediction.total_us());
        writeln!(f, "  limit      {limit_us:.0} µs: computing {compute_us:.0} µs, the link {link_us:.0} µs")?;
        writeln!(
            f,
            "  expected   {total_us:.0} µs on {}, {:.0} % of the limit: {exposed_us:.0} µs of transfers that nothing hides, \
             {drag_us:.0} µs by which traffic slows the rest",
            if device.is_measured() { device.name.clone() } else { format!("{}, taken for an H200", device.name) },
            100.0 * limit_us / total_us
        )?;
        if *link_us > 0.0 {
            let unfused_us = prediction.unfused_us();
            let verdict = if total_us > unfused_us { "; fusing is not expected to pay here" } else { "" };
            writeln!(f, "  unfused    {unfused_us:.0} µs, computing and then the transfers{verdict}")?;
        }
        Ok(())
    }
}

impl Plan {
    /// Who made the choice, and how clear it was.
    fn why(&self) -> String {
        match (&self.origin, &self.next, &self.prediction) {
            (Origin::Pinned, ..) => "the kernel's source and its user, who left nothing open".into(),
            (Origin::Model, Some((next, expected)), Some(prediction)) => format!(
                "the model, among {}; next {:+.1} %: {}",
                self.candidates,
                100.0 * (expected.total_us() / prediction.total_us() - 1.0),
                next.text(self.kernel)
            ),
            (Origin::Tuned { us }, ..) => format!("measuring: the fastest of those that were tried, {us:.1} µs"),
            (Origin::Model, ..) => format!("the model, among {}", self.candidates),
        }
    }
}

/// With one digit after the point.
fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
