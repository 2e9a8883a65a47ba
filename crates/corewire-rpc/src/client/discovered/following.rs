//! The endpoints of a service as they follow its registry.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_discovery::{
    Balancer, OutlierConfig, OutlierDetector, PanicConfig, PanicMode, Reader, Registry, ServiceKey, Snapshot,
    SnapshotId, Watch,
};
use corewire_runtime::{JoinHandle, sleep_until, spawn_local};
use futures_lite::future::or;
use slab::Slab;

use super::flights::InFlight;
use super::member::Member;
use super::opened::Opened;
use super::serving::WatchHealth;
use crate::client::pool::Pool;
use crate::gauges::EndpointGauges;

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
pub(in crate::client) struct Discovered {
    /// Held so that it goes on following its source.
    _registry: Arc<dyn Registry>,
    pub(super) service: Arc<str>,
    /// Where calls wait, and whose settings the connections to an endpoint have, but for where it is.
    pool: Rc<Pool>,
    is_eager: bool,
    health: Option<WatchHealth>,
    /// What times are counted from.
    origin: Instant,
    pub(super) state: RefCell<State>,
    pub(super) calls: RefCell<Slab<InFlight>>,
    /// Endpoints are in use that the registry does not list.
    pub(super) is_panicking: Cell<bool>,
    follower: Cell<Option<JoinHandle<()>>>,
}

pub(super) struct State {
    pub(super) reader: Reader,
    pub(super) balancer: Box<dyn Balancer>,
    pub(super) outliers: Option<OutlierDetector>,
    pub(super) panic: Option<PanicMode>,
    /// All endpoints of the snapshot `members_of`, by instance.
    pub(super) members: HashMap<Arc<str>, Rc<Member>>,
    pub(super) members_of: Option<SnapshotId>,
    /// The members at the positions of the snapshot that is picked from; `None`: an address that is none.
    pub(super) view: Vec<Option<Rc<Member>>>,
    pub(super) view_of: Option<SnapshotId>,
    /// Endpoints that are gone from the registry and whose last calls go on.
    draining: Vec<Rc<Member>>,
    last_member: u64,
    /// Why an endpoint of the snapshot is no member.
    pub(super) left_out: Option<String>,
    pub(super) opened: Opened,
}

impl Discovered {
    /// Endpoints for the calls that wait in this pool; on its worker.
    pub(in crate::client) fn new(discovery: Discovery, pool: Rc<Pool>) -> Rc<Self> {
        let Discovery { registry, key, watch, balancer, outliers, panic, is_eager, health } = discovery;
        let discovered = Rc::new(Self {
            _registry: registry,
            service: key.name().clone(),
            pool,
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
        });
        discovered.follower.set(Some(spawn_local(follow(Rc::downgrade(&discovered), watch))));
        discovered
    }

    /// The connections of a member that is to be called, of which there may be none yet.
    pub(super) fn connections<'a>(&self, member: &'a Member) -> &'a Rc<Pool> {
        member.open(&self.pool, self.health.as_ref())
    }

    /// Ends all connections.
    pub(in crate::client) fn close(&self) {
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

    pub(super) fn since_origin(&self, now: Instant) -> Duration {
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
    pub(in crate::client) fn endpoints(&self) -> EndpointGauges {
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
    pub(super) fn sync(&self, state: &mut State, snapshot: &Snapshot) {
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
                    self.connections(&member).connect_all();
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
pub(super) fn in_use<'a>(
    reader: &'a mut Reader,
    panic: &'a mut Option<PanicMode>,
    now: Duration,
) -> &'a Arc<Snapshot> {
    let listed = reader.snapshot();
    match panic {
        Some(panic) => panic.in_use(listed, now),
        None => listed,
    }
}

/// Takes note of the changes of the service, calls or not.
async fn follow(discovered: Weak<Discovered>, mut watch: Watch) {
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
        let Some(discovered) = discovered.upgrade() else { return };
        due = discovered.follow_registry();
        // Calls that wait for an endpoint.
        discovered.pool.wake_all();
    }
}
