//! The ways in which a launch could be carried out.

use super::{Choice, Settled};
use crate::spec::{Carriage, ElementType, Extent, KernelSpec};

/// Limits of the link that differ enough for the model to tell them apart, preferred ones first.
const LIMITS: [u32; 4] = [16, 8, 32, 0];
/// Those that only measuring tells apart.
const MORE_LIMITS: [u32; 3] = [12, 24, 4];
/// So it is with spans: they save reading an operand twice, and let CTAs wait that would otherwise compute. On two H200 GPUs the
/// reduce-scatter of 512 × 12288 × 24576 took 446 µs without and 513 µs with a span of 4.
const SPANS: [u32; 3] = [4, 16, 32];

/// The choices that differ much from each other and have all that is settled, preferred ones first.
pub(crate) fn all(kernel: &'static KernelSpec, element: ElementType, settled: &Settled) -> Vec<Choice> {
    let variants = kernel.variants.iter().filter(|variant| variant.element == element);
    let tiles = variants.map(|variant| variant.tile).filter(|tile| settled.has_tile(*tile));
    let carriages = carriages(settled);
    let mut all = Vec::new();
    for tile in tiles {
        for &fused in fused(kernel, settled) {
            for carriages in &carriages {
                for link_limit in limits(kernel, settled, &LIMITS) {
                    let span = settled.span.unwrap_or(0);
                    all.push(Choice { tile, carriages: carriages.clone(), link_limit, span, fused });
                }
            }
        }
    }
    all
}

/// The choices that differ from this one in its limit or its span alone.
pub(crate) fn near(kernel: &'static KernelSpec, settled: &Settled, choice: &Choice) -> Vec<Choice> {
    let limits = if choice.link_limit == 0 { Vec::new() } else { limits(kernel, settled, &MORE_LIMITS) };
    let spans = spans(kernel, settled);
    let limited = limits.into_iter().map(|link_limit| Choice { link_limit, ..choice.clone() });
    let spanned = spans.into_iter().map(|span| Choice { span, ..choice.clone() });
    limited.chain(spanned).filter(|other| other != choice).collect()
}

/// All open channels are carried alike.
fn carriages(settled: &Settled) -> Vec<Vec<Carriage>> {
    let open = settled.carriages.iter().any(Option::is_none);
    let ways = if open { &[Carriage::Pull, Carriage::Push][..] } else { &[Carriage::Push] };
    ways.iter().map(|way| settled.carriages.iter().map(|pinned| pinned.unwrap_or(*way)).collect()).collect()
}

fn limits(kernel: &KernelSpec, settled: &Settled, ways: &[u32]) -> Vec<u32> {
    match settled.link_limit {
        Some(pinned) => vec![pinned],
        None if kernel.channels.is_empty() => vec![0],
        None => ways.to_vec(),
    }
}

fn spans(kernel: &KernelSpec, settled: &Settled) -> Vec<u32> {
    let spanned = kernel.stages.iter().any(|stage| {
        matches!(stage.order, "peers_first" | "ring")
            && stage.grid.len() > 2
            && matches!(stage.grid.first(), Some(Extent::World))
    });
    match settled.span {
        Some(pinned) => vec![pinned],
        None if !spanned => vec![0],
        None => SPANS.to_vec(),
    }
}

/// Only a stage with CTAs of its own can be carried by all in its turn.
fn fused(kernel: &KernelSpec, settled: &Settled) -> &'static [bool] {
    match settled.fused {
        Some(true) => &[true],
        Some(false) => &[false],
        None if kernel.stages.iter().all(|stage| stage.ctas.is_none()) => &[true],
        None => &[true, false],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Pins;
    use crate::testing::SPEC;

    #[test]
    fn all_that_is_open_varies() {
        let choices = all(&SPEC, ElementType::F32, Pins::of(&SPEC, None).settled());
        assert_eq!(choices.len(), 2 * 2 * LIMITS.len(), "tiles, carriages, limits");
        assert_eq!(
            choices[0],
            Choice { tile: (128, 128), carriages: vec![Carriage::Pull], link_limit: 16, span: 0, fused: true }
        );
    }

    #[test]
    fn what_is_pinned_does_not() {
        let mut pins = Pins::of(&SPEC, None);
        let choice = Choice { tile: (64, 64), carriages: vec![Carriage::Push], link_limit: 3, span: 5, fused: true };
        pins.pin_all(&choice).unwrap();
        assert_eq!(all(&SPEC, ElementType::F32, pins.settled()), std::slice::from_ref(&choice));
        assert_eq!(near(&SPEC, pins.settled(), &choice), []);
        assert_eq!(all(&SPEC, ElementType::Bf16, pins.settled()), [], "no variant has these elements");
    }

    #[test]
    fn near_ones_differ_in_one_part() {
        let choice = Choice { tile: (64, 64), carriages: vec![Carriage::Push], link_limit: 16, span: 0, fused: true };
        let near = near(&SPEC, Pins::of(&SPEC, None).settled(), &choice);
        assert_eq!(near.len(), MORE_LIMITS.len() + SPANS.len());
        assert!(near.iter().all(|other| (other.link_limit == 16) != (other.span == 0)));
    }
}
