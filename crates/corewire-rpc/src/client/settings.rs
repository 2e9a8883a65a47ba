//! What a channel is told before it calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire::client::{ClientBuilder, Connector, OwnProtocol};
use corewire::uri::Scheme;
use corewire::{ConnectError, NetUri, SettingError};
use corewire_proto::rpc::{Settings as ProtocolSettings, Version};

use super::interceptor::ClientInterceptor;
use super::policy::{Hedge, Retry};
use crate::limits;

#[derive(Clone)]
pub(super) struct Settings {
    /// Those that answer the same calls.
    pub(super) servers: Vec<Connector>,
    pub(super) version: Version,
    pub(super) protocol: ProtocolSettings,
    pub(super) pool: usize,
    pub(super) timeout: Duration,
    pub(super) keep_alive: Option<Duration>,
    pub(super) keep_alive_timeout: Duration,
    /// A connection is of use once it has answered a ping (version 2).
    pub(super) probes: bool,
    pub(super) fail_fast: bool,
    pub(super) retry: Option<Retry>,
    pub(super) hedge: Option<Hedge>,
    pub(super) interceptors: Vec<Arc<dyn ClientInterceptor>>,
    /// Of its connections, but for where they go.
    pub(super) net: ClientBuilder<OwnProtocol>,
}

impl Settings {
    pub(super) fn new() -> Self {
        Self {
            servers: Vec::new(),
            version: Version::V2,
            protocol: ProtocolSettings::default(),
            pool: 1,
            timeout: Duration::from_secs(15),
            keep_alive: Some(Duration::from_secs(30)),
            keep_alive_timeout: Duration::from_secs(10),
            probes: false,
            fail_fast: false,
            retry: None,
            hedge: None,
            interceptors: Vec::new(),
            net: ClientBuilder::new(),
        }
    }
}

impl Settings {
    /// Refuses settings with which no call could ever succeed.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        limits::check(&self.protocol)?;
        self.net.check()?;
        SettingError::if_zero("the number of connections", self.pool)?;
        SettingError::if_zero("the time of a call", self.timeout)?;
        if let Some(every) = self.keep_alive {
            SettingError::if_zero("the time before a keep-alive ping", every)?;
            SettingError::if_zero("the time for the answer to a ping", self.keep_alive_timeout)?;
        }
        if let Some(hedge) = self.hedge {
            SettingError::if_zero("the attempts of a hedged call", hedge.attempts)?;
        }
        self.retry.map_or(Ok(()), |retry| SettingError::if_zero("the attempts of a retry", retry.attempts))
    }

    /// What connects to this address.
    pub(super) fn connector(&self, address: &str) -> Result<Connector, ConnectError> {
        Ok(self.net.connector(server_uri(address)?))
    }

    /// Thousandths of tokens that the budget of retries and hedges holds at the most.
    pub(super) fn budget_max(&self) -> u64 {
        u64::from(self.retry.unwrap_or_default().budget) * 1_000
    }
}

/// Where a channel is to connect to: by a scheme that carries a stream of bytes. What has none is TCP.
pub(super) fn server_uri(address: &str) -> Result<NetUri, ConnectError> {
    let uri = NetUri::parse(address)?;
    match uri.scheme() {
        Scheme::Tcp | Scheme::Tls | Scheme::Unix | Scheme::Kcp => Ok(uri),
        other => Err(ConnectError::Scheme(other)),
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("servers", &self.servers)
            .field("version", &self.version)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
