use crate::{Snapshot, SnapshotId, Subset};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// When endpoints are taken out of use, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlierConfig {
    /// Failures in a row after which an endpoint is taken out. Default 5.
    pub consecutive_failures: u32,
    /// How long the first time; it doubles each further time. Default 5 s.
    pub ejection_base: Duration,
    /// Longest time out. Default 5 min.
    pub ejection_max: Duration,
    /// How many of the endpoints may be out at once, in percent, 0–100. One of several may always be out, the last
    /// one never. Default 50.
    pub ejected_max_percent: u8,
}

impl Default for OutlierConfig {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            ejection_base: Duration::from_secs(5),
            ejection_max: Duration::from_secs(300),
            ejected_max_percent: 50,
        }
    }
}

/// Takes endpoints that keep failing out of use, and lets them back in after a time that grows.
///
/// It has no clock: the caller passes the time since any fixed point. Results are told by instance id, since an
/// endpoint may have moved or gone by the time its call ends. An endpoint that is back is on trial: the first failure
/// of a call that was begun since takes it out again, the first success of one clears it. For each of its times out
/// that it stays in without a failure, one is forgotten.
///
/// ```
/// use corewire_discovery::{Endpoint, OutlierConfig, OutlierDetector, Snapshot};
/// use std::{sync::Arc, time::Duration};
///
/// let endpoint = |name| Endpoint::new("Echo", name, "10.0.0.1:7000").map(Arc::new);
/// let endpoints = Snapshot::new("Echo", [endpoint("good")?, endpoint("bad")?]);
/// let mut outliers = OutlierDetector::new(OutlierConfig { consecutive_failures: 1, ..Default::default() });
/// let now = Duration::ZERO;
/// assert_eq!(outliers.healthy(&endpoints, now).len(), 2);
/// // A call that was begun and ended now.
/// assert!(outliers.failed("bad", now, now));
/// assert_eq!(outliers.healthy(&endpoints, now).len(), 1);
/// assert_eq!(outliers.healthy(&endpoints, now + Duration::from_secs(5)).len(), 2);
/// # Ok::<(), corewire_discovery::EndpointError>(())
/// ```
#[derive(Debug)]
pub struct OutlierDetector {
    config: OutlierConfig,
    known: HashMap<Arc<str>, Health>,
    of: Option<SnapshotId>,
    ejected: usize,
    /// Earliest end of an ejection, not later than the true one.
    next_return: Option<Duration>,
    /// The endpoints in use, when not all are and nothing changed since.
    healthy: Option<Subset>,
}

#[derive(Debug, Default)]
struct Health {
    failures_in_row: u32,
    times_out: u32,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    In,
    Out {
        until: Duration,
    },
    /// Back since this time. What was begun before says nothing about it.
    Trial {
        since: Duration,
    },
    /// Cleared after a trial, at this time.
    Cleared {
        since: Duration,
    },
}

impl OutlierDetector {
    /// A detector that knows no endpoint yet.
    pub fn new(config: OutlierConfig) -> Self {
        Self { config, known: HashMap::new(), of: None, ejected: 0, next_return: None, healthy: None }
    }

    /// The endpoints in use: all but those that are out now. This is what to pick from; it is the same snapshot
    /// until something changes.
    pub fn healthy<'a>(&'a mut self, endpoints: &'a Snapshot, now: Duration) -> &'a Snapshot {
        self.sync(endpoints, now);
        if self.next_return.is_some_and(|at| at <= now) {
            self.readmit(now);
        }
        if self.ejected == 0 {
            return endpoints;
        }
        let known = &self.known;
        let is_in = |endpoint: &crate::Endpoint| !known.get(endpoint.instance()).is_some_and(Health::is_out);
        self.healthy.get_or_insert_with(|| Subset::new(endpoints, is_in)).snapshot()
    }

    /// A call to the instance that was begun at `began` went well. Unknown instances are ignored.
    pub fn succeeded(&mut self, instance: &str, began: Duration, now: Duration) {
        let config = &self.config;
        let Some(health) = self.known.get_mut(instance) else { return };
        match health.state {
            State::Trial { since } if began >= since => {
                health.failures_in_row = 0;
                health.state = State::Cleared { since: now };
            }
            State::Cleared { since } => {
                health.failures_in_row = 0;
                if now.saturating_sub(since) >= config.ejection(health.times_out) {
                    health.times_out = health.times_out.saturating_sub(1);
                    health.state =
                        if health.times_out == 0 { State::In } else { State::Cleared { since: now } };
                }
            }
            State::In => health.failures_in_row = 0,
            // A call begun before says nothing about now.
            State::Trial { .. } | State::Out { .. } => {}
        }
    }

    /// A call to the instance that was begun at `began` failed. Says whether this took it out. Unknown instances are
    /// ignored.
    pub fn failed(&mut self, instance: &str, began: Duration, now: Duration) -> bool {
        let may_eject = self.ejected < self.ejected_max();
        let config = &self.config;
        let Some(health) = self.known.get_mut(instance) else { return false };
        health.failures_in_row = health.failures_in_row.saturating_add(1);
        let is_bad = match health.state {
            State::Out { .. } => false,
            State::Trial { since } => began >= since,
            State::In | State::Cleared { .. } => health.failures_in_row >= config.consecutive_failures.max(1),
        };
        if !is_bad || !may_eject {
            return false;
        }
        health.times_out = health.times_out.saturating_add(1);
        let until = now.saturating_add(config.ejection(health.times_out));
        health.state = State::Out { until };
        self.ejected += 1;
        self.next_return = Some(self.next_return.map_or(until, |at| at.min(until)));
        self.healthy = None;
        true
    }

    /// Whether the instance is out.
    pub fn is_ejected(&self, instance: &str) -> bool {
        self.known.get(instance).is_some_and(Health::is_out)
    }

    /// How many endpoints are out.
    pub fn ejected(&self) -> usize {
        self.ejected
    }

    /// When the next endpoint comes back, if one is out.
    pub fn next_return(&self) -> Option<Duration> {
        self.next_return
    }

    fn ejected_max(&self) -> usize {
        let count = self.known.len();
        let share = count * usize::from(self.config.ejected_max_percent.min(100)) / 100;
        let none_allowed = self.config.ejected_max_percent == 0;
        if none_allowed { 0 } else { share.max(1).min(count.saturating_sub(1)) }
    }

    fn readmit(&mut self, now: Duration) {
        self.next_return = None;
        for health in self.known.values_mut() {
            match health.state {
                State::Out { until } if until <= now => {
                    health.state = State::Trial { since: now };
                    self.ejected -= 1;
                    self.healthy = None;
                }
                State::Out { until } => {
                    self.next_return = Some(self.next_return.map_or(until, |at| at.min(until)));
                }
                _ => {}
            }
        }
    }

    fn sync(&mut self, endpoints: &Snapshot, now: Duration) {
        if self.of == Some(endpoints.id()) {
            return;
        }
        self.of = Some(endpoints.id());
        self.healthy = None;
        let mut before = std::mem::take(&mut self.known);
        for endpoint in endpoints.iter() {
            let health = before.remove(endpoint.instance()).unwrap_or_default();
            self.known.insert(endpoint.instance().clone(), health);
        }
        self.ejected = self.known.values().filter(|health| health.is_out()).count();
        self.release_over_limit(now);
    }

    /// When healthy endpoints went away too many of the rest may be out: those due first come back now.
    fn release_over_limit(&mut self, now: Duration) {
        let mut over = self.ejected.saturating_sub(self.ejected_max());
        while over > 0 {
            let out = self.known.values_mut().filter(|health| health.is_out());
            let Some(first) = out.min_by_key(|health| health.until()) else { return };
            first.state = State::Trial { since: now };
            self.ejected -= 1;
            over -= 1;
        }
    }
}

impl Health {
    fn is_out(&self) -> bool {
        matches!(self.state, State::Out { .. })
    }

    fn until(&self) -> Duration {
        if let State::Out { until } = self.state { until } else { Duration::MAX }
    }
}

impl OutlierConfig {
    fn ejection(&self, times_out: u32) -> Duration {
        let doubled = 1u32.checked_shl(times_out.saturating_sub(1)).unwrap_or(u32::MAX);
        self.ejection_base.saturating_mul(doubled).min(self.ejection_max)
    }
}

#[cfg(test)]
mod tests;
