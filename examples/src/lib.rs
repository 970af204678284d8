//! The kernels of the examples, which are compiled for GPUs too, and what the programs in `bin/` share.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod decode;
pub mod first_kernel;
#[cfg(not(target_arch = "nvptx64"))]
pub mod matrices;
pub mod mlp;
pub mod ring;
