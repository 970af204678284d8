//! The records of layers of experts, and their table.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use super::layer::Model;
use crate::record::{Regime, Timing};
use crate::table::right_align;

/// The operation that records name.
pub const OP: &str = "moe_layer";

const HEADINGS: [&str; 11] = [
    "model",
    "T",
    "regime",
    "variant",
    "products alone, µs",
    "wire, µs",
    "limit, µs",
    "fused, µs",
    "unfused, µs",
    "of the limit",
    "unfused ÷ fused",
];
const TEXT_COLUMNS: [usize; 3] = [0, 2, 3];

/// What the numbers mean.
const LEGEND: &str = "T tokens on each rank. *Products alone* are both grouped products with nothing exchanged, the fastest of \
    three ways; *wire* is what the busiest rank sends, each token once to each rank that it needs and back, at the link's rate. \
    The *limit* is the longer of the two, plus a word's way to the other rank and back, which nothing hides: a token has to come \
    before its products, and its sum to go back after them. *Unfused* is NCCL's all-to-all and PyTorch's grouped products, the \
    faster of two ways to exchange. A – stands for what was not measured.";

/// A layer's sizes, in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub model: Model,
    /// Tokens of each rank.
    pub tokens: usize,
}

/// One measured row, as `bench/src/record.rs` has them of other operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub op: String,
    pub dtype: String,
    pub world: usize,
    pub shape: Shape,
    pub variant: String,
    pub regime: Regime,
    pub timing: Timing,
    /// The fused layer.
    pub ours_us: Option<f64>,
    /// Both grouped products alone, the fastest of the ways in `others`.
    pub gemm_us: Option<f64>,
    /// The unfused layer, the faster of the ways in `others`.
    pub serial_us: Option<f64>,
    /// What the busiest rank sends, at the link's rate.
    #[serde(default)]
    pub wire_us: Option<f64>,
    /// What can't overlap with anything: a word's way to another rank and back.
    #[serde(default)]
    pub apart_us: Option<f64>,
    /// The longer of `gemm_us` and `wire_us`, plus `apart_us`.
    pub limit_us: Option<f64>,
    /// `limit_us / ours_us`.
    pub fraction: Option<f64>,
    pub spread: f64,
    /// All that PyTorch was timed at, by name.
    #[serde(default)]
    pub others: BTreeMap<String, f64>,
    pub link_gbps: Option<f64>,
    /// Largest error among the tokens looked at, relative to the norm of each.
    pub error: Option<f64>,
    pub date: String,
    pub device: String,
    pub driver: String,
    pub libraries: String,
}

/// A table in Markdown of the fused layers' records; of several of one case, the latest.
pub fn markdown(records: Vec<Record>) -> String {
    let mut latest = Vec::<Record>::new();
    let case = |record: &Record| (record.shape, record.regime, record.world, record.variant.clone());
    for record in records.into_iter().filter(|record| record.ours_us.is_some()) {
        match latest.iter_mut().find(|other| case(other) == case(&record)) {
            Some(other) if other.date <= record.date => *other = record,
            Some(_) => {}
            None => latest.push(record),
        }
    }
    format!("{LEGEND}\n\n{}\n", table(&latest, presets::ASCII_MARKDOWN))
}

/// A table for reading in a terminal.
pub fn terminal(records: &[Record]) -> String {
    table(records, presets::UTF8_FULL_CONDENSED).to_string()
}

fn table(records: &[Record], preset: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header(HEADINGS).add_rows(records.iter().map(row));
    right_align(&mut table, &TEXT_COLUMNS);
    table
}

fn row(record: &Record) -> [String; HEADINGS.len()] {
    let or_none = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "–".into(), text);
    let micros = |time| or_none(time, |time| format!("{time:.0}"));
    let over = record.serial_us.zip(record.ours_us).map(|(serial, ours)| serial / ours);
    [
        record.shape.model.to_string(),
        record.shape.tokens.to_string(),
        record.regime.to_string(),
        record.variant.clone(),
        micros(record.gemm_us),
        micros(record.wire_us),
        micros(record.limit_us),
        micros(record.ours_us),
        micros(record.serial_us),
        or_none(record.fraction, |share| format!("{:.0} %", 100.0 * share)),
        or_none(over, |times| format!("{times:.2}")),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn sample() -> Vec<Record> {
        serde_json::from_str(include_str!("../../tests/sample-moe.json")).unwrap()
    }

    #[test]
    fn markdown_is_as_it_was_reviewed() {
        assert_eq!(markdown(sample()), include_str!("../../tests/sample-moe.md"));
    }

    #[test]
    fn the_latest_of_a_case_counts() {
        let mut records = sample();
        let count = markdown(records.clone()).lines().count();
        records.push(Record { ours_us: Some(1234.0), date: "2027-01-01".into(), ..records[0].clone() });
        records.push(Record { ours_us: Some(4321.0), date: "2026-01-01".into(), ..records[0].clone() });
        let text = markdown(records);
        assert!(text.contains(" 1234 ") && !text.contains(" 4321 "), "{text}");
        assert_eq!(text.lines().count(), count);
    }
}
