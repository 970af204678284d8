//! Whether there is a CUDA driver that can be called at all.

use cudarc::driver::{DriverError, result, sys};
use libloading::Library;

use crate::error::Error;

/// The driver's library, as Linux and Windows name it.
const LIBRARIES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];

/// The newest functions that are called. cudarc panics at a call of one that the driver lacks.
const NEWEST: [&str; 4] = ["cuTensorMapEncodeTiled", "cuGraphAddDependencies_v2", "cuFuncLoad", "cuFuncGetParamInfo"];

/// Loads and initialises the driver, or says what is missing.
pub(super) fn initialise() -> Result<(), Error> {
    // SAFETY: the driver's library may be loaded at any time.
    let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
    let Some(library) = library else {
        return Err(no_driver(format!("no CUDA driver was found (none of {})", LIBRARIES.join(", "))));
    };
    for name in NEWEST {
        // SAFETY: the function is looked up, not called.
        if unsafe { library.get::<unsafe extern "C" fn()>(name) }.is_err() {
            return Err(no_driver(format!("the CUDA driver is too old: it has no `{name}`")));
        }
    }
    result::init().map_err(|error| no_driver(format!("the CUDA driver does not start: {error}")))
}

/// The major version of the CUDA that the driver brings.
pub(super) fn cuda_version() -> Result<u32, Error> {
    let mut version = 0;
    // SAFETY: the call writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().during(0, "ask for the driver's version")?;
    Ok(version as u32 / 1000)
}

fn no_driver(reason: String) -> Error {
    Error::NoDriver { reason }
}

/// Says what was being done when the driver failed.
pub(super) trait During<T> {
    /// On GPU `device`, while trying to `action`.
    fn during(self, device: usize, action: &'static str) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, DriverError> {
    fn during(self, device: usize, action: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Cuda { device, action, source })
    }
}
