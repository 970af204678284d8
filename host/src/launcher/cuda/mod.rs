//! GPUs: the platform behind a world of them.

mod capture;
mod device;
mod driver;
mod events;
mod gate;
mod graph;
mod launch;
mod memory;
mod module;
mod tensor_map;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaContext;
use entwine_device::abi::{MAX_WORLD, MatrixArg};

use self::device::Device;
use self::gate::Gate;
use self::launch::GpuKernel;
use self::memory::DeviceBlock;
use self::module::Modules;
use crate::error::Error;
use crate::platform::{GpuKind, Memory, Platform, Program};
use crate::spec::{ElementType, KernelSpec, Target};

/// GPUs that reach each other's memory, one for each rank.
pub(crate) struct Gpus {
    devices: Vec<Arc<Device>>,
    modules: Modules,
    start_limit: Duration,
    /// The major version of the driver's CUDA.
    cuda: u32,
}

impl Gpus {
    /// Opens these GPUs, or all of the machine, one of which may be several ranks if they `share`; kernels run in code for
    /// `target`, or for whatever suits the GPUs best.
    pub fn open(
        named: Option<&[usize]>,
        share: bool,
        start_limit: Duration,
        target: Option<Target>,
    ) -> Result<Self, Error> {
        driver::initialise()?;
        let cuda = driver::cuda_version()?;
        let ordinals = device::ordinals(named, share)?;
        if !(1..=MAX_WORLD).contains(&ordinals.len()) {
            return Err(Error::WorldSize(ordinals.len()));
        }
        if ordinals.len() > 1 && env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| value != "0") {
            return Err(Error::LaunchBlocking { ranks: ordinals.len() });
        }
        let gate = Arc::new(Gate::new(ordinals.len()));
        let devices = ordinals.iter().enumerate().map(|(rank, ordinal)| {
            let sharers = ordinals.iter().filter(|other| *other == ordinal).count();
            Ok(Arc::new(Device::open(rank, *ordinal, sharers as u32, gate.clone())?))
        });
        let devices: Vec<_> = devices.collect::<Result<_, Error>>()?;
        for from in &devices {
            for to in devices.iter().filter(|to| to.ordinal != from.ordinal) {
                from.reach(to)?;
            }
        }
        Ok(Gpus { devices, modules: Modules::new(target), start_limit, cuda })
    }
}

impl Platform for Gpus {
    fn ranks(&self) -> usize {
        self.devices.len()
    }

    fn context(&self, rank: usize) -> Option<&Arc<CudaContext>> {
        Some(&self.devices[rank].context)
    }

    fn gpus(&self) -> Option<GpuKind> {
        let mut names: Vec<_> = self.devices.iter().map(|device| device.name()).collect();
        names.dedup();
        let target = self.modules.target().map(|target| format!(" in code for {}", target.name()));
        Some(GpuKind { name: names.join(" and ") + &target.unwrap_or_default(), cuda: self.cuda })
    }

    fn processors(&self) -> u32 {
        self.devices.iter().map(|device| device.processors).min().expect("a world has a rank")
    }

    fn allocate(&self, rank: usize, bytes: usize) -> Result<Box<dyn Memory>, Error> {
        Ok(Box::new(DeviceBlock::zeroed(&self.devices[rank], bytes)?))
    }

    fn allocate_shared(&self, bytes: usize) -> Result<Box<dyn Memory>, Error> {
        Ok(Box::new(memory::pinned(&self.devices[0], bytes)?))
    }

    unsafe fn adopt(&self, rank: usize, address: u64) -> Result<Box<dyn Memory>, Error> {
        // SAFETY: as the caller promised.
        Ok(Box::new(unsafe { DeviceBlock::foreign(&self.devices[rank], address)? }))
    }

    fn describe(
        &self,
        rank: usize,
        matrix: &MatrixArg,
        element: ElementType,
    ) -> Result<Option<Box<dyn Memory>>, Error> {
        let maps = tensor_map::describe(&self.devices[rank], matrix, element)?;
        Ok(maps.map(|maps| Box::new(maps) as _))
    }

    fn load(&self, spec: &'static KernelSpec, logs: bool) -> Result<Arc<dyn Program>, Error> {
        let modules = self.modules.load(spec, &self.devices, logs)?;
        Ok(Arc::new(GpuKernel::prepare(spec, &self.devices, modules, self.start_limit)?))
    }

    fn delay(&self, rank: usize, by: Duration) -> Result<(), Error> {
        self.devices[rank].delay(by)
    }

    fn synchronize(&self) -> Result<(), Error> {
        let last = self.devices[0].gate.lock().clone();
        for (device, end) in self.devices.iter().zip(last) {
            if let Some(end) = end {
                device.with("wait for a launch", || end.event.synchronize())?;
            }
        }
        Ok(())
    }
}
