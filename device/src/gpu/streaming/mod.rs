//! The one role of kernels that stream: all threads of a CTA carry out each operation together, straight between memory,
//! here or on another rank, and registers.
//!
//! There is no matrix product and no buffer in shared memory, so several CTAs share a multiprocessor, and while one waits
//! the others have loads under way. The protocol of channels is that of [`Collective`](super::Collective).

mod bags;
mod blocks;
mod held;
mod role;
mod words;

pub use role::Streaming;

/// The entry of one variant of a kernel: a marker from which the builder sets the launch bounds, and a function in which
/// all threads walk all stages.
#[doc(hidden)]
#[macro_export]
macro_rules! __streaming_entry {
    ($entry:ident, name = $name:literal, params = $params:ty, weave = $weave:ident, tile = ($rows:expr, $columns:expr), element = $element:ty, lends = $lends:literal $(,)?) => {
        ::core::arch::global_asm!(
            concat!("// entwine: entry ", $name, " maxntid {threads} minctas {resident}"),
            threads = const $crate::layout::streaming::threads($rows),
            resident = const $crate::layout::streaming::resident($rows),
        );

        #[doc(hidden)]
        pub struct Config;
        impl $crate::gpu::Config for Config {
            const ROWS: usize = $rows;
            const COLUMNS: usize = $columns;
            const ELEMENT: u32 = <$element as $crate::Element>::SIZE;
            const COMMUNICATES: bool = <$params>::CHANNELS > 0 || $lends;
            const MOVES: bool = false;
            const POLLS: bool = false;
            const ROUTES: bool = false;
            const MOVES_ROWS: bool = false;
            const RECORDS: bool = false;
        }

        #[unsafe(export_name = $name)]
        pub unsafe extern "ptx-kernel" fn $entry(params: $params) {
            let cta = unsafe { $crate::gpu::Cta::<Config>::begin_together(&params.head) };
            let role = unsafe { $crate::gpu::Streaming::begin(&cta) };
            $weave(&role, &params);
            unsafe { role.finish() };
        }
    };
}
pub use crate::__streaming_entry as streaming_entry;
