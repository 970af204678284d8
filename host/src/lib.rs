//! Multi-GPU kernels in Rust that compute and communicate at once.
//!
//! [`#[entwine::kernel]`](macro@kernel) weaves a module of tile functions, which are written with the [`prelude`], into one
//! fused kernel; a `World` is the ranks it runs on, be they GPUs or simulated; a `Kernel` is checked, launched and awaited
//! there. On the nvptx64 target this crate is only the façade that tile functions are written against.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub use entwine_device as device;
pub use entwine_macros::kernel;

#[cfg(not(target_arch = "nvptx64"))]
mod launcher;
pub mod prelude;
#[cfg(not(target_arch = "nvptx64"))]
pub mod spec;

#[cfg(not(target_arch = "nvptx64"))]
pub use launcher::*;

/// What generated code names, in crates that may be `no_std`.
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod __private {
    pub use std::vec::Vec;
}
