//! Fused kernels, ready to use: matrix products that communicate while they compute.
//!
//! | kernel | on every rank | result |
//! | --- | --- | --- |
//! | [`gemm`] | A, B | A·Bᵀ, by each rank for itself |
//! | [`gemm_reduce_scatter`] | its K-slice of A and B | its rows of the sum of all ranks' A·Bᵀ |
//! | [`gemm_all_reduce`] | its K-slice of A and B | the sum of all ranks' A·Bᵀ |
//! | [`all_gather_gemm`] | its rows of A, its rows of B | all of A times its B, transposed |
//! | [`moe_dispatch_gemm`] | its tokens, its experts' first weights | its experts' hidden values of all tokens that chose them |
//! | [`moe_gemm_combine`] | its experts' hidden values and second weights | the weighted sums for its tokens |
//! | [`moe_layer`] | its tokens, its experts | both in one launch |
//!
//! All take bf16 or f16 and accumulate in `f32`; any sizes, any world of 1 to 8 ranks. They are written with the
//! public macros alone, each in a file of its own, to be read as examples.
//!
//! # Bits
//!
//! Results have the same bits in every run, and where several ranks hold the same element, on every rank.
//! Partial products are rounded to the element type before they are added (the owner's own among them), the
//! owner's first and then the others' in the order of their ranks, in `f32`. In layers of experts, what an expert makes of
//! a token is rounded; a rank's experts are summed in the order of the token's choices, in `f32`, and the other ranks' sums
//! are rounded and added in the order of their ranks.
#![no_std]

mod all_gather;
mod all_reduce;
mod moe;
mod reduce_scatter;
mod single;

pub use all_gather::all_gather_gemm;
pub use all_reduce::gemm_all_reduce;
pub use moe::{moe_capacity, moe_dispatch_gemm, moe_gemm_combine, moe_layer};
pub use reduce_scatter::gemm_reduce_scatter;
pub use single::gemm;
