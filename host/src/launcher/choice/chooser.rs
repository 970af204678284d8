//! Who chooses: a kernel's user, what was measured before, or the model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use entwine_device::abi::MAX_DIMS;

use super::model::{self, Prediction};
use super::workload::Workload;
use super::{Choice, Device, Pins, Settled, candidates};
use crate::error::Error;
use crate::extent::Sizes;
use crate::spec::{ElementType, KernelSpec, Target};
use crate::tuning::{Entry, Key, Tuning};
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
    /// It was the fastest of those that were measured.
    Tuned {
        /// What a launch took then, in µs.
        us: f64,
    },
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

impl Chosen {
    /// This choice, whatever others there are.
    pub fn pinned(kernel: &'static KernelSpec, element: ElementType, choice: &Choice) -> Result<Self, Error> {
        let variant = variant::index(kernel, element, choice.tile)?;
        Ok(Chosen { variant, choice: choice.clone(), origin: Origin::Pinned, candidates: 1, next: None })
    }
}

/// What launches differ in that are chosen for one by one: their elements and dimensions.
type Shape = (ElementType, [u32; MAX_DIMS]);

/// Chooses for the launches of a kernel, and knows what it chose.
pub(crate) struct Chooser {
    kernel: &'static KernelSpec,
    pins: Pins,
    known: Mutex<Known>,
}

/// What was chosen while the world remembered the same.
#[derive(Default)]
struct Known {
    generation: u32,
    chosen: HashMap<Shape, Arc<Chosen>>,
}

impl Chooser {
    /// Who chooses among the ways that there is device code for; on simulated ranks, which take none, among all.
    pub fn new(kernel: &'static KernelSpec, target: Option<Target>) -> Self {
        Chooser { kernel, pins: Pins::of(kernel, target), known: Mutex::default() }
    }

    /// Settles parts of all choices.
    pub fn pin<T>(&mut self, pin: impl FnOnce(&mut Pins) -> T) -> T {
        self.known = Mutex::default();
        pin(&mut self.pins)
    }

    /// The choice for launches of these sizes on a world.
    pub fn choose(&self, world: &World, element: ElementType, dims: [u32; MAX_DIMS]) -> Result<Arc<Chosen>, Error> {
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let generation = world.tuning().generation();
        if known.generation != generation {
            *known = Known { generation, ..Known::default() };
        }
        if let Some(chosen) = known.chosen.get(&(element, dims)) {
            return Ok(chosen.clone());
        }
        let tuned = match self.key(world, element, &dims) {
            Some(key) => self.by_tuning(world.tuning(), element, &key)?,
            None => None,
        };
        let chosen = match tuned {
            Some(tuned) => tuned,
            None => by_model(self.kernel, element, self.pins.settled(), of_any_tile(world, &dims), &world.device())?,
        };
        let chosen = Arc::new(chosen);
        known.chosen.insert((element, dims), chosen.clone());
        Ok(chosen)
    }

    /// The choices for launches of these sizes with what they are expected to take, the least first.
    pub fn ranked(
        &self,
        world: &World,
        element: ElementType,
        dims: &[u32; MAX_DIMS],
    ) -> Result<Vec<(Choice, Prediction)>, Error> {
        let sizes = of_any_tile(world, dims);
        let mut ranked = predictions(self.kernel, element, self.pins.settled(), sizes, &world.device())?;
        ranked.sort_by(|(_, one), (_, other)| one.total_us().total_cmp(&other.total_us()));
        Ok(ranked)
    }

    /// The choices that differ from this one in parts that only measuring tells apart.
    pub fn near(&self, choice: &Choice) -> Vec<Choice> {
        candidates::near(self.kernel, self.pins.settled(), choice)
    }

    /// What measurements on this world's GPUs are remembered by; `None` for simulated ranks, which are not measured.
    pub fn key(&self, world: &World, element: ElementType, dims: &[u32; MAX_DIMS]) -> Option<Key> {
        let gpus = world.platform().gpus()?;
        Some(Key::new(self.kernel, element, dims, world.ranks() as u32, self.pins.settled(), &gpus))
    }

    /// The choice that was the fastest when it was measured.
    fn by_tuning(&self, tuning: &Tuning, element: ElementType, key: &Key) -> Result<Option<Chosen>, Error> {
        let Some(Entry { choice, us, .. }) = tuning.find(key) else { return Ok(None) };
        let compiled = self.kernel.variants.iter().any(|variant| variant.tile == choice.tile);
        // As for pins: tickets for the link are compared as signed words.
        let countable = choice.link_limit <= i32::MAX as u32;
        if !compiled || !countable || !self.pins.settled().admits(&choice) {
            log::warn!("kernel `{}`: what was tuned does not fit it, and is not used", self.kernel.name);
            return Ok(None);
        }
        let pinned = Chosen::pinned(self.kernel, element, &choice)?;
        Ok(Some(Chosen { origin: Origin::Tuned { us }, ..pinned }))
    }
}

fn of_any_tile<'d>(world: &World, dims: &'d [u32; MAX_DIMS]) -> Sizes<'d> {
    Sizes { dims, world: world.ranks() as u32, tile: (1, 1) }
}

/// The model does not tell choices apart whose times differ by less than this part.
const INDISTINCT: f64 = 0.005;

/// Of the choices that are expected to take the least time, the one that is preferred.
pub(crate) fn by_model(
    kernel: &'static KernelSpec,
    element: ElementType,
    settled: &Settled,
    sizes: Sizes<'_>,
    device: &Device,
) -> Result<Chosen, Error> {
    let mut predicted = predictions(kernel, element, settled, sizes, device)?;
    let candidates = predicted.len();
    let least_us = predicted.iter().map(|(_, prediction)| prediction.total_us()).fold(f64::INFINITY, f64::min);
    let good = |(_, prediction): &(_, Prediction)| prediction.total_us() <= least_us * (1.0 + INDISTINCT);
    let Some(preferred) = predicted.iter().position(good) else {
        return Err(variant::no_variant(kernel, Some(element), settled.tile));
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
    settled: &Settled,
    sizes: Sizes<'_>,
    device: &Device,
) -> Result<Vec<(Choice, Prediction)>, Error> {
    let predicted = candidates::all(kernel, element, settled).into_iter().map(|choice| {
        let workload = Workload::of(kernel, element, &Sizes { tile: choice.tile, ..sizes })?;
        let prediction = model::predict(&workload, &choice, device);
        Ok((choice, prediction))
    });
    predicted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;
    use crate::tuning::testing::entry;

    fn tuned(choice: Choice) -> Option<Choice> {
        let (tuning, entry) = (Tuning::default(), Entry { choice, ..entry(512, 7.0) });
        tuning.remember(entry.clone()).unwrap();
        let chosen = Chooser::new(&SPEC, None).by_tuning(&tuning, ElementType::F32, &entry.key).unwrap()?;
        assert_eq!(chosen.origin, Origin::Tuned { us: 7.0 });
        Some(chosen.choice)
    }

    #[test]
    fn what_was_measured_is_taken() {
        let choice = entry(512, 7.0).choice;
        assert_eq!(tuned(choice.clone()), Some(choice));
    }

    #[test]
    fn what_was_written_by_hand_and_does_not_fit_is_not() {
        let choice = entry(512, 7.0).choice;
        assert_eq!(tuned(Choice { tile: (32, 32), ..choice.clone() }), None);
        assert_eq!(tuned(Choice { link_limit: u32::MAX, ..choice.clone() }), None);
        assert_eq!(tuned(Choice { carriages: vec![], ..choice }), None);
    }

    #[test]
    fn what_is_pinned_counts_at_once() {
        let world = World::simulated(2).unwrap();
        let mut chooser = Chooser::new(&SPEC, None);
        let mut dims = [0; MAX_DIMS];
        dims[..2].copy_from_slice(&[1024, 512]);
        let tile = |chooser: &Chooser| chooser.choose(&world, ElementType::F32, dims).unwrap().choice.tile;
        let before = tile(&chooser);
        assert_eq!(tile(&chooser), before);
        for pinned in [(64, 64), (128, 128)] {
            chooser.pin(|pins| pins.pin_tile(pinned)).unwrap();
            assert_eq!(tile(&chooser), pinned);
        }
    }

    #[test]
    fn a_device_without_processors_has_a_prediction() {
        let sizes = Sizes { dims: &[1024, 512], world: 2, tile: (1, 1) };
        let device = Device { processors: 0, ..Device::h200() };
        assert!(by_model(&SPEC, ElementType::F32, Pins::of(&SPEC, None).settled(), sizes, &device).is_ok());
    }
}
