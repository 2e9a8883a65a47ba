//! Reaching the sessions of a server from anywhere.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use corewire_runtime::Handle;
use futures_channel::oneshot;

use super::directory::Location;
use super::registry::{Local, Shared};
use crate::session::Session;

/// The sessions of one server. Cheap to clone, usable from any thread and from inside handlers, also of the server
/// itself: [`NetServer::sessions`](crate::NetServer::sessions) gives it before the server starts. Until then, and after
/// the server's end, it has no sessions.
///
/// What is sent or closed happens on each session's worker, after the caller's current tick; nothing waits for it
/// unless the [`Broadcast`] is awaited. A session whose queue is full is left out and not counted.
///
/// ```
/// use corewire::{Frame, LineCodec, NetServer, Session};
///
/// // Every line goes to everybody else.
/// let server = NetServer::bind("tcp://127.0.0.1:0").codec(LineCodec::new).workers(1);
/// let everybody = server.sessions();
/// let server = server
///     .handler(move || {
///         let everybody = everybody.clone();
///         move |session: &Session, frame: Frame<'_>| {
///             let from = session.id();
///             everybody.broadcast_to(move |session| session.id() != from, frame.to_bytes());
///         }
///     })
///     .start()?;
/// # drop(server);
/// # Ok::<(), corewire::ServerError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    running: Arc<OnceLock<Running>>,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl Sessions {
    pub(super) fn begin(&self, shared: Arc<Shared>, runtime: Handle) {
        // A server is started once.
        let _ = self.running.set(Running { shared, runtime });
    }

    /// Sends a message to all sessions, through their codecs.
    pub fn broadcast(&self, payload: impl Into<Bytes>) -> Broadcast {
        self.broadcast_to(|_| true, payload)
    }

    /// Sends a message to the sessions that the predicate picks, through their codecs.
    ///
    /// The predicate is called on the sessions' workers.
    pub fn broadcast_to(
        &self,
        pick: impl Fn(&Session) -> bool + Clone + Send + 'static,
        payload: impl Into<Bytes>,
    ) -> Broadcast {
        let payload = payload.into();
        self.each_session(move |session| pick(session) && session.send_bytes(payload.clone()).is_ok())
    }

    /// Sends bytes past the codec to the sessions that the predicate picks; they are shared, not copied, when they
    /// are more than a few KiB.
    pub fn broadcast_raw_to(
        &self,
        pick: impl Fn(&Session) -> bool + Clone + Send + 'static,
        bytes: impl Into<Bytes>,
    ) -> Broadcast {
        let bytes = bytes.into();
        self.each_session(move |session| pick(session) && session.send_raw_bytes(bytes.clone()).is_ok())
    }

    /// Sends a message to one session, through its worker and no other. The result counts 0 if there is no such
    /// session, or the server keeps no [table of sessions](crate::NetServer::session_table).
    pub fn send_to(&self, session: u64, payload: impl Into<Bytes>) -> Broadcast {
        let payload = payload.into();
        let Some(running) = self.running.get() else { return Broadcast::default() };
        let Some(Location { worker, slot }) = running.shared.directory.find(session) else {
            return Broadcast::default();
        };
        let count = running.on_worker(worker as usize, move |local| {
            let session = local.session(session, slot);
            usize::from(session.is_some_and(|session| session.send_bytes(payload).is_ok()))
        });
        Broadcast { counts: count.into_iter().collect() }
    }

    /// Closes the sessions that the predicate picks, once what was sent to them has left.
    pub fn close_where(&self, pick: impl Fn(&Session) -> bool + Clone + Send + 'static) -> Broadcast {
        self.each_session(move |session| {
            let picked = pick(session);
            if picked {
                session.close();
            }
            picked
        })
    }

    fn each_session(&self, call: impl Fn(&Session) -> bool + Clone + Send + 'static) -> Broadcast {
        self.on_each_worker(move |local| local.listed().iter().filter(|session| call(session)).count())
    }

    pub(super) fn on_each_worker(
        &self,
        call: impl Fn(&Local) -> usize + Clone + Send + 'static,
    ) -> Broadcast {
        let Some(running) = self.running.get() else { return Broadcast::default() };
        let workers = 0..running.runtime.workers();
        Broadcast { counts: workers.filter_map(|worker| running.on_worker(worker, call.clone())).collect() }
    }
}

impl Running {
    /// Calls on one worker; `None` if that has stopped.
    fn on_worker(
        &self,
        worker: usize,
        call: impl FnOnce(&Local) -> usize + Send + 'static,
    ) -> Option<oneshot::Receiver<usize>> {
        let (sender, receiver) = oneshot::channel();
        let key = self.shared.key;
        let job = move || {
            let count = Local::find(key).map_or(0, |local| call(&local));
            // Nobody may want to know.
            let _ = sender.send(count);
        };
        self.runtime.run_on(worker, job).ok().map(|()| receiver)
    }
}

/// What was done to several sessions, or to one. It happens whether or not it is awaited.
#[derive(Debug, Default)]
pub struct Broadcast {
    counts: Vec<oneshot::Receiver<usize>>,
}

impl Broadcast {
    /// Waits until all workers have done it, and says how many sessions it reached.
    pub async fn done(self) -> usize {
        let mut sum = 0;
        for count in self.counts {
            // A worker that has stopped has no sessions.
            sum += count.await.unwrap_or(0);
        }
        sum
    }
}
