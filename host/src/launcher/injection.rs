//! Faults on purpose, so that tests and examples can show how they are reported.

use entwine_device::abi::{ChannelArg, Head};

use crate::error::Error;
use crate::spec::KernelSpec;

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
}

/// An injection whose names have been looked up.
pub(crate) struct Injected {
    rank: usize,
    channel: usize,
    slot: Vec<u32>,
}

impl Injected {
    /// Looks an injection's names up.
    pub fn resolve(kernel: &'static KernelSpec, ranks: usize, injection: Injection<'_>) -> Result<Self, Error> {
        let Injection::DropSignal { rank, channel: name, slot } = injection;
        let refuse = |problem| Err(Error::Launch { kernel: kernel.name, problem });
        if rank >= ranks {
            return refuse(format!("no signal of rank {rank} can be dropped: there are {ranks} ranks"));
        }
        let Some(channel) = kernel.channels.iter().position(|channel| channel.name == name) else {
            let names: Vec<_> = kernel.channels.iter().map(|channel| channel.name).collect();
            return refuse(format!("there is no channel `{name}`; there is: {}", names.join(", ")));
        };
        let axes = kernel.channels[channel].slots.len();
        if slot.len() != axes {
            return refuse(format!("a slot of channel `{name}` has {axes} coordinates, not {}", slot.len()));
        }
        Ok(Injected { rank, channel, slot: slot.to_vec() })
    }

    /// Puts it into a launch's parameters.
    pub fn apply(&self, kernel: &'static KernelSpec, channels: &[ChannelArg], heads: &mut [Head]) -> Result<(), Error> {
        let slots = &channels[self.channel].slots;
        if self.slot.iter().zip(slots).any(|(index, axis)| index >= axis) {
            let problem = format!(
                "slot {:?} of channel `{}` is not among the {:?} of this launch",
                self.slot,
                kernel.channels[self.channel].name,
                &slots[..self.slot.len()]
            );
            return Err(Error::Launch { kernel: kernel.name, problem });
        }
        let head = &mut heads[self.rank];
        head.drop_channel = self.channel as u32;
        head.drop_slot = self.slot.iter().zip(slots).fold(0, |linear, (index, axis)| linear * axis + index);
        Ok(())
    }
}
