//! A kernel's compiled variants.

use crate::error::Error;
use crate::spec::{ElementType, KernelSpec};

/// The index of the variant for an element and a tile.
pub(crate) fn index(kernel: &'static KernelSpec, element: ElementType, tile: (u32, u32)) -> Result<usize, Error> {
    let index = kernel.variants.iter().position(|variant| variant.element == element && variant.tile == tile);
    index.ok_or_else(|| no_variant(kernel, Some(element), Some(tile)))
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
