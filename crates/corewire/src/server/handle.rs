//! A server that runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_runtime::{CloseReason, Handle, Runtime, sleep};
use futures_channel::oneshot;

use super::registry::{Local, Shared};
use super::stats::ServerStats;
use crate::session::Session;

/// A running server. Usable from any thread. Dropping it stops the server at once; see
/// [`shutdown`](Self::shutdown).
#[derive(Debug)]
pub struct ServerHandle {
    shared: Arc<Shared>,
    runtime: Handle,
    uri: String,
    addresses: Vec<SocketAddr>,
    own_runtime: Option<Runtime>,
}

/// What a shutdown did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Sessions that were open when it began.
    pub sessions: usize,
    /// Sessions that ended by themselves within the deadline.
    pub finished: usize,
    /// Sessions that were cut at the deadline.
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
        uri: String,
        addresses: Vec<SocketAddr>,
        own_runtime: Option<Runtime>,
    ) -> Self {
        Self { shared, runtime, uri, addresses, own_runtime }
    }

    /// Where it listens, with the real port: what a client connects to (for `*`, on this machine).
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The addresses that it listens on; none for a Unix-domain socket.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The workers.
    pub const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counters, at most a tick old.
    pub fn stats(&self) -> ServerStats {
        StatsSource::new(self.shared.clone(), self.runtime.clone()).take()
    }

    /// Sends a message to all sessions, through their codecs.
    pub fn send_all(&self, payload: impl Into<Bytes>) -> GroupSend {
        self.send_where(payload, |_| true)
    }

    /// Sends a message to the sessions that the predicate picks, through their codecs.
    ///
    /// The predicate is called on the sessions' workers.
    pub fn send_where(
        &self,
        payload: impl Into<Bytes>,
        pick: impl Fn(&Session) -> bool + Clone + Send + 'static,
    ) -> GroupSend {
        let payload = payload.into();
        self.each_session(move |session| pick(session) && session.send_bytes(payload.clone()).is_ok())
    }

    /// Sends bytes past the codec to the sessions that the predicate picks; they are shared, not copied, when they
    /// are more than a few KiB.
    pub fn send_raw_where(
        &self,
        bytes: impl Into<Bytes>,
        pick: impl Fn(&Session) -> bool + Clone + Send + 'static,
    ) -> GroupSend {
        let bytes = bytes.into();
        self.each_session(move |session| pick(session) && session.send_raw_bytes(bytes.clone()).is_ok())
    }

    /// Sends a message to one session; the result counts 0 if there is no such session.
    pub fn send_to(&self, session: u64, payload: impl Into<Bytes>) -> GroupSend {
        let payload = payload.into();
        self.on_each_worker(move |local| {
            usize::from(local.session(session).is_some_and(|session| session.send(&payload).is_ok()))
        })
    }

    /// Closes the sessions that the predicate picks, once what was sent to them has left.
    pub fn close_where(&self, pick: impl Fn(&Session) -> bool + Clone + Send + 'static) -> GroupSend {
        self.each_session(move |session| {
            let picked = pick(session);
            if picked {
                session.close();
            }
            picked
        })
    }

    fn each_session(&self, call: impl Fn(&Session) -> bool + Clone + Send + 'static) -> GroupSend {
        self.on_each_worker(move |local| local.listed().iter().filter(|session| call(session)).count())
    }

    fn on_each_worker(&self, call: impl Fn(&Local) -> usize + Clone + Send + 'static) -> GroupSend {
        let mut counts = Vec::new();
        for worker in 0..self.runtime.workers() {
            let (sender, receiver) = oneshot::channel();
            let (call, key) = (call.clone(), self.shared.key);
            let job = move || {
                let count = Local::find(key).map_or(0, |local| call(&local));
                // Nobody may want to know.
                let _ = sender.send(count);
            };
            if self.runtime.run_on(worker, job).is_ok() {
                counts.push(receiver);
            }
        }
        GroupSend { counts }
    }

    /// Stops accepting, lets sessions finish what they have to send (and their tasks what they do), cuts at the
    /// deadline what is left, and says what it cut. Blocks the calling thread, which must not be one of the server's
    /// workers.
    pub fn shutdown(mut self, deadline: Duration) -> ShutdownReport {
        let until = Instant::now() + deadline;
        let key = self.shared.key;
        let sessions = self.shared.live();
        crate::wait(
            self.on_each_worker(|local| {
                drop(local.listeners.take());
                for session in local.all() {
                    session.connection().shut_down();
                }
                0
            })
            .done(),
        );
        self.shared.wait_until_empty(until);
        let cut = self.shared.live();
        let unsent_bytes = crate::wait(
            self.on_each_worker(|local| {
                let mut unsent = 0;
                for session in local.all() {
                    unsent += session.queued();
                    session.connection().abort(CloseReason::Shutdown);
                }
                unsent
            })
            .done(),
        );
        self.stop(key);
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

/// How many sessions something reached. It happens whether or not it is awaited.
#[derive(Debug)]
pub struct GroupSend {
    counts: Vec<oneshot::Receiver<usize>>,
}

impl GroupSend {
    /// Waits until all workers have done it, and tells how many sessions it was.
    pub async fn done(self) -> usize {
        let mut sum = 0;
        for count in self.counts {
            // A worker that has stopped has no sessions.
            sum += count.await.unwrap_or(0);
        }
        sum
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
