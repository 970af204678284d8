//! Which of a kernel's compiled variants a launch uses.

use crate::error::Error;
use crate::extent::Sizes;
use crate::spec::{ElementType, KernelSpec, StageSpec, VariantSpec};

/// The index of the variant for `element`: the one with the tile that was pinned, or else the largest tile that
/// still gives every processor of a rank one, or else the one that gives the most.
pub(crate) fn choose(
    kernel: &'static KernelSpec,
    element: ElementType,
    pinned: Option<(u32, u32)>,
    sizes: Sizes<'_>,
    processors: u32,
) -> Result<usize, Error> {
    let fits = |variant: &VariantSpec| variant.element == element && pinned.is_none_or(|tile| variant.tile == tile);
    let candidates = kernel.variants.iter().enumerate().filter(|(_, variant)| fits(variant));
    let tiles = |variant: &VariantSpec| most_tiles(kernel, &Sizes { tile: variant.tile, ..sizes });
    candidates
        .max_by_key(|(index, variant)| {
            let tiles = tiles(variant).min(processors.into());
            (tiles, variant.tile.0 as u64 * variant.tile.1 as u64, std::cmp::Reverse(*index))
        })
        .map(|(index, _)| index)
        .ok_or_else(|| no_variant(kernel, Some(element), pinned))
}

/// The tiles of the kernel's largest stage on a rank.
fn most_tiles(kernel: &KernelSpec, sizes: &Sizes<'_>) -> u64 {
    let tiles =
        |stage: &StageSpec| stage.grid.iter().fold(1, |tiles: u64, axis| tiles.saturating_mul(axis.value(sizes)));
    kernel.stages.iter().map(tiles).max().unwrap_or(0)
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
        SPEC.variants[choose(&SPEC, ElementType::F32, pinned, sizes, 16).unwrap()].tile
    }

    #[test]
    fn the_largest_tile_that_keeps_every_processor_busy_wins() {
        assert_eq!(chosen(&[1024, 512], None), (128, 128));
        assert_eq!(chosen(&[512, 256], None), (64, 64));
        assert_eq!(chosen(&[64, 64], None), (128, 128), "the small one gives no more tiles");
        assert_eq!(chosen(&[0, 0], None), (128, 128));
    }

    #[test]
    fn a_pinned_tile_is_taken_whatever_the_sizes() {
        assert_eq!(chosen(&[1024, 512], Some((64, 64))), (64, 64));
    }

    #[test]
    fn an_element_that_was_not_compiled_is_refused() {
        let sizes = Sizes { dims: &[64, 64], world: 2, tile: (1, 1) };
        let error = choose(&SPEC, ElementType::Bf16, None, sizes, 16).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel `gather_sum` was not compiled for elements of bf16; there is: f32 128×128, f32 64×64"
        );
    }
}
