//! Records against what they should reach (`goals.json`): fractions of the limit, and the fastest of the others.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde::Deserialize;

use crate::record::{Record, Regime};
use crate::shapes::{Model, Operation};
use crate::table::right_align;

const HEADINGS: [&str; 10] =
    ["operation", "model", "M", "of the limit", "goal", "", "sustained", "fused", "fastest other", ""];
const TEXT_COLUMNS: [usize; 5] = [0, 1, 5, 8, 9];

/// What the marks mean.
const LEGEND: &str = "In burst, unless it says sustained. *Goal* is the least fraction of the limit that a fused kernel \
    should reach. *Fused* and the *fastest other* are in units of the product alone; an other that is marked \"earlier\" \
    was measured on the same GPUs in runs that are not among these records.";

/// The variant that the launcher chooses.
const CHOSEN: &str = "auto";

#[derive(Deserialize)]
struct Goals {
    /// The number of GPUs that they are for.
    world: usize,
    /// The rows that the lists below are for.
    rows: Vec<usize>,
    fractions: Vec<Fraction>,
    earlier: Vec<Earlier>,
}

/// The least fraction of the limit, by rows.
#[derive(Deserialize)]
struct Fraction {
    op: Operation,
    model: Model,
    at_least: Vec<Option<f64>>,
}

/// A peer's time over that of the product alone, by rows.
#[derive(Deserialize)]
struct Earlier {
    peer: String,
    op: Operation,
    model: Model,
    over_product: Vec<f64>,
}

impl Goals {
    fn read() -> Self {
        serde_json::from_str(include_str!("../goals.json")).expect("goals.json is part of this program")
    }

    fn fraction(&self, record: &Record) -> Option<f64> {
        let row = self.rows.iter().position(|rows| *rows == record.m)?;
        self.fractions.iter().find(|goal| (goal.op, goal.model) == (record.op, record.model))?.at_least[row]
    }

    /// The others' times over the product alone, with their names.
    fn others(&self, record: &Record) -> Vec<(f64, String)> {
        let measured =
            [("cuBLASLt + NCCL", record.serial_us), ("PyTorch", record.torch_us), ("cuBLASMp", record.cublasmp_us)];
        let measured = measured.into_iter().filter_map(|(name, time)| Some((time? / record.gemm_us, name.to_string())));
        let row = self.rows.iter().position(|rows| *rows == record.m);
        let earlier = self.earlier.iter().filter(|peer| (peer.op, peer.model) == (record.op, record.model));
        let earlier = earlier.filter_map(|peer| Some((peer.over_product[row?], format!("{}, earlier", peer.peer))));
        measured.chain(earlier).collect()
    }
}

/// A table in Markdown of the records for which there are goals; none if there are none such.
pub fn markdown(records: &[Record]) -> Option<String> {
    let goals = Goals::read();
    let mut cases = BTreeMap::<_, Vec<&Record>>::new();
    for record in records.iter().filter(|record| record.world == goals.world && goals.rows.contains(&record.m)) {
        cases.entry((record.op, record.model, record.m)).or_default().push(record);
    }
    let rows: Vec<_> = cases.values().filter_map(|case| Some(row(&goals, chosen(case)?, case))).collect();
    if rows.is_empty() {
        return None;
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADINGS).add_rows(rows);
    right_align(&mut table, &TEXT_COLUMNS);
    Some(format!("### Against the goals\n\n{LEGEND}\n\n{table}\n"))
}

/// The burst of the variant that the launcher chooses, or of the fastest where it was not measured.
fn chosen<'a>(case: &[&'a Record]) -> Option<&'a Record> {
    let bursts = || case.iter().copied().filter(|record| record.regime == Regime::Burst);
    let fastest =
        || bursts().min_by(|one, other| one.ours_us.unwrap_or(f64::MAX).total_cmp(&other.ours_us.unwrap_or(f64::MAX)));
    bursts().find(|record| record.variant == CHOSEN).or_else(fastest)
}

fn row(goals: &Goals, burst: &Record, case: &[&Record]) -> [String; HEADINGS.len()] {
    let none = || String::from("–");
    let percent = |share: Option<f64>| share.map_or_else(none, |share| format!("{:.1} %", 100.0 * share));
    let sustained = case.iter().find(|record| record.regime == Regime::Sustained && record.variant == burst.variant);
    let goal = goals.fraction(burst);
    let met = burst.fraction.zip(goal).map(|(fraction, goal)| fraction >= goal);
    let fused = burst.ours_us.map(|time| time / burst.gemm_us);
    let other = goals.others(burst).into_iter().min_by(|(one, _), (other, _)| one.total_cmp(other));
    let ahead = fused.zip(other.as_ref()).map(|(fused, (other, _))| fused < *other);
    let mark =
        |yes: Option<bool>, [met, missed]: [&str; 2]| yes.map_or("", |yes| if yes { met } else { missed }).into();
    [
        burst.op.to_string(),
        burst.model.to_string(),
        burst.m.to_string(),
        percent(burst.fraction),
        goal.map_or_else(none, |goal| format!("{:.0} %", 100.0 * goal)),
        mark(met, ["met", "**missed**"]),
        percent(sustained.and_then(|record| record.fraction)),
        fused.map_or_else(none, |fused| format!("{fused:.2}")),
        other.map_or_else(none, |(time, name)| format!("{time:.2} {name}")),
        mark(ahead, ["ahead", "**behind**"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{merge_peers, tests::sample};

    #[test]
    fn every_list_has_an_entry_for_each_number_of_rows() {
        let goals = Goals::read();
        assert!(goals.fractions.iter().all(|goal| goal.at_least.len() == goals.rows.len()));
        assert!(goals.earlier.iter().all(|peer| peer.over_product.len() == goals.rows.len()));
    }

    #[test]
    fn what_is_missed_and_who_is_faster_is_marked() {
        let text = markdown(&merge_peers(sample())).unwrap();
        let words = |line: &str| line.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
        assert_eq!(
            text.lines().skip(6).map(words).collect::<Vec<_>>(),
            [
                "gemm_reduce_scatter llama7b 512 80.0 % 78 % met – 1.25 1.84 cuBLASMp, earlier ahead",
                "gemm_reduce_scatter llama7b 2048 95.2 % 94 % met – 1.05 1.24 ParallelKittens, earlier ahead",
                "all_gather_gemm llama70b 512 93.6 % 88 % met – 1.12 1.13 cuBLASMp, earlier ahead",
            ]
        );
    }

    #[test]
    fn slower_than_the_others_and_than_the_goal_is_said() {
        let mut records = merge_peers(sample());
        records.retain(|record| record.m == 512 && record.op == Operation::AllGatherGemm);
        (records[0].ours_us, records[0].fraction) = (Some(190.0), Some(160.0 / 190.0));
        let text = markdown(&records).unwrap();
        assert!(text.contains("**missed**") && text.contains("**behind**"), "{text}");
    }

    #[test]
    fn records_without_goals_have_no_table() {
        let mut records = merge_peers(sample());
        records.iter_mut().for_each(|record| record.world = 8);
        assert_eq!(markdown(&records), None);
    }
}
