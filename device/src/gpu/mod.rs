//! The roles of a CTA on a GPU, and the entry they are woven into.
//!
//! On Hopper one CTA runs three roles side by side over the same tiles: one thread loads, one thread communicates,
//! and the math warpgroups compute. They meet at barriers in shared memory (`cta`), in two places:
//! the *ring*, which the loader fills ahead of its readers, and the *staging* buffer, which passes between the
//! communication thread and the math warpgroups in strict turns. A fourth, the mover, is a thread that carries
//! the stages which only move tiles, at its own pace beside the others. A fifth, the poller, looks for what arrives ahead
//! of the loader, where panels do.
//!
//! Code for every GPU from Ampere on (`cfg(entwine_sm_80)`) has one role (`ampere`) and the same protocol between ranks.

mod ampere;
mod area;
mod boxes;
mod columns;
mod communication;
mod cta;
mod fault;
mod fragment;
mod gathered;
mod loader;
mod log;
mod math;
mod mover;
mod poller;
mod quad;
mod queue;
mod routing;
mod scatter;
mod signals;
mod straight;
mod streaming;

pub use ampere::Collective;
pub use communication::Communication;
pub use cta::{Config, Cta};
pub use loader::Loader;
pub use math::Math;
pub use mover::Mover;
pub use poller::Poller;
pub use streaming::{Streaming, streaming_entry};

/// The part of [`Role`](crate::Role) that is the same for all threads of a CTA.
macro_rules! in_a_cta {
    () => {
        #[inline(always)]
        fn head(&self) -> &Head {
            // SAFETY: no world is empty. What is divided by its size needs no check, and no predicate for the answer.
            unsafe { core::hint::assert_unchecked(self.cta.head.world != 0) };
            self.cta.head
        }
        #[inline(always)]
        fn cta(&self) -> u32 {
            block_idx_x()
        }
    };
}
use in_a_cta;

/// The part of [`Role`](crate::Role) that deals with elements, for a role that holds none.
macro_rules! holds_nothing {
    () => {
        type Fragment<E: Element, S: TileShape> = ();
        type RowFragment<S: TileShape> = ();

        #[inline(always)]
        fn splat<E: Element, S: TileShape>(&self, _: f32) {}
        #[inline(always)]
        fn map<E: Element, S: TileShape>(_: (), _: impl Fn(f32) -> f32) {}
        #[inline(always)]
        fn zip<E: Element, F: Element, S: TileShape>(_: (), _: &(), _: impl Fn(f32, f32) -> f32) {}
        #[inline(always)]
        fn cast<E: Element, F: Element, S: TileShape>(_: &()) {}
        #[inline(always)]
        fn fold<E: Element, S: TileShape, H: TileShape>(_: &(), _: impl Fn(f32, f32) -> f32) {}
        #[inline(always)]
        fn reduce_rows<E: Element, S: TileShape>(_: &(), _: impl Fn(f32, f32) -> f32) {}
        #[inline(always)]
        fn zip_rows<E: Element, S: TileShape>(_: (), _: &(), _: impl Fn(f32, f32) -> f32) {}
        #[inline(always)]
        fn map_row_values<S: TileShape>(_: (), _: impl Fn(f32) -> f32) {}
        #[inline(always)]
        fn zip_row_values<S: TileShape>(_: (), _: &(), _: impl Fn(f32, f32) -> f32) {}
    };
}
use holds_nothing;

/// What a variant is compiled for, as the type `Config`.
#[doc(hidden)]
#[macro_export]
macro_rules! __config {
    (params = $params:ty, moves = [$($moves:ident),*], polls = [$($polls:ident),*], $(routes = $routes:literal,)? $(moves_rows = $moves_rows:literal,)? tile = ($rows:expr, $columns:expr), element = $element:ty) => {
        #[doc(hidden)]
        pub struct Config;
        impl $crate::gpu::Config for Config {
            const ROWS: usize = $rows;
            const COLUMNS: usize = $columns;
            const ELEMENT: u32 = <$element as $crate::Element>::SIZE;
            const COMMUNICATES: bool = <$params>::CHANNELS > 0;
            const MOVES: bool = !stringify!($($moves),*).is_empty();
            const POLLS: bool = !stringify!($($polls),*).is_empty();
            const ROUTES: bool = false $(|| $routes)?;
            const MOVES_ROWS: bool = false $(|| $moves_rows)?;
            const RECORDS: bool = cfg!(entwine_timeline);
        }
    };
}
pub use crate::__config as config;

/// The entry of one variant of a kernel: a marker from which the builder sets the launch bounds, and a
/// function that branches once on the role and walks all stages in it.
#[doc(hidden)]
#[macro_export]
macro_rules! __hopper_entry {
    ($entry:ident, name = $name:literal, params = $params:ty, weave = $all:ident, unmoved = $weave:ident, moves = [$($moves:ident),*], polls = [$($polls:ident),*], $(routes = $routes:literal,)? $(moves_rows = $moves_rows:literal,)? tile = ($rows:expr, $columns:expr), element = $element:ty $(,)?) => {
        ::core::arch::global_asm!(
            concat!("// entwine: entry ", $name, " maxntid {threads} minctas 1"),
            threads = const $crate::layout::threads($rows),
        );

        $crate::gpu::config!(params = $params, moves = [$($moves),*], polls = [$($polls),*], $(routes = $routes,)? $(moves_rows = $moves_rows,)? tile = ($rows, $columns), element = $element);

        #[unsafe(export_name = $name)]
        pub unsafe extern "ptx-kernel" fn $entry(params: $params) {
            let cta = unsafe { $crate::gpu::Cta::<Config>::begin(&params.head, &params.matrices) };
            if cta.computes() {
                let role = unsafe { $crate::gpu::Math::begin(&cta) };
                $weave(&role, &params);
                role.finish();
            } else {
                unsafe { cta.give_registers() };
                if cta.loads() {
                    let role = $crate::gpu::Loader::begin(&cta);
                    $weave(&role, &params);
                    role.finish();
                } else if cta.communicates() {
                    let role = $crate::gpu::Communication::begin(&cta);
                    $weave(&role, &params);
                    role.finish();
                }
                $(if cta.moves() {
                    let role = $crate::gpu::Mover::begin(&cta);
                    $moves(&role, &params);
                    role.finish();
                })*
                $(if cta.polls() {
                    let role = $crate::gpu::Poller::begin(&cta);
                    $polls(&role, &params);
                    role.finish();
                })*
            }
        }
    };
}
#[cfg(entwine_sm_80)]
pub use crate::__ampere_entry as entry;
#[cfg(not(entwine_sm_80))]
pub use crate::__hopper_entry as entry;
