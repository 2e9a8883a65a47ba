use super::book::Claim;
use super::keys::{Key, decode_value};
use super::worker::{AllGone, Started, TICK, Worker};
use etcd_client::{
    Client, ConnectOptions, Error, EventType, GetOptions, KeyValue, WatchOptions, WatchResponse,
};
use hashbrown::HashSet;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The connection is of no more use; says why.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

/// Entries asked for at once. With values of a few hundred bytes a page stays far below gRPC's limit of 4 MiB.
const PAGE: i64 = 500;
/// Pings on an idle connection; etcd closes connections that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);

impl Worker {
    /// One connection, from connecting to its loss or until nobody needs it any more.
    pub(super) async fn session(&mut self, started: &mut Option<Started>) -> Result<AllGone, Failure> {
        let mut client = self.connect().await?;
        // Leases first: they are what runs out while a long list is read.
        self.keep_alive(&mut client).await?;
        let revision = self.list(&mut client).await?;
        let root = self.keys.root().to_owned();
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1).with_fragment();
        let mut watch = self.timed(client.watch(root, Some(options))).await?;
        if let Some(started) = started.take()
            && started.send(Ok(())).is_err()
        {
            return Ok(AllGone);
        }
        let mut keep_alive_at = self.next_keep_alive();
        let mut tick_at = Instant::now();
        loop {
            let now = Instant::now();
            // Looking at all deadlines at each of ten thousand commands would take longer than they do.
            if now >= tick_at {
                self.expire(now);
                tick_at = now + TICK;
            }
            if now >= keep_alive_at {
                self.keep_alive(&mut client).await?;
                keep_alive_at = self.next_keep_alive();
            }
            let mut wait = keep_alive_at.saturating_duration_since(now);
            if self.has_deadlines() {
                wait = wait.min(TICK);
            }
            let has_work = self.book.has_work();
            tokio::select! {
                biased;
                response = watch.message() => match response {
                    Ok(Some(response)) => self.apply(&response)?,
                    Ok(None) => return Err(Failure("the watch ended".into())),
                    Err(error) => return Err(error.into()),
                },
                command = self.next_command() => match command {
                    Ok(command) => self.take_down(command),
                    Err(AllGone) => return self.leave(&mut client).await,
                },
                () = std::future::ready(()), if has_work => {
                    self.delete_some(&mut client).await?;
                    self.put_some(&mut client).await?;
                    // A lease granted just now may be due sooner than all others.
                    keep_alive_at = keep_alive_at.min(self.next_keep_alive());
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// A client for the members that can be reached. A plain connection tells within a moment which ones can;
    /// the client would keep requests to the others waiting.
    async fn connect(&mut self) -> Result<Client, Failure> {
        let mut reachable = Vec::new();
        let mut reason = String::new();
        for member in &self.options.members {
            match tokio::time::timeout(self.options.request_timeout, TcpStream::connect(member.as_str()))
                .await
            {
                // To a port of this machine where nobody listens, TCP may connect to itself.
                Ok(Ok(stream)) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    reason = format!("{member}: nobody listens");
                }
                Ok(Ok(_)) => reachable.push(member.clone()),
                Ok(Err(error)) => reason = format!("{member}: {error}"),
                Err(_) => {
                    reason = format!("{member}: no connection within {:?}", self.options.request_timeout)
                }
            }
        }
        if reachable.is_empty() {
            return Err(Failure(reason));
        }
        self.reached = true;
        self.timed(Client::connect(reachable, Some(self.connect_options()))).await
    }

    fn connect_options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.options.request_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.options.user {
            options = options.with_user(name, password);
        }
        #[cfg(feature = "etcd-tls")]
        if let Some(tls) = &self.options.tls {
            options = options.with_tls(super::options::client_tls(tls));
        }
        options
    }

    /// Reads the whole prefix, page by page at one revision, and brings the catalog in line with it.
    async fn list(&mut self, client: &mut Client) -> Result<i64, Failure> {
        self.own_writes.clear();
        let (mut present, mut confirmed) = (HashSet::new(), HashSet::new());
        let (mut from, mut revision) = (self.keys.root().as_bytes().to_vec(), 0);
        let mut end = from.clone();
        // The root ends in a slash; the next character ends the range of all that begin with it.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_revision(revision);
            let page = self.timed(client.get(from, Some(options))).await?;
            if revision == 0 {
                revision = page.header().map_or(0, |header| header.revision());
            }
            for entry in page.kvs() {
                self.take_in(entry, Some((&mut present, &mut confirmed)));
            }
            match page.kvs().last() {
                Some(last) if page.more() => {
                    from = last.key().to_vec();
                    from.push(0);
                }
                _ => break,
            }
        }
        self.note_absent(&present);
        self.book.queue_all_but(&confirmed);
        Ok(revision)
    }

    /// Endpoints that are known and were not listed are given time to come back.
    fn note_absent(&mut self, present: &HashSet<Key>) {
        let until = Instant::now() + self.options.absence_grace;
        for service in self.catalog.services() {
            for endpoint in self.catalog.snapshot(&service).iter() {
                let key = super::keys::key_of(endpoint);
                if !present.contains(&key) && !self.book.wants(&key) {
                    self.absent.entry(key).or_insert(until);
                }
            }
        }
        let gone = |key: &Key| !present.contains(key);
        self.absent.retain(|key, _| gone(key));
    }

    /// Takes an entry of etcd into the catalog.
    fn take_in(&mut self, entry: &KeyValue, listing: Option<(&mut HashSet<Key>, &mut HashSet<Key>)>) {
        let Some(key) = self.keys.decode(entry.key()) else {
            tracing::warn!(key = %String::from_utf8_lossy(entry.key()), "entry left out: not service/instance");
            return;
        };
        let claim = self.book.claim(&key, entry.lease());
        let endpoint = decode_value(&key, entry.value());
        if let Err(error) = &endpoint {
            tracing::warn!(service = %key.0, instance = %key.1, %error, "entry left out");
        }
        if let Some((present, confirmed)) = listing {
            if claim == Claim::Own
                && endpoint.as_ref().is_ok_and(|e| self.book.is_as_wanted(&key, e, entry.lease()))
            {
                confirmed.insert(key.clone());
            }
            present.insert(key.clone());
        }
        self.absent.remove(&key);
        match (claim, endpoint) {
            (Claim::Foreign | Claim::Own, Ok(endpoint)) => self.catalog.put_or_warn(&endpoint),
            (Claim::Foreign, Err(_)) => drop(self.catalog.remove(&key.0, &key.1)),
            (Claim::Own, Err(_)) => self.book.queue(&key),
            // A pending registration of ours is about to replace what is there, and a doomed one is about to go.
            (Claim::Pending | Claim::Doomed, _) => {}
        }
    }

    fn apply(&mut self, response: &WatchResponse) -> Result<(), Failure> {
        if response.compact_revision() > 0 {
            return Err(Failure(format!("compacted up to revision {}", response.compact_revision())));
        }
        if response.canceled() {
            return Err(Failure(format!("the watch was cancelled: {}", response.cancel_reason())));
        }
        for event in response.events() {
            let Some(entry) = event.kv() else { continue };
            if self.is_stale(entry) {
                continue;
            }
            match event.event_type() {
                EventType::Put => self.take_in(entry, None),
                EventType::Delete => self.take_out(entry),
            }
        }
        Ok(())
    }

    /// Whether an event is older than what we wrote ourselves.
    fn is_stale(&mut self, entry: &KeyValue) -> bool {
        if self.own_writes.is_empty() {
            return false;
        }
        let Some(key) = self.keys.decode(entry.key()) else { return false };
        match self.own_writes.get(&key) {
            Some(written) if entry.mod_revision() < *written => true,
            Some(_) => {
                self.own_writes.remove(&key);
                false
            }
            None => false,
        }
    }

    fn take_out(&mut self, entry: &KeyValue) {
        let Some(key) = self.keys.decode(entry.key()) else { return };
        self.absent.remove(&key);
        if self.book.wants(&key) {
            // Its lease ran out or somebody deleted it, but it is still registered here.
            self.book.queue(&key);
        } else {
            self.catalog.remove(&key.0, &key.1);
        }
    }

    pub(super) async fn timed<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        Ok(self.timed_result(answer).await??)
    }

    pub(super) async fn timed_result<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>, Failure> {
        let limit = self.options.request_timeout;
        let late = |_| Failure(format!("no answer within {limit:?}"));
        tokio::time::timeout(limit, answer).await.map_err(late)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
