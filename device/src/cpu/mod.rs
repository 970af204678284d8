//! Simulated ranks: every CTA is a thread that runs the role [`Whole`] over host memory, and the protocol
//! between ranks goes through a [`Fabric`], which parks what waits and finds deadlocks and races.

mod clock;
mod fabric;
mod fault;
mod launch;
mod log;
mod protocol;
mod region;
mod routing;
mod sync;
mod together;
mod whole;
mod window;
mod words;

pub use fabric::{Break, Fabric};
pub use launch::{Launch, Parameters, Simulate, run};
#[cfg(feature = "explore")]
pub use sync::explore;
pub use whole::Whole;
