//! Reaching many sessions at once.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use corewire_runtime::Handle;
use futures_channel::oneshot;

use super::registry::{Local, Shared};
use crate::session::Session;

/// The sessions of one server. Cheap to clone, usable from any thread and from inside handlers, also of the server
/// itself: [`NetServer::sessions`](crate::NetServer::sessions) gives it before the server starts. Until then, and after
/// the server's end, it has no sessions.
///
/// What is sent or closed happens on each session's worker, after the caller's current tick; nothing waits for it
/// unless the [`GroupSend`] is awaited. A session whose queue is full is left out and not counted.
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
///             everybody.send_where(frame.to_bytes(), move |session| session.id() != from);
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

    pub(super) fn on_each_worker(
        &self,
        call: impl Fn(&Local) -> usize + Clone + Send + 'static,
    ) -> GroupSend {
        let mut counts = Vec::new();
        let Some(Running { shared, runtime }) = self.running.get() else { return GroupSend { counts } };
        for worker in 0..runtime.workers() {
            let (sender, receiver) = oneshot::channel();
            let (call, key) = (call.clone(), shared.key);
            let job = move || {
                let count = Local::find(key).map_or(0, |local| call(&local));
                // Nobody may want to know.
                let _ = sender.send(count);
            };
            if runtime.run_on(worker, job).is_ok() {
                counts.push(receiver);
            }
        }
        GroupSend { counts }
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
