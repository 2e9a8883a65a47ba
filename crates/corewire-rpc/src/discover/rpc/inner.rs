//! What the handles on a registry that another process serves share.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corewire_discovery::{Endpoint, LocalRegistry, RegistryError};
use corewire_proto::rpc::Code;
use corewire_runtime::spawn_local;

use super::book::{Book, Followed};
use super::options::RpcRegistryOptions;
use super::wire::{Deregister, Deregistered, Empty, Record, Register, SERVICE, Services};
use crate::client::Channel;
use crate::message::{Json, Message};
use crate::status::Status;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) channel: Channel,
    pub(super) options: RpcRegistryOptions,
    /// What is known here.
    pub(super) mirror: LocalRegistry,
    pub(super) book: Mutex<Book>,
    pub(super) followed: Mutex<HashMap<Arc<str>, Followed>>,
}

/// How often a registry that is away is looked for.
pub(super) const RETRY: Duration = Duration::from_millis(200);

impl Inner {
    /// Starts a task on the channel's worker.
    pub(super) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(), RegistryError> {
        let spawned = self.channel.worker().run(move || drop(spawn_local(make())));
        spawned.map_err(|_| RegistryError::Closed)
    }

    pub(super) async fn call<Req, Resp>(&self, method: &str, request: Req) -> Result<Resp, RegistryError>
    where
        Json<Req>: Message,
        Json<Resp>: Message,
    {
        let path = format!("{SERVICE}/{method}");
        let answer = self.channel.call::<Json<Req>, Json<Resp>>(&*path, Json(request)).await;
        answer.map(|Json(answer)| answer).map_err(|status| self.error(&status))
    }

    pub(super) async fn services(&self) -> Result<Vec<Arc<str>>, RegistryError> {
        let Services { services } = self.call("services", Empty {}).await?;
        Ok(services.into_iter().map(Arc::from).collect())
    }

    pub(super) async fn put(
        &self,
        endpoint: &Endpoint,
        ttl_ms: u64,
        lease: u64,
    ) -> Result<(), RegistryError> {
        let request = Register { endpoint: Record::from(endpoint), ttl_ms, lease };
        self.call::<_, Empty>("register", request).await.map(drop)
    }

    pub(super) async fn take_back(&self, lease: u64) -> Result<bool, RegistryError> {
        let Deregistered { was_held } = self.call("deregister", Deregister { lease }).await?;
        Ok(was_held)
    }

    pub(super) fn error(&self, status: &Status) -> RegistryError {
        let (kind, reason) = ("rpc", status.to_string());
        match status.code() {
            Code::DEADLINE_EXCEEDED => RegistryError::Timeout { kind, after: self.options.request_timeout },
            Code::UNAVAILABLE | Code::CONNECTION_CLOSED => {
                RegistryError::Unreachable { kind, address: self.options.uri.clone(), reason }
            }
            _ => RegistryError::Refused { kind, reason },
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
