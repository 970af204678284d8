//! Mixtures of experts: tokens go to the experts that they chose, on whatever rank these are, and come back.

mod combine;
mod dispatch;
mod layer;
mod orders;

pub use combine::moe_gemm_combine;
pub use dispatch::moe_dispatch_gemm;
pub use layer::moe_layer;

/// Rows that the experts of a rank need at most, each from a multiple of 128 rows on: for `tokens` tokens of all ranks that
/// choose `choices` of `experts` experts, which are split over `world` ranks.
pub const fn moe_capacity(tokens: usize, choices: usize, experts: usize, world: usize) -> usize {
    const BLOCK: usize = 128;
    let here = experts.div_ceil(world);
    let chosen = if choices < here { choices } else { here };
    (tokens * chosen).next_multiple_of(BLOCK) + here * BLOCK
}
