//! What more than one of the test programs needs.

pub mod kernels;
pub mod ptx;

/// The code of the README, run on simulated ranks.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
