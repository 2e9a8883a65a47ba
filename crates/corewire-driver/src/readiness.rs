//! The readiness backend: epoll or kqueue, edge-triggered, by way of mio.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};

use crate::config::DriverConfig;
use crate::counters::DriverCounters;
use crate::event::{Event, Interest as Watched, Token};
use crate::net;
use crate::parking::Parking;
use crate::ready::{Pending, Ready, ReadyList};
use crate::receive_buffer::ReceiveBuffer;
use crate::role::{Receiving, Role};
use crate::socket::Socket;
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
    receive_buffer: ReceiveBuffer,
    spin: Spin,
    ready: ReadyList,
    counters: DriverCounters,
    budget: usize,
    events_per_turn: usize,
}

#[derive(Debug)]
struct Io {
    socket: Socket,
    role: Role,
    receiving: Receiving,
    /// Somebody waits until the socket takes bytes.
    write_interest: bool,
    /// What of a descriptor of the user's own is to be told.
    watched: Ready,
    /// The peer has closed its half: read on to the end even after a short read.
    peer_closed: bool,
    /// Bytes that one receive takes at most.
    receive_max: usize,
    pending: Pending,
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
            receive_buffer: ReceiveBuffer::new(config.receive_block_size),
            spin: Spin::new(config.spin),
            ready: ReadyList::default(),
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

    pub(crate) fn add(&mut self, socket: Socket, role: Role) -> io::Result<Token> {
        let interest = match role {
            Role::Listener => Interest::READABLE,
            Role::Connecting | Role::Stream | Role::Datagram | Role::Watched => {
                Interest::READABLE | Interest::WRITABLE
            }
        };
        let fd = socket.as_raw_fd();
        let token = self.table.insert(Io {
            socket,
            role,
            receiving: Receiving::On,
            write_interest: false,
            watched: Ready::default(),
            peer_closed: false,
            receive_max: usize::MAX,
            pending: Pending::default(),
        });
        // The index alone: a token has more bits than the poll carries on some systems. An event is taken before its
        // socket can be closed, so the index is enough.
        let key = mio::Token(token.index());
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

    pub(crate) fn read_again(&mut self, token: Token) {
        if let Some(io) = self.table.get_mut(token) {
            self.ready.add(token, &mut io.pending, Ready::READABLE);
        }
    }

    pub(crate) fn set_write_interest(&mut self, token: Token) -> io::Result<()> {
        self.table.get_mut(token).ok_or_else(net::not_open)?.write_interest = true;
        Ok(())
    }

    /// Registering anew tells an edge-triggered poll to look again, so what is ready already is told too.
    pub(crate) fn watch(&mut self, token: Token, interest: Watched) -> io::Result<()> {
        let io = self.table.get_mut(token).ok_or_else(net::not_open)?;
        match interest {
            Watched::Readable => io.watched.readable = true,
            Watched::Writable => io.watched.writable = true,
        }
        let interest = match io.watched {
            Ready { readable: true, writable: true } => Interest::READABLE | Interest::WRITABLE,
            Ready { writable: true, .. } => Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        let (fd, key) = (io.socket.as_raw_fd(), mio::Token(token.index()));
        self.poll.registry().reregister(&mut SourceFd(&fd), key, interest)
    }

    pub(crate) fn set_receive_max(&mut self, token: Token, bytes: usize) {
        if let Some(io) = self.table.get_mut(token) {
            io.receive_max = bytes.max(1);
        }
    }

    pub(crate) fn pause_receive(&mut self, token: Token) {
        if let Some(io) = self.table.get_mut(token) {
            io.receiving.pause();
        }
    }

    pub(crate) fn resume_receive(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.receiving.resume() == Some(true) {
            self.ready.add(token, &mut io.pending, Ready::READABLE);
        }
    }

    pub(crate) fn resume_accept(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.receiving.resume_accept() {
            self.ready.add(token, &mut io.pending, Ready::READABLE);
        }
    }

    pub(crate) fn send(&mut self, token: Token, slices: &[IoSlice<'_>], total: usize) -> io::Result<usize> {
        let io = self.table.get_mut(token).ok_or_else(net::not_open)?;
        let sent = net::send(&io.socket, slices)?;
        io.write_interest = sent < total;
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
            let Some((token, io)) = self.table.at_index(event.token().0) else { continue };
            io.peer_closed |= event.is_read_closed() || event.is_error();
            let readable = event.is_readable() || event.is_read_closed() || event.is_error();
            let writable = event.is_writable() || event.is_write_closed() || event.is_error();
            self.ready.add(token, &mut io.pending, Ready { readable, writable });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        while self.budget > 0 {
            let token = self.ready.next()?;
            self.budget -= 1;
            if let Some(event) = self.serve(token) {
                return Some(event);
            }
        }
        None
    }

    fn serve(&mut self, token: Token) -> Option<Event> {
        let io = self.table.get_mut(token)?;
        let ready = io.pending.take();
        match io.role {
            Role::Connecting if ready.writable => return Some(self.finish_connect(token, ready.readable)),
            Role::Connecting => return None,
            Role::Watched => {
                let Ready { readable, writable } = ready.take_from(&mut io.watched)?;
                return Some(Event::Ready { token, readable, writable });
            }
            Role::Stream | Role::Datagram if ready.writable && std::mem::take(&mut io.write_interest) => {
                if ready.readable {
                    self.ready.add(token, &mut io.pending, Ready::READABLE);
                }
                let is_datagram = io.role == Role::Datagram;
                return Some(match is_datagram {
                    true => Event::DatagramWritable { token },
                    false => Event::Writable { token },
                });
            }
            Role::Listener | Role::Stream | Role::Datagram => {}
        }
        if !ready.readable {
            return None;
        }
        if io.role == Role::Stream && io.peer_closed && io.receiving.is_paused() {
            return io.receiving.hang_up_in_pause(token, &io.socket);
        }
        if !io.receiving.note_edge() {
            return None;
        }
        match io.role {
            Role::Listener => self.accept(token),
            Role::Datagram => Some(Event::DatagramReadable { token }),
            Role::Connecting | Role::Stream | Role::Watched => self.receive(token),
        }
    }

    fn receive(&mut self, token: Token) -> Option<Event> {
        let io = self.table.get_mut(token)?;
        match self.receive_buffer.receive(&io.socket, io.receive_max) {
            Ok(None) => None,
            Ok(Some((data, _))) if data.is_empty() => {
                io.receiving = Receiving::Ended;
                Some(Event::ReadClosed { token })
            }
            Ok(Some((data, filled))) => {
                if filled || io.peer_closed {
                    // Behind the others: one busy peer does not starve the rest.
                    self.ready.add(token, &mut io.pending, Ready::READABLE);
                }
                Some(Event::Received { token, data })
            }
            Err(error) => {
                io.receiving = Receiving::Ended;
                Some(Event::Failed { token, error })
            }
        }
    }

    fn accept(&mut self, listener: Token) -> Option<Event> {
        let io = self.table.get_mut(listener)?;
        match net::accept(&io.socket) {
            Ok(Some(socket)) => {
                self.ready.add(listener, &mut io.pending, Ready::READABLE);
                Some(Event::Accepted { listener, socket })
            }
            Ok(None) => None,
            Err(error) => {
                io.receiving = Receiving::AcceptBackoff;
                Some(Event::AcceptFailed { listener, error })
            }
        }
    }

    fn finish_connect(&mut self, token: Token, readable: bool) -> Event {
        let Some(io) = self.table.get_mut(token) else {
            return Event::Failed { token, error: net::not_open() };
        };
        match net::take_error(&io.socket) {
            Ok(()) => {
                io.role = Role::Stream;
                if readable {
                    self.ready.add(token, &mut io.pending, Ready::READABLE);
                }
                Event::Connected { token }
            }
            Err(error) => Event::Failed { token, error },
        }
    }
}
