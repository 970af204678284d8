//! What a measurement holds for: a kernel, its sizes, and the GPUs.

use std::collections::BTreeMap;
use std::hash::Hasher;

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};

use crate::choice::Settled;
use crate::platform::GpuKind;
use crate::spec::{ElementType, KernelSpec};

/// What a measurement holds for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub kernel: String,
    /// A hash of all that is known of the kernel but its code.
    pub spec: String,
    pub device: String,
    /// The major version of the driver's CUDA.
    pub cuda: u32,
    pub ranks: u32,
    pub element: String,
    pub dims: BTreeMap<String, u32>,
    /// What was not open to the search.
    pub settled: Settled,
}

impl Key {
    pub fn new(
        kernel: &'static KernelSpec,
        element: ElementType,
        dims: &[u32],
        ranks: u32,
        settled: &Settled,
        gpus: &GpuKind,
    ) -> Self {
        let dims = kernel.dims.iter().zip(dims).map(|(name, size)| (name.to_string(), *size));
        Key {
            kernel: kernel.name.into(),
            spec: hash(kernel),
            device: gpus.name.clone(),
            cuda: gpus.cuda,
            ranks,
            element: element.name().into(),
            dims: dims.collect(),
            settled: settled.clone(),
        }
    }

    /// Whether it was measured on such GPUs.
    pub fn is_of(&self, gpus: &GpuKind) -> bool {
        self.device == gpus.name && self.cuda == gpus.cuda
    }
}

/// A hash of the kernel's description, the same in every build of the same source.
fn hash(kernel: &KernelSpec) -> String {
    let KernelSpec { dims, stages, channels, arguments, variants, .. } = kernel;
    let variants =
        variants.iter().map(|variant| (variant.entry, variant.element, variant.tile, variant.sm_90a, variant.sm_80));
    let description = format!("{dims:?} {stages:?} {channels:?} {arguments:?} {:?}", variants.collect::<Vec<_>>());
    let mut hasher = FnvHasher::default();
    hasher.write(description.as_bytes());
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::choice::{Choice, Pins};
    use crate::spec::Carriage;
    use crate::testing::SPEC;
    use crate::tuning::Entry;

    pub fn gpus() -> GpuKind {
        GpuKind { name: "NVIDIA H200".into(), cuda: 13 }
    }

    pub fn entry(m: u32, us: f64) -> Entry {
        let key = Key::new(&SPEC, ElementType::F32, &[m, 64], 2, Pins::of(&SPEC, None).settled(), &gpus());
        let choice = Choice { tile: (64, 64), carriages: vec![Carriage::Pull], link_limit: 12, span: 2, fused: true };
        Entry { key, choice, us }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::*;
    use super::*;
    use crate::choice::Pins;
    use crate::testing::SPEC;

    #[test]
    fn everything_that_matters_to_time_makes_another_key() {
        let mut pins = Pins::of(&SPEC, None);
        let of = |dims: &[u32], ranks, pins: &Pins, gpus: &GpuKind| {
            Key::new(&SPEC, ElementType::F32, dims, ranks, pins.settled(), gpus)
        };
        let key = |dims: &[u32], ranks, gpus: &GpuKind| of(dims, ranks, &Pins::of(&SPEC, None), gpus);
        let one = key(&[1, 2], 2, &gpus());
        assert_eq!(one, key(&[1, 2], 2, &gpus()));
        assert_ne!(one, key(&[2, 1], 2, &gpus()));
        assert_ne!(one, key(&[1, 2], 4, &gpus()));
        assert_ne!(one, key(&[1, 2], 2, &GpuKind { cuda: 14, ..gpus() }));
        pins.pin_span(3);
        assert_ne!(one, of(&[1, 2], 2, &pins, &gpus()), "the search was not free");
        assert_ne!(one, Key { spec: "0".into(), ..one.clone() });
    }
}
