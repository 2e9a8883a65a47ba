//! What a client is told before it connects.

use std::time::Duration;

use corewire_driver::net::StreamOptions;
use corewire_runtime::backoff::Backoff;
use corewire_runtime::{ConnectionOptions, SettingError, WorkerHandle};

use crate::datagram::DatagramSettings;
use crate::uri::NetUri;

/// How a client comes back after its connection was lost: it waits a random time up to a bound that doubles from
/// attempt to attempt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reconnect {
    /// The bound of the first wait; default 50 ms.
    pub initial: Duration,
    /// The greatest bound; default 5 s.
    pub max: Duration,
    /// Attempts in a row that may fail before the client closes; default: no limit.
    pub attempts_max: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { initial: Backoff::INITIAL, max: Backoff::MAX, attempts_max: None }
    }
}

impl Reconnect {
    pub(super) fn backoff(&self, seed: u64) -> Backoff {
        let backoff = Backoff::new(seed).with_bounds(self.initial, self.max);
        match self.attempts_max {
            Some(attempts) => backoff.with_attempts_max(attempts),
            None => backoff,
        }
    }
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) uri: NetUri,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) reconnect: Option<Reconnect>,
    pub(super) connection: ConnectionOptions,
    pub(super) stream: StreamOptions,
    pub(super) datagram: DatagramSettings,
    pub(super) max_in_flight: Option<usize>,
    pub(super) inbox: Option<usize>,
    pub(super) worker: Option<WorkerHandle>,
}

impl Settings {
    /// Refuses settings with which nothing could ever be sent or answered.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.connection.check()?;
        SettingError::if_zero("the connect timeout", self.connect_timeout)?;
        SettingError::if_zero("the request timeout", self.request_timeout)?;
        if let Some(calls) = self.max_in_flight {
            SettingError::if_zero("the most requests in flight", calls)?;
        }
        if let Some(messages) = self.inbox {
            SettingError::if_zero("the most messages in the inbox", messages)?;
        }
        if let Some(Reconnect { initial, max, .. }) = &self.reconnect
            && (max.is_zero() || max < initial)
        {
            let allowed = format!("more than 0, and at least the first, {initial:?}");
            return Err(SettingError::new(
                "the longest wait before a reconnect",
                format!("{max:?}"),
                allowed,
            ));
        }
        Ok(())
    }

    pub(super) fn new(uri: NetUri) -> Self {
        let mut connection = ConnectionOptions::default();
        // Its user decides what it sends and waits for: holding back replies could stop both sides for good.
        connection.pause_receive_on_backlog = false;
        Self {
            uri,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(15),
            reconnect: Some(Reconnect::default()),
            connection,
            stream: StreamOptions::default(),
            datagram: DatagramSettings::default(),
            max_in_flight: None,
            inbox: None,
            worker: None,
        }
    }
}
