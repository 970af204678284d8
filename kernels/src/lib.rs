//! Fused kernels, ready to use: matrix products that communicate while they compute.
//!
//! | kernel | on every rank | result |
//! | --- | --- | --- |
//! | [`gemm`] | A, B | A·Bᵀ, by each rank for itself |
//! | [`gemm_reduce_scatter`] | its K-slice of A and B | its rows of the sum of all ranks' A·Bᵀ |
//! | [`gemm_all_reduce`] | its K-slice of A and B | the sum of all ranks' A·Bᵀ |
//! | [`all_gather_gemm`] | its rows of A, its rows of B | all of A times its B, transposed |
//! | [`gemm_all_to_all`] | A, B | its share of the columns of every rank's A·Bᵀ |
//! | [`embedding_all_to_all`] | tables, indices of the whole batch | its share of the batch, pooled from all ranks' tables |
//! | [`gemv_all_reduce`] | its K-slice of A, of a few rows, and of B | the sum of all ranks' A·Bᵀ |
//! | [`moe_dispatch_gemm`] | its tokens, its experts' first weights | its experts' hidden values of all tokens that chose them |
//! | [`moe_gemm_combine`] | its experts' hidden values and second weights | the weighted sums for its tokens |
//! | [`moe_layer`] | its tokens, its experts | both in one launch |
//!
//! All take bf16 or f16, bags `f32` too, and accumulate in `f32`; any sizes, any world of 1 to 8 ranks. They are written with the
//! public macros alone, each in a file of its own, to be read as examples.
//!
//! # Bits
//!
//! Results have the same bits in every run, and where several ranks hold the same element, on every rank.
//! Partial products are rounded to the element type before they are added (the owner's own among them), the
//! owner's first and then the others' in the order of their ranks, in `f32`; by `gemv_all_reduce` all in the order of the
//! ranks. Bags are added up in their own order, and rounded once. In layers of experts, what an expert makes of
//! a token is rounded; a rank's experts are summed in the order of the token's choices, in `f32`, and the other ranks' sums
//! are rounded and added in the order of their ranks.
#![no_std]

mod all_gather;
mod all_reduce;
mod all_to_all;
mod embedding;
mod gemv;
mod moe;
pub mod probes;
mod reduce_scatter;
mod single;

pub use all_gather::all_gather_gemm;
pub use all_reduce::gemm_all_reduce;
pub use all_to_all::gemm_all_to_all;
pub use embedding::embedding_all_to_all;
pub use gemv::gemv_all_reduce;
pub use moe::{moe_capacity, moe_dispatch_gemm, moe_gemm_combine, moe_layer};
pub use reduce_scatter::gemm_reduce_scatter;
pub use single::gemm;
