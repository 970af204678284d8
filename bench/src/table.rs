//! Records as tables, for the terminal and for Markdown.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};

use crate::goals;
use crate::record::{Record, Regime, Timing, latest, merge_peers};
use crate::shapes::Operation;

/// Headings; what is in the columns from `fused` to `limit` is in units of the product alone.
const HEADINGS: [&str; 11] = [
    "model",
    "M",
    "variant",
    "product alone, µs",
    "fused",
    "cuBLASLt + NCCL",
    "PyTorch",
    "cuBLASMp",
    "limit",
    "of the limit",
    "overlap",
];
const TEXT_COLUMNS: [usize; 2] = [0, 2];

/// What the numbers mean.
const LEGEND: &str = "Times are medians of the slowest GPU, as multiples of cuBLASLt's matrix product alone on all \
    GPUs at once, measured in the same run. *Limit* is that product (where rows are few, reading the \
    weights) or the bytes on the wire, whichever takes longer; *of the limit* is the limit divided by the fused time; \
    *overlap* is the part of the time saved that could be saved, over cuBLASLt and NCCL one after the other. A – stands for what was not measured or does not exist.";

/// Tables for reading in a terminal.
pub fn terminal(records: &[Record]) -> String {
    sections(records, presets::UTF8_FULL_CONDENSED, |operation, regime| format!("{operation}, {regime}"))
}

/// Tables in Markdown of all fused kernels' latest records, with what the numbers mean and where they, and the peers',
/// are from.
pub fn markdown(records: Vec<Record>) -> String {
    let records = latest(records);
    let mut origins: Vec<_> = records.iter().map(origin).collect();
    origins.sort();
    origins.dedup();
    let records = merge_peers(records);
    let sections =
        sections(&records, presets::ASCII_MARKDOWN, |operation, regime| format!("### `{operation}`, {regime}\n"));
    let goals = goals::markdown(&records).map(|goals| goals + "\n").unwrap_or_default();
    format!("{LEGEND}\n\n{}\n\n{goals}{sections}", origins.join("\n"))
}

/// Where a record is from, as an item of a list.
fn origin(record: &Record) -> String {
    let Record { date, world, device, driver, libraries, .. } = record;
    let link = record.link_gbps.map(|gbps| format!(", {gbps:.0} GB/s each way")).unwrap_or_default();
    let memory = record.memory_gbps.map(|gbps| format!(", memory read at {gbps:.0} GB/s")).unwrap_or_default();
    let timing = if record.timing == Timing::Eager { "; call by call" } else { "" };
    format!("* {date}: {world} × {device}{link}{memory}; driver {driver}; {libraries}{timing}")
}

fn sections(records: &[Record], preset: &str, heading: impl Fn(Operation, Regime) -> String) -> String {
    let mut sections: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for record in records {
        sections.entry((record.op, record.regime)).or_default().push(record);
    }
    let section = |((operation, regime), records): (_, Vec<&Record>)| {
        format!("{}\n{}\n", heading(operation, regime), table(&records, preset))
    };
    sections.into_iter().map(section).collect::<Vec<_>>().join("\n")
}

fn table(records: &[&Record], preset: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header(HEADINGS).add_rows(records.iter().map(|record| row(record)));
    right_align(&mut table, &TEXT_COLUMNS);
    table
}

/// Puts the numbers of all columns but these below each other.
pub fn right_align(table: &mut Table, text_columns: &[usize]) {
    for (index, column) in table.column_iter_mut().enumerate() {
        if !text_columns.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn row(record: &Record) -> [String; HEADINGS.len()] {
    let number = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "–".into(), text);
    let multiple = |time: Option<f64>| number(time.map(|time| time / record.gemm_us), |value| format!("{value:.2}"));
    let share = |value| number(value, |value| format!("{:.0} %", 100.0 * value));
    [
        record.model.to_string(),
        record.m.to_string(),
        record.variant.clone(),
        format!("{:.1}", record.gemm_us),
        multiple(record.ours_us),
        multiple(record.serial_us),
        multiple(record.torch_us),
        multiple(record.cublasmp_us),
        multiple(record.limit_us),
        share(record.fraction),
        share(record.efficiency),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    #[test]
    fn markdown_is_as_it_was_reviewed() {
        let expected = include_str!("../tests/sample.md");
        assert_eq!(markdown(sample()), expected);
    }

    #[test]
    fn the_terminal_shows_the_same_numbers() {
        let text = terminal(&merge_peers(sample()));
        assert!(
            text.contains("gemm_reduce_scatter, burst") && text.contains("1.05") && text.contains("95 %"),
            "{text}"
        );
    }
}
