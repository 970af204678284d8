//! One function per PTX instruction (or per inseparable pair), and nothing else.
//!
//! `asm!` is not convergent on nvptx: LLVM may copy a block that holds one into both arms of a branch.
//! What must not be split (barriers of the whole CTA, shuffles) therefore goes through LLVM's intrinsics;
//! `.aligned` instructions are used under warp-uniform control flow only.

mod atomic;
mod bulk;
mod convert;
mod cp_async;
mod matrix;
mod mbarrier;
mod memory;
mod mma;
mod scalar;
mod thread;
mod wgmma;

pub use atomic::*;
pub use bulk::*;
pub use convert::*;
pub use cp_async::*;
pub use matrix::*;
pub use mbarrier::*;
pub use memory::*;
pub use mma::*;
pub use scalar::*;
pub use thread::*;
pub use wgmma::*;
