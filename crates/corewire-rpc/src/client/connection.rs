//! A client's side of one connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use corewire::client::Attempt;
use corewire_proto::rpc::{Code, Event, Reassembly};
use corewire_runtime::{CloseReason, Connection, Protocol, WorkerId};

use super::settings::Settings;
use crate::link::{Group, Link, Machine, Owner};
use crate::server::millis_up;
use crate::status::Status;

/// What the first ping carries.
const PROBE: [u8; 8] = *b"corewire";

/// Who has connections, as one of them sees it.
pub(super) trait Holder {
    fn settings(&self) -> &Settings;

    /// Where its links live, and with which they are counted.
    fn home(&self) -> (WorkerId, Group);

    /// It wants connections.
    fn is_open(&self) -> bool;

    /// A connection of a slot, of which it is not known yet whether calls can be made on it.
    fn opened(&self, slot: usize, connection: &Rc<ChannelConnection>);

    /// Calls can be made on this link; `false`: none is wanted any more.
    fn established(&self, slot: usize, link: &Rc<Link>) -> bool;

    /// The link takes no more calls.
    fn retire(&self, slot: usize, link: &Rc<Link>, why: String, has_received: bool);
}

/// The slot of a connection among those of its holder.
#[derive(Clone)]
pub(super) struct PoolSlot {
    pub(super) holder: Weak<dyn Holder>,
    pub(super) slot: usize,
}

/// Feeds a link with what arrives.
pub(super) struct ChannelConnection {
    link: Rc<Link>,
    inbox: RefCell<Reassembly>,
    owner: PoolSlot,
    /// When to look whether the server still lives, by the worker's clock; `u64::MAX`: not at all.
    look_at: Cell<u64>,
    /// A ping is not answered yet, nor has anything else come.
    is_pinging: Cell<bool>,
    is_going_away: Cell<bool>,
    /// Who waits until the server has answered a first ping.
    probed: Cell<Option<Attempt>>,
    /// Something came on it.
    has_received: Cell<bool>,
    this: Weak<Self>,
}

impl ChannelConnection {
    fn new(holder: &dyn Holder, owner: PoolSlot) -> Rc<Self> {
        let settings = holder.settings();
        let machine = Machine::client_keeping(settings.version, settings.protocol);
        let (home, group) = holder.home();
        let link = Link::new(home, group, machine, settings.net.connection_settings().high_water, false);
        let connection = Rc::new_cyclic(|this: &Weak<Self>| Self {
            link,
            inbox: RefCell::new(Reassembly::new()),
            owner,
            look_at: Cell::new(u64::MAX),
            is_pinging: Cell::new(false),
            is_going_away: Cell::new(false),
            probed: Cell::default(),
            has_received: Cell::new(false),
            this: this.clone(),
        });
        connection.link.set_owner(connection.this.clone());
        connection
    }

    #[inline]
    fn read(&self, connection: &Connection, chunk: &Bytes) {
        self.has_received.set(true);
        let mut inbox = self.inbox.borrow_mut();
        self.link.receive(connection, &mut inbox, chunk, |event, _| match event {
            Event::GoingAway(_) => {
                self.is_going_away.set(true);
                self.retire("the server takes no more calls".to_owned());
            }
            Event::Pong(_) => {
                if let Some(probed) = self.probed.take() {
                    self.established(probed);
                }
            }
            _ => {}
        });
        if self.is_going_away.get() && self.link.with(|state| state.machine.is_idle()) {
            self.link.flush();
            connection.close();
        }
    }

    /// Calls can be made on it.
    fn established(&self, attempt: Attempt) {
        attempt.succeed();
        match self.owner.holder.upgrade() {
            Some(holder) if holder.established(self.owner.slot, &self.link) => {}
            _ => close_link(&self.link),
        }
    }

    /// Takes no more calls: another connection is made when one is needed.
    fn retire(&self, why: String) {
        if let Some(holder) = self.owner.holder.upgrade() {
            holder.retire(self.owner.slot, &self.link, why, self.has_received.get());
        }
    }

    /// Takes no more calls, and closes when the last one is over.
    pub(super) fn drain(&self) {
        self.is_going_away.set(true);
        if self.link.with(|state| state.machine.is_idle()) {
            close_link(&self.link);
        }
    }

    /// Pings when nothing has been heard, and gives up when nothing answers.
    fn look(&self, connection: &Connection) {
        let Some(holder) = self.owner.holder.upgrade() else { return };
        let settings = holder.settings();
        let Some(every) = settings.keep_alive else { return };
        let now = connection.now_ms();
        if now < self.look_at.get() {
            return;
        }
        // What is not read from cannot be heard.
        let has_received =
            self.link.with(|state| std::mem::take(&mut state.has_received)) || self.link.is_stopped();
        let wait = if has_received || self.look_at.get() == u64::MAX {
            self.is_pinging.set(false);
            every
        } else if self.is_pinging.get() {
            let limit = settings.keep_alive_timeout;
            let error =
                io::Error::new(io::ErrorKind::TimedOut, format!("no answer to a ping within {limit:?}"));
            return connection.abort(CloseReason::Io(error));
        } else if self.link.with(|state| state.machine.ping([0; 8], &mut state.out)) {
            self.is_pinging.set(true);
            settings.keep_alive_timeout
        } else {
            // Version 1 has no pings.
            self.look_at.set(u64::MAX);
            return;
        };
        self.look_at.set(now.saturating_add(millis_up(wait)));
    }
}

impl Owner for ChannelConnection {
    fn go_on(&self) {
        if let Some(connection) = self.link.connection() {
            self.read(&connection, &Bytes::new());
        }
    }

    fn unread(&self) -> usize {
        let deferred = self.link.connection().map_or(0, |connection| connection.deferred());
        deferred + self.inbox.try_borrow().map_or(0, |inbox| inbox.len())
    }
}

/// The connection as its worker calls it.
pub(super) struct Endpoint {
    owner: PoolSlot,
    attempt: Option<Attempt>,
    calling: Option<Rc<ChannelConnection>>,
}

impl Endpoint {
    pub(super) const fn new(owner: PoolSlot, attempt: Attempt) -> Self {
        Self { owner, attempt: Some(attempt), calling: None }
    }
}

impl Protocol for Endpoint {
    fn on_open(&mut self, connection: &Connection) {
        let holder = self.owner.holder.upgrade().filter(|holder| holder.is_open());
        let (Some(holder), Some(attempt)) = (holder, self.attempt.take()) else {
            return connection.close();
        };
        let calling = ChannelConnection::new(&*holder, self.owner.clone());
        calling.link.open(connection);
        if holder.settings().keep_alive.is_some() {
            calling.link.with(|state| state.has_received = true);
            calling.look_at.set(0);
            calling.look(connection);
            calling.link.with(|state| state.arm(calling.look_at.get()));
        }
        holder.opened(self.owner.slot, &calling);
        let probes = holder.settings().probes;
        if probes && calling.link.with(|state| state.machine.ping(PROBE, &mut state.out)) {
            calling.probed.set(Some(attempt));
        } else {
            calling.established(attempt);
        }
        self.calling = Some(calling);
    }

    #[inline]
    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        if let Some(calling) = &self.calling {
            calling.read(connection, &data);
        }
    }

    fn on_drained(&mut self, _: &Connection) {
        if let Some(calling) = &self.calling {
            calling.link.drained();
        }
    }

    fn on_timer(&mut self, connection: &Connection) {
        if let Some(calling) = &self.calling {
            let next = calling.link.expire();
            calling.look(connection);
            calling.link.with(|state| state.arm(next.min(calling.look_at.get())));
        }
    }

    fn on_shutdown(&mut self, connection: &Connection) {
        match &self.calling {
            Some(calling) => close_link(&calling.link),
            None => connection.close_with(CloseReason::Shutdown),
        }
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        let mut attempt = self.attempt.take();
        if let Some(calling) = self.calling.take() {
            calling.retire(reason.to_string());
            calling.link.on_closed(&Status::connection_lost(reason));
            attempt = attempt.or_else(|| calling.probed.take());
        }
        if let Some(attempt) = attempt {
            attempt.fail(reason);
        }
    }
}

/// Says goodbye and closes; calls in flight fail.
pub(super) fn close_link(link: &Rc<Link>) {
    link.with(|state| state.machine.go_away(Code::OK, "", &mut state.out));
    if let Some(connection) = link.connection() {
        link.flush();
        connection.close_with(CloseReason::Local);
    }
}
