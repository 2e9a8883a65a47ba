mod parse;
mod source;

use crate::local::ready;
use crate::{
    BoxFuture, Catalog, CatalogLimits, Endpoint, Lease, RegisterOptions, Registry, RegistryError, Snapshot,
    Watch, lock,
};
use source::Source;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How a [`FileRegistry`] reads its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// How often the file is looked at. Default 500 ms.
    pub poll_interval: Duration,
    /// Largest file that is read, in bytes. Default 64 MiB.
    pub file_bytes_max: u64,
    /// Whether to begin empty when the file cannot be read yet, instead of with an error. Default `false`.
    pub wait_for_file: bool,
    /// Limits of what is kept.
    pub limits: CatalogLimits,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(500),
            file_bytes_max: 64 << 20,
            wait_for_file: false,
            limits: CatalogLimits::default(),
        }
    }
}

/// A registry read from a file, for deployments that are written down by hand or by a tool.
///
/// The file's name ends in `.toml` or `.json`:
///
/// ```toml
/// [[endpoints]]
/// service = "Echo"
/// address = "10.0.0.1:7000"
/// instance = "echo-1"       # optional; the address if left out
/// weight = 200              # optional, 0–65535; 100 if left out
/// zone = "eu-1"             # optional
/// tags = ["canary"]         # optional
/// ```
///
/// In JSON: `{"endpoints": [{"service": "Echo", "address": "10.0.0.1:7000"}]}`.
///
/// The file is looked at again and again by a thread of the registry's own. An entry that is not valid is left out
/// with a warning, also one that was valid before, while the others serve. When the whole file cannot be read or understood, or is gone, the last
/// good state stays. Replace the file by renaming a new one over it; one written in place may be seen half done,
/// which counts as not understood until it is complete.
#[derive(Debug)]
pub struct FileRegistry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    catalog: Arc<Catalog>,
    source: Mutex<Source>,
    poll_interval: Duration,
    closed: Mutex<bool>,
    closing: Condvar,
}

impl FileRegistry {
    /// Reads a file with the default options.
    ///
    /// # Errors
    /// As [`FileRegistry::with_options`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RegistryError> {
        Self::with_options(path, FileOptions::default())
    }

    /// Reads a file and begins to watch it.
    ///
    /// # Errors
    /// [`RegistryError::BadSource`] when the name has another ending or the file cannot be understood,
    /// [`RegistryError::Unreachable`] when it cannot be read; neither of the latter with
    /// [`FileOptions::wait_for_file`].
    pub fn with_options(path: impl Into<PathBuf>, options: FileOptions) -> Result<Self, RegistryError> {
        let mut source = Source::new(path.into(), options.file_bytes_max)?;
        let catalog = Catalog::new(options.limits);
        match source.read_if_changed() {
            Ok(endpoints) => catalog.replace_all(&endpoints.unwrap_or_default()),
            Err(error) if options.wait_for_file => tracing::warn!(%error, "begins without endpoints"),
            Err(error) => return Err(error),
        }
        let shared = Arc::new(Shared {
            catalog,
            source: Mutex::new(source),
            poll_interval: options.poll_interval.max(Duration::from_millis(1)),
            closed: Mutex::new(false),
            closing: Condvar::new(),
        });
        let watcher = shared.clone();
        let thread = std::thread::Builder::new().name("corewire-file-registry".into());
        thread.spawn(move || watcher.poll()).map_err(|error| RegistryError::Refused {
            kind: "file",
            reason: format!("the thread that watches the file cannot be started: {error}"),
        })?;
        Ok(Self { shared })
    }

    /// Looks at the file now instead of when its time comes. Says whether it was read anew.
    ///
    /// # Errors
    /// [`RegistryError::Unreachable`] or [`RegistryError::BadSource`]; the last good state stays.
    pub fn reload(&self) -> Result<bool, RegistryError> {
        self.shared.reload()
    }
}

impl Shared {
    fn reload(&self) -> Result<bool, RegistryError> {
        // Held until the endpoints are in, so that an older reading cannot overwrite a newer one.
        let mut source = lock(&self.source);
        let endpoints = source.read_if_changed()?;
        if let Some(endpoints) = &endpoints {
            self.catalog.replace_all(endpoints);
        }
        Ok(endpoints.is_some())
    }

    fn poll(&self) {
        let mut last_error = None;
        let mut closed = lock(&self.closed);
        while !*closed {
            closed = self
                .closing
                .wait_timeout(closed, self.poll_interval)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if *closed {
                return;
            }
            drop(closed);
            let error = self.reload().err().map(|error| error.to_string());
            // Said once, not at every look.
            if let Some(error) = error.as_ref().filter(|error| last_error.as_ref() != Some(*error)) {
                tracing::warn!(%error, "the last good endpoints stay");
            }
            last_error = error;
            closed = lock(&self.closed);
        }
    }
}

impl Drop for FileRegistry {
    fn drop(&mut self) {
        *lock(&self.shared.closed) = true;
        self.shared.closing.notify_all();
    }
}

impl Registry for FileRegistry {
    fn catalog(&self) -> &Arc<Catalog> {
        &self.shared.catalog
    }

    fn register(&self, _: Arc<Endpoint>, _: RegisterOptions) -> BoxFuture<'_, Result<Lease, RegistryError>> {
        ready(Err(RegistryError::ReadOnly { kind: "file" }))
    }

    fn discover<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Arc<Snapshot>, RegistryError>> {
        ready(Ok(self.catalog().snapshot(service)))
    }

    fn watch<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Watch, RegistryError>> {
        ready(self.catalog().watch(service))
    }

    fn services(&self) -> BoxFuture<'_, Result<Vec<Arc<str>>, RegistryError>> {
        ready(Ok(self.catalog().services()))
    }
}
