//! Whole kernels on simulated ranks, woven by hand.

mod all_gather;
#[cfg(feature = "explore")]
mod explore;
mod faults;
mod forward;
mod launches;
mod queue;
mod ranks;
mod reduce_scatter;
mod row_maximum;
mod tensor;
mod timeline;
