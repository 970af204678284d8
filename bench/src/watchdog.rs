//! Ends the process when nothing progresses: a GPU that waits for ever cannot be waited for.

use std::process;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the driver may take to compile a kernel for every GPU.
const COMPILE_PATIENCE: Duration = Duration::from_secs(300);

struct Step {
    doing: String,
    until: Instant,
}

static CURRENT: Mutex<Option<Step>> = Mutex::new(None);

/// Starts watching.
pub fn start() {
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            let current = CURRENT.lock().unwrap();
            if let Some(step) = current.as_ref().filter(|step| step.until < Instant::now()) {
                eprintln!("gave up: no progress for too long while {}", step.doing);
                process::abort();
            }
        }
    });
}

/// Says what is being done from now on.
pub fn step(doing: impl Into<String>) {
    patient_step(doing, PATIENCE);
}

/// As [`step`], of what the driver's compiler takes part in.
pub fn compile_step(doing: impl Into<String>) {
    patient_step(doing, COMPILE_PATIENCE);
}

/// Says that what was being done has progressed.
pub fn progress() {
    if let Some(step) = CURRENT.lock().unwrap().as_mut() {
        step.until = Instant::now() + PATIENCE;
    }
}

/// As [`step`], of what may take so long.
pub fn patient_step(doing: impl Into<String>, patience: Duration) {
    *CURRENT.lock().unwrap() = Some(Step { doing: doing.into(), until: Instant::now() + patience });
}
