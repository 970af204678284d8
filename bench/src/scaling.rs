//! What more GPUs would make of the same layers, by the launcher's model: what each rank computes, sends and signals, and what
//! that is expected to take; beside it what was measured, where it was.

use anyhow::{Context, Result};
use clap::ValueEnum;
use comfy_table::{Table, presets};
use entwine::spec::{ElementType, KernelSpec};
use entwine::{Device, Plan};
use entwine_kernels::{all_gather_gemm, gemm, gemm_all_reduce, gemm_all_to_all, gemm_reduce_scatter, gemv_all_reduce};

use crate::record::{Record, Regime, latest};
use crate::shapes::{Model, Operation, Shape};
use crate::table::right_align;

const WORLDS: [usize; 3] = [2, 4, 8];
const ROWS: [usize; 3] = [512, 2048, 8192];

const HEADINGS: [&str; 12] = [
    "model",
    "M",
    "GPUs",
    "tile",
    "TFLOP",
    "sent, MB",
    "to each, MB",
    "signals",
    "limit, µs",
    "expected, µs",
    "of the limit",
    "measured, µs",
];
const TEXT_COLUMNS: [usize; 2] = [0, 3];

const LEGEND: &str = "By the launcher's model (`entwine::Plan`) on H200 GPUs, a feed-forward layer split over as many GPUs as the row \
    says. *TFLOP*, *sent* and *signals* are each rank's, *to each* is what it sends to each other rank. The *limit* is the \
    product alone, or the bytes on the wire at the link's rate, whichever takes longer. *Measured* are records of this \
    many GPUs, in burst; – where there is none.";

/// Tables in Markdown for all operations, with what the records measured.
///
/// # Errors
/// A layer can't be split so.
pub fn markdown(records: Vec<Record>) -> Result<String> {
    let records = latest(records);
    let mut text = format!("{LEGEND}\n");
    let many_rows = |operation: &&Operation| ROWS.into_iter().all(|rows| operation.takes(rows));
    for operation in Operation::value_variants().iter().filter(many_rows) {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADINGS);
        for model in operation.models() {
            for (m, world) in ROWS.into_iter().flat_map(|m| WORLDS.map(|world| (m, world))) {
                table.add_row(row(*operation, model, m, world, &records)?);
            }
        }
        right_align(&mut table, &TEXT_COLUMNS);
        text += &format!("\n### `{operation}`\n\n{table}\n");
    }
    Ok(text)
}

fn row(
    operation: Operation,
    model: Model,
    m: usize,
    world: usize,
    records: &[Record],
) -> Result<[String; HEADINGS.len()]> {
    let shape = Shape::of(operation, model, m, world)?;
    let size = |size: usize| u32::try_from(size).expect("layers have fewer rows and columns");
    // Where columns are exchanged, the kernel's are those that a rank owns.
    let n = if operation == Operation::GemmAllToAll { shape.n / world } else { shape.n };
    let dims = [("m", size(shape.m)), ("n", size(n)), ("k", size(shape.k))];
    let plan = Plan::of(spec(operation), ElementType::Bf16, &dims, world as u32, &Device::h200())?;
    let prediction = plan.prediction.context("an H200's times are known")?;
    let (limit_us, expected_us) = (prediction.limit_us(), prediction.total_us());
    let signals: u64 = plan.channels.iter().map(|channel| channel.signals).sum();
    let measured = records.iter().find(|record| {
        (record.op, record.model, record.m, record.world) == (operation, model, m, world)
            && (record.variant.as_str(), record.regime) == ("auto", Regime::Burst)
    });
    let (rows, columns) = plan.choice.tile;
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    Ok([
        model.to_string(),
        m.to_string(),
        world.to_string(),
        format!("{rows}×{columns}"),
        format!("{:.3}", 2.0 * (shape.m * shape.n * shape.k) as f64 / 1e12),
        megabytes(plan.wire_bytes()),
        megabytes(plan.wire_bytes() / (world as u64 - 1)),
        signals.to_string(),
        format!("{limit_us:.0}"),
        format!("{expected_us:.0}"),
        format!("{:.0} %", 100.0 * limit_us / expected_us),
        measured.and_then(|record| record.ours_us).map_or_else(|| "–".into(), |us| format!("{us:.0}")),
    ])
}

fn spec(operation: Operation) -> &'static KernelSpec {
    match operation {
        Operation::Gemm => &gemm::SPEC,
        Operation::GemmReduceScatter => &gemm_reduce_scatter::SPEC,
        Operation::GemmAllReduce => &gemm_all_reduce::SPEC,
        Operation::AllGatherGemm => &all_gather_gemm::SPEC,
        Operation::GemmAllToAll => &gemm_all_to_all::SPEC,
        Operation::GemvAllReduce => &gemv_all_reduce::SPEC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(operation: Operation, world: usize) -> [String; HEADINGS.len()] {
        row(operation, Model::Llama70b, 2048, world, &[]).unwrap()
    }

    #[test]
    fn what_is_summed_is_sent_once_and_what_is_given_to_all_twice() {
        // 2048 × 8192 elements of 2 bytes, of which a rank keeps its share.
        assert_eq!(cells(Operation::GemmReduceScatter, 4)[5..7], ["25.2", "8.4"]);
        assert_eq!(cells(Operation::GemmAllReduce, 4)[5..7], ["50.3", "16.8"]);
        assert_eq!(cells(Operation::Gemm, 8)[5..8], ["0.0", "0.0", "0"]);
    }

    #[test]
    fn more_gpus_compute_less_each() {
        assert_eq!(cells(Operation::AllGatherGemm, 2)[4], "0.481");
        assert_eq!(cells(Operation::AllGatherGemm, 8)[4], "0.120");
    }

    #[test]
    fn what_was_measured_stands_beside() {
        let records = crate::record::tests::sample();
        let text = markdown(records.clone()).unwrap();
        let record = records.iter().find(|record| record.variant == "auto" && record.regime == Regime::Burst);
        let Some(record) = record.filter(|record| WORLDS.contains(&record.world) && ROWS.contains(&record.m)) else {
            panic!("the sample has a record in burst of what was chosen")
        };
        assert!(text.contains(&format!(" {:.0} |", record.ours_us.unwrap())), "{text}");
    }
}
