//! The TLS configurations of servers and clients.

use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustls::pki_types::ServerName;

/// How long a handshake may take, by default.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a server speaks TLS. Clones share the configuration, so that it can be [replaced](Self::replace) while they serve.
#[derive(Clone)]
pub struct ServerTls {
    current: Arc<RwLock<Arc<rustls::ServerConfig>>>,
    handshake_timeout: Duration,
}

impl ServerTls {
    /// By a configuration of `rustls`: certificates, who may connect, versions, ALPN, resumption. Early data (0-RTT) is
    /// switched off: it can be played back.
    pub fn new(config: rustls::ServerConfig) -> Self {
        Self {
            current: Arc::new(RwLock::new(Arc::new(prepared(config)))),
            handshake_timeout: HANDSHAKE_TIMEOUT,
        }
    }

    /// Closes a connection whose handshake is not complete after this time; default 10 s.
    #[must_use]
    pub const fn with_handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Serves all connections from now on by another configuration. Those that are there, and those whose handshake is
    /// under way, keep the one that they began with. Sessions of before are not resumed.
    pub fn replace(&self, config: rustls::ServerConfig) {
        let config = Arc::new(prepared(config));
        // A lock that is poisoned holds a whole configuration all the same: it is only ever exchanged.
        *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = config;
    }

    pub(super) fn current(&self) -> Arc<rustls::ServerConfig> {
        self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(super) const fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }
}

/// Has the keys handed out after the handshake, to the record layer here.
fn prepared(mut config: rustls::ServerConfig) -> rustls::ServerConfig {
    config.enable_secret_extraction = true;
    config.max_early_data_size = 0;
    config
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("handshake_timeout", &self.handshake_timeout)
            .finish_non_exhaustive()
    }
}

/// How a client speaks TLS. Clones share the sessions that can be resumed.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<rustls::ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// By a configuration of `rustls`: which servers are trusted, the client's own certificate, versions, ALPN,
    /// resumption. Early data (0-RTT) is switched off: it can be played back.
    pub fn new(mut config: rustls::ClientConfig) -> Self {
        config.enable_secret_extraction = true;
        config.enable_early_data = false;
        Self { config: Arc::new(config), server_name: None }
    }

    /// The name that the server's certificate must be for, and that it is asked for (SNI); default: the host that is
    /// connected to.
    #[must_use]
    pub fn with_server_name(mut self, name: ServerName<'static>) -> Self {
        self.server_name = Some(name);
        self
    }

    /// The name that was set.
    pub const fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    pub(super) fn config(&self) -> Arc<rustls::ClientConfig> {
        self.config.clone()
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
