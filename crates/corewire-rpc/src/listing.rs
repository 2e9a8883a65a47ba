//! What a server offers, asked over RPC: for people and tools that have no other description of it.
//!
//! A server that is told to ([`RpcServer::listing`](crate::RpcServer::listing)) has a service `corewire.Listing` of unary
//! methods whose messages are JSON, in both versions of the wire. `list` takes nothing and answers
//! `{"services": [{"name", "methods": [{"name", "mode"}]}]}`, in the order of names, itself included. `describe` takes
//! `{"service"}` and answers the one; it fails as [`Code::NOT_FOUND`](crate::Code::NOT_FOUND) if there is none. A mode is
//! `unary`, `client-stream`, `server-stream`, `bidi`, or `stream` for routes of the `STREAM_*` family.
//!
//! ```
//! use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, listing};
//!
//! let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
//! let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).listing().workers(1).start()?;
//! let channel = Channel::to(server.uri()).build()?;
//!
//! let echo = corewire::block_on(listing::describe(&channel, "Echo"))?;
//! assert_eq!((&*echo.methods[0].name, &*echo.methods[0].mode), ("echo", "unary"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::client::Channel;
use crate::message::Json;
use crate::status::Status;

/// The name of the service.
pub const SERVICE: &str = "corewire.Listing";

/// A service that a server offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceInfo {
    /// What clients call it.
    pub name: String,
    /// Its methods, in the order of their names; one that is served in several modes stands there for each of them.
    pub methods: Vec<MethodInfo>,
}

/// A method of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MethodInfo {
    /// What clients call it.
    pub name: String,
    /// `unary`, `client-stream`, `server-stream`, `bidi` or `stream`.
    pub mode: String,
}

/// What `list` answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Services {
    pub(crate) services: Vec<ServiceInfo>,
}

/// What `list` takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Everything {}

/// What `describe` takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct One {
    pub(crate) service: String,
}

/// All services of a server.
///
/// # Errors
/// The server offers no listing ([`Code::SERVICE_NOT_FOUND`](crate::Code::SERVICE_NOT_FOUND)), or the call failed.
pub async fn list(channel: &Channel) -> Result<Vec<ServiceInfo>, Status> {
    let path = format!("{SERVICE}/list");
    let Json(Services { services }) = channel.call(path.as_str(), Json(Everything {})).await?;
    Ok(services)
}

/// One service of a server.
///
/// # Errors
/// As [`list`]; or the server has no such service ([`Code::NOT_FOUND`](crate::Code::NOT_FOUND)).
pub async fn describe(channel: &Channel, service: impl Into<String>) -> Result<ServiceInfo, Status> {
    let path = format!("{SERVICE}/describe");
    let Json(service) = channel.call(path.as_str(), Json(One { service: service.into() })).await?;
    Ok(service)
}
