//! The endpoint for a call.

use std::rc::Rc;
use std::time::Instant;

use corewire_discovery::{Balancer, Flight, PanicMode, Snapshot};
use smallvec::SmallVec;

use super::following::{Discovered, State, in_use};
use super::member::Member;
use super::opened::Opened;
use crate::client::avoided::Avoided;
use crate::client::pool::Pool;
use crate::link::Link;
use crate::status::Status;

/// Where a call goes.
pub(in crate::client) struct Picked {
    pub(in crate::client) link: Rc<Link>,
    pub(in crate::client) member: Rc<Member>,
    pub(super) flight: Flight,
    pub(super) began: Instant,
}

/// Endpoints that a balancer is asked for before any that is ready will do.
const PICKS_MAX: usize = 8;
/// Endpoints that one call has connected to at a time: the second is for the case that the first one hangs.
const CONNECTING_MAX: usize = 2;

impl Discovered {
    /// A connection for the next call; `None`: none is established, wait.
    ///
    /// # Errors
    /// None is established, and the call does not wait for one.
    #[inline]
    pub(in crate::client) fn pick(
        &self,
        key: Option<u64>,
        avoided: Option<&Avoided>,
        is_fail_fast: bool,
    ) -> Result<Option<Picked>, Status> {
        let began = corewire_driver::clock::now();
        let now = self.since_origin(began);
        let state = &mut *self.state.borrow_mut();
        let State { reader, panic, members_of, .. } = state;
        let snapshot = in_use(reader, panic, now);
        if *members_of != Some(snapshot.id()) {
            let snapshot = snapshot.clone();
            self.sync(state, &snapshot);
        }
        let State { reader, panic, balancer, outliers, members, view, view_of, opened, .. } = state;
        let whole = in_use(reader, panic, now);
        let endpoints = match outliers {
            Some(outliers) => outliers.healthy(whole, now),
            None => whole,
        };
        if *view_of != Some(endpoints.id()) {
            view.clear();
            view.extend(endpoints.iter().map(|endpoint| members.get(endpoint.instance()).cloned()));
            for (position, member) in view.iter().enumerate() {
                member.iter().for_each(|member| member.position.set(position));
            }
            *view_of = Some(endpoints.id());
        }
        let mut round = Round { of: self, balancer: &mut **balancer, endpoints, view, key, avoided, opened };
        match round.pick() {
            Some((position, link)) => {
                let Some(member) = view[position].clone() else { return Ok(None) };
                let flight = balancer.begin(endpoints, position);
                Ok(Some(Picked { link, member, flight, began }))
            }
            None => match state.last_resort(began) {
                None if is_fail_fast => self.failure(state).map_or(Ok(None), Err),
                picked => Ok(picked),
            },
        }
    }

    /// Why no call can be made, if it is known.
    pub(in crate::client) fn why_not_ready(&self) -> Option<Status> {
        self.failure(&mut self.state.borrow_mut())
    }

    /// `None`: a connect that goes on may still succeed.
    #[cold]
    fn failure(&self, state: &mut State) -> Option<Status> {
        if state.members.is_empty() {
            let unknown = || format!("the registry knows no endpoint of {}", self.service);
            let why = state.left_out.clone().unwrap_or_else(unknown);
            return Some(Status::unavailable(why).unprocessed());
        }
        let mut opened = std::mem::take(&mut state.opened);
        let why = state.usable().map(|member| match self.open(member, &mut opened).pick(true) {
            Ok(Some(_)) if !member.is_serving() => {
                let why = format!("endpoint {} of {} is not serving", member.instance, self.service);
                Some(Status::unavailable(why).unprocessed())
            }
            picked => picked.err(),
        });
        // None where one may still succeed.
        let why = why.collect::<Option<Vec<_>>>();
        state.opened = opened;
        why?.pop()
    }

    /// The connections of a member that is to be called.
    #[inline]
    fn open<'a>(&self, member: &'a Rc<Member>, opened: &mut Opened) -> &'a Rc<Pool> {
        member.opened().unwrap_or_else(|| {
            opened.add(member.clone());
            self.connections(member)
        })
    }
}

impl State {
    /// When no endpoint in use is ready, one that is out of use may be.
    #[cold]
    fn last_resort(&mut self, began: Instant) -> Option<Picked> {
        let ready = |member: &Rc<Member>| {
            let local = member.opened().filter(|local| member.is_serving() && local.has_connections())?;
            let link = local.pick(false).ok().flatten()?;
            Some(Picked { link, member: member.clone(), flight: Flight::untracked(), began })
        };
        self.usable().find_map(ready)
    }

    /// All endpoints that work may be given to.
    fn usable(&mut self) -> impl Iterator<Item = &Rc<Member>> {
        let panicking = self.panic.as_ref().and_then(PanicMode::panicking);
        let snapshot = &**panicking.unwrap_or(self.reader.snapshot());
        let takes_work = |(position, _): &(usize, _)| snapshot.effective_weight(*position) > 0;
        let endpoints = snapshot.iter().enumerate().filter(takes_work);
        endpoints.filter_map(|(_, endpoint)| self.members.get(endpoint.instance()))
    }
}

/// One search for an endpoint.
struct Round<'a> {
    of: &'a Discovered,
    balancer: &'a mut dyn Balancer,
    endpoints: &'a Snapshot,
    view: &'a [Option<Rc<Member>>],
    key: Option<u64>,
    avoided: Option<&'a Avoided>,
    opened: &'a mut Opened,
}

impl Round<'_> {
    #[inline]
    fn pick(&mut self) -> Option<(usize, Rc<Link>)> {
        let position = self.balancer.pick(self.endpoints, self.key)?;
        if !self.is_avoided(position)
            && let Some(link) = self.link(position)
        {
            return Some((position, link));
        }
        self.pick_other(position)
    }

    /// The next choices of the balancer, then any that is ready; one that is to be avoided only if there is no other.
    #[cold]
    fn pick_other(&mut self, first: usize) -> Option<(usize, Rc<Link>)> {
        let mut tried: SmallVec<[usize; PICKS_MAX]> = SmallVec::from_iter([first]);
        let mut connecting = usize::from(self.is_connecting(first));
        while tried.len() < PICKS_MAX
            && connecting < CONNECTING_MAX
            && let Some(position) = self.balancer.pick_avoiding(self.endpoints, self.key, &tried)
        {
            if !self.is_avoided(position)
                && let Some(link) = self.link(position)
            {
                return Some((position, link));
            }
            connecting += usize::from(self.is_connecting(position));
            tried.push(position);
        }
        let (view, endpoints, avoided) = (self.view, self.endpoints, self.avoided);
        let is_usable = |member: &Member| {
            let position = member.position.get();
            let there = view.get(position).and_then(Option::as_deref);
            let is_here = there.is_some_and(|there| there.id == member.id);
            is_here && member.is_serving() && endpoints.effective_weight(position) > 0
        };
        let is_avoided = |member: &Member| avoided.is_some_and(|avoided| avoided.has(member.id));
        let is_new = |member: &Member| !is_avoided(member) && !tried.contains(&member.position.get());
        let found = self.opened.find(|member| is_usable(member) && is_new(member));
        // One that is to be avoided is better than none.
        let found = found.or_else(|| self.opened.find(|member| is_usable(member) && is_avoided(member)))?;
        let link = found.opened()?.pick(false).ok().flatten()?;
        Some((found.position.get(), link))
    }

    fn is_connecting(&self, position: usize) -> bool {
        self.view.get(position).and_then(Option::as_ref).is_some_and(|member| member.is_connecting())
    }

    fn is_avoided(&self, position: usize) -> bool {
        let Some(avoided) = self.avoided else { return false };
        self.view.get(position).and_then(Option::as_ref).is_some_and(|member| avoided.has(member.id))
    }

    /// A connection of the endpoint; begins to make one if there is none.
    #[inline]
    fn link(&mut self, position: usize) -> Option<Rc<Link>> {
        let member = self.view.get(position)?.as_ref()?;
        let link = self.of.open(member, self.opened).pick(false).ok().flatten();
        if member.is_serving() { link } else { None }
    }
}
