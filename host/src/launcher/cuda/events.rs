//! Events that mark the ends of launches, used again once nobody looks at them any more: making one takes a part of the
//! time that a launch should take.

use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaEvent, DriverError};

/// One GPU's events.
#[derive(Default)]
pub(super) struct Events(Mutex<Vec<Arc<CudaEvent>>>);

impl Events {
    /// An event that nobody else holds.
    pub fn unused(&self, context: &Arc<CudaContext>) -> Result<Arc<CudaEvent>, DriverError> {
        let mut events = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(unused) = events.iter().find(|event| Arc::strong_count(event) == 1) {
            return Ok(unused.clone());
        }
        let event = Arc::new(context.new_event(None)?);
        events.push(event.clone());
        Ok(event)
    }
}
