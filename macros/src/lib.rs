//! The attribute that weaves a module of tile functions into a kernel. `entwine` re-exports it; all it
//! does is in `entwine-weave`, which works on plain token streams.

use entwine_weave::Build;
use proc_macro::TokenStream;

/// Weaves a module of channels and stages into one persistent kernel for several GPUs, its typed launcher
/// and its simulated twin.
///
/// `#[entwine::kernel(tiles = [(128, 256), …], elements = [bf16, …])]` compiles one variant for each tile
/// and element: in it `BM` and `BN` are the tile's rows and columns, and `T` is the element. Left out, they are
/// `[(128, 128)]` and `[bf16]`. In the module:
///
/// * `#[channel(slots = […])] pub struct Name(Tile<T, BM, BN>);` declares a channel;
/// * `#[stage(grid = […])] fn name(at: At<2>, …)` declares a stage, the function of one tile.
///
/// Everything else stays as it is, but that functions on tiles may leave the role out as tile functions do, and that
/// what mentions `BM`, `BN` or `T` is seen by the tile functions alone. The module gains `Args` (the launch
/// arguments), `load`, `protocol` and `SPEC`. Kernels of one crate have different names.
///
/// # Errors
/// What can't be right in the protocol is a compile error where it is written: a channel without a sender, a tile
/// that is waited for before it is sent, a slot with too few coordinates. What depends on the data is the author's
/// promise, and found on simulated ranks if it is broken: that every slot that is loaded is also stored, and, with an
/// order of one's own, that a tile which others wait for never waits for them in turn.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, module: TokenStream) -> TokenStream {
    entwine_weave::kernel(arguments.into(), module.into(), &Build::from_environment()).into()
}
