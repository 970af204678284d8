//! CUDA graphs: a row of launches that starts with one call.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use super::device::Device;
use super::launch::{GpuKernel, LaunchShape, Waits};
use crate::error::Error;
use crate::platform::{Replay, Run, Schedule, Work};

/// The same row of launches on every rank.
pub(super) struct GpuGraph {
    kernel: Arc<GpuKernel>,
    waits: Waits,
    ranks: Vec<Executable>,
}

struct Executable {
    device: Arc<Device>,
    graph: sys::CUgraphExec,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Executable {}
unsafe impl Sync for Executable {}

impl GpuGraph {
    /// Builds a graph of `launches` launches, one after the other and in turns, for each rank.
    pub fn new(kernel: Arc<GpuKernel>, mut turns: Vec<Work>, launches: u32) -> Result<Self, Error> {
        let (variant, shape) = (turns[0].variant, kernel.shape(&turns[0]));
        let mut ranks = Vec::new();
        for device in kernel.devices() {
            let function = kernel.function(variant, device.rank);
            let params = turns.iter_mut().map(|work| &mut *work.params[device.rank]).collect();
            let _gate = device.gate.lock();
            let graph = device.with("build a graph", || build(function, &shape, params, launches))?;
            ranks.push(Executable { device: device.clone(), graph });
            // So that the first launch finds everything in place, and doesn't block behind another rank's.
            // SAFETY: the graph and the stream are alive.
            device.copy("prepare a graph", |stream| unsafe { result::graph::upload(graph, stream) })?;
        }
        let waits = Waits::of(&turns[0]);
        Ok(GpuGraph { kernel, waits, ranks })
    }
}

impl Replay for GpuGraph {
    fn start(self: Arc<Self>, schedule: Schedule<'_>) -> Result<Arc<dyn Run>, Error> {
        self.kernel.start_with(self.waits.clone(), schedule, Some(self.clone()), |device, stream| {
            // SAFETY: the graph is alive, and a launch in flight holds what its launches use.
            device.with("launch a graph", || unsafe {
                result::graph::launch(self.ranks[device.rank].graph, stream.cu_stream())
            })
        })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let _gate = self.device.gate.lock();
        // SAFETY: a run holds the graph that it came from. A failure here is a failure of the context, which the next
        // call reports.
        let _ = self.device.with("free a graph", || unsafe { result::graph::exec_destroy(self.graph) });
    }
}

/// Builds and instantiates one rank's graph. The driver copies the parameters.
fn build(
    function: sys::CUfunction,
    shape: &LaunchShape,
    params: Vec<&mut [u64]>,
    launches: u32,
) -> Result<sys::CUgraphExec, DriverError> {
    let mut pointers: Vec<_> = params.into_iter().map(|params| [params.as_mut_ptr().cast()]).collect();
    let node = |pointers: &mut [_; 1]| sys::CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: shape.grid.0,
        gridDimY: shape.grid.1,
        gridDimZ: shape.grid.2,
        blockDimX: shape.block.0,
        blockDimY: shape.block.1,
        blockDimZ: shape.block.2,
        sharedMemBytes: shape.shared_bytes,
        kernelParams: pointers.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    };
    let turns: Vec<_> = pointers.iter_mut().map(node).collect();
    let mut graph = ptr::null_mut();
    // SAFETY: the entry takes one parameter, of this size and layout; each call writes one handle.
    unsafe {
        sys::cuGraphCreate(&mut graph, 0).result()?;
        let executable = chain(graph, &turns, launches, shape.early);
        result::graph::destroy(graph)?;
        executable
    }
}

/// Adds launches to a graph, in turns, and instantiates it. Each follows the end of the one before; or, if entries wait
/// for that themselves before they touch memory, it may start `early`, when every CTA of the one before has.
///
/// # Safety
/// The graph must be alive and the turns valid.
unsafe fn chain(
    graph: sys::CUgraph,
    turns: &[sys::CUDA_KERNEL_NODE_PARAMS],
    launches: u32,
    early: bool,
) -> Result<sys::CUgraphExec, DriverError> {
    let programmatic = sys::CUgraphEdgeData {
        from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
        to_port: 0,
        type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
        reserved: [0; 5],
    };
    let mut before = None;
    for launch in turns.iter().cycle().take(launches as usize) {
        let mut node = ptr::null_mut();
        // SAFETY: as the caller promised.
        unsafe {
            sys::cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, launch).result()?;
            if let Some(before) = before {
                let edge = if early { &raw const programmatic } else { ptr::null() };
                sys::cuGraphAddDependencies_v2(graph, &before, &node, edge, 1).result()?;
            }
        }
        before = Some(node);
    }
    let mut executable = ptr::null_mut();
    // SAFETY: as the caller promised.
    unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) }.result()?;
    Ok(executable)
}
