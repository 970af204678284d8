//! Which of a kernel's compiled variants a launch uses.

use crate::choice::{Choice, Pins};
use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::spec::{Carriage, ElementType, KernelSpec, StageSpec, VariantSpec};

/// Transfers of a rank over the link at once, where nobody says how many.
const LINK_LIMIT: u32 = 16;

/// The way in which a launch is carried out as far as it is not pinned, and the index of the variant that serves it.
pub(crate) fn choose(
    kernel: &'static KernelSpec,
    element: ElementType,
    pins: &Pins,
    sizes: Sizes<'_>,
    processors: u32,
) -> Result<(usize, Choice), Error> {
    let variant = tile(kernel, element, pins.tile, sizes, processors)?;
    let choice = Choice {
        tile: kernel.variants[variant].tile,
        carriages: pins.carriages.iter().map(|pinned| pinned.unwrap_or(Carriage::Pull)).collect(),
        link_limit: pins.link_limit.unwrap_or(LINK_LIMIT),
        span: pins.span.unwrap_or(0),
    };
    Ok((variant, choice))
}

/// The index of the variant for `element`: the one with the tile that was pinned, or else the one whose waves of tiles
/// are expected to take the least time, or else the one with the larger tile.
fn tile(
    kernel: &'static KernelSpec,
    element: ElementType,
    pinned: Option<(u32, u32)>,
    sizes: Sizes<'_>,
    processors: u32,
) -> Result<usize, Error> {
    let fits = |variant: &VariantSpec| variant.element == element && pinned.is_none_or(|tile| variant.tile == tile);
    let candidates = kernel.variants.iter().enumerate().filter(|(_, variant)| fits(variant));
    candidates
        .min_by_key(|(index, variant)| {
            let (rows, columns) = variant.tile;
            let cost = cost(kernel, &Sizes { tile: variant.tile, ..sizes }, processors);
            (cost, std::cmp::Reverse(rows as u64 * columns as u64), *index)
        })
        .map(|(index, _)| index)
        .ok_or_else(|| no_variant(kernel, Some(element), pinned))
}

/// What a launch costs a rank, in the time that one element of a tile takes: the waves in which its processors
/// visit the tiles of the costliest stage, times a tile's elements and a share for its operands, which don't shrink as
/// fast as the tile does. One wave that leaves more than a quarter of the processors idle counts half as much again: there
/// are no other tiles to visit while some wait for what they receive.
fn cost(kernel: &KernelSpec, sizes: &Sizes<'_>, processors: u32) -> u64 {
    const OPERANDS: u64 = 16;
    let (rows, columns) = (sizes.tile.0 as u64, sizes.tile.1 as u64);
    let tile = rows * columns + OPERANDS * (rows + columns);
    let dedicated: u32 = kernel.stages.iter().filter_map(|stage| stage.ctas).sum();
    let shared = processors.saturating_sub(dedicated).max(1);
    // More than can be counted are refused later on.
    let tiles = |stage: &StageSpec| extent::count(stage.grid, sizes).unwrap_or(u32::MAX);
    let computing = kernel.stages.iter().filter(|stage| stage.ctas.is_none() && !stage.moved);
    let tiles = computing.map(tiles).max().unwrap_or(0);
    let idle = (tiles as u64) * 4 < shared as u64 * 3;
    let waves = tiles.div_ceil(shared) as u64 * tile;
    if idle { waves + waves / 2 } else { waves }
}

/// Refuses an element or a tile that no variant was compiled for.
pub(crate) fn no_variant(kernel: &KernelSpec, element: Option<ElementType>, tile: Option<(u32, u32)>) -> Error {
    let element = element.map(|element| format!("elements of {}", element.name()));
    let tile = tile.map(|(rows, columns)| format!("a tile of {rows}×{columns}"));
    let wanted: Vec<_> = element.into_iter().chain(tile).collect();
    let available = kernel.variants.iter().map(|variant| {
        let (rows, columns) = variant.tile;
        format!("{} {rows}×{columns}", variant.element.name())
    });
    Error::NoVariant {
        kernel: kernel.name,
        wanted: wanted.join(" and "),
        available: available.collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    fn chosen(dims: &[u32; 2], pinned: Option<(u32, u32)>) -> (u32, u32) {
        let sizes = Sizes { dims, world: 2, tile: (1, 1) };
        SPEC.variants[tile(&SPEC, ElementType::F32, pinned, sizes, 16).unwrap()].tile
    }

    #[test]
    fn the_tile_whose_waves_take_the_least_time_wins() {
        assert_eq!(chosen(&[1024, 512], None), (128, 128), "one full wave, or four");
        assert_eq!(chosen(&[512, 256], None), (64, 64), "half a wave of large ones, or a full one of small ones");
        assert_eq!(chosen(&[1152, 512], None), (64, 64), "two waves of large ones, or five of a quarter of the size");
        assert_eq!(chosen(&[0, 0], None), (128, 128), "the larger, where nothing tells them apart");
    }

    #[test]
    fn a_pinned_tile_is_taken_whatever_the_sizes() {
        assert_eq!(chosen(&[1024, 512], Some((64, 64))), (64, 64));
    }

    #[test]
    fn an_element_that_was_not_compiled_is_refused() {
        let sizes = Sizes { dims: &[64, 64], world: 2, tile: (1, 1) };
        let error = tile(&SPEC, ElementType::Bf16, None, sizes, 16).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel `gather_sum` was not compiled for elements of bf16; there is: f32 128×128, f32 64×64"
        );
    }
}
