//! What is measured: the operations, and the sizes that layers of known models give them.

use std::fmt;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes of an element, which is bf16 throughout.
const ELEMENT_BYTES: usize = 2;

/// A matrix product, and what the ranks exchange around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[clap(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A·Bᵀ, by each rank for itself
    Gemm,
    /// The ranks' products summed, each rank keeping its share of the rows
    GemmReduceScatter,
    /// The ranks' products summed, on every rank
    GemmAllReduce,
    /// A's rows gathered from the ranks, times each rank's own B
    AllGatherGemm,
    /// The columns of each rank's product given to the ranks that own them
    GemmAllToAll,
    /// The ranks' products of a few rows summed, on every rank
    GemvAllReduce,
}

/// Rows up to which a product is bound by reading B.
const FEW_ROWS: usize = 64;

impl Operation {
    /// Whether it is for so many rows.
    pub fn takes(self, rows: usize) -> bool {
        (self == Operation::GemvAllReduce) == (rows <= FEW_ROWS)
    }

    /// The models whose layers it is measured on unless others are named.
    pub fn models(self) -> Vec<Model> {
        let all = Model::value_variants().iter().copied();
        all.filter(|model| *model != Model::Llama70bAttention || self == Operation::GemvAllReduce).collect()
    }

    /// Whether each rank has its share of the rows of some matrix.
    fn splits_rows(self) -> bool {
        matches!(self, Operation::GemmReduceScatter | Operation::AllGatherGemm)
    }
}

/// A transformer whose feed-forward layer gives the sizes; or the projection of its attention's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[clap(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Model {
    #[value(name = "llama7b")]
    Llama7b,
    #[value(name = "llama70b")]
    Llama70b,
    #[value(name = "gpt3")]
    Gpt3,
    /// The projection of the attention's output
    #[value(name = "llama70b_attention")]
    #[serde(rename = "llama70b_attention")]
    Llama70bAttention,
}

/// The matrix product that one rank computes: C`[m, n]` = A`[m, k]`·B`[n, k]`ᵀ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl Model {
    /// Width of the residual stream, and of the feed-forward layer's inside.
    fn widths(self) -> (usize, usize) {
        match self {
            Model::Llama7b => (4096, 11008),
            Model::Llama70b => (8192, 28672),
            Model::Gpt3 => (12288, 49152),
            Model::Llama70bAttention => (8192, 8192),
        }
    }
}

impl Shape {
    /// The product for `rows` tokens when the feed-forward layer is split over `world` ranks: its second matrix (by K)
    /// where results are summed, its first (by N) where inputs are gathered.
    ///
    /// # Errors
    /// The layer or the rows cannot be split evenly.
    pub fn of(operation: Operation, model: Model, rows: usize, world: usize) -> Result<Self> {
        let (hidden, inner) = model.widths();
        ensure!(inner.is_multiple_of(world), "{model}'s {inner} columns cannot be split evenly over {world} ranks");
        ensure!(
            !operation.splits_rows() || rows.is_multiple_of(world),
            "{rows} rows cannot be split evenly over {world} ranks, as NCCL needs them"
        );
        Ok(match operation {
            Operation::AllGatherGemm => Shape { m: rows, n: inner / world, k: hidden },
            _ => Shape { m: rows, n: hidden, k: inner / world },
        })
    }

    /// Bytes of A and B on a rank.
    pub fn input_bytes(self) -> usize {
        (self.m + self.n) * self.k * ELEMENT_BYTES
    }

    /// Bytes of B on a rank: the weights, each of which is read at least once.
    pub fn weight_bytes(self) -> usize {
        self.n * self.k * ELEMENT_BYTES
    }

    /// The least bytes that each rank sends to the others, and receives from them.
    pub fn wire_bytes(self, operation: Operation, world: usize) -> usize {
        let of_all = |elements: usize| elements * ELEMENT_BYTES * (world - 1) / world;
        match operation {
            Operation::Gemm => 0,
            Operation::GemmReduceScatter => of_all(self.m * self.n),
            Operation::GemmAllReduce => 2 * of_all(self.m * self.n),
            Operation::AllGatherGemm => of_all(self.m * self.k),
            Operation::GemmAllToAll => of_all(self.m * self.n),
            Operation::GemvAllReduce => 2 * of_all(self.m * self.n),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("no operation is hidden").get_name())
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("no model is hidden").get_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_split_by_k_to_sum_and_by_n_to_gather() {
        let row = Shape::of(Operation::GemmReduceScatter, Model::Llama70b, 2048, 2).unwrap();
        assert_eq!(row, Shape { m: 2048, n: 8192, k: 14336 });
        assert_eq!(Shape::of(Operation::Gemm, Model::Llama70b, 2048, 2).unwrap(), row);
        let column = Shape::of(Operation::AllGatherGemm, Model::Llama7b, 512, 8).unwrap();
        assert_eq!(column, Shape { m: 512, n: 1376, k: 4096 });
        let projection = Shape::of(Operation::GemvAllReduce, Model::Llama70bAttention, 16, 2).unwrap();
        assert_eq!((projection, projection.weight_bytes()), (Shape { m: 16, n: 8192, k: 4096 }, 67_108_864));
    }

    #[test]
    fn the_projection_is_for_decoding_unless_it_is_named() {
        assert_eq!(Operation::GemmAllReduce.models(), [Model::Llama7b, Model::Llama70b, Model::Gpt3]);
        assert!(Operation::GemvAllReduce.models().contains(&Model::Llama70bAttention));
    }

    #[test]
    fn uneven_splits_are_refused() {
        let refused = |model, rows, world| Shape::of(Operation::GemmReduceScatter, model, rows, world).unwrap_err();
        assert_eq!(
            refused(Model::Llama7b, 512, 3).to_string(),
            "llama7b's 11008 columns cannot be split evenly over 3 ranks"
        );
        assert!(refused(Model::Gpt3, 511, 2).to_string().starts_with("511 rows"));
    }

    #[test]
    fn wire_bytes_are_what_the_collective_needs() {
        let shape = Shape { m: 512, n: 4096, k: 5504 };
        assert_eq!(shape.wire_bytes(Operation::Gemm, 2), 0);
        assert_eq!(shape.wire_bytes(Operation::GemmReduceScatter, 2), 512 * 4096);
        assert_eq!(shape.wire_bytes(Operation::GemmAllReduce, 4), 2 * 512 * 4096 * 2 * 3 / 4);
        assert_eq!(shape.wire_bytes(Operation::AllGatherGemm, 4), 512 * 5504 * 2 * 3 / 4);
        assert_eq!(shape.wire_bytes(Operation::GemmReduceScatter, 1), 0);
    }

    #[test]
    fn names_are_the_same_in_records_and_on_the_command_line() {
        for operation in Operation::value_variants() {
            assert_eq!(serde_json::to_value(operation).unwrap(), operation.to_string());
        }
        for model in Model::value_variants() {
            assert_eq!(serde_json::to_value(model).unwrap(), model.to_string());
        }
    }
}
