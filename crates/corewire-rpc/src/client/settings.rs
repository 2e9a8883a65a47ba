//! What a channel is told before it calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire::NetUri;
use corewire_driver::net::StreamOptions;
use corewire_proto::rpc::{Settings as ProtocolSettings, Version};
use corewire_runtime::{ConnectionOptions, WorkerHandle};

use crate::interceptor::ClientInterceptor;

/// When calls that are marked idempotent are made again. A retry needs a token of the budget; each success gives a
/// part of one back, so that retries stay a share of all calls.
///
/// Calls that the server certainly never began are made again on another connection without this.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Retry {
    /// Attempts at the most, the first one included; default 3.
    pub attempts: u32,
    /// The bound of the first wait before a retry, which doubles each time; the wait is random below it. Default 10 ms.
    pub initial_wait: Duration,
    /// Tokens that the budget holds at the most, and at the beginning; default 100.
    pub budget: u32,
    /// What a success gives back, in thousandths of a token; default 100, so that 1 in 10 calls can be a retry.
    pub refill: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 3, initial_wait: Duration::from_millis(10), budget: 100, refill: 100 }
    }
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) uris: Vec<NetUri>,
    pub(super) version: Version,
    pub(super) protocol: ProtocolSettings,
    pub(super) pool: usize,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) keep_alive: Option<Duration>,
    pub(super) keep_alive_timeout: Duration,
    /// A connection is of use once it has answered a ping (version 2).
    pub(super) probes: bool,
    pub(super) backoff: (Duration, Duration),
    pub(super) fail_fast: bool,
    pub(super) retry: Option<Retry>,
    pub(super) hedge: Option<Duration>,
    pub(super) interceptors: Vec<Arc<dyn ClientInterceptor>>,
    pub(super) connection: ConnectionOptions,
    pub(super) stream: StreamOptions,
    pub(super) worker: Option<WorkerHandle>,
}

impl Settings {
    pub(super) fn new() -> Self {
        let mut connection = ConnectionOptions::default();
        // Its users decide what they send and wait for: holding back replies could stop both sides for good.
        connection.pause_receive_on_backlog = false;
        Self {
            uris: Vec::new(),
            version: Version::V2,
            protocol: ProtocolSettings::default(),
            pool: 1,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(15),
            keep_alive: Some(Duration::from_secs(30)),
            keep_alive_timeout: Duration::from_secs(10),
            probes: false,
            backoff: (Duration::from_millis(50), Duration::from_secs(5)),
            fail_fast: false,
            retry: None,
            hedge: None,
            interceptors: Vec::new(),
            connection,
            stream: StreamOptions::default(),
            worker: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("uris", &self.uris)
            .field("version", &self.version)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
