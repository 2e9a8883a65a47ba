//! A channel whose endpoints come from a registry: connections follow it, and a balancer chooses for each call.

mod calls;
mod member;
mod opened;
mod pick;
mod serving;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_discovery::{
    Balancer, OutlierConfig, OutlierDetector, PanicConfig, PanicMode, Reader, Registry, ServiceKey, Snapshot,
    SnapshotId, Watch,
};
use corewire_runtime::{JoinHandle, WorkerHandle, sleep_until, spawn_local};
use futures_lite::future::or;
use slab::Slab;

use self::calls::InFlight;
pub(super) use self::calls::{FlightId, Outcome};
use self::member::Member;
use self::opened::Opened;
pub(crate) use self::pick::Avoided;
pub(crate) use self::serving::{Serving, WatchHealth};
use super::local::LocalChannel;
use super::settings::Settings;
use crate::gauges::EndpointGauges;
use crate::link::Group;

/// What a discovered channel is made from.
#[derive(Debug)]
pub(crate) struct Discovery {
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) key: ServiceKey,
    pub(crate) watch: Watch,
    pub(crate) balancer: Box<dyn Balancer>,
    pub(crate) outliers: Option<OutlierConfig>,
    pub(crate) panic: Option<PanicConfig>,
    /// Connects to each endpoint as soon as it is known.
    pub(crate) is_eager: bool,
    /// Uses an endpoint once it says that it is serving.
    pub(crate) health: Option<WatchHealth>,
}

/// The endpoints of a service as a channel uses them, on the channel's worker.
pub(super) struct Discovered {
    /// Held so that it goes on following its source.
    _registry: Arc<dyn Registry>,
    service: Arc<str>,
    /// Settings of the connections to an endpoint, but for where it is.
    settings: Settings,
    home: WorkerHandle,
    group: Group,
    channel: Weak<LocalChannel>,
    is_eager: bool,
    health: Option<WatchHealth>,
    /// What times are counted from.
    origin: Instant,
    state: RefCell<State>,
    calls: RefCell<Slab<InFlight>>,
    /// Endpoints are in use that the registry does not list.
    is_panicking: Cell<bool>,
    follower: Cell<Option<JoinHandle<()>>>,
}

struct State {
    reader: Reader,
    balancer: Box<dyn Balancer>,
    outliers: Option<OutlierDetector>,
    panic: Option<PanicMode>,
    /// All endpoints of the snapshot `members_of`, by instance.
    members: HashMap<Arc<str>, Rc<Member>>,
    members_of: Option<SnapshotId>,
    /// The members at the positions of the snapshot that is picked from; `None`: an address that is none.
    view: Vec<Option<Rc<Member>>>,
    view_of: Option<SnapshotId>,
    /// Endpoints that are gone from the registry and whose last calls go on.
    draining: Vec<Rc<Member>>,
    last_member: u64,
    /// Why an endpoint of the snapshot is no member.
    left_out: Option<String>,
    opened: Opened,
}

impl Discovered {
    /// A channel that follows a registry; on its worker.
    pub(super) fn channel(
        discovery: Discovery,
        settings: Settings,
        home: WorkerHandle,
        group: Group,
    ) -> Rc<LocalChannel> {
        let Discovery { registry, key, watch, balancer, outliers, panic, is_eager, health } = discovery;
        let channel = LocalChannel::following(settings.clone(), home.clone(), group, |channel| {
            Rc::new(Self {
                _registry: registry,
                service: key.name().clone(),
                settings,
                home,
                group,
                channel: channel.clone(),
                is_eager,
                health,
                origin: corewire_driver::clock::now(),
                state: RefCell::new(State {
                    reader: key.reader(),
                    balancer,
                    outliers: outliers.map(OutlierDetector::new),
                    panic: panic.map(PanicMode::new),
                    members: HashMap::new(),
                    members_of: None,
                    view: Vec::new(),
                    view_of: None,
                    draining: Vec::new(),
                    last_member: 0,
                    left_out: None,
                    opened: Opened::default(),
                }),
                calls: RefCell::default(),
                is_panicking: Cell::new(false),
                follower: Cell::default(),
            })
        });
        if let Some(discovered) = &channel.discovered {
            let follower = spawn_local(follow(Rc::downgrade(&channel), watch));
            discovered.follower.set(Some(follower));
        }
        channel
    }

    /// Ends all connections.
    pub(super) fn close(&self) {
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        let (members, draining) = {
            let state = &mut *self.state.borrow_mut();
            state.view.clear();
            (std::mem::take(&mut state.members), std::mem::take(&mut state.draining))
        };
        let gone = members.into_values().chain(draining);
        gone.for_each(|member| member.opened().into_iter().for_each(|local| local.close()));
    }

    fn since_origin(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }

    /// Makes the members those in use now. Says when to do so again if the registry tells nothing new.
    fn follow_registry(&self) -> Option<Instant> {
        let state = &mut *self.state.borrow_mut();
        let now = self.since_origin(corewire_driver::clock::now());
        let snapshot = in_use(&mut state.reader, &mut state.panic, now).clone();
        self.sync(state, &snapshot);
        let change = state.panic.as_ref()?.next_change()?;
        self.origin.checked_add(change)
    }

    /// How many endpoints there are.
    pub(super) fn endpoints(&self) -> EndpointGauges {
        let state = &mut *self.state.borrow_mut();
        EndpointGauges {
            listed: state.reader.snapshot().len(),
            held: state.panic.as_ref().map_or(0, PanicMode::held),
            ejected: state.outliers.as_ref().map_or(0, OutlierDetector::ejected),
            connected: state.members.values().filter(|member| member.is_established()).count(),
        }
    }

    /// Endpoints that are new get a member, those that are gone give it up.
    #[cold]
    fn sync(&self, state: &mut State, snapshot: &Snapshot) {
        if state.members_of == Some(snapshot.id()) {
            return;
        }
        state.members_of = Some(snapshot.id());
        self.is_panicking.set(state.panic.as_ref().is_some_and(|panic| panic.panicking().is_some()));
        state.left_out = None;
        let mut before = std::mem::take(&mut state.members);
        state.members.reserve(snapshot.len());
        for endpoint in snapshot.iter() {
            let known = before.remove(endpoint.instance());
            // One that has moved is another one.
            let (kept, moved) = match known {
                Some(member) if member.is_at(endpoint) => (Some(member), None),
                other => (None, other),
            };
            state.draining.extend(moved);
            let member = kept.or_else(|| {
                state.last_member += 1;
                let member = Member::new(state.last_member, endpoint).inspect_err(|error| {
                    let (service, instance) = (&self.service, endpoint.instance());
                    tracing::warn!(%service, %instance, %error, "endpoint left out");
                    state.left_out = Some(format!("endpoint {instance} of {service}: {error}"));
                });
                let member = Rc::new(member.ok()?);
                if self.is_eager {
                    member.open(self).connect_all();
                    state.opened.add(member.clone());
                }
                Some(member)
            });
            if let Some(member) = member {
                state.members.insert(endpoint.instance().clone(), member);
            }
        }
        state.draining.extend(before.into_values());
        for member in &state.draining {
            if let Some(local) = member.opened().filter(|local| !local.is_closed()) {
                tracing::debug!(service = %self.service, instance = %member.instance, "endpoint drained");
                local.drain();
            }
        }
        state.opened.prune();
        state.draining.retain(|member| member.is_established());
    }
}

/// The endpoints in use now, ejected or not.
#[inline]
fn in_use<'a>(reader: &'a mut Reader, panic: &'a mut Option<PanicMode>, now: Duration) -> &'a Arc<Snapshot> {
    let listed = reader.snapshot();
    match panic {
        Some(panic) => panic.in_use(listed, now),
        None => listed,
    }
}

/// Takes note of the changes of the service, calls or not.
async fn follow(channel: Weak<LocalChannel>, mut watch: Watch) {
    let mut due = None;
    loop {
        let told = async { watch.next().await.is_some() };
        let is_open = match due {
            None => told.await,
            Some(due) => {
                or(told, async {
                    sleep_until(due).await;
                    true
                })
                .await
            }
        };
        if !is_open {
            // The registry is closed: what was known last is used on.
            return;
        }
        while watch.try_next().is_some() {}
        let Some(channel) = channel.upgrade() else { return };
        due = channel.discovered.as_ref().and_then(|discovered| discovered.follow_registry());
        // Calls that wait for an endpoint.
        channel.wake_all();
    }
}
