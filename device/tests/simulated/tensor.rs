//! Matrices in memory, with poison around and in them.

use entwine_device::Element;
use entwine_device::abi::MatrixArg;

/// A row-major matrix whose rows are padded to 16 bytes, with a row of padding after the last.
pub struct Tensor<E> {
    data: Vec<E>,
    rows: usize,
    columns: usize,
    pitch: usize,
}

impl<E: Element> Tensor<E> {
    /// All NaN, to see that every element is written, and none beside them.
    pub fn poisoned(rows: usize, columns: usize) -> Self {
        let pitch = (columns * E::SIZE as usize + 1).next_multiple_of(16) / E::SIZE as usize;
        Tensor { data: vec![E::from_f32(f32::NAN); (rows + 1) * pitch], rows, columns, pitch }
    }

    pub fn from_fn(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f32) -> Self {
        let mut tensor = Self::poisoned(rows, columns);
        for row in 0..rows {
            for column in 0..columns {
                tensor.data[row * tensor.pitch + column] = E::from_f32(value(row, column));
            }
        }
        tensor
    }

    /// As an argument whose rows are in `parts` parts.
    pub fn arg(&self, parts: usize) -> MatrixArg {
        MatrixArg {
            data: self.data.as_ptr() as u64,
            pitch: self.pitch as u64 * E::SIZE as u64,
            maps: 0,
            ranks: 0,
            rows: self.rows as u32,
            columns: self.columns as u32,
            part_rows: self.rows.div_ceil(parts) as u32,
            parts: parts as u32,
        }
    }

    pub fn assert_is(&self, what: &str, expected: impl Fn(usize, usize) -> f64) {
        for row in 0..=self.rows {
            for column in 0..self.pitch {
                let value = self.data[row * self.pitch + column].to_f32();
                if row < self.rows && column < self.columns {
                    assert_eq!(value as f64, expected(row, column), "{what} at [{row}, {column}]");
                } else {
                    assert!(value.is_nan(), "{what} was written beyond its edge, at [{row}, {column}]");
                }
            }
        }
    }
}

/// An integer from -2 to 2 that depends on all it is made of, so that sums of products are exact.
pub fn sample(seed: usize, row: usize, column: usize) -> f32 {
    let mut mixed = (seed as u64) << 48 ^ (row as u64) << 24 ^ column as u64;
    for _ in 0..2 {
        mixed = (mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (mixed >> 40) as f32 % 5.0 - 2.0
}
