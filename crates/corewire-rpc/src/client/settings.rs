//! What a channel is told before it calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire::SettingError;
use corewire::client::{ClientBuilder, Connector, OwnProtocol};
use corewire_proto::rpc::{Settings as ProtocolSettings, Version};

use super::interceptor::ClientInterceptor;
use crate::limits;

/// When calls that are marked idempotent are made again: those that fail as [`Code::UNAVAILABLE`] or
/// [`Code::CONNECTION_CLOSED`], as long as the server has not begun to answer. Each retry and each [hedge](Hedge) needs a
/// token of the channel's budget; each success gives a part of one back, so that they stay a share of all calls. The time
/// of a call is that of all its attempts and of the waits between them.
///
/// Unary calls, and calls with streams all of whose requests are known (one request, or
/// [`only`](crate::CallFuture::only)): their future is then ready with the first response. Calls that the server certainly
/// never began are made again on another connection without this.
///
/// [`Code::UNAVAILABLE`]: crate::Code::UNAVAILABLE
/// [`Code::CONNECTION_CLOSED`]: crate::Code::CONNECTION_CLOSED
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

/// Further attempts of a call marked idempotent while earlier ones are in flight, against slowness. The first response
/// counts, and the other attempts are cancelled. An attempt that fails as a [`Retry`] mends it leaves the others alone.
///
/// ```
/// use std::time::Duration;
/// use corewire_rpc::{Channel, Hedge};
///
/// let mut hedge = Hedge::after(Duration::from_millis(50));
/// hedge.attempts = 3;
/// let channel = Channel::to("tcp://127.0.0.1:7777").hedge(hedge).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Hedge {
    /// How long after the last attempt the next one begins.
    pub after: Duration,
    /// Attempts at the most, the first one included; default 2.
    pub attempts: u32,
}

impl Hedge {
    /// A second attempt after this time.
    pub const fn after(after: Duration) -> Self {
        Self { after, attempts: 2 }
    }
}

impl From<Duration> for Hedge {
    fn from(after: Duration) -> Self {
        Self::after(after)
    }
}

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

    /// Thousandths of tokens that the budget of retries and hedges holds at the most.
    pub(super) fn budget_max(&self) -> u64 {
        u64::from(self.retry.unwrap_or_default().budget) * 1_000
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
