//! Whether a server, and each of its services, is ready for calls: a standard service that load balancers and people ask.
//!
//! The service has the names, modes and messages of gRPC's `grpc.health.v1.Health`, in the frames of this protocol:
//!
//! | method | mode | request | response |
//! |---|---|---|---|
//! | `Check` | unary | the service: `0a`, length, name; nothing for the server as a whole | `08`, the number of the status |
//! | `Watch` | server stream | the same | the status at once, and each change of it |
//!
//! The numbers are those of [`HealthStatus`]. `Check` fails as [`Code::NOT_FOUND`] for a service that has no status; `Watch`
//! says [`HealthStatus::ServiceUnknown`], and goes on. A channel that follows a registry can be told to go by it:
//! [`DiscoverBuilder::health_service`](crate::discover::DiscoverBuilder::health_service).
//!
//! ```
//! use corewire_rpc::health::{Health, HealthClient, HealthStatus};
//! use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};
//!
//! let health = Health::new();
//! let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
//! let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).health(&health).workers(1).start()?;
//!
//! let client = HealthClient::new(Channel::to(server.uri()).build()?);
//! assert_eq!(corewire::block_on(client.check("Echo"))?, HealthStatus::Serving);
//! health.set("Echo", HealthStatus::NotServing);
//! assert_eq!(corewire::block_on(client.check("Echo"))?, HealthStatus::NotServing);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use corewire::{ServerError, ServerHandle};
use corewire_proto::rpc::Code;

use crate::client::{Channel, ServerStreaming, StreamingCall, UnaryCall};
use crate::message::Message;
use crate::server::{Context, OnStart, RpcServer, Service};
use crate::sink::Sink;
use crate::status::Status;

/// The name of the service.
pub const SERVICE: &str = "grpc.health.v1.Health";

/// Whether calls of a service should be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HealthStatus {
    /// It is not known (0).
    Unknown,
    /// It is ready (1).
    Serving,
    /// It takes no calls now (2).
    NotServing,
    /// The server has no such service (3); told by `Watch` only.
    ServiceUnknown,
}

impl HealthStatus {
    const fn number(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Serving => 1,
            Self::NotServing => 2,
            Self::ServiceUnknown => 3,
        }
    }
}

impl Message for HealthStatus {
    fn encode(self) -> Result<Bytes, Status> {
        Ok(match self.number() {
            // As protobuf has it: a field of its default is left out.
            0 => Bytes::new(),
            number => Bytes::copy_from_slice(&[0x08, number]),
        })
    }

    fn decode(payload: Bytes) -> Result<Self, Status> {
        match payload[..] {
            [] | [0x08, 0] => Ok(Self::Unknown),
            [0x08, 1] => Ok(Self::Serving),
            [0x08, 2] => Ok(Self::NotServing),
            [0x08, 3] => Ok(Self::ServiceUnknown),
            _ => Err(unreadable("a health status", &payload)),
        }
    }
}

/// The name of a service, as the request has it.
struct Asked(String);

/// Longest name that is asked for, in bytes: what one byte of length says.
const NAME_MAX: usize = 127;

impl Message for Asked {
    fn encode(self) -> Result<Bytes, Status> {
        let name = self.0.as_bytes();
        match u8::try_from(name.len()) {
            Ok(0) => Ok(Bytes::new()),
            Ok(len) if name.len() <= NAME_MAX => Ok([&[0x0a, len][..], name].concat().into()),
            _ => Err(Status::new(
                Code::INVALID_ARGUMENT,
                format!("a service to ask for has at most {NAME_MAX} bytes, and not {}", name.len()),
            )),
        }
    }

    fn decode(payload: Bytes) -> Result<Self, Status> {
        let name = match payload[..] {
            [] => &[][..],
            [0x0a, len, ref name @ ..] if usize::from(len) == name.len() && name.len() <= NAME_MAX => name,
            _ => return Err(unreadable("the name of a service to ask for", &payload)),
        };
        Ok(Self(std::str::from_utf8(name)?.to_owned()))
    }
}

fn unreadable(what: &str, payload: &[u8]) -> Status {
    let start = &payload[..payload.len().min(16)];
    Status::new(Code::DESERIALIZATION, format!("this is not {what}: {start:02x?}"))
}

/// What a server says of its health; cheap to clone, usable from any thread.
///
/// Given to [`RpcServer::health`], all services of the server, and the server as a whole (the name `""`), are serving once
/// it listens, and nothing is once its shutdown begins. What was [`set`](Self::set) before is kept.
#[derive(Clone, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    services: HashMap<String, HealthStatus>,
    is_shut_down: bool,
    watchers: HashMap<u64, Waker>,
    last_watcher: u64,
}

impl Health {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says the status of a service, or of the server as a whole (`""`).
    pub fn set(&self, service: impl Into<String>, status: HealthStatus) {
        let woken = {
            let state = &mut *self.lock();
            state.services.insert(service.into(), status);
            state.wake()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Forgets a service.
    pub fn remove(&self, service: &str) {
        let woken = {
            let state = &mut *self.lock();
            state.services.remove(service);
            state.wake()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// What is said of a service; `None`: nothing.
    pub fn status(&self, service: &str) -> Option<HealthStatus> {
        self.lock().status(service)
    }

    /// Nothing is serving from now on, whatever is set.
    pub fn shut_down(&self) {
        let woken = {
            let state = &mut *self.lock();
            state.is_shut_down = true;
            state.wake()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(self, service: String, mut changes: Sink<HealthStatus>) -> Result<(), Status> {
        let watcher = Watcher::new(self);
        let mut told = None;
        loop {
            let status = poll_fn(|context| {
                let state = &mut *watcher.health.lock();
                let status = state.status(&service).unwrap_or(HealthStatus::ServiceUnknown);
                if told != Some(status) {
                    return Poll::Ready(status);
                }
                state.watchers.insert(watcher.id, context.waker().clone());
                Poll::Pending
            })
            .await;
            changes.send(status).await?;
            told = Some(status);
            if watcher.health.lock().is_shut_down {
                // It would keep the server from its end.
                return Ok(());
            }
        }
    }
}

impl State {
    fn status(&self, service: &str) -> Option<HealthStatus> {
        let status = self.services.get(service).copied()?;
        Some(if self.is_shut_down { HealthStatus::NotServing } else { status })
    }

    /// Those who are to be woken, once nothing is locked.
    fn wake(&mut self) -> Vec<Waker> {
        self.watchers.drain().map(|(_, waker)| waker).collect()
    }
}

/// One who watches; gone with its handler.
struct Watcher {
    health: Health,
    id: u64,
}

impl Watcher {
    fn new(health: Health) -> Self {
        let id = {
            let state = &mut *health.lock();
            state.last_watcher += 1;
            state.last_watcher
        };
        Self { health, id }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let waker = self.health.lock().watchers.remove(&self.id);
        drop(waker);
    }
}

impl From<Health> for Service {
    fn from(health: Health) -> Self {
        let watched = health.clone();
        Self::new(SERVICE)
            .unary("Check", move |Asked(service): Asked, _: Context| {
                let unknown = || Status::new(Code::NOT_FOUND, format!("{service:?} has no health status"));
                std::future::ready(health.status(&service).ok_or_else(unknown))
            })
            .server_stream("Watch", move |Asked(service): Asked, changes: Sink<HealthStatus>, _: Context| {
                watched.clone().watch(service, changes)
            })
    }
}

impl From<&Health> for Service {
    fn from(health: &Health) -> Self {
        health.clone().into()
    }
}

impl RpcServer {
    /// Offers the [`Health`] service: all services are serving once the server listens, and none is once its shutdown
    /// begins.
    pub fn health(mut self, health: &Health) -> Self {
        self.add_on_start(Follow(health.clone()));
        self.service(health)
    }
}

/// Has a server's health follow its life.
struct Follow(Health);

impl OnStart for Follow {
    fn on_start(self: Box<Self>, server: &mut ServerHandle, services: &[String]) -> Result<(), ServerError> {
        let Self(health) = *self;
        let woken = {
            let state = &mut *health.lock();
            for service in services.iter().map(String::as_str).chain([""]) {
                state.services.entry(service.to_owned()).or_insert(HealthStatus::Serving);
            }
            state.wake()
        };
        woken.into_iter().for_each(Waker::wake);
        server.on_shutdown(move |_| health.shut_down());
        Ok(())
    }
}

/// Asks a server for its health.
#[derive(Debug, Clone)]
pub struct HealthClient {
    channel: Channel,
}

impl HealthClient {
    /// Asks over this channel.
    pub fn new(channel: Channel) -> Self {
        Self { channel }
    }

    /// The status of a service now, or of the server as a whole (`""`). A name has at most 127 bytes.
    pub fn check(&self, service: impl Into<String>) -> UnaryCall<HealthStatus> {
        self.channel.call(format!("{SERVICE}/Check").as_str(), Asked(service.into()))
    }

    /// The status of a service now, and each change of it.
    pub fn watch(&self, service: impl Into<String>) -> StreamingCall<ServerStreaming<HealthStatus>> {
        self.channel.server_stream(format!("{SERVICE}/Watch").as_str(), Asked(service.into()))
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("services", &self.lock().services).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_grpc() {
        assert_eq!(Asked("Echo".to_owned()).encode().unwrap(), &b"\x0a\x04Echo"[..]);
        assert_eq!(Asked(String::new()).encode().unwrap(), &b""[..]);
        assert_eq!(Asked::decode(Bytes::from_static(b"\x0a\x04Echo")).unwrap().0, "Echo");
        assert!(Asked("x".repeat(128)).encode().is_err());
        for bad in [&b"\x0a\x05Echo"[..], b"\x0a", b"\x12\x00", b"\x0a\x01\xff"] {
            assert!(Asked::decode(Bytes::from_static(bad)).is_err(), "{bad:02x?}");
        }
        use HealthStatus::{NotServing, ServiceUnknown, Serving, Unknown};
        for (status, bytes) in [
            (Unknown, &b""[..]),
            (Serving, b"\x08\x01"),
            (NotServing, b"\x08\x02"),
            (ServiceUnknown, b"\x08\x03"),
        ] {
            assert_eq!(status.encode().unwrap(), bytes);
            assert_eq!(HealthStatus::decode(Bytes::from_static(bytes)).unwrap(), status);
        }
        assert!(HealthStatus::decode(Bytes::from_static(b"\x08\x04")).is_err());
    }
}
