//! The file in which measurements are remembered. Programs may share it, and it may be shipped.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::Entry;
use crate::error::Error;

const FORMAT: &str = "entwine tuning";
const VERSION: u32 = 1;

/// A file of entries, as JSON.
pub(crate) struct TuningFile {
    path: PathBuf,
}

/// What every version's file starts with.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    format: String,
    version: u32,
    entries: Vec<Entry>,
}

impl TuningFile {
    pub fn at(path: PathBuf) -> Self {
        TuningFile { path }
    }

    /// The path, for messages.
    pub fn name(&self) -> impl fmt::Display {
        self.path.display()
    }

    /// Its entries; none if there is no such file.
    ///
    /// # Errors
    /// It can't be read, or is no tuning file of this version.
    pub fn read(&self) -> Result<Vec<Entry>, Error> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.problem(format!("it can't be read: {error}"))),
            Ok(text) => text,
        };
        let no_tuning_file = |error: &dyn fmt::Display| self.problem(format!("it is no tuning file ({error})"));
        let header: Header = serde_json::from_slice(&text).map_err(|error| no_tuning_file(&error))?;
        if header.format != FORMAT {
            return Err(no_tuning_file(&format_args!("its format is \"{}\"", header.format)));
        }
        if header.version != VERSION {
            return Err(self.problem(format!("it is of version {}, and this is version {VERSION}", header.version)));
        }
        let contents: Contents = serde_json::from_slice(&text).map_err(|error| no_tuning_file(&error))?;
        Ok(contents.entries)
    }

    /// Refuses what `add` would refuse, as far as that can be told beforehand.
    ///
    /// # Errors
    /// Something is in its place that is no tuning file of this version, or its folder is not there or can't be written.
    pub fn check(&self) -> Result<(), Error> {
        self.read()?;
        self.lock().map(drop).map_err(|error| self.problem(format!("it can't be locked: {error}")))
    }

    /// Adds an entry, in the place of an earlier one for the same launches. What others have added meanwhile stays, and
    /// who reads meanwhile sees all or nothing of it.
    ///
    /// # Errors
    /// It can't be written, or something is in its place that is no tuning file of this version.
    pub fn add(&self, entry: Entry) -> Result<(), Error> {
        let _lock = self.lock().map_err(|error| self.problem(format!("it can't be locked: {error}")))?;
        let mut entries = self.read()?;
        entries.retain(|earlier| earlier.key != entry.key);
        entries.push(entry);
        let contents = Contents { format: FORMAT.into(), version: VERSION, entries };
        self.replace(&contents).map_err(|error| self.problem(format!("it can't be written: {error}")))
    }

    /// A lock that ends when the result is dropped. It is on a file of its own, since the other one is replaced.
    fn lock(&self) -> io::Result<File> {
        let mut name = OsString::from(&self.path);
        name.push(".lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(name)?;
        file.lock()?;
        Ok(file)
    }

    fn replace(&self, contents: &Contents) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let mut file = NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, contents)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn problem(&self, problem: String) -> Error {
        Error::Tuning { path: self.path.clone(), problem }
    }
}
