//! Faults on purpose, so that tests and examples can show how they are reported.

use std::time::Duration;

use entwine_device::abi::{ChannelArg, Head};

use crate::error::Error;
use crate::spec::{ArgumentKind, KernelSpec};

/// What is to go wrong in a launch.
#[derive(Debug, Clone, Copy)]
pub enum Injection<'a> {
    /// A rank stores a tile, or all pieces of a panel, but never signals it.
    DropSignal {
        /// The sending rank.
        rank: usize,
        /// The channel's name.
        channel: &'a str,
        /// The slot's coordinates.
        slot: &'a [u32],
    },
    /// What a rank lends is late, on every rank, that one too: who reads it takes the rank for not started for so long, from when
    /// it looks for it first. Its tables of routings are in time, so that others know which rows they wait for.
    LateRows {
        /// The lending rank.
        rank: usize,
        /// By how much, up to 4 seconds.
        by: Duration,
    },
}

/// An injection whose names have been looked up.
pub(crate) enum Injected {
    Dropped { rank: usize, channel: usize, slot: Vec<u32> },
    Late { rank: usize, by_ns: u32 },
}

impl Injected {
    /// Looks an injection's names up.
    pub fn resolve(kernel: &'static KernelSpec, ranks: usize, injection: Injection<'_>) -> Result<Self, Error> {
        let refuse = |problem| Err(Error::Launch { kernel: kernel.name, problem });
        match injection {
            Injection::DropSignal { rank, .. } if rank >= ranks => {
                refuse(format!("no signal of rank {rank} can be dropped: there are {ranks} ranks"))
            }
            Injection::DropSignal { rank, channel: name, slot } => {
                let Some(channel) = kernel.channels.iter().position(|channel| channel.name == name) else {
                    let names: Vec<_> = kernel.channels.iter().map(|channel| channel.name).collect();
                    return refuse(format!("there is no channel `{name}`; there is: {}", names.join(", ")));
                };
                let axes = kernel.channels[channel].slots.len();
                if slot.len() != axes {
                    return refuse(format!("a slot of channel `{name}` has {axes} coordinates, not {}", slot.len()));
                }
                Ok(Injected::Dropped { rank, channel, slot: slot.to_vec() })
            }
            Injection::LateRows { rank, .. } if rank >= ranks => {
                refuse(format!("rows of rank {rank} can't be late: there are {ranks} ranks"))
            }
            Injection::LateRows { rank, by } => {
                let lent = |kind: &ArgumentKind| matches!(kind, ArgumentKind::Matrix { lent: true, .. });
                if !kernel.arguments.iter().any(|argument| lent(&argument.kind)) {
                    return refuse("no rows can be late: ranks lend each other none".into());
                }
                match u32::try_from(by.as_nanos()) {
                    Ok(by_ns) => Ok(Injected::Late { rank, by_ns }),
                    Err(_) => refuse(format!("rows can't be late by {by:?}, only by up to 4 s")),
                }
            }
        }
    }

    /// Puts it into a launch's parameters.
    pub fn apply(&self, kernel: &'static KernelSpec, channels: &[ChannelArg], heads: &mut [Head]) -> Result<(), Error> {
        match self {
            Injected::Dropped { rank, channel, slot } => {
                let slots = &channels[*channel].slots;
                if slot.iter().zip(slots).any(|(index, axis)| index >= axis) {
                    let problem = format!(
                        "slot {slot:?} of channel `{}` is not among the {:?} of this launch",
                        kernel.channels[*channel].name,
                        &slots[..slot.len()]
                    );
                    return Err(Error::Launch { kernel: kernel.name, problem });
                }
                let head = &mut heads[*rank];
                head.drop_channel = *channel as u32;
                head.drop_slot = slot.iter().zip(slots).fold(0, |linear, (index, axis)| linear * axis + index);
            }
            Injected::Late { rank, by_ns } => heads.iter_mut().for_each(|head| {
                (head.late, head.late_ns) = (1 << rank, *by_ns);
            }),
        }
        Ok(())
    }
}
