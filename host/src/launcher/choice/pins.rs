//! What of a choice is settled beforehand, by a kernel's source or by its user.

use serde::{Deserialize, Serialize};

use super::Choice;
use crate::error::Error;
use crate::spec::{Carriage, KernelSpec, Target};
use crate::variant;

/// The parts of a choice that are settled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Settled {
    /// What the device code is for; `None` for simulated ranks.
    #[serde(default)]
    pub target: Option<Target>,
    pub tile: Option<(u32, u32)>,
    /// By channel.
    pub carriages: Vec<Option<Carriage>>,
    pub link_limit: Option<u32>,
    pub span: Option<u32>,
    pub fused: Option<bool>,
}

impl Settled {
    /// Whether this tile is open, and there is code for it.
    pub fn has_tile(&self, tile: (u32, u32)) -> bool {
        self.tile.is_none_or(|settled| settled == tile) && self.target.is_none_or(|target| target.has_tile(tile))
    }

    /// Whether a choice has all that is settled.
    pub fn admits(&self, choice: &Choice) -> bool {
        fn is<T: PartialEq>(settled: &Option<T>, chosen: &T) -> bool {
            settled.as_ref().is_none_or(|settled| settled == chosen)
        }
        self.has_tile(choice.tile)
            && self.carriages.len() == choice.carriages.len()
            && self.carriages.iter().zip(&choice.carriages).all(|(settled, chosen)| is(settled, chosen))
            && is(&self.link_limit, &choice.link_limit)
            && is(&self.span, &choice.span)
            && is(&self.fused, &choice.fused)
    }
}

/// Settles parts of a kernel's choices.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    kernel: &'static KernelSpec,
    settled: Settled,
}

impl Pins {
    /// What the kernel's source settles, and the device code that there is for the GPUs.
    pub fn of(kernel: &'static KernelSpec, target: Option<Target>) -> Self {
        let carriages = kernel.channels.iter().map(|channel| channel.carriage).collect();
        Pins { kernel, settled: Settled { target, carriages, ..Settled::default() } }
    }

    /// What is settled so far.
    pub fn settled(&self) -> &Settled {
        &self.settled
    }

    /// Settles the tile.
    pub fn pin_tile(&mut self, tile: (u32, u32)) -> Result<(), Error> {
        let compiled = self.kernel.variants.iter().any(|variant| variant.tile == tile);
        if !compiled || !self.settled.target.is_none_or(|target| target.has_tile(tile)) {
            return Err(variant::no_variant(self.kernel, None, Some(tile)));
        }
        self.settled.tile = Some(tile);
        Ok(())
    }

    /// Settles the link's limit. Tickets for the link are compared as signed words, and so none is larger.
    pub fn pin_link_limit(&mut self, limit: u32) {
        self.settled.link_limit = Some(limit.min(i32::MAX as u32));
    }

    /// Settles how what is sent on a channel comes to its receivers.
    pub fn pin_carriage(&mut self, name: &str, carriage: Carriage) -> Result<(), Error> {
        let refuse = |problem| Err(Error::Launch { kernel: self.kernel.name, problem });
        let channels = self.kernel.channels;
        let Some(channel) = channels.iter().position(|channel| channel.name == name) else {
            let names: Vec<_> = channels.iter().map(|channel| channel.name).collect();
            return refuse(format!("there is no channel `{name}`; there is: {}", names.join(", ")));
        };
        match channels[channel].carriage {
            Some(written) if written != carriage => refuse(format!(
                "channel `{name}` can't be carried by {}: its declaration says `by = {}`, or leaves only that",
                carriage.name(),
                written.name()
            )),
            _ => {
                self.settled.carriages[channel] = Some(carriage);
                Ok(())
            }
        }
    }

    /// Settles the columns of a span.
    pub fn pin_span(&mut self, columns: u32) {
        self.settled.span = Some(columns);
    }

    /// Settles everything.
    pub fn pin_all(&mut self, choice: &Choice) -> Result<(), Error> {
        let (expected, found) = (self.kernel.channels.len(), choice.carriages.len());
        if expected != found {
            let problem =
                format!("a choice says for each of its {expected} channels how it is carried, not for {found}");
            return Err(Error::Launch { kernel: self.kernel.name, problem });
        }
        self.pin_tile(choice.tile)?;
        for (channel, &carriage) in self.kernel.channels.iter().zip(&choice.carriages) {
            self.pin_carriage(channel.name, carriage)?;
        }
        self.pin_link_limit(choice.link_limit);
        self.pin_span(choice.span);
        self.settled.fused = Some(choice.fused);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    #[test]
    fn no_limit_is_too_large_to_compare_tickets_with() {
        let mut pins = Pins::of(&SPEC, None);
        pins.pin_link_limit(u32::MAX);
        assert_eq!(pins.settled.link_limit.unwrap() as i32, i32::MAX);
    }

    #[test]
    fn a_tile_that_a_target_has_no_code_for_is_refused() {
        let tile = SPEC.variants[0].tile;
        assert!(Pins::of(&SPEC, Some(Target::Sm80)).pin_tile(tile).is_ok(), "{tile:?}");
        let settled = |target| Settled { target, ..Settled::default() };
        assert!(settled(Some(Target::Sm90a)).has_tile((128, 168)));
        assert!(settled(None).has_tile((128, 168)));
        assert!(!settled(Some(Target::Sm80)).has_tile((128, 168)));
    }

    #[test]
    fn a_channel_that_is_not_there_is_refused() {
        let error = Pins::of(&SPEC, None).pin_carriage("Whole", Carriage::Push).unwrap_err();
        assert_eq!(error.to_string(), "kernel `gather_sum`: there is no channel `Whole`; there is: Part");
    }

    #[test]
    fn a_choice_for_another_kernel_is_refused() {
        let choice = Choice { tile: (128, 128), carriages: vec![], link_limit: 0, span: 0, fused: true };
        let error = Pins::of(&SPEC, None).pin_all(&choice).unwrap_err().to_string();
        assert!(error.ends_with("a choice says for each of its 1 channels how it is carried, not for 0"), "{error}");
    }
}
