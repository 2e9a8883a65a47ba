//! A server's side of one connection.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{CallKey, Code, Event, Extensions, MethodRef, Origin, Reassembly, Request};
use corewire_runtime::{CloseReason, Connection, Protocol, WorkerId, current_worker};

use super::context::Context;
use super::ending::Ending;
use super::method::Method;
use super::routes::{Named, Plan, Routes};
use super::serve::{Call, Watch, fail};
use crate::link::{Link, Machine, Owner, Retained};
use crate::metadata::Metadata;
use crate::status::Status;

/// Takes calls and gives them to handlers.
pub(crate) struct ServerConnection {
    pub(super) link: Rc<Link>,
    inbox: RefCell<Reassembly>,
    pub(super) plan: Arc<Plan>,
    routes: Rc<Routes>,
    /// The methods that have numbers, as far as they were called (version 2).
    numbered: RefCell<Vec<Option<Rc<Named>>>>,
    /// Most connections call one method over and over (version 1).
    last: RefCell<Option<Rc<Named>>>,
    pub(super) ending: Ending,
    this: Weak<Self>,
}

impl ServerConnection {
    fn new(plan: &Arc<Plan>, home: WorkerId) -> Rc<Self> {
        let link = Link::new(home, plan.group, Machine::server_keeping(plan.settings), plan.high_water, true);
        let connection = Rc::new_cyclic(|this: &Weak<Self>| Self {
            link,
            inbox: RefCell::new(Reassembly::new()),
            plan: plan.clone(),
            routes: Routes::of(plan),
            numbered: RefCell::default(),
            last: RefCell::default(),
            ending: Ending::new(),
            this: this.clone(),
        });
        connection.link.set_owner(connection.this.clone());
        connection
    }

    #[inline]
    fn read(self: &Rc<Self>, connection: &Connection, chunk: &Bytes) {
        let mut inbox = self.inbox.borrow_mut();
        let is_stopped = self.link.receive(connection, &mut inbox, chunk, |event, origin| match event {
            Event::Request { call, request } => self.on_call(connection, call, &request, false, origin),
            Event::StreamOpened { call, request } => self.on_call(connection, call, &request, true, origin),
            _ => {}
        });
        drop(inbox);
        if is_stopped || self.ending.is_half_closed() {
            self.on_read_stopped(connection, is_stopped);
        }
        self.close_if_done();
    }

    #[inline]
    fn on_call(
        self: &Rc<Self>,
        connection: &Connection,
        key: CallKey,
        request: &Request<'_>,
        is_stream: bool,
        origin: Origin<'_>,
    ) {
        let method = match self.find(request, is_stream) {
            Ok(method) => method,
            Err(code) => return self.refuse(key, is_stream, &code.into()),
        };
        let mut context = Context {
            link: self.link.clone(),
            name: method.name().clone(),
            deadline: None,
            head: None,
            key,
            sent: None,
        };
        let (mut timeout, mut held) = (self.plan.call_timeout, 0);
        if !request.extensions.is_empty() {
            (context.head, held) = self.head(&request.extensions, origin);
            timeout = request.extensions.timeout().into_iter().chain(timeout).min();
        }
        let mut deadline_ms = u64::MAX;
        if let Some(timeout) = timeout {
            deadline_ms = connection.now_ms().saturating_add(millis_up(timeout));
            context.deadline = corewire_driver::clock::now().checked_add(timeout);
        }
        let watch = match self.watch(&context) {
            Ok(watch) => watch,
            Err(status) => return self.refuse(key, is_stream, &status),
        };
        self.begin(method, key, request, is_stream, origin, (context, deadline_ms, watch, held));
    }

    #[inline]
    fn begin(
        self: &Rc<Self>,
        method: Rc<dyn Method>,
        key: CallKey,
        request: &Request<'_>,
        is_stream: bool,
        origin: Origin<'_>,
        (context, deadline_ms, watch, mut held): (Context, u64, Option<Box<Watch>>, u32),
    ) {
        let mode = request.mode;
        let (requests, responses) = (mode.streams_requests(), mode.streams_responses());
        let waits = requests || responses || method.is_slow();
        let retain = |payload| match waits {
            true => self.link.retain(payload, origin),
            false => self.link.borrow(payload, origin),
        };
        let mut first = request.payload.map(retain);
        let mut slot = None;
        if requests || responses {
            let holders = 1 + u8::from(requests) + u8::from(responses);
            slot = Some(self.link.with(|state| {
                if is_stream {
                    let _ = state.machine.accept(key, &mut state.out);
                }
                let slot = state.keep(key, deadline_ms, holders);
                if requests && let Some(first) = first.take() {
                    state.push(slot, first, !request.end);
                }
                if request.end {
                    state.end(slot, Ok(()));
                }
                slot
            }));
        }
        let payload = first.map_or_else(Bytes::new, |Retained { payload, cost }| {
            held = held.saturating_add(cost);
            payload
        });
        let call = Call { connection: self.clone(), key, slot, deadline_ms, watch, held };
        method.start(call, payload, context);
    }

    /// What the first frame of a call says beside its message, for its handler, and the bytes that it occupies.
    #[cold]
    fn head(&self, extensions: &Extensions<'_>, origin: Origin<'_>) -> (Option<Rc<Metadata>>, u32) {
        if extensions.metadata().next().is_none() && extensions.trace().is_none() {
            return (None, 0);
        }
        let Retained { payload, cost } = self.link.retain(extensions.entries(), origin);
        (Some(Rc::new(Metadata::received(payload))), cost)
    }

    #[inline]
    fn find(&self, request: &Request<'_>, is_stream: bool) -> Result<Rc<dyn Method>, Code> {
        match request.method {
            MethodRef::Number(number) => {
                if let Some(Some(named)) = self.numbered.borrow().get(usize::from(number)) {
                    return named.mode(request.mode, is_stream);
                }
            }
            MethodRef::Names { service, method, .. } => {
                if let Some(named) = &*self.last.borrow()
                    && named.is(service, method)
                {
                    return named.mode(request.mode, is_stream);
                }
            }
            MethodRef::Unsaid => {}
        }
        self.find_by_names(request.method)?.mode(request.mode, is_stream)
    }

    /// Finds a method by its names, and remembers it.
    #[cold]
    fn find_by_names(&self, method: MethodRef<'_>) -> Result<Rc<Named>, Code> {
        let named = self.link.with(|state| {
            let (service, method) = state.machine.names(method);
            self.routes.find(service, method)
        })?;
        if let MethodRef::Number(number) = method {
            let mut numbered = self.numbered.borrow_mut();
            let at = usize::from(number);
            if numbered.len() <= at {
                numbered.resize(at + 1, None);
            }
            numbered[at] = Some(named.clone());
        } else {
            *self.last.borrow_mut() = Some(named.clone());
        }
        Ok(named)
    }

    #[cold]
    fn refuse(&self, key: CallKey, is_stream: bool, status: &Status) {
        self.link.with(|state| {
            if is_stream {
                let _ = state.machine.cancel(key, status.code(), status.wire_message(), &mut state.out);
            } else {
                fail(state, key, status);
            }
            state.answered(key);
        });
    }

    /// Asks the interceptors.
    #[inline]
    fn watch(&self, context: &Context) -> Result<Option<Box<Watch>>, Status> {
        if self.plan.interceptors.is_empty() {
            return Ok(None);
        }
        let interceptors = self.plan.interceptors.clone();
        let (context, began) = (context.clone(), corewire_driver::clock::now());
        let mut watch = Box::new(Watch { context, began, interceptors, seen: 0, code: Code::CANCELLED });
        for interceptor in self.plan.interceptors.iter() {
            if let Err(status) = interceptor.on_call(&watch.context) {
                watch.code = status.code();
                return Err(status);
            }
            watch.seen += 1;
        }
        Ok(Some(watch))
    }
}

/// In whole milliseconds, so that nothing fails before its time.
pub(crate) fn millis_up(time: Duration) -> u64 {
    let millis = u64::from(time.subsec_micros().div_ceil(1_000));
    time.as_secs().saturating_mul(1_000).saturating_add(millis).saturating_add(1)
}

impl Owner for ServerConnection {
    fn go_on(&self) {
        if let Some(connection) = self.link.connection()
            && let Some(this) = self.this.upgrade()
        {
            this.read(&connection, &Bytes::new());
        }
    }

    fn unread(&self) -> usize {
        let deferred = self.link.connection().map_or(0, |connection| connection.deferred());
        deferred + self.inbox.try_borrow().map_or(0, |inbox| inbox.len())
    }
}

/// The connection as its worker calls it.
pub(super) struct Endpoint {
    plan: Arc<Plan>,
    serving: Option<Rc<ServerConnection>>,
}

impl Endpoint {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, serving: None }
    }
}

impl Protocol for Endpoint {
    fn on_open(&mut self, connection: &Connection) {
        let Some(home) = current_worker() else { return connection.close() };
        let serving = ServerConnection::new(&self.plan, home);
        serving.link.open(connection);
        self.serving = Some(serving);
    }

    #[inline]
    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        if let Some(serving) = &self.serving {
            serving.read(connection, &data);
        }
    }

    fn on_drained(&mut self, _: &Connection) {
        if let Some(serving) = &self.serving {
            serving.link.drained();
        }
    }

    fn on_timer(&mut self, connection: &Connection) {
        if let Some(serving) = &self.serving {
            let next = serving.link.expire().min(serving.look(connection));
            serving.link.with(|state| state.arm(next));
            serving.close_if_done();
        }
    }

    fn on_read_closed(&mut self, connection: &Connection) {
        match &self.serving {
            Some(serving) => serving.on_half_closed(connection),
            None => connection.close_with(CloseReason::PeerClosed),
        }
    }

    fn on_shutdown(&mut self, connection: &Connection) {
        let Some(serving) = &self.serving else { return connection.close_with(CloseReason::Shutdown) };
        serving
            .link
            .with(|state| state.machine.go_away(Code::OK, "the server is shutting down", &mut state.out));
        serving.drain();
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        if let Some(serving) = self.serving.take() {
            serving.link.on_closed(&Status::connection_lost(reason));
        }
    }
}
