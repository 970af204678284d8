//! How a launch is carried out where neither its source nor its user says so.

mod candidates;
mod chooser;
mod device;
mod model;
mod pins;
mod plan;
mod workload;

use serde::{Deserialize, Serialize};

use crate::spec::{Carriage, KernelSpec};

pub use chooser::Origin;
pub(crate) use chooser::{Chooser, Chosen};
pub use device::Device;
pub use model::Prediction;
pub(crate) use pins::{Pins, Settled};
pub use plan::{ChannelPlan, Plan, StagePlan};

/// One of the ways in which a launch can be carried out. They differ in time alone; in the bits of a result only where
/// their tiles do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Rows and columns of the tile, for which a variant was compiled.
    pub tile: (u32, u32),
    /// How what is sent comes to its receivers, by channel in the order of their declarations.
    pub carriages: Vec<Carriage>,
    /// Transfers of a rank over the link at once; 0 is any number.
    pub link_limit: u32,
    /// Columns of tiles that the orders `peers_first` and `ring` visit in all ranks' blocks before the next; 0 is all.
    pub span: u32,
    /// Stages that ask for CTAs of their own run on them beside the others. If not, all CTAs carry all stages one after the
    /// other.
    pub fused: bool,
}

impl Choice {
    /// The choice in words, with the names of the kernel's channels.
    pub(crate) fn text(&self, kernel: &KernelSpec) -> String {
        let (rows, columns) = self.tile;
        let mut parts = vec![format!("tiles of {rows}×{columns}")];
        for (channel, carriage) in kernel.channels.iter().zip(&self.carriages) {
            let carried = match carriage {
                Carriage::Push => "pushed",
                Carriage::Pull => "pulled",
            };
            parts.push(format!("{} {carried}", channel.name));
        }
        match self.link_limit {
            _ if kernel.channels.is_empty() => {}
            0 => parts.push("any number of transfers at once".into()),
            limit => parts.push(format!("at most {limit} transfers at once")),
        }
        if self.span != 0 {
            parts.push(format!("{} columns of tiles at a time", self.span));
        }
        if !self.fused {
            parts.push("not fused: all CTAs carry the stages one after the other".into());
        }
        parts.join(", ")
    }
}
