//! What the device code of a kernel crate is compiled for: each combination has PTX of its own.

use std::env;

/// The GPUs that PTX is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Hopper, with its architecture-specific instructions.
    Sm90a,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 1] = [Target::Sm90a];

    /// As the compiler and the assembler call it.
    pub fn processor(self) -> &'static str {
        match self {
            Target::Sm90a => "sm_90a",
        }
    }
}

/// One compilation of a kernel crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// The GPUs that it is for.
    pub target: Target,
    /// Its kernels record what they do when.
    pub timeline: bool,
}

impl Code {
    /// Every combination.
    pub fn all() -> impl Iterator<Item = Code> {
        Target::ALL.into_iter().flat_map(|target| [false, true].map(|timeline| Code { target, timeline }))
    }

    /// Those that are to be compiled: with a timeline if `ENTWINE_TIMELINE` asks for it.
    pub fn wanted() -> impl Iterator<Item = Code> {
        let timeline = is_set("ENTWINE_TIMELINE");
        Code::all().filter(move |code| timeline || !code.timeline)
    }

    /// What it is called: `sm_90a`, `sm_90a_timeline`.
    pub fn name(self) -> String {
        let Code { target, timeline } = self;
        format!("{}{}", target.processor(), if timeline { "_timeline" } else { "" })
    }

    /// The environment variable with the path of its PTX: `ENTWINE_PTX_SM_90A`.
    pub fn variable(self) -> String {
        format!("ENTWINE_PTX_{}", self.name().to_uppercase())
    }
}

/// Whether a variable of the environment says yes.
pub(crate) fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}
