//! Which registry.

use std::sync::Arc;

use corewire_discovery::{LocalRegistry, Registry, RegistryError};

use super::rpc::{RpcRegistry, RpcRegistryOptions};

/// A registry: open already, or by its address.
#[derive(Debug, Clone)]
pub struct RegistrySource(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Address(String),
    Open(Arc<dyn Registry>),
}

impl RegistrySource {
    /// Opens it, if it is not open.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn open(self) -> Result<Arc<dyn Registry>, RegistryError> {
        match self.0 {
            Kind::Address(address) => connect(&address).await,
            Kind::Open(registry) => Ok(registry),
        }
    }
}

/// Opens a registry by its address.
///
/// | address | registry |
/// |---|---|
/// | `rpc://HOST:PORT`, `tcp://HOST:PORT` | an [`RpcRegistry`]; settings `ttl`, `timeout`, `grace`, `wait` |
/// | `local`, `file:…`, `dns:…`, `etcd://…`, `etcds://…` | as [`corewire_discovery::connect`] |
///
/// # A registry that is away at the start
/// Opening one that cannot be reached is an error at once, or when `timeout` is over; with `?wait=true` in its address it
/// waits for as long as it takes. So it is for a channel ([`DiscoverBuilder::build`](super::DiscoverBuilder::build)). DNS is
/// asked when a service is asked for, and not before.
///
/// A server that registers itself starts all the same, with and without `wait`: its start waits for 5 s at the most, and
/// the server goes on trying every 500 ms. What cannot become better fails the start: an address that is none, a kind of
/// registry that is not built in or cannot be written to, a registration that is refused.
///
/// # Errors
/// The address is wrong, or the registry cannot be reached and is not waited for.
pub async fn connect(address: &str) -> Result<Arc<dyn Registry>, RegistryError> {
    if ["rpc://", "tcp://", "tls://"].iter().any(|scheme| address.starts_with(scheme)) {
        let registry = RpcRegistry::connect(RpcRegistryOptions::parse(address)?).await?;
        return Ok(Arc::new(registry));
    }
    corewire_discovery::connect(address).await.map(Arc::from)
}

impl From<&str> for RegistrySource {
    fn from(address: &str) -> Self {
        Self(Kind::Address(address.to_owned()))
    }
}

impl From<&String> for RegistrySource {
    fn from(address: &String) -> Self {
        Self(Kind::Address(address.clone()))
    }
}

impl From<String> for RegistrySource {
    fn from(address: String) -> Self {
        Self(Kind::Address(address))
    }
}

impl From<Arc<dyn Registry>> for RegistrySource {
    fn from(registry: Arc<dyn Registry>) -> Self {
        Self(Kind::Open(registry))
    }
}

impl From<&Arc<dyn Registry>> for RegistrySource {
    fn from(registry: &Arc<dyn Registry>) -> Self {
        Self(Kind::Open(registry.clone()))
    }
}

impl From<Box<dyn Registry>> for RegistrySource {
    fn from(registry: Box<dyn Registry>) -> Self {
        Self(Kind::Open(registry.into()))
    }
}

impl From<LocalRegistry> for RegistrySource {
    fn from(registry: LocalRegistry) -> Self {
        Self(Kind::Open(Arc::new(registry)))
    }
}

impl From<&LocalRegistry> for RegistrySource {
    fn from(registry: &LocalRegistry) -> Self {
        registry.clone().into()
    }
}
