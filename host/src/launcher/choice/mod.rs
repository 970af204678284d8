//! How a launch is carried out where neither its source nor its user says so.

mod pins;

use serde::{Deserialize, Serialize};

use crate::spec::Carriage;

pub(crate) use pins::Pins;

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
}
