//! NCCL's collectives, on all GPUs of this process.

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;
use std::ptr;

use anyhow::{Context, Result};
use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t};

use crate::gpus::Gpus;
use crate::library::{self, functions};

const BF16: ncclDataType_t = ncclDataType_t::ncclBfloat16;
const BF16_BYTES: usize = 2;
const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

type Status = i32;

functions! {
    struct Functions {
        version: fn(*mut c_int) -> Status = "ncclGetVersion";
        error_string: fn(Status) -> *const c_char = "ncclGetErrorString";
        initialise: fn(*mut ncclComm_t, c_int, *const c_int) -> Status = "ncclCommInitAll";
        destroy: fn(ncclComm_t) -> Status = "ncclCommDestroy";
        group_start: fn() -> Status = "ncclGroupStart";
        group_end: fn() -> Status = "ncclGroupEnd";
        reduce_scatter: fn(u64, u64, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream) -> Status
            = "ncclReduceScatter";
        all_reduce: fn(u64, u64, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream) -> Status
            = "ncclAllReduce";
        send: fn(u64, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> Status = "ncclSend";
        receive: fn(u64, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> Status = "ncclRecv";
        all_gather: fn(u64, u64, usize, ncclDataType_t, ncclComm_t, CUstream) -> Status = "ncclAllGather";
    }
}

/// What NCCL does with bf16 elements of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collective {
    ReduceScatter,
    AllReduce,
    AllGather,
    AllToAll,
}

impl Functions {
    /// Sends each rank its block of `count` elements, and receives one from each.
    unsafe fn all_to_all(
        &self,
        ranks: usize,
        (from, into): (u64, u64),
        count: usize,
        communicator: ncclComm_t,
        stream: CUstream,
    ) -> Status {
        let block = |base: u64, rank: usize| base + (rank * count * BF16_BYTES) as u64;
        let statuses = (0..ranks).flat_map(|rank| {
            let peer = rank as c_int;
            // SAFETY: as the caller promises for the whole collective.
            unsafe {
                [
                    (self.send)(block(from, rank), count, BF16, peer, communicator, stream),
                    (self.receive)(block(into, rank), count, BF16, peer, communicator, stream),
                ]
            }
        });
        statuses.into_iter().find(|status| *status != 0).unwrap_or(0)
    }
}

/// The library, with a communicator for every GPU.
pub struct Nccl {
    functions: Functions,
    communicators: Vec<ncclComm_t>,
}

impl Nccl {
    /// Loads it and connects the GPUs.
    ///
    /// # Errors
    /// It is not found, or cannot connect them.
    pub fn open(gpus: &Gpus, folders: &[PathBuf]) -> Result<Self> {
        let functions = Functions::load(library::open(&["libnccl.so.2", "libnccl.so"], folders)?)?;
        let mut nccl = Nccl { functions, communicators: Vec::new() };
        let ordinals: Vec<_> = (0..gpus.streams.len() as c_int).collect();
        let mut communicators = vec![ptr::null_mut(); ordinals.len()];
        // SAFETY: there is room for a communicator for each ordinal.
        let status = unsafe {
            (nccl.functions.initialise)(communicators.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr())
        };
        nccl.check("connect the GPUs", status)?;
        nccl.communicators = communicators;
        Ok(nccl)
    }

    /// The library's version.
    ///
    /// # Errors
    /// The library failed.
    pub fn version(&self) -> Result<String> {
        let mut version = 0;
        // SAFETY: the call writes one integer.
        self.check("tell its version", unsafe { (self.functions.version)(&mut version) })?;
        Ok(library::version(version as usize))
    }

    /// Enqueues a collective on every rank's stream, from and to these addresses, by rank. `count` elements is what a
    /// rank has at the smaller of its two ends.
    ///
    /// # Errors
    /// The library failed.
    ///
    /// # Safety
    /// There must be as many bf16 elements at the addresses as the collective takes and gives; they must be there,
    /// and not be used otherwise, until the work is done.
    pub unsafe fn enqueue(&self, gpus: &Gpus, collective: Collective, ends: &[(u64, u64)], count: usize) -> Result<()> {
        // SAFETY: the call takes nothing.
        self.check("begin a collective", unsafe { (self.functions.group_start)() })?;
        let enqueued = ends.iter().zip(&self.communicators).zip(&gpus.streams).try_for_each(|((ends, &to), stream)| {
            let (&(from, into), functions, stream) = (ends, &self.functions, stream.cu_stream());
            // SAFETY: as the caller promised; the communicator is alive.
            let status = unsafe {
                match collective {
                    Collective::ReduceScatter => (functions.reduce_scatter)(from, into, count, BF16, SUM, to, stream),
                    Collective::AllReduce => (functions.all_reduce)(from, into, count, BF16, SUM, to, stream),
                    Collective::AllGather => (functions.all_gather)(from, into, count, BF16, to, stream),
                    Collective::AllToAll => functions.all_to_all(gpus.streams.len(), (from, into), count, to, stream),
                }
            };
            self.check("enqueue a collective", status)
        });
        // SAFETY: the call takes nothing. The group ends whatever was enqueued.
        let ended = self.check("start a collective", unsafe { (self.functions.group_end)() });
        enqueued.and(ended)
    }

    fn check(&self, action: &str, status: Status) -> Result<()> {
        library::check("NCCL", action, status, |status| {
            // SAFETY: the library's strings are static.
            unsafe { CStr::from_ptr((self.functions.error_string)(status)) }.to_string_lossy().into_owned()
        })
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        for &communicator in &self.communicators {
            // SAFETY: created in `open`, and nothing is in flight. The process is about to end.
            let _ = unsafe { (self.functions.destroy)(communicator) };
        }
    }
}
