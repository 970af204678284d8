//! The ways in which a launch could be carried out.

use super::{Choice, Pins};
use crate::spec::{Carriage, ElementType, Extent, KernelSpec};

/// Limits of the link and spans that differ enough for the model to tell them apart, preferred ones first.
const LIMITS: [u32; 2] = [16, 0];
const SPANS: [u32; 2] = [0, 4];

/// The choices that differ much from each other and agree with the pins, preferred ones first.
pub(crate) fn all(kernel: &'static KernelSpec, element: ElementType, pins: &Pins) -> Vec<Choice> {
    let variants = kernel.variants.iter().filter(|variant| variant.element == element);
    let tiles = variants.map(|variant| variant.tile).filter(|tile| pins.tile.is_none_or(|pinned| pinned == *tile));
    let carriages = carriages(pins);
    let mut all = Vec::new();
    for tile in tiles {
        for carriages in &carriages {
            for link_limit in limits(kernel, pins, &LIMITS) {
                for span in spans(kernel, pins, &SPANS) {
                    all.push(Choice { tile, carriages: carriages.clone(), link_limit, span });
                }
            }
        }
    }
    all
}

/// All open channels are carried alike.
fn carriages(pins: &Pins) -> Vec<Vec<Carriage>> {
    let open = pins.carriages.iter().any(Option::is_none);
    let ways = if open { &[Carriage::Pull, Carriage::Push][..] } else { &[Carriage::Push] };
    ways.iter().map(|way| pins.carriages.iter().map(|pinned| pinned.unwrap_or(*way)).collect()).collect()
}

fn limits(kernel: &KernelSpec, pins: &Pins, ways: &[u32]) -> Vec<u32> {
    match pins.link_limit {
        Some(pinned) => vec![pinned],
        None if kernel.channels.is_empty() => vec![0],
        None => ways.to_vec(),
    }
}

fn spans(kernel: &KernelSpec, pins: &Pins, ways: &[u32]) -> Vec<u32> {
    let spanned = kernel.stages.iter().any(|stage| {
        matches!(stage.order, "peers_first" | "ring")
            && stage.grid.len() > 2
            && matches!(stage.grid.first(), Some(Extent::World))
    });
    match pins.span {
        Some(pinned) => vec![pinned],
        None if !spanned => vec![0],
        None => ways.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    #[test]
    fn all_that_is_open_varies() {
        let choices = all(&SPEC, ElementType::F32, &Pins::of(&SPEC));
        assert_eq!(choices.len(), 2 * 2 * 2 * 2, "tiles, carriages, limits, spans");
        assert_eq!(choices[0], Choice { tile: (128, 128), carriages: vec![Carriage::Pull], link_limit: 16, span: 0 });
    }

    #[test]
    fn what_is_pinned_does_not() {
        let mut pins = Pins::of(&SPEC);
        let choice = Choice { tile: (64, 64), carriages: vec![Carriage::Push], link_limit: 3, span: 5 };
        pins.pin_all(&choice).unwrap();
        assert_eq!(all(&SPEC, ElementType::F32, &pins), [choice.clone()]);
        assert_eq!(all(&SPEC, ElementType::Bf16, &pins), [], "no variant has these elements");
    }
}
