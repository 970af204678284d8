//! The kernels.

mod all_gather;
mod columns;
mod dispatch;
mod elements;
mod failures;
mod handed;
mod local;
mod misfits;
mod moves;
mod one_sided;
mod orders;
mod parts;
mod reduce_scatter;
mod words;

pub use all_gather::all_gather_gemm;
pub use columns::{biased, biased_together, biased_twice};
pub use dispatch::round_trip;
pub use elements::{normalize, scalar_functions};
pub use failures::faulty;
pub use handed::mirror;
pub use local::scaled_gemm;
pub use misfits::{miscounted, misled, narrowed, overfilled, resent, routed, spilled};
pub use moves::{copy_then_multiply, rotate};
pub use one_sided::{astray, hand_on, hand_tiles, meet, spinning, strangers};
pub use orders::broadcast;
pub use parts::pooled_shards;
pub use reduce_scatter::gemm_reduce_scatter;
pub use words::{words_bf16, words_f16, words_f32, words_i32, words_i64, words_u32, words_u64};
