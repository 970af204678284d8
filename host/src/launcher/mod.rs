//! The host's side: worlds, tensors, and the launch of kernels.

pub(crate) mod arguments;
pub(crate) mod capture;
pub(crate) mod choice;
pub(crate) mod cuda;
pub(crate) mod dims;
pub(crate) mod element;
pub(crate) mod error;
pub(crate) mod extent;
pub(crate) mod fault;
pub(crate) mod foreign;
pub(crate) mod graph;
pub(crate) mod host_memory;
pub(crate) mod injection;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod loaded;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod params;
pub(crate) mod platform;
pub(crate) mod protocol;
pub(crate) mod region;
pub(crate) mod request;
pub(crate) mod simulate;
pub(crate) mod tensor;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod timeline;
pub(crate) mod tuning;
pub(crate) mod variant;
pub(crate) mod world;

pub use arguments::{ArgumentValue, Arguments, KernelType};
pub use capture::Captured;
pub use choice::{ChannelPlan, Choice, Device, Origin, Plan, Prediction, StagePlan};
pub use element::TensorElement;
pub use error::Error;
pub use fault::Fault;
pub use foreign::RawMatrix;
pub use graph::Graph;
pub use injection::Injection;
pub use kernel::Kernel;
pub use launch::Launch;
pub use protocol::Protocol;
pub use tensor::{AnyTensor, Tensor};
pub use timeline::{Activity, Clock, Event, EventKind, Recorder, Slice, Summary, Timeline};
pub use tuning::Tuned;
pub use world::{World, WorldBuilder};

/// The CUDA bindings whose contexts, streams and slices this crate takes.
pub use cudarc;

/// A CUDA stream of the user's own.
pub type Stream = std::sync::Arc<cudarc::driver::CudaStream>;
