//! Beginning a call, of any mode.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use corewire_proto::rpc::{Begin, CallError, CallKey, Code, MethodPath, Mode, Options, Version};

use super::channel::Channel;
use super::discovered::{Discovered, FlightId};
use super::interceptor::{self, ClientInterceptor};
use super::local::{self, LocalChannel};
use super::options::CallOptions;
use super::request::Request;
use crate::current::Current;
use crate::link::{Kept, Link, Place, Slot, State};
use crate::server::millis_up;
use crate::status::Status;

/// Why a call was not begun that a connection was ready for.
const NO_PLACE: &str = "as many calls were in flight all the time as the server takes on a connection: make fewer at once, \
                        or more connections (`connections` of the builder)";

/// How far the beginning of a call has come. Boxed, since a call that need not wait has nothing to say here.
#[derive(Default)]
pub(super) struct Wait(Option<Box<Waiting>>);

/// A call that waits for a connection, or for a place on one.
#[derive(Default)]
struct Waiting {
    deadline: Option<Instant>,
    sleep: Option<usize>,
    /// Where it waits for a place among the calls in flight.
    place: Option<Place>,
}

/// A call that has begun.
pub(super) struct Begun {
    pub(super) link: Rc<Link>,
    pub(super) call: CallKey,
    /// Of a call by a channel that balances.
    pub(super) flight: FlightId,
    /// When it fails, by the worker's clock in ms; `u64::MAX`: never.
    pub(super) deadline_ms: u64,
}

impl Request {
    /// Begins the call once there is a connection that takes it. On the channel's worker.
    #[inline]
    pub(super) fn poll_begin(
        &mut self,
        channel: &Channel,
        wait: &mut Wait,
        context: &mut Context<'_>,
    ) -> Poll<Result<Begun, Status>> {
        match channel.local() {
            Some(channel) => self.poll_begin_by(channel, wait, context),
            None => Poll::Ready(Err(Status::closed().unprocessed())),
        }
    }

    #[inline]
    fn poll_begin_by(
        &mut self,
        channel: &LocalChannel,
        wait: &mut Wait,
        context: &mut Context<'_>,
    ) -> Poll<Result<Begun, Status>> {
        let is_fail_fast = self.options.as_ref().and_then(|options| options.is_fail_fast);
        let is_fail_fast = is_fail_fast.unwrap_or(channel.settings.fail_fast);
        let begun = match &channel.discovered {
            None => {
                match wait.link(channel).map_or_else(|| channel.pick(is_fail_fast), |link| Ok(Some(link))) {
                    Ok(Some(link)) => self.begin_on(channel, link, is_fail_fast, wait, context),
                    Ok(None) => {
                        channel.wait(context);
                        None
                    }
                    Err(status) => Some(Err(status)),
                }
            }
            Some(discovered) => self.begin_balanced(channel, discovered, is_fail_fast, wait, context),
        };
        if begun.is_none() {
            let wait = wait.0.get_or_insert_default();
            let deadline = *wait.deadline.get_or_insert_with(|| self.deadline(channel));
            ready!(channel.poll_deadline(&mut wait.sleep, deadline, context));
        }
        let place = wait.take_place();
        if let Some(place) = place {
            place.leave();
        }
        if let Some(sleep) = wait.0.as_mut().and_then(|wait| wait.sleep.take()) {
            channel.drop_sleep(sleep);
        }
        Poll::Ready(begun.unwrap_or_else(|| {
            if place.is_some() {
                return Err(Status::new(Code::DEADLINE_EXCEEDED, NO_PLACE).unprocessed());
            }
            let why = match &channel.discovered {
                Some(discovered) => discovered.why_not_ready(),
                None => channel.last_failure(),
            };
            let text: Cow<'static, str> = match why {
                Some(why) => format!("no connection was ready in time: {}", why.message()).into(),
                None => "no connection was ready in time".into(),
            };
            Err(Status::new(Code::DEADLINE_EXCEEDED, text).unprocessed())
        }))
    }

    /// When the call's time is over.
    fn deadline(&self, channel: &LocalChannel) -> Instant {
        let timeout = self.timeout.unwrap_or(channel.settings.timeout);
        // A time beyond the clock's end is none.
        let now = corewire_driver::clock::now();
        let own = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
        self.outer_deadline().map_or(own, |outer| outer.min(own))
    }

    /// The time that is left, and the time to tell the server.
    #[inline]
    fn time_left(
        &self,
        channel: &LocalChannel,
        wait: &Wait,
        timeout: Option<Duration>,
    ) -> (Duration, Option<Duration>) {
        let outer = self.outer_deadline();
        let own = wait.0.as_ref().and_then(|wait| wait.deadline);
        if own.is_none() && outer.is_none() {
            // Streams live as long as they like unless told otherwise.
            let default = if self.mode == Mode::Unary { channel.settings.timeout } else { Duration::MAX };
            return (timeout.unwrap_or(default), timeout);
        }
        let own = own.map(|deadline| deadline.saturating_duration_since(corewire_driver::clock::now()));
        let outer = outer.map(|deadline| deadline.saturating_duration_since(corewire_driver::clock::now()));
        let is_bound = self.mode == Mode::Unary || timeout.is_some();
        let own =
            own.into_iter().chain(timeout).min().or(Some(channel.settings.timeout)).filter(|_| is_bound);
        let left = own.into_iter().chain(outer).min().unwrap_or(Duration::MAX);
        (left, (timeout.is_some() || outer.is_some()).then_some(left))
    }

    /// As `begin_on`, at an endpoint that the balancer chooses.
    fn begin_balanced(
        &mut self,
        channel: &LocalChannel,
        discovered: &Discovered,
        is_fail_fast: bool,
        wait: &mut Wait,
        context: &mut Context<'_>,
    ) -> Option<Result<Begun, Status>> {
        let options = self.options.as_deref();
        let (key, avoided) =
            options.map_or((None, None), |options| (options.key, options.avoided.as_deref()));
        if channel.is_closed() {
            return Some(Err(Status::closed().unprocessed()));
        }
        let picked = match discovered.pick(key, avoided, is_fail_fast) {
            Ok(Some(picked)) => picked,
            Ok(None) => {
                channel.wait(context);
                return None;
            }
            Err(status) => return Some(Err(status)),
        };
        let begun = self.begin_on(channel, picked.link.clone(), is_fail_fast, wait, context)?;
        if let Some(avoided) = self.options.as_deref().and_then(|options| options.avoided.as_deref()) {
            avoided.add(picked.member.id);
        }
        Some(begun.map(|begun| Begun { flight: discovered.begin(picked), ..begun }))
    }

    /// `None`: the link takes nothing now.
    #[inline]
    fn begin_on(
        &mut self,
        channel: &LocalChannel,
        link: Rc<Link>,
        is_fail_fast: bool,
        wait: &mut Wait,
        context: &mut Context<'_>,
    ) -> Option<Result<Begun, Status>> {
        let path = match self.path.get() {
            Ok(path) => path,
            Err(status) => return Some(Err(status)),
        };
        if wait.place().is_some_and(|place| place.link != link.id)
            && let Some(place) = wait.take_place()
        {
            place.leave();
        }
        let mut changed = None;
        if !channel.settings.interceptors.is_empty() {
            // They are told of a call that begins, and once.
            if link.with(|state| self.waits_on(state, is_fail_fast, wait, context)) {
                return None;
            }
            match self.intercepted(channel, path) {
                Ok(options) => changed = Some(options),
                Err(status) => return Some(Err(status)),
            }
        }
        let timeout = changed.as_ref().map_or(self.timeout, |options| options.timeout);
        let options = changed.as_deref().or(self.options.as_deref());
        let (left, told) = self.time_left(channel, wait, timeout);
        if left.is_zero() {
            if wait.place().is_some() {
                // Its time is over, which is told with the reason.
                return None;
            }
            return Some(Err(Status::deadline().unprocessed()));
        }
        let begun = link.with(|state| {
            if self.waits_on(state, is_fail_fast, wait, context) {
                return None;
            }
            let key = match self.write(state, told, options) {
                Ok(key) => key,
                Err(CallError::GoingAway) => {
                    channel.wait(context);
                    return None;
                }
                Err(error) => return Some(Err(error.into())),
            };
            let deadline_ms =
                if left == Duration::MAX { u64::MAX } else { state.now_ms().saturating_add(millis_up(left)) };
            channel.epoch.get_or_init(|| epoch(state.now_ms()));
            if self.mode == Mode::Unary {
                return Some(Ok((state.keep_awaited(key, deadline_ms, context), deadline_ms)));
            }
            let call = state.keep(key, deadline_ms, self.holders);
            if !channel.settings.interceptors.is_empty()
                && let Some(slot) = state.slot(call)
            {
                watch_end(&channel.settings.interceptors, path, slot);
            }
            Some(Ok((call, deadline_ms)))
        })?;
        Some(begun.map(|(call, deadline_ms)| Begun { link, call, flight: FlightId::NONE, deadline_ms }))
    }

    /// Whether the call cannot begin on this link now; then its task is woken when it can.
    #[inline]
    fn waits_on(
        &self,
        state: &mut State,
        is_fail_fast: bool,
        wait: &mut Wait,
        context: &mut Context<'_>,
    ) -> bool {
        if !is_fail_fast && let Some(place) = state.wait_for_place(self.is_stream, wait.take_place(), context)
        {
            wait.0.get_or_insert_default().place = Some(place);
            return true;
        }
        state.waits(context)
    }

    #[inline]
    fn write(
        &self,
        state: &mut State,
        told: Option<Duration>,
        options: Option<&CallOptions>,
    ) -> Result<CallKey, CallError> {
        let State { machine, out, .. } = state;
        let path = self.path.get().map_err(|_| CallError::MessageNeeded)?;
        let payload = self.payload.as_ref().map(Kept);
        let inherited = if self.inherits() { Current::trace() } else { None };
        if let Some(payload) = payload
            && self.mode == Mode::Unary
            && options.is_none()
            && told.is_none()
            && inherited.is_none()
        {
            return machine.unary(path, payload, out);
        }
        let head = options.map(|options| &options.head);
        let metadata: Vec<(&str, &[u8])> = head.map_or_else(Vec::new, |head| head.metadata.iter().collect());
        let is_v2 = machine.version() == Some(Version::V2);
        let own = head.filter(|head| head.trace.is_some() || !head.trace_state.is_empty());
        let (trace, trace_state) = match (own, &inherited) {
            (Some(own), _) => (own.trace, &*own.trace_state),
            (None, Some((trace, state))) if is_v2 => (Some(*trace), &**state),
            _ => (None, ""),
        };
        let options = Options { timeout: told.filter(|_| is_v2), trace, trace_state, metadata: &metadata };
        if self.is_stream {
            return machine.open_stream(path, &options, out);
        }
        machine.begin(&Begin { path, mode: self.mode, end: self.end, options }, payload, out)
    }

    /// The options as interceptors change them: each attempt begins with those of the caller.
    #[cold]
    fn intercepted(&self, channel: &LocalChannel, path: &MethodPath) -> Result<Box<CallOptions>, Status> {
        let mut options = self.options.clone().unwrap_or_default();
        options.timeout = self.timeout;
        for interceptor in &channel.settings.interceptors {
            interceptor.on_call(path, &mut options).map_err(Status::unprocessed)?;
        }
        Ok(options)
    }
}

/// Has interceptors told of the end of a call with streams.
#[cold]
fn watch_end(interceptors: &[Arc<dyn ClientInterceptor>], path: &MethodPath, slot: &mut Slot) {
    let (interceptors, path, began) = (interceptors.to_vec(), path.clone(), corewire_driver::clock::now());
    slot.watch_end(move |code, metadata| {
        interceptor::on_end(
            &interceptors,
            &path,
            metadata,
            code,
            corewire_driver::clock::now().duration_since(began),
        );
    });
}

impl Wait {
    pub(super) const NEW: Self = Self(None);

    /// The wait of a call that is begun again, within its first time; on the channel's worker.
    #[cold]
    pub(super) fn until(channel: &Channel, deadline_ms: u64) -> Self {
        let deadline = channel
            .local()
            .and_then(|channel| channel.epoch.get()?.checked_add(Duration::from_millis(deadline_ms)));
        Self(deadline.map(|deadline| Box::new(Waiting { deadline: Some(deadline), ..Waiting::default() })))
    }

    fn place(&self) -> Option<Place> {
        self.0.as_ref()?.place
    }

    fn take_place(&mut self) -> Option<Place> {
        self.0.as_mut()?.place.take()
    }

    /// The connection that it waits for a place on.
    fn link(&self, channel: &LocalChannel) -> Option<Rc<Link>> {
        channel.link(self.place()?.link)
    }

    /// Gives back what waiting took.
    pub(super) fn release(&mut self, channel: &Channel) {
        let Some(sleep) = self.0.as_mut().and_then(|wait| wait.sleep.take()) else { return };
        let place = self.take_place();
        let key = channel.key();
        channel.run_there(move || {
            if let Some(channel) = local::find(key) {
                channel.drop_sleep(sleep);
            }
            if let Some(place) = place {
                place.leave();
            }
        });
    }
}

/// When the worker's clock was 0.
#[cold]
fn epoch(now_ms: u64) -> Instant {
    let now = corewire_driver::clock::now();
    now.checked_sub(Duration::from_millis(now_ms)).unwrap_or(now)
}
