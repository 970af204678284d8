//! What more than one of the test programs needs.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod kernels;
#[cfg(not(target_arch = "nvptx64"))]
pub mod ptx;
#[cfg(not(target_arch = "nvptx64"))]
pub mod suite;

/// The code of the README, run on simulated ranks.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
