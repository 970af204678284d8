//! x
#![no_std]
#[cfg(not(target_arch = "nvptx64"))]
pub mod spec;
