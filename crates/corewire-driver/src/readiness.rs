//! The readiness backend: epoll or kqueue, edge-triggered, by way of mio.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use socket2::Socket;

use crate::arena::Arena;
use crate::config::DriverConfig;
use crate::counters::DriverCounters;
use crate::event::{Event, Token};
use crate::net;
use crate::parking::Parking;
use crate::spin::Spin;
use crate::table::Table;
use crate::wake::{Waker, WakerKind};

const WAKE: mio::Token = mio::Token(usize::MAX);

/// Sockets are registered once, for both directions; what was seen of an edge and not yet used is remembered here.
#[derive(Debug)]
pub(crate) struct Readiness {
    poll: Poll,
    events: Events,
    waker: Waker,
    table: Table<Io>,
    arena: Arena,
    spin: Spin,
    ready: VecDeque<Ready>,
    counters: DriverCounters,
    budget: usize,
    events_per_turn: usize,
}

#[derive(Debug)]
struct Io {
    socket: Socket,
    role: Role,
    /// The owner wants no bytes now.
    paused: bool,
    /// An edge came while paused.
    pending_edge: bool,
    /// Bytes that one receive takes at most.
    receive_max: usize,
    /// Somebody waits for room to send.
    wants_room: bool,
    /// The end, or the error that ended it, was reported: every later edge would tell it again.
    ended: bool,
    /// A listener that could not accept, and was not resumed yet.
    resting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Listener,
    Connecting,
    Stream,
    Datagram,
}

/// One socket that has something to do, and what.
#[derive(Debug, Clone, Copy)]
struct Ready {
    token: Token,
    readable: bool,
    writable: bool,
    /// The peer has closed its half: read on to the end even after a short read.
    closed: bool,
}

impl Readiness {
    pub(crate) fn new(config: &DriverConfig) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(config.events_per_turn),
            waker: Waker(WakerKind::Readiness(Arc::new(waker))),
            table: Table::new(),
            arena: Arena::new(config.receive_block_size),
            spin: Spin::new(config.spin),
            ready: VecDeque::with_capacity(config.events_per_turn),
            counters: DriverCounters::default(),
            budget: 0,
            events_per_turn: config.events_per_turn,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) const fn counters(&self) -> DriverCounters {
        self.counters
    }

    pub(crate) fn sockets(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn socket(&self, token: Token) -> Option<&Socket> {
        self.table.get(token).map(|io| &io.socket)
    }

    pub(crate) fn add_listener(&mut self, socket: Socket) -> io::Result<Token> {
        self.register(socket, Role::Listener, Interest::READABLE)
    }

    pub(crate) fn add_stream(&mut self, socket: Socket) -> io::Result<Token> {
        self.register(socket, Role::Stream, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn add_connecting(&mut self, socket: Socket) -> io::Result<Token> {
        self.register(socket, Role::Connecting, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn add_datagram(&mut self, socket: Socket) -> io::Result<Token> {
        self.register(socket, Role::Datagram, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn read_again(&mut self, token: Token) {
        self.ready.push_back(Ready { token, readable: true, writable: false, closed: false });
    }

    pub(crate) fn want_writable(&mut self, token: Token) -> io::Result<()> {
        self.table.get_mut(token).ok_or_else(net::not_open)?.wants_room = true;
        Ok(())
    }

    fn register(&mut self, socket: Socket, role: Role, interest: Interest) -> io::Result<Token> {
        let fd = socket.as_raw_fd();
        let token = self.table.insert(Io {
            socket,
            role,
            paused: false,
            pending_edge: false,
            receive_max: usize::MAX,
            wants_room: false,
            ended: false,
            resting: false,
        });
        let key = mio::Token(token.to_bits() as usize);
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&fd), key, interest) {
            self.table.remove(token);
            return Err(error);
        }
        Ok(token)
    }

    pub(crate) fn close(&mut self, token: Token) -> Option<Socket> {
        let io = self.table.remove(token)?;
        // Closing the last descriptor would do, but the socket may have been duplicated by the user.
        let _ = self.poll.registry().deregister(&mut SourceFd(&io.socket.as_raw_fd()));
        Some(io.socket)
    }

    pub(crate) fn set_receive_max(&mut self, token: Token, bytes: usize) {
        if let Some(io) = self.table.get_mut(token) {
            io.receive_max = bytes.max(1);
        }
    }

    pub(crate) fn pause_receive(&mut self, token: Token) {
        if let Some(io) = self.table.get_mut(token) {
            io.paused = true;
        }
    }

    pub(crate) fn resume_receive(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if std::mem::take(&mut io.paused) && std::mem::take(&mut io.pending_edge) {
            // Whether the peer has closed meanwhile is not known: read to the end.
            self.ready.push_back(Ready { token, readable: true, writable: false, closed: true });
        }
    }

    pub(crate) fn resume_accept(&mut self, token: Token) {
        if let Some(io) = self.table.get_mut(token) {
            io.resting = false;
            self.ready.push_back(Ready { token, readable: true, writable: false, closed: false });
        }
    }

    pub(crate) fn send(&mut self, token: Token, slices: &[IoSlice<'_>], total: usize) -> io::Result<usize> {
        let io = self.table.get_mut(token).ok_or_else(net::not_open)?;
        let sent = net::send(&io.socket, slices)?;
        io.wants_room = sent < total;
        Ok(sent)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn turn(&mut self, timeout: Option<Duration>, parking: &impl Parking) -> io::Result<()> {
        let Self { poll, events, spin, .. } = self;
        let mut may_sleep = self.ready.is_empty() && timeout != Some(Duration::ZERO);
        let found = may_sleep
            && spin.until(timeout, || {
                poll.poll(events, Some(Duration::ZERO)).is_ok() && !events.is_empty() || parking.has_mail()
            });
        if !found {
            may_sleep = may_sleep && parking.prepare_park();
            let timeout = if may_sleep { timeout } else { Some(Duration::ZERO) };
            match poll.poll(events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                other => other?,
            }
        }
        self.budget = self.events_per_turn;
        for event in &self.events {
            if event.token() == WAKE {
                self.counters.wakes += 1;
                continue;
            }
            self.ready.push_back(Ready {
                token: Token::from_bits(event.token().0 as u64),
                readable: event.is_readable() || event.is_read_closed() || event.is_error(),
                writable: event.is_writable() || event.is_write_closed() || event.is_error(),
                closed: event.is_read_closed() || event.is_error(),
            });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        while self.budget > 0 {
            let ready = self.ready.pop_front()?;
            self.budget -= 1;
            if let Some(event) = self.serve(ready) {
                return Some(event);
            }
        }
        None
    }

    fn serve(&mut self, mut ready: Ready) -> Option<Event> {
        let token = ready.token;
        let io = self.table.get_mut(token)?;
        match io.role {
            Role::Listener if io.paused => {
                io.pending_edge = true;
                return None;
            }
            Role::Listener if io.resting => return None,
            Role::Listener => return self.accept(token),
            Role::Connecting if ready.writable => return Some(self.finish_connect(ready)),
            Role::Connecting => return None,
            Role::Stream | Role::Datagram => {}
        }
        let is_datagram = io.role == Role::Datagram;
        if ready.writable {
            ready.writable = false;
            if std::mem::take(&mut io.wants_room) {
                if ready.readable {
                    self.ready.push_front(ready);
                }
                return Some(if is_datagram {
                    Event::DatagramWritable { token }
                } else {
                    Event::Writable { token }
                });
            }
        }
        if !ready.readable || io.ended {
            return None;
        }
        if io.paused {
            io.pending_edge = true;
            return None;
        }
        if is_datagram {
            return Some(Event::DatagramReadable { token });
        }
        match self.arena.receive(&io.socket, io.receive_max) {
            Ok(None) => None,
            Ok(Some((data, _))) if data.is_empty() => {
                io.ended = true;
                Some(Event::ReadClosed { token })
            }
            Ok(Some((data, filled))) => {
                if filled || ready.closed {
                    // Behind the others: one busy peer does not starve the rest.
                    self.ready.push_back(ready);
                }
                Some(Event::Received { token, data })
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.ready.push_back(ready);
                None
            }
            Err(error) => {
                io.ended = true;
                Some(Event::Failed { token, error })
            }
        }
    }

    fn accept(&mut self, listener: Token) -> Option<Event> {
        let io = self.table.get_mut(listener)?;
        match net::accept(&io.socket) {
            Ok(Some(socket)) => {
                self.ready.push_back(Ready {
                    token: listener,
                    readable: true,
                    writable: false,
                    closed: false,
                });
                Some(Event::Accepted { listener, socket })
            }
            Ok(None) => None,
            Err(error) => {
                io.resting = true;
                Some(Event::AcceptFailed { listener, error })
            }
        }
    }

    fn finish_connect(&mut self, ready: Ready) -> Event {
        let token = ready.token;
        let Some(io) = self.table.get_mut(token) else {
            return Event::Failed { token, error: net::not_open() };
        };
        match net::connect_result(&io.socket) {
            Ok(()) => {
                io.role = Role::Stream;
                if ready.readable {
                    self.ready.push_back(Ready { writable: false, ..ready });
                }
                Event::Connected { token }
            }
            Err(error) => Event::Failed { token, error },
        }
    }
}
