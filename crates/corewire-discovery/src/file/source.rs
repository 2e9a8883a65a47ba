use super::parse::{Format, parse};
use crate::{Endpoint, RegistryError};
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The file, and what it looked like when it was last read.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    format: Format,
    bytes_max: u64,
    read: Option<Stamp>,
}

/// Two readings with the same stamp have the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    length: u64,
    inode: u64,
}

/// A file changed less than this before it was read may change again without a new time stamp.
const UNSETTLED: Duration = Duration::from_secs(2);

impl Source {
    pub(super) fn new(path: PathBuf, bytes_max: u64) -> Result<Self, RegistryError> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Format::Toml,
            Some("json") => Format::Json,
            _ => {
                let reason = "its name must end in .toml or .json".into();
                return Err(RegistryError::BadSource { source_name: path.display().to_string(), reason });
            }
        };
        Ok(Self { path, format, bytes_max, read: None })
    }

    /// The endpoints, or `None` if the file is what it was.
    pub(super) fn read_if_changed(&mut self) -> Result<Option<Vec<Arc<Endpoint>>>, RegistryError> {
        let mut file = File::open(&self.path).map_err(|error| self.unreachable(&error))?;
        let stamp =
            file.metadata().and_then(|metadata| stamp(&metadata)).map_err(|e| self.unreachable(&e))?;
        if self.read == Some(stamp) {
            return Ok(None);
        }
        if stamp.length > self.bytes_max {
            let (length, limit) = (stamp.length, self.bytes_max);
            return Err(self.bad(format!("it has {length} bytes, the limit is {limit}")));
        }
        let mut text = String::new();
        // One byte more than allowed tells a file that grew meanwhile from one that fits.
        let limit = self.bytes_max.saturating_add(1);
        file.by_ref().take(limit).read_to_string(&mut text).map_err(|error| self.unreachable(&error))?;
        if text.len() as u64 > self.bytes_max {
            return Err(self.bad(format!("it has more bytes than the limit of {}", self.bytes_max)));
        }
        let endpoints = parse(self.format, &text, &self.path).map_err(|reason| self.bad(reason))?;
        self.read = is_settled(stamp.modified).then_some(stamp);
        Ok(Some(endpoints))
    }

    fn unreachable(&self, error: &std::io::Error) -> RegistryError {
        let address = self.path.display().to_string();
        RegistryError::Unreachable { kind: "file", address, reason: error.to_string() }
    }

    fn bad(&self, reason: String) -> RegistryError {
        RegistryError::BadSource { source_name: self.path.display().to_string(), reason }
    }
}

fn is_settled(modified: SystemTime) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|age| age > UNSETTLED)
}

fn stamp(metadata: &Metadata) -> std::io::Result<Stamp> {
    Ok(Stamp { modified: metadata.modified()?, length: metadata.len(), inode: inode(metadata) })
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}
