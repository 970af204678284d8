//! The tile shapes there are.

/// A tile of `M` rows and `N` columns, as a type.
#[derive(Clone, Copy, Debug)]
pub struct Shape<const M: usize, const N: usize>;

/// The shapes that tiles can have: 64 or 128 rows, and 64 or 96 columns or a multiple of 8 from 128 to 256.
#[diagnostic::on_unimplemented(
    message = "there is no tile shape `{Self}`",
    note = "a tile has 64 or 128 rows, and 64 or 96 columns or a multiple of 8 from 128 to 256"
)]
pub trait TileShape: Copy + 'static {
    /// Rows.
    const ROWS: usize;
    /// Columns.
    const COLUMNS: usize;

    /// What one thread of the math warpgroups holds of a tile in `f32`.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    type Values: crate::ptx::Accumulator;

    /// What one thread of the math warpgroups holds of a tile of 16-bit elements, two to a word.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    type Words: crate::ptx::Words;
}

macro_rules! shapes {
    ($($n:literal),+ $(,)?) => {
        $(
            shapes!(@of 64, $n);
            shapes!(@of 128, $n);
        )+
    };
    (@of $m:literal, $n:literal) => {
        impl TileShape for Shape<$m, $n> {
            const ROWS: usize = $m;
            const COLUMNS: usize = $n;
            #[cfg(target_arch = "nvptx64")]
            type Values = [f32; $n / 2];
            #[cfg(target_arch = "nvptx64")]
            type Words = [u32; $n / 4];
        }
    };
}
shapes!(64, 96, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224, 232, 240, 248, 256);
