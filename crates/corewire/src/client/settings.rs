//! What a client is told before it connects.

use std::time::Duration;

use corewire_runtime::SettingError;
use corewire_runtime::backoff::Backoff;

use super::connector::Connector;

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
    /// Waits between these bounds, and tries for ever.
    pub const fn between(initial: Duration, max: Duration) -> Self {
        Self { initial, max, attempts_max: None }
    }

    /// Refuses bounds with which there would be no wait.
    ///
    /// # Errors
    /// The longest wait is 0, or shorter than the first.
    pub fn check(&self) -> Result<(), SettingError> {
        let Self { initial, max, .. } = self;
        if !max.is_zero() && max >= initial {
            return Ok(());
        }
        let allowed = format!("more than 0, and at least the first, {initial:?}");
        Err(SettingError::new("the longest wait before a reconnect", format!("{max:?}"), allowed))
    }

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
    pub(super) connector: Connector,
    pub(super) request_timeout: Duration,
    pub(super) max_in_flight: Option<usize>,
    pub(super) inbox: Option<usize>,
}

impl Settings {
    /// Refuses settings with which nothing could ever be sent or answered.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.connector.settings.check()?;
        SettingError::if_zero("the request timeout", self.request_timeout)?;
        if let Some(calls) = self.max_in_flight {
            SettingError::if_zero("the most requests in flight", calls)?;
        }
        if let Some(messages) = self.inbox {
            SettingError::if_zero("the most messages in the inbox", messages)?;
        }
        Ok(())
    }
}
