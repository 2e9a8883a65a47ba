use super::book::Book;
use super::contain::contained;
use super::keys::{Key, Keys, key_of};
use super::probe::{NoMember, connect};
use super::session::Failure;
use super::{Command, EtcdOptions};
use crate::{Catalog, RegistryError};
use futures_channel::oneshot;
use hashbrown::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(super) type Started = oneshot::Sender<Result<(), RegistryError>>;
type OnStart = oneshot::Receiver<Result<(), RegistryError>>;

/// Begins the registry's thread. The receiver is told when the first list is in, or why it will not be.
pub(super) fn spawn(
    options: Arc<EtcdOptions>,
    catalog: Arc<Catalog>,
) -> Result<(UnboundedSender<Command>, OnStart), RegistryError> {
    let refused = |error: std::io::Error| RegistryError::Refused {
        kind: "etcd",
        reason: format!("the registry's thread cannot be started: {error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
    let (commands, receiver) = unbounded_channel();
    let (started, on_start) = oneshot::channel();
    let worker = Worker {
        keys: Keys::new(&options.prefix),
        options,
        catalog,
        commands: receiver,
        book: Book::default(),
        absent: HashMap::new(),
        own_writes: HashMap::new(),
        established: None,
        // Not all begin with the same.
        next_member: fastrand::usize(..1 << 16),
    };
    let thread = std::thread::Builder::new().name("corewire-etcd".into());
    thread.spawn(move || runtime.block_on(worker.run(started))).map_err(refused)?;
    Ok((commands, on_start))
}

/// The thread's state, which outlives every connection.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) options: Arc<EtcdOptions>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) keys: Keys,
    pub(super) book: Book,
    /// Endpoints that were missing after an outage, and until when they are served all the same.
    pub(super) absent: HashMap<Key, Instant>,
    /// Revision of our last write to a key, until the watch has come so far; older events of the key are stale.
    pub(super) own_writes: HashMap<Key, i64>,
    /// Since when the connection serves; `None` if it came to an end before.
    pub(super) established: Option<Instant>,
    /// Which member is asked first: another one each time.
    next_member: usize,
    commands: UnboundedReceiver<Command>,
}

/// Every registry and lease handle is gone.
#[derive(Debug)]
pub(super) struct AllGone;

/// How often etcd is looked for while it is away. Together with one round of requests this bounds the time to
/// recover.
const RETRY: Duration = Duration::from_millis(200);
/// The same when etcd is there but does not do what it is asked: it may be overloaded, or may never do it.
const RETRY_MAX: Duration = Duration::from_millis(800);
/// A connection that served for so long was not part of the trouble before it, and is replaced at once.
const GOOD_SESSION: Duration = Duration::from_secs(1);
/// How often deadlines are looked at while there are any.
pub(super) const TICK: Duration = Duration::from_millis(50);

impl Worker {
    async fn run(mut self, started: Started) {
        let mut started = Some(started);
        let mut last_failure = None;
        let mut last_retry = RETRY / 2;
        loop {
            self.established = None;
            let (failure, reached) = match self.attempt(&mut started).await {
                Ok(AllGone) => return,
                Err(NoMember { failure: Failure(reason), reached }) => (reason, reached),
            };
            if let Some(waiting) = &started
                && (waiting.is_canceled() || !self.options.wait_for_etcd)
            {
                let address = self.options.members.join(",");
                let error = RegistryError::Unreachable { kind: "etcd", address, reason: failure };
                let _ = started.take().map(|started| started.send(Err(error)));
                return;
            }
            if last_failure.as_ref() != Some(&failure) {
                tracing::warn!(reason = %failure, "etcd is away; the last known endpoints are served");
            }
            last_failure = Some(failure);
            if self.established.is_some_and(|since| since.elapsed() > GOOD_SESSION) {
                last_retry = RETRY / 2;
                continue;
            }
            let retry = if reached { (last_retry * 2).min(RETRY_MAX) } else { RETRY };
            last_retry = retry;
            if let Err(AllGone) = self.meanwhile(tokio::time::sleep(retry)).await {
                return;
            }
        }
    }

    /// Connects and serves, until the connection is lost.
    async fn attempt(&mut self, started: &mut Option<Started>) -> Result<AllGone, NoMember> {
        self.next_member = self.next_member.wrapping_add(1);
        let connecting = connect(self.options.clone(), self.next_member);
        let client = match self.meanwhile(connecting).await {
            Ok(connected) => connected?,
            Err(AllGone) => return Ok(AllGone),
        };
        let served = contained(self.session(client, started)).await;
        served.map_err(|failure| NoMember { failure, reached: true })
    }

    /// Waits for something while there is no connection: commands are taken down and deadlines kept.
    async fn meanwhile<T>(&mut self, what: impl Future<Output = T>) -> Result<T, AllGone> {
        let mut what = pin!(what);
        let mut tick_at = Instant::now();
        loop {
            let now = Instant::now();
            if now >= tick_at {
                self.expire(now);
                tick_at = now + TICK;
            }
            tokio::select! {
                done = &mut what => return Ok(done),
                command = self.next_command() => self.take_down(command?),
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    pub(super) async fn next_command(&mut self) -> Result<Command, AllGone> {
        self.commands.recv().await.ok_or(AllGone)
    }

    pub(super) fn take_down(&mut self, command: Command) {
        let deadline = Instant::now() + self.options.request_timeout;
        match command {
            Command::Register { endpoint, ttl_s, reply } => {
                let limit = self.options.registrations_max;
                if self.book.len() >= limit && !self.book.wants(&key_of(&endpoint)) {
                    let _ = reply.send(Err(RegistryError::Full { what: "registrations", limit }));
                    return;
                }
                self.book.register(endpoint, ttl_s, reply, deadline);
            }
            Command::Deregister { endpoint, number, reply } => {
                if self.book.deregister(&endpoint, number, reply, deadline) {
                    self.catalog.remove(endpoint.service(), endpoint.instance());
                }
            }
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.book.expire(now, self.options.request_timeout);
        let due: Vec<Key> =
            self.absent.iter().filter(|(_, until)| **until <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.absent.remove(&key);
            if !self.book.wants(&key) {
                self.catalog.remove(&key.0, &key.1);
            }
        }
    }

    pub(super) fn has_deadlines(&self) -> bool {
        self.book.has_waiters() || !self.absent.is_empty()
    }
}
