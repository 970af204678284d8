//! The records of a run: one for each operation, shape, variant and regime, in a JSON file.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::moe;
use crate::shapes::{Model, Operation};

/// How hard the GPUs have been working before each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// Idle before each batch: a cool chip at full clocks
    Burst,
    /// Batches back to back: what the power limit allows
    Sustained,
}

/// How calls reach the GPUs. The same for everything that is timed in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// Replayed from a CUDA graph for each GPU
    Graph,
    /// Launched one by one, queued before the clock starts
    Eager,
}

/// One measured row. Times are in µs for one call, medians over the repeats, of the slowest GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub op: Operation,
    pub model: Model,
    pub dtype: String,
    pub world: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Of the fused kernel: its tile and link limit; else the peer's name.
    pub variant: String,
    pub regime: Regime,
    pub timing: Timing,
    /// The fused kernel.
    pub ours_us: Option<f64>,
    /// cuBLASLt's matrix product alone, on all GPUs at once.
    pub gemm_us: f64,
    /// cuBLASLt and NCCL, one after the other; none where nothing is exchanged.
    pub serial_us: Option<f64>,
    /// PyTorch's fused operation.
    pub torch_us: Option<f64>,
    /// cuBLASMp's.
    #[serde(default)]
    pub cublasmp_us: Option<f64>,
    /// The longer of the matrix product alone and the bytes on the wire at the link's rate; where the memory's rate was measured
    /// too, of reading the weights at that rate and the bytes on the wire.
    pub limit_us: Option<f64>,
    /// `limit_us / ours_us`.
    pub fraction: Option<f64>,
    /// `(serial_us − ours_us) / (serial_us − limit_us)`.
    pub efficiency: Option<f64>,
    /// `(slowest − fastest) / median` over the repeats.
    pub spread: f64,
    /// The link's rate in each direction, both at once, in GB/s; none for one GPU.
    pub link_gbps: Option<f64>,
    /// The rate at which a kernel reads a GPU's own memory, in GB/s, for products that are bound by it.
    #[serde(default)]
    pub memory_gbps: Option<f64>,
    /// Relative Frobenius error against what cuBLASLt and NCCL computed.
    pub error: Option<f64>,
    pub date: String,
    pub device: String,
    pub driver: String,
    /// The vendor's libraries with their versions.
    pub libraries: String,
}

/// Reads the records of several files, one after the other.
///
/// # Errors
/// A file that is missing or does not hold records.
pub fn load<R: DeserializeOwned>(files: &[impl AsRef<Path>]) -> Result<Vec<R>> {
    let read = |file: &Path| -> Result<Vec<R>> { Ok(serde_json::from_slice(&fs::read(file)?)?) };
    let mut records = Vec::new();
    for file in files {
        let file = file.as_ref();
        records.extend(read(file).with_context(|| format!("couldn't read records from {}", file.display()))?);
    }
    Ok(records)
}

/// As [`load`], of files that may hold records of layers of experts too.
///
/// # Errors
/// As for [`load`].
pub fn load_all(files: &[impl AsRef<Path>]) -> Result<(Vec<Record>, Vec<moe::Record>)> {
    let (mut records, mut of_experts) = (Vec::new(), Vec::new());
    for file in files {
        let name = file.as_ref().display();
        for record in load::<Value>(&[file])? {
            let is_of_experts = record["op"] == moe::OP;
            let read = if is_of_experts {
                serde_json::from_value(record).map(|record| of_experts.push(record))
            } else {
                serde_json::from_value(record).map(|record| records.push(record))
            };
            read.with_context(|| format!("{name} holds what is no record of a product or of a layer of experts"))?;
        }
    }
    Ok((records, of_experts))
}

/// Writes records to a file, whose folder is made if need be.
///
/// # Errors
/// The file cannot be written.
pub fn save(file: &Path, records: &[Record]) -> Result<()> {
    let write = || -> Result<()> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(file, serde_json::to_string_pretty(records)? + "\n")?)
    };
    write().with_context(|| format!("couldn't write {}", file.display()))
}

/// The latest record of each case, variant and regime: of those of one day the last in the list. Files of earlier runs
/// are kept, and read with the others. Peers that the latest run didn't time have their times of the others, scaled.
pub fn latest(records: Vec<Record>) -> Vec<Record> {
    let mut latest = Vec::<Record>::new();
    for mut record in records {
        let same = |other: &Record| other.same_case(&record) && other.variant == record.variant;
        match latest.iter_mut().find(|other| same(other)) {
            Some(other) if other.date <= record.date => {
                record.take_peers(other);
                *other = record;
            }
            Some(other) => other.take_peers(&record),
            None => latest.push(record),
        }
    }
    latest
}

/// The records of fused kernels, each with the times of other fused operations: those of its own run, or else those that
/// peers' records have, scaled.
pub fn merge_peers(records: Vec<Record>) -> Vec<Record> {
    let (mut ours, peers): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record.ours_us.is_some());
    for record in &mut ours {
        for peer in &peers {
            if peer.same_case(record) {
                record.take_peers(peer);
            }
        }
    }
    ours
}

impl Record {
    /// Takes the times of peers that it has none of from another record of the same case.
    ///
    /// That was timed in another run, on a chip in another state: times are scaled by the matrix product alone, which every run
    /// timed.
    fn take_peers(&mut self, other: &Record) {
        let scaled = |time: Option<f64>| Some(time? * self.gemm_us / other.gemm_us);
        let (torch_us, cublasmp_us) = (scaled(other.torch_us), scaled(other.cublasmp_us));
        self.torch_us = self.torch_us.or(torch_us);
        self.cublasmp_us = self.cublasmp_us.or(cublasmp_us);
    }

    fn same_case(&self, other: &Record) -> bool {
        let case = |record: &Record| {
            (record.op, record.world, record.m, record.n, record.k, record.regime, record.dtype.clone())
        };
        case(self) == case(other)
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("no regime is hidden").get_name())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Records as a run and the peers' script write them.
    pub fn sample() -> Vec<Record> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        load(&[folder.join("sample.json"), folder.join("sample-peers.json")]).unwrap()
    }

    #[test]
    fn peers_are_scaled_to_the_run_they_join() {
        let merged = merge_peers(sample());
        assert_eq!(merged.len(), 4);
        assert!(merged.iter().all(|record| record.ours_us.is_some()));
        let joined =
            merged.iter().find(|record| record.m == 2048 && record.op == Operation::GemmReduceScatter).unwrap();
        let [torch_us, cublasmp_us] = [joined.torch_us, joined.cublasmp_us].map(Option::unwrap);
        assert!((torch_us - 146.68749 * 115.0 / 117.59266).abs() < 1e-3, "{torch_us}");
        assert!((cublasmp_us - 186.89940 * 115.0 / 119.21452).abs() < 1e-3, "{cublasmp_us}");
        assert_eq!(merged.iter().filter(|record| record.torch_us.is_some()).count(), 1);
    }

    #[test]
    fn what_was_timed_in_the_same_run_counts() {
        let mut records = sample();
        let own = records.iter_mut().find(|record| record.m == 2048 && record.ours_us.is_some()).unwrap();
        own.torch_us = Some(140.0);
        let merged = merge_peers(records);
        let joined = merged.iter().find(|record| record.torch_us.is_some()).unwrap();
        assert_eq!(joined.torch_us, Some(140.0));
        assert!(joined.cublasmp_us.is_some_and(|time| (time - 186.89940 * 115.0 / 119.21452).abs() < 1e-3));
    }

    #[test]
    fn later_records_take_the_place_of_earlier_ones() {
        let earlier = sample();
        let mut later = vec![earlier[1].clone(), earlier[0].clone(), earlier[0].clone()];
        later[0].ours_us = Some(118.0);
        later[1] = Record { date: "2026-01-30".into(), ours_us: Some(50.0), ..later[1].clone() };
        later[2].variant = "128x256".into();
        let latest = latest([earlier.clone(), later].concat());
        assert_eq!(latest.len(), earlier.len() + 1);
        assert_eq!([latest[0].ours_us, latest[1].ours_us], [earlier[0].ours_us, Some(118.0)]);
    }

    #[test]
    fn peers_that_a_later_run_left_out_are_kept() {
        let record = sample()[0].clone();
        let gemm_us = record.gemm_us;
        let earlier = Record { torch_us: Some(60.0), gemm_us: gemm_us * 2.0, ..record.clone() };
        let later = Record { cublasmp_us: Some(50.0), ..record };
        for records in
            [vec![earlier.clone(), later.clone()], vec![Record { date: "2027-01-01".into(), ..later }, earlier]]
        {
            let latest = latest(records);
            assert_eq!((latest.len(), latest[0].gemm_us), (1, gemm_us));
            assert_eq!((latest[0].torch_us, latest[0].cublasmp_us), (Some(30.0), Some(50.0)));
        }
    }

    #[test]
    fn records_survive_a_file() {
        let file = std::env::temp_dir().join(format!("entwine-bench-{}/records.json", std::process::id()));
        save(&file, &sample()).unwrap();
        assert_eq!(load::<Record>(&[&file]).unwrap(), sample());
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }

    #[test]
    fn records_are_told_apart_by_what_they_are_of() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let (records, of_experts) = load_all(&[folder.join("sample-moe.json"), folder.join("sample.json")]).unwrap();
        assert_eq!((records.len(), of_experts.len()), (4, 3));
        let error = load_all(&[folder.join("../results/embedding/2026-11-30-tp2.json")]).unwrap_err().to_string();
        assert!(error.ends_with("2026-11-30-tp2.json holds what is no record of a product or of a layer of experts"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = load::<Record>(&["no-such-file.json"]).unwrap_err();
        assert_eq!(error.to_string(), "couldn't read records from no-such-file.json");
    }
}
