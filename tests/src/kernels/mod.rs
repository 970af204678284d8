//! The kernels.

mod all_gather;
mod dispatch;
mod elements;
mod failures;
mod handed;
mod local;
mod moves;
mod orders;
mod reduce_scatter;

pub use all_gather::all_gather_gemm;
pub use dispatch::round_trip;
pub use elements::{normalize, scalar_functions};
pub use failures::faulty;
pub use handed::mirror;
pub use local::scaled_gemm;
pub use moves::rotate;
pub use orders::broadcast;
pub use reduce_scatter::gemm_reduce_scatter;
