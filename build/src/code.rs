//! What the device code of a kernel crate is compiled for: each combination has PTX of its own.

use std::env;

use crate::error::Error;

/// The GPUs that PTX is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Hopper, with its architecture-specific instructions.
    Sm90a,
    /// Every GPU from Ampere on.
    Sm80,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::Sm90a, Target::Sm80];

    /// As the compiler and the assembler call it.
    pub fn processor(self) -> &'static str {
        match self {
            Target::Sm90a => "sm_90a",
            Target::Sm80 => "sm_80",
        }
    }

    /// The processors that its PTX is assembled for to see what it costs: it runs on all of them.
    pub fn assembled_for(self) -> &'static [&'static str] {
        match self {
            Target::Sm90a => &["sm_90a"],
            Target::Sm80 => &["sm_80", "sm_89"],
        }
    }

    /// What tells the device library for which target it is compiled, where that is not Hopper.
    pub(crate) fn cfg(self) -> Option<&'static str> {
        match self {
            Target::Sm90a => None,
            Target::Sm80 => Some("entwine_sm_80"),
        }
    }

    /// Those that are to be compiled: all, or those that `ENTWINE_TARGETS` lists.
    fn wanted() -> Result<Vec<Target>, Error> {
        let listed = env::var("ENTWINE_TARGETS").unwrap_or_default();
        if listed.is_empty() {
            return Ok(Target::ALL.to_vec());
        }
        let named = |name: &str| Target::ALL.into_iter().find(|target| target.processor() == name.trim());
        listed.split(',').map(|name| named(name).ok_or_else(|| Error::NoSuchTarget(name.trim().to_owned()))).collect()
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
    /// Every combination that there is. A timeline is recorded by the roles of Hopper alone.
    pub fn all() -> impl Iterator<Item = Code> {
        let codes = Target::ALL.into_iter().flat_map(|target| [false, true].map(|timeline| Code { target, timeline }));
        codes.filter(|code| !code.timeline || code.target == Target::Sm90a)
    }

    /// Those that are to be compiled: for the targets that `ENTWINE_TARGETS` lists, or all, and with a timeline if
    /// `ENTWINE_TIMELINE` asks for it.
    pub(crate) fn wanted() -> Result<impl Iterator<Item = Code>, Error> {
        let (targets, timeline) = (Target::wanted()?, is_set("ENTWINE_TIMELINE"));
        Ok(Code::all().filter(move |code| targets.contains(&code.target) && (timeline || !code.timeline)))
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
