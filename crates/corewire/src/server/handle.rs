//! A server that runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use corewire_runtime::{CloseReason, Handle, Runtime, sleep};

use super::registry::{Local, Shared};
use super::sessions::Sessions;
use super::settings::ServedTls;
use super::socket_file::SocketFile;
use super::stats::ServerStats;
use crate::tls::TlsConfigError;

/// A running server. Usable from any thread. Dropping it stops the server at once; see
/// [`shutdown`](Self::shutdown).
#[derive(Debug)]
pub struct ServerHandle {
    shared: Arc<Shared>,
    runtime: Handle,
    sessions: Sessions,
    listening: Listening,
    own_runtime: Option<Runtime>,
    first: First,
}

/// Where it listens.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) uri: String,
    pub(super) addresses: Vec<SocketAddr>,
    /// Removed when this is dropped.
    pub(super) _socket_file: Option<SocketFile>,
    pub(super) tls: Option<ServedTls>,
}

/// What comes first in a shutdown.
#[derive(Default)]
struct First(Vec<Box<dyn FnOnce(Duration) + Send + Sync>>);

impl std::fmt::Debug for First {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("First").field(&self.0.len()).finish()
    }
}

/// What a shutdown did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Sessions that were open when it began.
    pub sessions: usize,
    /// Sessions that ended by themselves within the deadline.
    pub finished: usize,
    /// Sessions that were cut, at the deadline or at their close timeout, whichever came first.
    pub cut: usize,
    /// Bytes that the cut sessions had still to send.
    pub unsent_bytes: usize,
}

impl std::fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sessions: {} finished, {} cut", self.sessions, self.finished, self.cut)?;
        if self.unsent_bytes > 0 {
            write!(f, " with {} bytes unsent", self.unsent_bytes)?;
        }
        Ok(())
    }
}

impl ServerHandle {
    pub(super) const fn new(
        shared: Arc<Shared>,
        runtime: Handle,
        sessions: Sessions,
        listening: Listening,
        own_runtime: Option<Runtime>,
    ) -> Self {
        Self { shared, runtime, sessions, listening, own_runtime, first: First(Vec::new()) }
    }

    /// Where it listens, with the real port: what a client connects to (for `*`, on this machine).
    pub fn uri(&self) -> &str {
        &self.listening.uri
    }

    /// Reads the certificates and keys that its `tls://` URI names anew, for the connections from now on; those that are there
    /// go on as they are. [`run`](crate::NetServer::run) does so on SIGHUP.
    ///
    /// # Errors
    /// The files are not there or not what they should be: the server goes on with those that it has. Or it does not serve
    /// TLS from files.
    pub fn reload_tls(&self) -> Result<(), TlsConfigError> {
        self.listening.tls.as_ref().ok_or(TlsConfigError::NotFromFiles)?.reload()
    }

    /// Tells the log what came of it.
    pub(super) fn log_reload(&self, outcome: Result<(), TlsConfigError>) {
        match outcome {
            Ok(()) => tracing::info!(uri = self.listening.uri, "the certificates were read anew"),
            Err(error) => {
                tracing::error!(uri = self.listening.uri, %error, "the certificates were not read anew; the old ones go on");
            }
        }
    }

    /// It serves TLS from files, which [`reload_tls`](Self::reload_tls) reads anew.
    pub fn has_tls_files(&self) -> bool {
        self.listening.tls.as_ref().is_some_and(|tls| tls.files.is_some())
    }

    /// The addresses that it listens on; none for a Unix-domain socket.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.listening.addresses
    }

    /// The workers.
    pub const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counters, at most a tick old.
    pub fn stats(&self) -> ServerStats {
        StatsSource::new(self.shared.clone(), self.runtime.clone()).take()
    }

    /// Its sessions, to send to one, to some or to all of them, or to close them. Can be cloned and kept by handlers, which the handle
    /// cannot: whoever holds it holds the server.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Has a [`shutdown`](Self::shutdown) do this first, while connections are still accepted: to tell clients elsewhere
    /// that it will go away, for example. It is given the time that the shutdown has, which does not begin before this
    /// is done. When the handle is dropped without a shutdown, it is dropped without being called.
    pub fn on_shutdown(&mut self, first: impl FnOnce(Duration) + Send + Sync + 'static) {
        self.first.0.push(Box::new(first));
    }

    /// Stops accepting, lets sessions finish what they have to send (and their tasks what they do), cuts at the
    /// deadline what is left, and says what it cut. Blocks the calling thread, which must not be one of the server's
    /// workers.
    pub fn shutdown(mut self, deadline: Duration) -> ShutdownReport {
        for first in self.first.0.drain(..) {
            first(deadline);
        }
        // A time beyond the clock's end is none.
        let until = corewire_driver::clock::now().checked_add(deadline);
        let key = self.shared.key;
        let (sessions, cut_before) = (self.shared.live(), self.shared.cut());
        crate::block_on(
            self.sessions
                .on_each_worker(|local| {
                    local.shutting_down.set(true);
                    drop(local.listeners.take());
                    for session in local.all() {
                        session.connection().shut_down();
                    }
                    0
                })
                .done(),
        );
        self.shared.wait_until_empty(until);
        let cut_now = self.shared.live();
        let unsent_now = crate::block_on(
            self.sessions
                .on_each_worker(|local| {
                    let mut unsent = 0;
                    for session in local.all() {
                        unsent += session.queued();
                        session.connection().abort(CloseReason::Shutdown);
                    }
                    unsent
                })
                .done(),
        );
        let (cut, unsent) = self.shared.cut();
        self.stop(key);
        // Those whose close timeout was shorter than the deadline count as well.
        let cut = cut_now + (cut - cut_before.0);
        let unsent_bytes = unsent_now + (unsent - cut_before.1);
        ShutdownReport { sessions, finished: sessions - cut.min(sessions), cut, unsent_bytes }
    }

    fn stop(&mut self, key: u64) {
        for worker in 0..self.runtime.workers() {
            // A worker that has stopped has no part of the server left.
            let _ = self.runtime.run_on(worker, move || {
                if let Some(local) = Local::find(key) {
                    for session in local.all() {
                        session.connection().abort(CloseReason::Shutdown);
                    }
                }
                Local::uninstall(key);
            });
        }
        drop(self.own_runtime.take());
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop(self.shared.key);
    }
}

/// Where statistics come from.
pub(super) struct StatsSource {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl StatsSource {
    pub(super) const fn new(shared: Arc<Shared>, runtime: Handle) -> Self {
        Self { shared, runtime }
    }

    fn take(&self) -> ServerStats {
        ServerStats::new(&self.shared, self.runtime.stats())
    }

    pub(super) async fn print_every(self, period: Duration, print: Arc<dyn Fn(&str) + Send + Sync>) {
        let mut before = self.take();
        // Once the server is gone its part of this worker is too.
        while Local::find(self.shared.key).is_some() {
            sleep(period).await;
            let now = self.take();
            print(&now.line(&before));
            before = now;
        }
    }
}
