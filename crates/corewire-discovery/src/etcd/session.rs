use super::book::Claim;
use super::keys::{Key, decode_value};
use super::leases::LeaseId;
use super::renew::renew;
use super::worker::{AllGone, Started, TICK, Worker};
use etcd_client::{Client, Error, EventType, GetOptions, KeyValue, WatchOptions, WatchResponse};
use hashbrown::HashSet;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The connection is of no more use; says why.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

/// Entries asked for at once. With values of a few hundred bytes a page stays far below gRPC's limit of 4 MiB.
const PAGE: i64 = 500;
/// How long to sleep when nothing is due.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

impl Worker {
    /// One connection, to its loss or until nobody needs it any more.
    pub(super) async fn session(
        &mut self,
        mut client: Client,
        started: &mut Option<Started>,
    ) -> Result<AllGone, Failure> {
        // Leases first: they are what runs out while a long list is read.
        self.renew_now(&mut client).await?;
        let (gone, on_gone) = unbounded_channel();
        let renewing = renew(client.clone(), self.book.leases(), gone, self.options.request_timeout);
        tokio::select! {
            biased;
            failure = renewing => Err(failure),
            done = self.serve(client, on_gone, started) => done,
        }
    }

    async fn serve(
        &mut self,
        mut client: Client,
        mut gone: UnboundedReceiver<LeaseId>,
        started: &mut Option<Started>,
    ) -> Result<AllGone, Failure> {
        let revision = self.list(&mut client).await?;
        let root = self.keys.root().to_owned();
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1).with_fragment();
        let mut watch = self.timed(client.watch(root, Some(options))).await?;
        self.established = Some(Instant::now());
        if let Some(started) = started.take()
            && started.send(Ok(())).is_err()
        {
            return Ok(AllGone);
        }
        let mut tick_at = Instant::now();
        loop {
            let now = Instant::now();
            // Looking at all deadlines at each of ten thousand commands would take longer than they do.
            if now >= tick_at {
                self.expire(now);
                tick_at = now + TICK;
            }
            let wait = if self.has_deadlines() { TICK } else { IDLE_WAIT };
            let has_work = self.book.has_work();
            tokio::select! {
                biased;
                Some(lease) = gone.recv() => self.book.forget_lease(lease),
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
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
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
        let lease = LeaseId(entry.lease());
        let claim = self.book.claim(&key, lease);
        let endpoint = decode_value(&key, entry.value());
        if let Err(error) = &endpoint {
            tracing::warn!(service = %key.0, instance = %key.1, %error, "entry left out");
        }
        if let Some((present, confirmed)) = listing {
            if claim == Claim::Own && endpoint.as_ref().is_ok_and(|e| self.book.is_as_wanted(&key, e, lease))
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
            // A pending registration of ours is about to replace what is there, and one that is to be deleted is about to go.
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
