//! The kernels.

mod all_gather;
mod dispatch;
mod local;
mod reduce_scatter;

pub use all_gather::all_gather_gemm;
pub use dispatch::round_trip;
pub use local::scaled_gemm;
pub use reduce_scatter::gemm_reduce_scatter;
