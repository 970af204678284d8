//! Compiled kernels on GPUs: the driver's compiler, and whether all CTAs of a launch can be resident.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::{result, sys};
use entwine_device::abi::{ChannelArg, Head, MatrixArg};

use super::device::Device;
use crate::error::Error;
use crate::spec::{ArgumentKind, CtaSpec, DeviceCode, KernelSpec, Target, VariantSpec};

/// Bytes for the log of the driver's compiler.
const LOG_BYTES: usize = 16 << 10;

/// A kernel's device code, loaded on one GPU.
pub(super) struct Module {
    device: Arc<Device>,
    target: Target,
    module: sys::CUmodule,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Module {}
unsafe impl Sync for Module {}

/// An entry of a module.
#[derive(Clone, Copy)]
pub(super) struct Function(pub sys::CUfunction);

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Function {}
unsafe impl Sync for Function {}

/// The modules that a world's kernels are in: each is compiled once, and loaded once on each GPU.
pub(super) struct Modules {
    /// What they are to be compiled for, if that is not to be what suits the GPUs best.
    target: Option<Target>,
    loaded: Mutex<HashMap<&'static str, Weak<[Module]>>>,
}

impl Modules {
    /// None yet.
    pub fn new(target: Option<Target>) -> Self {
        Modules { target, loaded: Mutex::default() }
    }

    /// What they are to be compiled for, if that has been chosen.
    pub fn target(&self) -> Option<Target> {
        self.target
    }

    /// A kernel's module on each GPU: the code that records a timeline, or that which doesn't.
    pub fn load(
        &self,
        kernel: &'static KernelSpec,
        devices: &[Arc<Device>],
        timeline: bool,
    ) -> Result<Arc<[Module]>, Error> {
        let code = self.code(kernel, devices, timeline)?;
        let mut loaded = self.loaded.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(modules) = loaded.get(code.ptx).and_then(Weak::upgrade) {
            return Ok(modules);
        }
        let ptx = CString::new(code.ptx).expect("PTX is text, without NUL");
        let modules = devices.iter().map(|device| Module::load(device, kernel.name, code.target, &ptx));
        let modules = modules.collect::<Result<Arc<[_]>, _>>()?;
        loaded.insert(code.ptx, Arc::downgrade(&modules));
        Ok(modules)
    }

    /// The preferred one among a kernel's codes that run on all of these GPUs.
    fn code(
        &self,
        kernel: &'static KernelSpec,
        devices: &[Arc<Device>],
        timeline: bool,
    ) -> Result<&'static DeviceCode, Error> {
        if kernel.codes.is_empty() {
            return Err(Error::NoDeviceCode { kernel: kernel.name });
        }
        let fits = |code: &&DeviceCode| {
            code.timeline == timeline
                && self.target.is_none_or(|target| code.target == target)
                && devices.iter().all(|gpu| code.target.runs_on(gpu.capability))
        };
        kernel.codes.iter().find(fits).ok_or_else(|| {
            let records = if timeline { " that records a timeline" } else { "" };
            let target = self.target.map(|target| format!(", for the chosen target {},", target.name()));
            Error::NoFittingCode {
                kernel: kernel.name,
                wanted: format!("code{records}{}", target.unwrap_or_default()),
                capabilities: devices.iter().map(|gpu| format!("{}.{}", gpu.capability.0, gpu.capability.1)).collect(),
                codes: kernel.codes.iter().map(ToString::to_string).collect(),
            }
        })
    }
}

impl Module {
    /// Compiles a kernel's PTX for a GPU.
    fn load(device: &Arc<Device>, kernel: &'static str, target: Target, ptx: &CStr) -> Result<Self, Error> {
        let mut log = vec![0u8; LOG_BYTES];
        let mut options =
            [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut module = ptr::null_mut();
        let gate = device.gate.lock();
        let compiled = device.with("load a module", || {
            // SAFETY: the PTX ends with NUL, and the options say where the log goes and how long it may be.
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            unsafe { sys::cuModuleLoadDataEx(&mut module, ptx.as_ptr().cast(), 2, options, values) }.result()
        });
        drop(gate);
        match compiled {
            Err(Error::Cuda { device, source, .. }) => {
                let length = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let log = String::from_utf8_lossy(&log[..length]).into_owned();
                Err(Error::Compile { kernel, device, source, log })
            }
            Err(error) => Err(error),
            Ok(()) => Ok(Module { device: device.clone(), target, module }),
        }
    }

    /// What it was compiled for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// A variant's entry, ready to be launched, and how many of its CTAs are resident at once.
    pub fn variant(&self, kernel: &'static KernelSpec, variant: &VariantSpec) -> Result<(Function, u32), Error> {
        let name = CString::new(variant.entry).expect("an entry's name has no NUL");
        // SAFETY: the module is loaded.
        let function =
            self.device.with("find a kernel's entry", || unsafe { result::module::get_function(self.module, name) })?;
        self.check_params(kernel, function)?;
        let CtaSpec { threads, shared_bytes } = variant.cta(self.target);
        let not_resident = |shared_limit| Error::NotResident {
            kernel: kernel.name,
            tile: variant.tile,
            device: self.device.ordinal,
            threads,
            shared_bytes,
            shared_limit,
        };
        let limit = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let limit = self.device.with("ask for its shared memory", || self.device.context.attribute(limit))? as u32;
        if shared_bytes > limit {
            return Err(not_resident(limit));
        }
        let (threads, shared) = (threads as i32, shared_bytes as usize);
        let mut per_processor = 0;
        let _gate = self.device.gate.lock();
        self.device.with("prepare a kernel", || {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module; the last call writes one integer.
            unsafe {
                sys::cuFuncSetAttribute(function, attribute, shared as i32).result()?;
                sys::cuFuncLoad(function).result()?;
                sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut per_processor, function, threads, shared).result()
            }
        })?;
        match per_processor {
            0 => Err(not_resident(limit)),
            _ => Ok((Function(function), self.device.processors * per_processor as u32)),
        }
    }

    /// The entry must take as many bytes of parameters as will be passed.
    fn check_params(&self, kernel: &'static KernelSpec, function: sys::CUfunction) -> Result<(), Error> {
        let (mut offset, mut size) = (0, 0);
        self.device.with("ask for a kernel's parameters", || {
            // SAFETY: the call writes two integers.
            unsafe { sys::cuFuncGetParamInfo(function, 0, &mut offset, &mut size) }.result()
        })?;
        let is_matrix = |kind: &ArgumentKind| matches!(kind, ArgumentKind::Matrix { .. });
        let matrices = kernel.arguments.iter().filter(|argument| is_matrix(&argument.kind)).count();
        let scalars = kernel.arguments.len() - matrices;
        let expected = size_of::<Head>()
            + matrices * size_of::<MatrixArg>()
            + kernel.channels.len() * size_of::<ChannelArg>()
            + scalars * size_of::<u64>();
        if size == expected {
            return Ok(());
        }
        let problem = format!(
            "its device code takes {size} bytes of parameters and its launcher passes {expected}: they were built from \
             different versions; rebuild both"
        );
        Err(Error::Launch { kernel: kernel.name, problem })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _gate = self.device.gate.lock();
        // SAFETY: a kernel's launches hold its modules. A failure here is a failure of the context, which the
        // next call reports.
        let _ = self.device.with("unload a module", || unsafe { result::module::unload(self.module) });
    }
}
