use super::keys::{Key, key_of};
use super::leases::{LeaseId, Leases, PutUnder};
use super::{Granted, lease_lost};
use crate::{Endpoint, RegistryError};
use futures_channel::oneshot;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What this process wants to be in etcd, and what it still has to do for it.
#[derive(Debug, Default)]
pub(super) struct Book {
    wanted: HashMap<Key, Wanted>,
    /// Keys to be put; one that is not wanted any more is passed over.
    to_put: VecDeque<Key>,
    to_delete: HashMap<Key, Deletion>,
    /// Keys somebody waits for.
    waiting: HashSet<Key>,
    last_number: u64,
    /// What is renewed, told to who does so.
    leases: watch::Sender<Leases>,
}

#[derive(Debug)]
struct Wanted {
    endpoint: Arc<Endpoint>,
    ttl_s: i64,
    number: u64,
    lost: Arc<AtomicBool>,
    queued: bool,
    under: PutUnder,
    waiter: Option<Waiter<Granted>>,
}

#[derive(Debug, Default)]
struct Deletion {
    under: PutUnder,
    waiter: Option<Waiter<()>>,
}

#[derive(Debug)]
struct Waiter<T> {
    reply: oneshot::Sender<Result<T, RegistryError>>,
    deadline: Instant,
}

/// A registration on its way to etcd.
#[derive(Debug, Clone)]
pub(super) struct Put {
    pub(super) key: Key,
    pub(super) number: u64,
    pub(super) ttl_s: i64,
    pub(super) endpoint: Arc<Endpoint>,
}

/// What a key that is seen in etcd means to this process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Nobody here has to do with it.
    Foreign,
    /// Registered here, and it is our entry.
    Own,
    /// Registered here; our entry is yet to be put.
    Pending,
    /// Given up here, and it is yet to be deleted.
    Doomed,
}

impl Book {
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(super) fn register(
        &mut self,
        endpoint: Arc<Endpoint>,
        ttl_s: i64,
        reply: oneshot::Sender<Result<Granted, RegistryError>>,
        deadline: Instant,
    ) {
        let key = key_of(&endpoint);
        self.last_number += 1;
        // The put to come takes the place of the deletion.
        let deletion = self.to_delete.remove(&key).unwrap_or_default();
        if let Some(waiter) = deletion.waiter {
            let _ = waiter.reply.send(Ok(()));
        }
        let older = self.wanted.remove(&key);
        let under = older.as_ref().map_or(deletion.under, |older| older.under.clone());
        let wanted = Wanted {
            endpoint,
            ttl_s,
            number: self.last_number,
            lost: Arc::default(),
            queued: false,
            under,
            waiter: Some(Waiter { reply, deadline }),
        };
        if let Some(older) = older {
            older.lose();
        }
        self.wanted.insert(key.clone(), wanted);
        self.waiting.insert(key.clone());
        self.queue(&key);
    }

    /// Gives a registration up. Says whether it was held until now.
    pub(super) fn deregister(
        &mut self,
        endpoint: &Arc<Endpoint>,
        number: u64,
        reply: Option<oneshot::Sender<Result<(), RegistryError>>>,
        deadline: Instant,
    ) -> bool {
        let key = key_of(endpoint);
        if !self.is_current(&key, number) {
            if let Some(reply) = reply {
                let _ = reply.send(Err(lease_lost(endpoint)));
            }
            return false;
        }
        if let Some(wanted) = self.wanted.remove(&key) {
            self.doom(key, wanted.under, reply.map(|reply| Waiter { reply, deadline }));
        }
        true
    }

    /// Whether a registration by this number is still the one that is wanted.
    pub(super) fn is_current(&self, key: &Key, number: u64) -> bool {
        self.wanted.get(key).is_some_and(|wanted| wanted.number == number)
    }

    /// Has a wanted key put (again).
    pub(super) fn queue(&mut self, key: &Key) {
        if let Some(wanted) = self.wanted.get_mut(key).filter(|wanted| !wanted.queued) {
            wanted.queued = true;
            self.to_put.push_back(key.clone());
        }
    }

    /// Has everything put that `confirmed` does not hold.
    pub(super) fn queue_all_but(&mut self, confirmed: &HashSet<Key>) {
        let keys: Vec<Key> = self.wanted.keys().filter(|key| !confirmed.contains(*key)).cloned().collect();
        keys.iter().for_each(|key| self.queue(key));
    }

    pub(super) fn next_puts(&mut self, max: usize) -> Vec<Put> {
        let mut puts = Vec::new();
        while puts.len() < max {
            let Some(key) = self.to_put.pop_front() else { break };
            if let Some(wanted) = self.wanted.get_mut(&key).filter(|wanted| wanted.queued) {
                wanted.queued = false;
                let (number, ttl_s, endpoint) = (wanted.number, wanted.ttl_s, wanted.endpoint.clone());
                puts.push(Put { key, number, ttl_s, endpoint });
            }
        }
        puts
    }

    /// A put under this lease is about to be sent.
    pub(super) fn begins(&mut self, put: &Put, lease: LeaseId) {
        if let Some(wanted) = self.wanted.get_mut(&put.key)
            && !wanted.under.contains(&lease)
        {
            wanted.under.push(lease);
        }
    }

    /// A put is in etcd. Says whether it is still what is wanted, or has been given up meanwhile.
    pub(super) fn granted(&mut self, put: &Put, lease: LeaseId) -> bool {
        let Some(wanted) = self.wanted.get_mut(&put.key).filter(|wanted| wanted.number == put.number) else {
            return false;
        };
        self.waiting.remove(&put.key);
        wanted.under = PutUnder::from_elem(lease, 1);
        let Some(waiter) = wanted.waiter.take() else { return true };
        let granted = Granted { number: wanted.number, lost: wanted.lost.clone() };
        if waiter.reply.send(Ok(granted)).is_err() {
            // Nobody waits any more, so nobody would ever give it back.
            let under = std::mem::take(&mut wanted.under);
            self.wanted.remove(&put.key);
            self.doom(put.key.clone(), under, None);
            return false;
        }
        true
    }

    /// etcd will not have it.
    pub(super) fn refused(&mut self, put: &Put, reason: &str) {
        if self.is_current(&put.key, put.number)
            && let Some(wanted) = self.wanted.remove(&put.key)
        {
            self.waiting.remove(&put.key);
            wanted.lost.store(true, Ordering::Release);
            if let Some(waiter) = wanted.waiter {
                let reason = reason.to_owned();
                let _ = waiter.reply.send(Err(RegistryError::Refused { kind: "etcd", reason }));
            }
        }
    }

    /// Keys to be deleted, each with the leases under which it may be ours; one with several is there several times.
    pub(super) fn next_deletions(&self, max: usize) -> Vec<(Key, LeaseId)> {
        let mut deletions = Vec::new();
        for (key, Deletion { under, .. }) in &self.to_delete {
            if !deletions.is_empty() && deletions.len() + under.len() > max {
                break;
            }
            deletions.extend(under.iter().map(|lease| (key.clone(), *lease)));
        }
        deletions
    }

    pub(super) fn deleted(&mut self, key: &Key) {
        self.waiting.remove(key);
        if let Some(waiter) = self.to_delete.remove(key).and_then(|deletion| deletion.waiter) {
            let _ = waiter.reply.send(Ok(()));
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.to_put.is_empty() || !self.to_delete.is_empty()
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Answers those who waited too long: a registration is withdrawn, a deletion goes on.
    pub(super) fn expire(&mut self, now: Instant, after: Duration) {
        let timeout = || RegistryError::Timeout { kind: "etcd", after };
        let late = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let deadline_of = |book: &Self, key: &Key| {
            let put = book.wanted.get(key).and_then(|wanted| wanted.waiter.as_ref()).map(|w| w.deadline);
            put.or(book.to_delete.get(key).and_then(|deletion| deletion.waiter.as_ref()).map(|w| w.deadline))
        };
        let due: Vec<Key> = self.waiting.iter().filter(|key| late(deadline_of(self, key))).cloned().collect();
        for key in due {
            self.waiting.remove(&key);
            if let Some(waiter) = self.to_delete.get_mut(&key).and_then(|deletion| deletion.waiter.take()) {
                let _ = waiter.reply.send(Err(timeout()));
            }
            let Some(wanted) = self.wanted.remove(&key) else { continue };
            self.doom(key, wanted.under, None);
            if let Some(waiter) = wanted.waiter {
                let _ = waiter.reply.send(Err(timeout()));
            }
        }
    }

    /// What an entry seen in etcd, under this lease, means. One under a lease that it was not put under here is from
    /// somebody who registered the instance after us, and takes our hold on it.
    pub(super) fn claim(&mut self, key: &Key, lease: LeaseId) -> Claim {
        if let Some(Deletion { under, .. }) = self.to_delete.get(key) {
            return if under.contains(&lease) { Claim::Doomed } else { Claim::Foreign };
        }
        let Some(wanted) = self.wanted.get(key) else { return Claim::Foreign };
        if wanted.queued {
            return Claim::Pending;
        }
        if wanted.under.contains(&lease) {
            return Claim::Own;
        }
        if let Some(wanted) = self.wanted.remove(key) {
            self.waiting.remove(key);
            wanted.lose();
        }
        Claim::Foreign
    }

    pub(super) fn wants(&self, key: &Key) -> bool {
        self.wanted.contains_key(key)
    }

    /// Whether the entry is as it is wanted: the same value under the lease that is kept alive.
    pub(super) fn is_as_wanted(&self, key: &Key, endpoint: &Endpoint, lease: LeaseId) -> bool {
        self.wanted
            .get(key)
            .is_some_and(|wanted| *wanted.endpoint == *endpoint && self.lease(wanted.ttl_s) == Some(lease))
    }

    pub(super) fn leases(&self) -> watch::Receiver<Leases> {
        self.leases.subscribe()
    }

    pub(super) fn lease(&self, ttl_s: i64) -> Option<LeaseId> {
        self.leases.borrow().get(&ttl_s).copied()
    }

    pub(super) fn holds(&self, lease: LeaseId) -> bool {
        self.leases.borrow().values().any(|held| *held == lease)
    }

    pub(super) fn add_lease(&mut self, ttl_s: i64, lease: LeaseId) {
        self.leases.send_modify(|leases| {
            leases.insert(ttl_s, lease);
        });
    }

    /// A lease is no more, and with it all that was put under it.
    pub(super) fn forget_lease(&mut self, lease: LeaseId) {
        self.leases.send_modify(|leases| leases.retain(|_, held| *held != lease));
        let mut gone = Vec::new();
        for (key, wanted) in &mut self.wanted {
            if wanted.under.contains(&lease) {
                wanted.under.retain(|under| *under != lease);
                gone.push(key.clone());
            }
        }
        gone.drain(..).for_each(|key| self.queue(&key));
        for (key, deletion) in &mut self.to_delete {
            deletion.under.retain(|under| *under != lease);
            if deletion.under.is_empty() {
                gone.push(key.clone());
            }
        }
        gone.iter().for_each(|key| self.deleted(key));
    }

    /// Has a key deleted, if it may be there.
    fn doom(&mut self, key: Key, under: PutUnder, waiter: Option<Waiter<()>>) {
        if under.is_empty() {
            self.waiting.remove(&key);
            if let Some(waiter) = waiter {
                let _ = waiter.reply.send(Ok(()));
            }
            return;
        }
        match waiter.is_some() {
            true => self.waiting.insert(key.clone()),
            false => self.waiting.remove(&key),
        };
        self.to_delete.insert(key, Deletion { under, waiter });
    }
}

impl Wanted {
    /// Somebody else has the instance now.
    fn lose(self) {
        self.lost.store(true, Ordering::Release);
        if let Some(waiter) = self.waiter {
            let _ = waiter.reply.send(Err(lease_lost(&self.endpoint)));
        }
    }
}
