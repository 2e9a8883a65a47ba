mod peak;

use crate::{Endpoint, Snapshot, SnapshotId};
use hashbrown::HashMap;
use peak::Peak;
use std::sync::Arc;
use std::time::Duration;

/// When a registry that lists too few endpoints is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PanicConfig {
    /// While fewer than so many percent of the endpoints are listed that were, those that went away are used on. 0:
    /// never, 100: after any loss. Default 50.
    pub threshold_percent: u8,
    /// Services that had fewer endpoints follow the registry at once. Default 3.
    pub endpoints_min: usize,
    /// How far back it is looked for endpoints that were listed, and how long one that went away is used without a call
    /// to it that went well. Default 5 min.
    pub hold: Duration,
}

impl Default for PanicConfig {
    fn default() -> Self {
        Self { threshold_percent: 50, endpoints_min: 3, hold: Duration::from_secs(300) }
    }
}

/// Keeps using the last known endpoints when most of them leave the registry at once: that is rather the registry's
/// trouble (leases that lapsed for all, a restart without memory) than theirs.
///
/// It is Envoy's rule of the *panic threshold*, for registries. While fewer endpoints are listed than the threshold
/// allows, measured by the most that were listed within [`PanicConfig::hold`], it *panics*: endpoints that went away in
/// that time are in use beside those that are listed. It ends when enough are listed again, or when no call to those that
/// went away has gone well for so long.
///
/// It has no clock: the caller passes the time since any fixed point.
///
/// ```
/// use corewire_discovery::{Endpoint, PanicConfig, PanicMode, Snapshot};
/// use std::{sync::Arc, time::Duration};
///
/// let endpoint = |n: u16| Endpoint::new("Echo", format!("echo-{n}"), format!("10.0.0.1:{n}")).map(Arc::new);
/// let all = Arc::new(Snapshot::new("Echo", [endpoint(1)?, endpoint(2)?, endpoint(3)?]));
/// let one = Arc::new(Snapshot::new("Echo", [endpoint(1)?]));
/// let mut panic = PanicMode::new(PanicConfig::default());
/// let now = Duration::ZERO;
/// assert_eq!(panic.in_use(&all, now).len(), 3);
/// assert_eq!(panic.in_use(&one, now).len(), 3, "one of three is less than half");
/// assert_eq!(panic.held(), 2);
/// assert_eq!(panic.in_use(&one, now + Duration::from_secs(300)).len(), 1);
/// # Ok::<(), corewire_discovery::EndpointError>(())
/// ```
#[derive(Debug)]
pub struct PanicMode {
    config: PanicConfig,
    listed: Option<Arc<Snapshot>>,
    peak: Peak,
    /// What went away lately, and since when there is no good news of it.
    gone: HashMap<Arc<str>, Gone>,
    /// Not later than the next end of the time of one that is gone.
    next_end: Option<Duration>,
    state: State,
}

#[derive(Debug)]
struct Gone {
    endpoint: Arc<Endpoint>,
    since: Duration,
}

#[derive(Debug)]
enum State {
    Calm,
    Panic {
        in_use: Arc<Snapshot>,
        /// How many were listed at the most.
        most: usize,
    },
}

impl PanicMode {
    /// One that knows no endpoint yet.
    pub fn new(config: PanicConfig) -> Self {
        let peak = Peak::new(config.hold);
        Self { config, listed: None, peak, gone: HashMap::new(), next_end: None, state: State::Calm }
    }

    /// The endpoints in use, given those that are listed. It is the same snapshot until something changes.
    pub fn in_use<'a>(&'a mut self, listed: &'a Arc<Snapshot>, now: Duration) -> &'a Arc<Snapshot> {
        if self.is_news(listed.id()) || self.next_end.is_some_and(|end| end <= now) {
            self.update(listed, now);
        }
        match &self.state {
            State::Calm => listed,
            State::Panic { in_use, .. } => in_use,
        }
    }

    /// What [`PanicMode::in_use`] said last, while it panics.
    pub fn panicking(&self) -> Option<&Arc<Snapshot>> {
        match &self.state {
            State::Calm => None,
            State::Panic { in_use, .. } => Some(in_use),
        }
    }

    /// A call to the instance went well: if it went away, its time begins anew.
    pub fn succeeded(&mut self, instance: &str, now: Duration) {
        if let Some(gone) = self.gone.get_mut(instance) {
            gone.since = gone.since.max(now);
        }
    }

    /// How many endpoints are in use that are not listed; 0 when it does not panic.
    pub fn held(&self) -> usize {
        self.panicking().map_or(0, |_| self.gone.len())
    }

    /// When to ask for the endpoints in use again, if nothing is listed anew until then.
    pub fn next_change(&self) -> Option<Duration> {
        self.next_end
    }

    fn is_news(&self, id: SnapshotId) -> bool {
        self.listed.as_ref().is_none_or(|listed| listed.id() != id)
    }

    #[cold]
    fn update(&mut self, listed: &Arc<Snapshot>, now: Duration) {
        let is_news = self.is_news(listed.id());
        if is_news {
            self.note_gone(listed, now);
        }
        let before = self.gone.len();
        let hold = self.config.hold;
        self.gone.retain(|_, gone| gone.since.saturating_add(hold) > now);
        self.next_end = self.gone.values().map(|gone| gone.since.saturating_add(hold)).min();
        let is_same = !is_news && before == self.gone.len();
        self.listed = Some(listed.clone());
        let most = self.most(listed.len(), now);
        let is_panic = !self.gone.is_empty()
            && most >= self.config.endpoints_min
            && listed.len() * 100 < most * usize::from(self.config.threshold_percent);
        match (&self.state, is_panic) {
            (State::Panic { .. }, true) if is_same => return,
            (State::Calm, true) => {
                let (service, held) = (listed.service(), self.gone.len());
                tracing::warn!(%service, listed = listed.len(), held, "most endpoints left the registry: they are used on");
            }
            (State::Panic { .. }, false) => {
                tracing::info!(service = %listed.service(), listed = listed.len(), "the registry is followed again");
            }
            _ => {}
        }
        self.state = if is_panic {
            let in_use = listed.iter().chain(self.gone.values().map(|gone| &gone.endpoint)).cloned();
            State::Panic { in_use: Arc::new(Snapshot::new(listed.service().clone(), in_use)), most }
        } else {
            State::Calm
        };
    }

    /// Those that were listed before and are not now.
    fn note_gone(&mut self, listed: &Arc<Snapshot>, now: Duration) {
        self.peak.set(listed.len(), now);
        let mut before = HashMap::new();
        for endpoint in self.listed.iter().flat_map(|before| before.iter()) {
            before.insert(endpoint.instance(), endpoint);
        }
        for endpoint in listed.iter() {
            before.remove(endpoint.instance());
            self.gone.remove(endpoint.instance());
        }
        let gone = before
            .into_iter()
            .map(|(instance, endpoint)| (instance.clone(), Gone { endpoint: endpoint.clone(), since: now }));
        self.gone.extend(gone);
    }

    /// How many were listed at the most: lately, or before it panicked.
    fn most(&mut self, listed: usize, now: Duration) -> usize {
        if self.gone.is_empty() {
            self.peak.reset();
        }
        match self.state {
            State::Panic { most, .. } => most.max(listed),
            State::Calm => self.peak.most(now),
        }
    }
}

#[cfg(test)]
mod tests;
