mod book;
mod contain;
mod keys;
mod leases;
mod options;
mod probe;
mod renew;
mod session;
mod worker;
mod writes;

pub use options::{EtcdOptions, EtcdTls};

use crate::local::ready;
use crate::{
    BoxFuture, Catalog, Endpoint, Lease, LeaseHandle, RegisterOptions, Registry, RegistryError, Snapshot,
    Watch,
};
use futures_channel::oneshot;
use options::ttl_seconds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::UnboundedSender;

/// A registry in etcd, version 3.4 or later, for services on more than one machine.
///
/// An endpoint is the key `/<prefix>/<service>/<instance>` under an etcd lease that a thread of the registry's own
/// keeps alive; its value is JSON, `{"address": "10.0.0.1:7000", "weight": 100, "zone": "eu-1", "tags": []}`.
/// An entry whose value is not valid is left out with a warning, also one that was valid before.
///
/// The whole prefix is kept in memory and followed, so look-ups never wait for etcd. While etcd is away they serve
/// the last known endpoints; when it is back, the registrations made here are granted and put again, what changed
/// meanwhile reaches the watchers as changes, and endpoints that are missing get
/// [`EtcdOptions::absence_grace`] to register again. Of two processes that register the same instance the later
/// one holds it.
///
/// It talks to the member that answers first; the others are asked a tenth of a second later each. A lease is renewed
/// when a third of its time to live is over, beside whatever else is asked of etcd. A member that has not answered by the
/// end of the second third (half a second later, for the shortest leases) is given up for another one.
///
/// Leases outlive the registry handle: the thread ends when the registry and all leases are dropped. A process
/// that must not leave its endpoints behind for the time to live waits for [`Lease::deregister`].
#[derive(Debug)]
pub struct EtcdRegistry {
    catalog: Arc<Catalog>,
    commands: UnboundedSender<Command>,
    options: Arc<EtcdOptions>,
}

/// What the thread is asked to do. There are never more in the queue than there are futures and leases.
#[derive(Debug)]
enum Command {
    Register {
        endpoint: Arc<Endpoint>,
        ttl_s: i64,
        reply: oneshot::Sender<Result<Granted, RegistryError>>,
    },
    Deregister {
        endpoint: Arc<Endpoint>,
        number: u64,
        reply: Option<oneshot::Sender<Result<(), RegistryError>>>,
    },
}

/// A registration that is in etcd.
#[derive(Debug)]
struct Granted {
    number: u64,
    lost: Arc<AtomicBool>,
}

impl EtcdRegistry {
    /// Connects and reads what is there.
    ///
    /// # Errors
    /// [`RegistryError::Unreachable`] when etcd does not answer within [`EtcdOptions::request_timeout`], unless
    /// [`EtcdOptions::wait_for_etcd`]; [`RegistryError::BadUri`], [`RegistryError::BadTtl`] or
    /// [`RegistryError::NotBuilt`] for options that cannot be.
    pub async fn connect(options: EtcdOptions) -> Result<Self, RegistryError> {
        options.check()?;
        let options = Arc::new(options);
        let catalog = Catalog::new(options.limits.clone());
        let (commands, started) = worker::spawn(options.clone(), catalog.clone())?;
        started.await.unwrap_or(Err(RegistryError::Closed))?;
        Ok(Self { catalog, commands, options })
    }
}

impl Registry for EtcdRegistry {
    fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    fn register(
        &self,
        endpoint: Arc<Endpoint>,
        options: RegisterOptions,
    ) -> BoxFuture<'_, Result<Lease, RegistryError>> {
        Box::pin(async move {
            let ttl_s = ttl_seconds(options.ttl.unwrap_or(self.options.lease_ttl))?;
            let (reply, granted) = oneshot::channel();
            let command = Command::Register { endpoint: endpoint.clone(), ttl_s, reply };
            self.commands.send(command).map_err(|_| RegistryError::Closed)?;
            let granted = granted.await.unwrap_or(Err(RegistryError::Closed))?;
            Ok(Lease::new(EtcdLease { endpoint, granted, commands: self.commands.clone(), released: false }))
        })
    }

    fn discover<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Arc<Snapshot>, RegistryError>> {
        ready(Ok(self.catalog.snapshot(service)))
    }

    fn watch<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Watch, RegistryError>> {
        ready(self.catalog.watch(service))
    }

    fn services(&self) -> BoxFuture<'_, Result<Vec<Arc<str>>, RegistryError>> {
        ready(Ok(self.catalog.services()))
    }
}

struct EtcdLease {
    endpoint: Arc<Endpoint>,
    granted: Granted,
    commands: UnboundedSender<Command>,
    released: bool,
}

impl EtcdLease {
    fn release(&mut self, reply: Option<oneshot::Sender<Result<(), RegistryError>>>) {
        self.released = true;
        let (endpoint, number) = (self.endpoint.clone(), self.granted.number);
        // It fails only when the thread is gone, and then the lease runs out.
        let _ = self.commands.send(Command::Deregister { endpoint, number, reply });
    }
}

impl LeaseHandle for EtcdLease {
    fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    fn renew(&self) -> Result<(), RegistryError> {
        if self.granted.lost.load(Ordering::Acquire) { Err(lease_lost(&self.endpoint)) } else { Ok(()) }
    }

    fn deregister(mut self: Box<Self>) -> BoxFuture<'static, Result<(), RegistryError>> {
        let (reply, done) = oneshot::channel();
        self.release(Some(reply));
        Box::pin(async move { done.await.unwrap_or(Err(RegistryError::Closed)) })
    }
}

impl Drop for EtcdLease {
    fn drop(&mut self) {
        if !self.released {
            self.release(None);
        }
    }
}

fn lease_lost(endpoint: &Endpoint) -> RegistryError {
    RegistryError::LeaseLost { service: endpoint.service().clone(), instance: endpoint.instance().clone() }
}
