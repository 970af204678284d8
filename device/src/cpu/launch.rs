//! Launches on simulated ranks: a thread for each CTA, in the order of each rank's launches.

use core::mem::size_of_val;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use super::fabric::{Announced, Fabric};
use super::fault::guard;
use super::protocol::Cta;
use super::sync::{self, JoinHandle};
use super::whole::Whole;
use crate::abi::{Head, MatrixArg, Params};

/// Walks every stage of a kernel as one CTA of a simulated rank: what `#[entwine::kernel]` emits. It is
/// given the kernel's parameters and the CTA's index.
pub type Simulate = unsafe fn(params: *const Head, cta: u32);

/// A launch under way. Dropping it waits until it has left every rank.
pub struct Launch {
    fabric: Arc<Fabric>,
    announced: Arc<Announced>,
    ctas: Vec<JoinHandle>,
}

impl Fabric {
    /// Launches a kernel on every rank; it starts on a rank once every earlier launch has left that rank.
    ///
    /// `params` holds each rank's parameters, laid out as for the entry; their `fabric` is filled in here.
    ///
    /// # Panics
    /// If there are not as many parameters as ranks, each for its own rank and a world of this size.
    ///
    /// # Safety
    /// The parameters must be those that `simulate` takes, and what they have the addresses of (matrices,
    /// regions, fault records) must be valid until the launch has been joined or dropped.
    pub unsafe fn launch(self: &Arc<Self>, simulate: Simulate, params: Vec<Box<[u64]>>) -> Launch {
        assert_eq!(params.len(), self.world() as usize, "a launch takes one set of parameters for each rank");
        let mut ranks = Vec::new();
        for (rank, mut words) in (0..).zip(params) {
            assert!(size_of_val(&*words) >= size_of::<Head>(), "the parameters of rank {rank} are too short");
            // SAFETY: there is room for a head, made of words like every part of the parameters.
            let head = unsafe { &mut *words.as_mut_ptr().cast::<Head>() };
            assert_eq!((head.rank, head.world), (rank, self.world()), "the parameters are another rank's or world's");
            head.fabric = Arc::as_ptr(self) as u64;
            ranks.push((head.ctas, Arc::<[u64]>::from(words)));
        }
        let announced = Arc::new(self.announce(ranks.iter().map(|(ctas, _)| *ctas as usize).sum()));
        let mut ctas = Vec::new();
        for (rank, (count, words)) in (0..).zip(ranks) {
            for cta in 0..count {
                let (fabric, announced, words) = (self.clone(), announced.clone(), words.clone());
                ctas.push(sync::spawn(move || {
                    let delay = fabric.admit(rank, fabric.lane(rank, cta), &announced);
                    if !delay.is_zero() {
                        std::thread::sleep(delay);
                    }
                    // SAFETY: as the caller promised.
                    unsafe { simulate(words.as_ptr().cast(), cta) }
                }));
            }
        }
        Launch { fabric: self.clone(), announced, ctas }
    }
}

impl Launch {
    /// Whether it has left every rank.
    pub fn is_finished(&self) -> bool {
        self.fabric.has_left(&self.announced)
    }

    /// Waits until it has left every rank. What became of it is in each rank's fault record.
    pub fn join(self) {}
}

impl Drop for Launch {
    fn drop(&mut self) {
        self.ctas.drain(..).for_each(JoinHandle::join);
        self.fabric.settle();
    }
}

/// A kernel's parameters.
pub trait Parameters {
    /// Its matrices, so that reports can name them.
    fn matrices(&self) -> &[MatrixArg];
}

impl<const MATRICES: usize, const CHANNELS: usize, const SCALARS: usize> Parameters
    for Params<MATRICES, CHANNELS, SCALARS>
{
    fn matrices(&self) -> &[MatrixArg] {
        &self.matrices
    }
}

/// Runs one CTA of a simulated rank.
///
/// # Safety
/// To be called with what [`Fabric::launch`] passes on, with `P` the parameters of the launch.
pub unsafe fn run<P: Parameters>(params: *const Head, cta: u32, weave: impl FnOnce(&Whole, &P)) {
    // SAFETY: as the caller promised.
    let (head, params) = unsafe { (*params, &*params.cast::<P>()) };
    // SAFETY: as the caller promised.
    let whole = Whole::new(unsafe { Cta::start(head, params.matrices(), cta) });
    let ended = guard(|| weave(&whole, params));
    whole.leave(ended);
}
