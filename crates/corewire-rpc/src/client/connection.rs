//! A client's side of one connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use corewire_proto::rpc::{Connection as Machine, Event, Reassembly};
use corewire_runtime::{CloseReason, Connection, Protocol};
use futures_channel::oneshot;

use super::local::{LocalChannel, Seat, close_link};
use crate::link::{Link, Owner};
use crate::server::millis_up;
use crate::status::Status;

/// What the first ping carries.
const PROBE: [u8; 8] = *b"corewire";

/// Feeds a link with what arrives.
pub(super) struct ClientConnection {
    link: Rc<Link>,
    inbox: RefCell<Reassembly>,
    channel: Weak<LocalChannel>,
    seat: usize,
    /// When to look whether the server still lives, by the worker's clock; `u64::MAX`: not at all.
    look_at: Cell<u64>,
    /// A ping is not answered yet, nor has anything else come.
    is_pinging: Cell<bool>,
    is_going_away: Cell<bool>,
    /// Who waits until the server has answered a first ping.
    probed: Cell<Option<oneshot::Sender<io::Result<()>>>>,
    this: Weak<Self>,
}

impl ClientConnection {
    fn new(channel: &Rc<LocalChannel>, seat: usize) -> Rc<Self> {
        let settings = &channel.settings;
        let machine = Machine::client(settings.version, settings.protocol);
        let link =
            Link::new(channel.home.clone(), channel.group, machine, settings.connection.high_water, false);
        let connection = Rc::new_cyclic(|this: &Weak<Self>| Self {
            link,
            inbox: RefCell::new(Reassembly::new()),
            channel: Rc::downgrade(channel),
            seat,
            look_at: Cell::new(u64::MAX),
            is_pinging: Cell::new(false),
            is_going_away: Cell::new(false),
            probed: Cell::default(),
            this: this.clone(),
        });
        connection.link.set_owner(connection.this.clone());
        connection
    }

    #[inline]
    fn read(&self, connection: &Connection, chunk: &Bytes) {
        let mut inbox = self.inbox.borrow_mut();
        self.link.receive(connection, &mut inbox, chunk, |event, _| match event {
            Event::GoingAway(_) => {
                self.is_going_away.set(true);
                if let Some(channel) = self.channel.upgrade() {
                    channel.retire(self.seat, &self.link);
                }
            }
            Event::Pong(_) => {
                if let Some(probed) = self.probed.take() {
                    self.is_up(Some(probed));
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
    fn is_up(&self, opened: Option<oneshot::Sender<io::Result<()>>>) {
        if let Some(opened) = opened {
            // Nobody waits for it any more: the attempt's guard ends the connection.
            let _ = opened.send(Ok(()));
        }
        match self.channel.upgrade() {
            Some(channel) if !channel.is_closed() => {
                channel.set_seat(self.seat, Seat::Up(self.link.clone()));
            }
            _ => close_link(&self.link),
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
        let Some(channel) = self.channel.upgrade() else { return };
        let Some(every) = channel.settings.keep_alive else { return };
        let now = connection.now_ms();
        if now < self.look_at.get() {
            return;
        }
        // What is not read from cannot be heard.
        let has_heard =
            self.link.with(|state| std::mem::take(&mut state.has_heard)) || self.link.is_stopped();
        let wait = if has_heard || self.look_at.get() == u64::MAX {
            self.is_pinging.set(false);
            every
        } else if self.is_pinging.get() {
            let limit = channel.settings.keep_alive_timeout;
            let error =
                io::Error::new(io::ErrorKind::TimedOut, format!("no answer to a ping within {limit:?}"));
            return connection.abort(CloseReason::Io(error));
        } else if self.link.with(|state| state.machine.ping([0; 8], &mut state.out)) {
            self.is_pinging.set(true);
            channel.settings.keep_alive_timeout
        } else {
            // Version 1 has no pings.
            self.look_at.set(u64::MAX);
            return;
        };
        self.look_at.set(now.saturating_add(millis_up(wait)));
    }
}

impl Owner for ClientConnection {
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
    channel: Weak<LocalChannel>,
    seat: usize,
    opened: Option<oneshot::Sender<io::Result<()>>>,
    calling: Option<Rc<ClientConnection>>,
}

impl Endpoint {
    pub(super) fn new(
        channel: &Rc<LocalChannel>,
        seat: usize,
        opened: oneshot::Sender<io::Result<()>>,
    ) -> Self {
        Self { channel: Rc::downgrade(channel), seat, opened: Some(opened), calling: None }
    }
}

impl Protocol for Endpoint {
    fn on_open(&mut self, connection: &Connection) {
        let Some(channel) = self.channel.upgrade().filter(|channel| !channel.is_closed()) else {
            return connection.close();
        };
        let calling = ClientConnection::new(&channel, self.seat);
        calling.link.open(connection);
        if channel.settings.keep_alive.is_some() {
            calling.link.with(|state| state.has_heard = true);
            calling.look_at.set(0);
            calling.look(connection);
            calling.link.with(|state| state.arm(calling.look_at.get()));
        }
        channel.note(self.seat, &calling);
        let opened = self.opened.take();
        let probes = channel.settings.probes;
        if probes && calling.link.with(|state| state.machine.ping(PROBE, &mut state.out)) {
            calling.probed.set(opened);
        } else {
            calling.is_up(opened);
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
        if let Some(calling) = self.calling.take() {
            if let Some(channel) = self.channel.upgrade() {
                channel.retire(self.seat, &calling.link);
            }
            calling.link.die(&Status::connection_lost(reason));
            self.opened = self.opened.take().or_else(|| calling.probed.take());
        }
        if let Some(opened) = self.opened.take() {
            let error = match reason {
                CloseReason::Io(error) => error
                    .raw_os_error()
                    .map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error),
                other => io::Error::other(other.to_string()),
            };
            // Nobody waits for it any more.
            let _ = opened.send(Err(error));
        }
    }
}
