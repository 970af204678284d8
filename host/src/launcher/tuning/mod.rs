//! What was measured: the fastest choices for launches of certain sizes, remembered by a world and in a file.

mod file;
mod key;
mod search;
mod stopwatch;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::choice::{Choice, Chooser, Plan};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::platform::GpuKind;
use crate::request::Request;

use file::TuningFile;
pub(crate) use key::Key;
#[cfg(test)]
pub(crate) use key::testing;
use search::search;
use stopwatch::GraphStopwatch;

/// The fastest choice for launches of certain sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub key: Key,
    pub choice: Choice,
    /// What a launch took.
    pub us: f64,
}

/// What [`Kernel::tune`](crate::Kernel::tune) found. Displays as a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tuned {
    /// The plan for launches from now on.
    pub plan: Plan,
    /// All that was measured, the fastest first, with the median time of a launch in µs.
    pub measured: Vec<(Choice, f64)>,
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        for (choice, us) in &self.measured {
            writeln!(f, "  {us:>8.1} µs  {}", choice.text(self.plan.kernel))?;
        }
        Ok(())
    }
}

/// Measures the ways to carry a launch out, and remembers the fastest.
pub(crate) fn tune(kernel: &Arc<Loaded>, chooser: &Chooser, request: &Request) -> Result<Tuned, Error> {
    let world = kernel.world();
    let (element, dims) = (request.element(), request.dims());
    let Some(key) = chooser.key(world, element, dims) else {
        let problem = "simulated ranks are not timed, so that there is nothing to tune; tune it on GPUs".into();
        return Err(Error::Launch { kernel: kernel.name(), problem });
    };
    world.tuning().check()?;
    let ranked = chooser.ranked(world, element, dims)?;
    let expected_us = ranked.first().map_or(1.0, |(_, prediction)| prediction.total_us());
    let mut stopwatch = GraphStopwatch::new(kernel, request, expected_us);
    let ranked = ranked.into_iter().map(|(choice, _)| choice).collect();
    let measured = search(ranked, |fastest| chooser.near(fastest), &mut stopwatch)?;
    let (choice, us) = measured.first().expect("a request has a choice").clone();
    world.tuning().remember(Entry { key, choice, us })?;
    Ok(Tuned { plan: request.plan_of(&*chooser.choose(world, element, *dims)?)?, measured })
}

/// What a world remembers.
#[derive(Default)]
pub(crate) struct Tuning {
    file: Option<TuningFile>,
    entries: Mutex<HashMap<Key, Entry>>,
    /// Counts up with every entry, so that choices are made anew.
    generation: AtomicU32,
}

impl Tuning {
    /// What a file remembers of these GPUs, and what will be added to it. A file that can't be used is ignored, with a
    /// warning; so is one that knows other GPUs only.
    pub fn of(path: Option<PathBuf>, gpus: Option<&GpuKind>) -> Self {
        let Some((path, gpus)) = path.zip(gpus) else { return Tuning::default() };
        let file = TuningFile::at(path);
        let entries = file.read().unwrap_or_else(|error| {
            log::warn!("{error}; nothing in it is used");
            Vec::new()
        });
        let here = |entry: &&Entry| entry.key.is_of(gpus);
        if !entries.is_empty() && entries.iter().find(here).is_none() {
            log::warn!("tuning file {}: nothing in it was measured on {gpus}, so that nothing is used", file.name());
        }
        let entries = entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        Tuning { file: Some(file), entries: Mutex::new(entries), generation: AtomicU32::new(0) }
    }

    /// How often something was added.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// What is remembered.
    pub fn find(&self, key: &Key) -> Option<Entry> {
        self.lock().get(key).cloned()
    }

    /// Refuses what can't be remembered, before it is measured.
    pub fn check(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |file| file.check())
    }

    /// Remembers an entry, in the place of an earlier one.
    pub fn remember(&self, entry: Entry) -> Result<(), Error> {
        self.lock().insert(entry.key.clone(), entry.clone());
        self.generation.fetch_add(1, Ordering::Release);
        self.file.as_ref().map_or(Ok(()), |file| file.add(entry))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::{entry, gpus};

    #[test]
    fn what_is_remembered_outlives_its_world() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        let tuning = Tuning::of(Some(path.clone()), Some(&gpus()));
        tuning.check().unwrap();
        tuning.remember(entry(512, 30.0)).unwrap();
        tuning.remember(entry(512, 20.0)).unwrap();
        assert_eq!(tuning.generation(), 2);
        let later = Tuning::of(Some(path), Some(&gpus()));
        assert_eq!(later.find(&entry(512, 0.0).key), Some(entry(512, 20.0)));
        assert_eq!(later.find(&entry(513, 0.0).key), None);
    }

    #[test]
    fn what_others_added_meanwhile_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        let [one, other] = [(), ()].map(|()| Tuning::of(Some(path.clone()), Some(&gpus())));
        one.remember(entry(1, 1.0)).unwrap();
        other.remember(entry(2, 2.0)).unwrap();
        let all = Tuning::of(Some(path), Some(&gpus()));
        assert!(all.find(&entry(1, 1.0).key).is_some() && all.find(&entry(2, 2.0).key).is_some());
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        std::thread::scope(|scope| {
            for m in 0..8 {
                let path = path.clone();
                scope.spawn(move || Tuning::of(Some(path), Some(&gpus())).remember(entry(m, 1.0)).unwrap());
            }
        });
        let all = Tuning::of(Some(path), Some(&gpus()));
        assert!((0..8).all(|m| all.find(&entry(m, 1.0).key).is_some()));
    }

    #[test]
    fn what_is_no_tuning_file_is_neither_used_nor_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.json");
        for text in ["", "{", "[]", r#"{"format": "shopping", "version": 1, "entries": []}"#] {
            std::fs::write(&path, text).unwrap();
            let tuning = Tuning::of(Some(path.clone()), Some(&gpus()));
            let error = tuning.check().unwrap_err().to_string();
            assert!(error.contains("notes.json: it is no tuning file"), "{error}");
            assert!(tuning.remember(entry(1, 1.0)).is_err());
            assert!(tuning.find(&entry(1, 1.0).key).is_some(), "this world remembers it all the same");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn what_can_not_be_written_is_refused_before_it_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            Tuning::of(Some(folder.path().join("none/tuning.json")), Some(&gpus())).check().unwrap_err().to_string();
        assert!(error.contains("it can't be locked"), "{error}");
        let error = Tuning::of(Some(folder.path().into()), Some(&gpus())).check().unwrap_err().to_string();
        assert!(error.contains("it can't be read"), "{error}");
    }

    #[test]
    fn a_file_of_another_version_is_refused_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        std::fs::write(&path, r#"{"format": "entwine tuning", "version": 7, "entries": [{"new": true}]}"#).unwrap();
        let error = Tuning::of(Some(path), Some(&gpus())).check().unwrap_err().to_string();
        assert!(error.contains("it is of version 7, and this is version 1"), "{error}");
    }

    #[test]
    fn entries_of_other_gpus_are_kept_and_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        let others = GpuKind { name: "NVIDIA B300".into(), ..gpus() };
        Tuning::of(Some(path.clone()), Some(&gpus())).remember(entry(1, 1.0)).unwrap();
        let elsewhere = Tuning::of(Some(path.clone()), Some(&others));
        let key = Key { device: others.name.clone(), ..entry(1, 1.0).key };
        assert_eq!(elsewhere.find(&key), None);
        elsewhere.remember(Entry { key: key.clone(), ..entry(1, 2.0) }).unwrap();
        let here = Tuning::of(Some(path), Some(&gpus()));
        assert_eq!(here.find(&entry(1, 1.0).key).unwrap().us, 1.0);
    }
}
