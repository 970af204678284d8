//! Who chooses: a kernel's user, what was measured before, or the model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use entwine_device::abi::MAX_DIMS;

use super::model::{self, Prediction};
use super::workload::Workload;
use super::{Choice, Device, Pins, candidates};
use crate::error::Error;
use crate::extent::Sizes;
use crate::spec::{ElementType, KernelSpec};
use crate::variant;
use crate::world::World;

/// Where a choice comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// The kernel's source and its user left one only.
    Pinned,
    /// It is expected to take the least time.
    Model,
}

/// A choice for launches of certain sizes.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// The index of the variant that serves it.
    pub variant: usize,
    pub choice: Choice,
    pub origin: Origin,
    /// How many there were to choose from.
    pub candidates: usize,
    /// The second best, if it has a prediction.
    pub next: Option<(Choice, Prediction)>,
}

/// What launches differ in that are chosen for one by one: their elements and dimensions.
type Shape = (ElementType, [u32; MAX_DIMS]);

/// Chooses for the launches of a kernel, and knows what it chose.
pub(crate) struct Chooser {
    kernel: &'static KernelSpec,
    pins: Pins,
    chosen: Mutex<HashMap<Shape, Arc<Chosen>>>,
}

impl Chooser {
    pub fn new(kernel: &'static KernelSpec) -> Self {
        Chooser { kernel, pins: Pins::of(kernel), chosen: Mutex::default() }
    }

    /// Settles parts of all choices.
    pub fn pin<T>(&mut self, pin: impl FnOnce(&mut Pins) -> T) -> T {
        self.chosen.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
        pin(&mut self.pins)
    }

    /// The choice for launches of these sizes on a world.
    pub fn choose(&self, world: &World, element: ElementType, dims: [u32; MAX_DIMS]) -> Result<Arc<Chosen>, Error> {
        let mut chosen = self.chosen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(chosen) = chosen.get(&(element, dims)) {
            return Ok(chosen.clone());
        }
        let sizes = Sizes { dims: &dims, world: world.ranks() as u32, tile: (1, 1) };
        let found = Arc::new(by_model(self.kernel, element, &self.pins, sizes, &world.device())?);
        chosen.insert((element, dims), found.clone());
        Ok(found)
    }
}

/// The model does not tell choices apart whose times differ by less than this part.
const INDISTINCT: f64 = 0.005;

/// Of the choices that are expected to take the least time, the one that is preferred.
pub(crate) fn by_model(
    kernel: &'static KernelSpec,
    element: ElementType,
    pins: &Pins,
    sizes: Sizes<'_>,
    device: &Device,
) -> Result<Chosen, Error> {
    let mut predicted = predictions(kernel, element, pins, sizes, device)?;
    let candidates = predicted.len();
    let least_us = predicted.iter().map(|(_, prediction)| prediction.total_us()).fold(f64::INFINITY, f64::min);
    let good = |(_, prediction): &(_, Prediction)| prediction.total_us() <= least_us * (1.0 + INDISTINCT);
    let Some(preferred) = predicted.iter().position(good) else {
        return Err(variant::no_variant(kernel, Some(element), pins.tile));
    };
    let (choice, _) = predicted.remove(preferred);
    let next = predicted.into_iter().min_by(|(_, one), (_, other)| one.total_us().total_cmp(&other.total_us()));
    let variant = variant::index(kernel, element, choice.tile)?;
    let origin = if candidates == 1 { Origin::Pinned } else { Origin::Model };
    Ok(Chosen { variant, choice, origin, candidates, next })
}

/// What each choice is expected to take, preferred ones first.
fn predictions(
    kernel: &'static KernelSpec,
    element: ElementType,
    pins: &Pins,
    sizes: Sizes<'_>,
    device: &Device,
) -> Result<Vec<(Choice, Prediction)>, Error> {
    let predicted = candidates::all(kernel, element, pins).into_iter().map(|choice| {
        let workload = Workload::of(kernel, element, &Sizes { tile: choice.tile, ..sizes })?;
        let prediction = model::predict(&workload, &choice, device);
        Ok((choice, prediction))
    });
    predicted.collect()
}
