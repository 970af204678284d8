//! Entwine's device library: what tile functions are written with, and what they are woven into.
//!
//! A tile function is generic over its [`Role`]: each operation on a tile, a matrix or a channel is
//! handed to the role, which does its own part of it. On a Hopper GPU one CTA runs three roles side by side
//! (`gpu/`: loader, communication thread, math warpgroups), on others one role for all its threads
//! (`gpu/ampere/`); on a simulated rank one thread runs the role [`Whole`](cpu::Whole), which does all of it
//! (`cpu/`). The handles (`tile`, `matrix`, `channel`) hold no behaviour of their own, so all mean the same by
//! construction.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx))]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

/// Asserts, with a text on simulated ranks: a GPU's reports have no room for it.
macro_rules! check {
    ($holds:expr, $($text:tt)+) => {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!($holds, $($text)+);
        #[cfg(target_arch = "nvptx64")]
        assert!($holds);
    };
}

pub mod abi;
mod at;
mod bags;
mod channel;
mod element;
pub mod layout;
pub mod log;
mod matrix;
mod memory;
pub mod order;
pub mod ordering;
mod place;
mod role;
mod routing;
mod scalar;
mod shape;
mod share;
mod symmetric;
mod tile;
mod together;
mod word;

#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
#[cfg(target_arch = "nvptx64")]
pub mod gpu;
#[cfg(target_arch = "nvptx64")]
pub mod ptx;

pub use at::At;
pub use bags::Bags;
pub use channel::{
    Channel, Direction, GateItem, Incoming, PanelItem, Piece, Port, Receive, ReceivePort, Route, RoutingItem, Send,
    SendPort, SendReceive, Slot, TileItem,
};
pub use element::{Element, MatmulElement};
pub use half::{bf16, f16};
pub use matrix::{Grouped, Matrix, Panel, Shard, Sharded, TileMut, matmul};
pub use memory::anew;
pub use order::{
    Course, Member, Queue, Share, Stage, Step, tiles, walk, walk_as_members, walk_beside, walk_ready_first,
};
pub use place::{MatrixPlace, PanelPlace, Place, SlotPlace};
pub use role::Role;
pub use routing::{Arrangement, Entry, Misfit, Need, Operand, Routed, Routing, RoutingPlace, RoutingSize, Scattered};
pub use scalar::Scalar;
pub use shape::{Shape, TileShape};
pub use share::{dedicated, share};
pub use symmetric::{Block, Group, Image, Symmetric, Transfer, WordAt};
pub use tile::{Columns, Rows, Storable, Tile};
pub use together::{BagsPlace, BlockPlace, SymmetricPlace, Together, WordPlace};
pub use word::{Change, Comparison, Integer, Summand, Word};
