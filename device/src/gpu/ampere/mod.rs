//! The one role of a CTA on GPUs without TMA (compute capability 8.x): all its threads carry out each operation together,
//! one after the other, and one of them waits for signals and gives them.
//!
//! Shared memory is one buffer: the ring of a matmul, or a tile on its way in or out. Each operation begins with a CTA
//! barrier, after which the buffer is its own. Nothing here needs more than `sm_80`.

pub(super) mod collective;
pub(super) mod copy;
mod product;
pub(super) mod thread;

pub use collective::Collective;

/// The entry of one variant of a kernel: a marker from which the builder sets the launch bounds, and a function in which
/// all threads walk all stages.
#[doc(hidden)]
#[macro_export]
macro_rules! __ampere_entry {
    ($entry:ident, name = $name:literal, params = $params:ty, weave = $weave:ident, unmoved = $unmoved:ident, moves = [$($moves:ident),*], polls = [$($polls:ident),*], $(routes = $routes:literal,)? $(moves_rows = $moves_rows:literal,)? tile = ($rows:expr, $columns:expr), element = $element:ty $(,)?) => {
        ::core::arch::global_asm!(
            concat!("// entwine: entry ", $name, " maxntid {threads} minctas 1"),
            threads = const $crate::layout::ampere::threads($rows),
        );

        $crate::gpu::config!(params = $params, moves = [$($moves),*], polls = [$($polls),*], $(routes = $routes,)? $(moves_rows = $moves_rows,)? tile = ($rows, $columns), element = $element);

        #[unsafe(export_name = $name)]
        pub unsafe extern "ptx-kernel" fn $entry(params: $params) {
            let cta = unsafe { $crate::gpu::Cta::<Config>::begin_together(&params.head) };
            let role = $crate::gpu::Collective::begin(&cta);
            $weave(&role, &params);
            unsafe { role.finish() };
        }
    };
}
