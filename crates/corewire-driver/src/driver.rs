//! One enum over the backends.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::config::{DriverConfig, DriverKind};
use crate::counters::DriverCounters;
use crate::error::DriverError;
use crate::event::{Event, Interest, Token};
use crate::net::not_open;
use crate::parking::Parking;
use crate::probe::{Backend, probe};
use crate::readiness::Readiness;
use crate::reserve::Reserve;
use crate::role::Role;
use crate::socket::Socket;
use crate::sys::uring::Uring;
use crate::wake::Waker;

/// Watches the sockets of one thread.
///
/// One turn of an event loop is: [`turn`](Self::turn) once, then [`next_event`](Self::next_event) until it gives
/// `None`, then whatever else there is to do. Drop each received block before the next call of `next_event`, and
/// the memory is used again at once.
#[derive(Debug)]
pub struct Driver {
    inner: Inner,
    reserve: Reserve,
    refused: u64,
}

#[derive(Debug)]
enum Inner {
    Readiness(Box<Readiness>),
    Uring(Box<Uring>),
}

macro_rules! each {
    ($self:ident, $inner:ident => $does:expr) => {
        match &$self.inner {
            Inner::Readiness($inner) => $does,
            Inner::Uring($inner) => $does,
        }
    };
    (mut $self:ident, $inner:ident => $does:expr) => {
        match &mut $self.inner {
            Inner::Readiness($inner) => $does,
            Inner::Uring($inner) => $does,
        }
    };
}

impl Driver {
    /// Makes a driver for the calling thread; it must stay there.
    ///
    /// # Errors
    /// A setting is out of its range, io_uring was asked for and cannot be had, or the kernel refuses a resource.
    pub fn new(config: &DriverConfig) -> Result<Self, DriverError> {
        config.check()?;
        match config.kind {
            DriverKind::Epoll => Self::readiness(config),
            DriverKind::Uring => Self::uring(config),
            DriverKind::Auto => match probe().choice() {
                Backend::Readiness => {
                    tracing::info!("{}", probe());
                    Self::readiness(config)
                }
                Backend::Uring => Self::uring(config).or_else(|error| {
                    tracing::warn!(%error, "io_uring answered the probe but not the worker; using readiness");
                    Self::readiness(config)
                }),
            },
        }
    }

    fn readiness(config: &DriverConfig) -> Result<Self, DriverError> {
        Ok(Self::over(Inner::Readiness(Box::new(Readiness::new(config)?))))
    }

    fn uring(config: &DriverConfig) -> Result<Self, DriverError> {
        probe().uring?;
        Ok(Self::over(Inner::Uring(Box::new(Uring::new(config)?))))
    }

    fn over(inner: Inner) -> Self {
        Self { inner, reserve: Reserve::new(), refused: 0 }
    }

    /// Which backend runs.
    pub fn backend(&self) -> Backend {
        match &self.inner {
            Inner::Readiness(_) => Backend::Readiness,
            Inner::Uring(_) => Backend::Uring,
        }
    }

    /// A handle that ends this driver's wait from any thread.
    pub fn waker(&self) -> Waker {
        each!(self, inner => inner.waker())
    }

    /// What it has done so far.
    pub fn counters(&self) -> DriverCounters {
        DriverCounters { refused: self.refused, ..each!(self, inner => inner.counters()) }
    }

    /// How many sockets are open.
    pub fn sockets(&self) -> usize {
        each!(self, inner => inner.sockets())
    }

    /// The socket itself, for its addresses and options.
    pub fn socket(&self, token: Token) -> Option<&Socket> {
        each!(self, inner => inner.socket(token))
    }

    /// Accepts from a listening, non-blocking socket from now on.
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub fn add_listener(&mut self, socket: Socket) -> io::Result<Token> {
        each!(mut self, inner => inner.add(socket, Role::Listener))
    }

    /// Receives from a connected, non-blocking socket from now on.
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub fn add_stream(&mut self, socket: Socket) -> io::Result<Token> {
        each!(mut self, inner => inner.add(socket, Role::Stream))
    }

    /// Watches a non-blocking datagram socket from now on; see [`udp`](crate::udp) for the calls that receive and send.
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub fn add_datagram(&mut self, socket: Socket) -> io::Result<Token> {
        each!(mut self, inner => inner.add(socket, Role::Datagram))
    }

    /// Takes a descriptor of the user's own (a pipe, a terminal, an eventfd, a socket, …), of which
    /// [`watch`](Self::watch) tells when it is ready. Its flags are left as they are.
    ///
    /// # Errors
    /// It is a regular file or a directory, which are always ready (`InvalidInput`).
    pub fn add_watched(&mut self, descriptor: OwnedFd) -> io::Result<Token> {
        let file = File::from(descriptor);
        let kind = file.metadata()?.file_type();
        if kind.is_file() || kind.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a regular file is always ready: nothing to wait for",
            ));
        }
        let descriptor = Socket::trusted(OwnedFd::from(file).into());
        each!(mut self, inner => inner.add(descriptor, Role::Watched))
    }

    /// Tells [`Event::Ready`] once when the descriptor is ready for what is asked, at once if it is already. What was asked
    /// for before and not told yet stays asked for.
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub fn watch(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        each!(mut self, inner => inner.watch(token, interest))
    }

    /// Tells [`Event::DatagramReadable`] once more: not all was received that was there.
    pub fn read_again(&mut self, token: Token) {
        each!(mut self, inner => inner.read_again(token));
    }

    /// Tells [`Event::DatagramWritable`] (of a stream, [`Event::Writable`]) when the socket, which has just refused to take
    /// something, takes it again.
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub fn set_write_interest(&mut self, token: Token) -> io::Result<()> {
        each!(mut self, inner => inner.set_write_interest(token))
    }

    /// Waits for a connect that was begun ([`net::connect_tcp`](crate::net::connect_tcp)): ends in
    /// [`Event::Connected`] or [`Event::Failed`].
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub fn connect(&mut self, socket: Socket) -> io::Result<Token> {
        each!(mut self, inner => inner.add(socket, Role::Connecting))
    }

    /// Limits how many bytes one [`Event::Received`] of this connection carries, at least 1. Default, and for any
    /// limit of [`receive_block_size`](DriverConfig::receive_block_size) or more: the whole block.
    ///
    /// What the kernel had received already still comes, in pieces of up to
    /// [`ring_buffer_size`](DriverConfig::ring_buffer_size). Under a limit, pausing and resuming cost no
    /// system call.
    pub fn set_receive_max(&mut self, token: Token, bytes: usize) {
        each!(mut self, inner => inner.set_receive_max(token, bytes));
    }

    /// Stops receiving (on a listener: accepting); the peer meets a full window in the end. What had been received or
    /// accepted already still comes, and that the connection is lost, or that its peer has ended and no bytes wait before
    /// that, is told all the same.
    pub fn pause_receive(&mut self, token: Token) {
        each!(mut self, inner => inner.pause_receive(token));
    }

    /// Receives again after [`pause_receive`](Self::pause_receive).
    pub fn resume_receive(&mut self, token: Token) {
        each!(mut self, inner => inner.resume_receive(token));
    }

    /// Accepts again after [`Event::AcceptFailed`].
    pub fn resume_accept(&mut self, listener: Token) {
        each!(mut self, inner => inner.resume_accept(listener));
    }

    /// Closes at most `max` of the connections that wait to be accepted, and says how many those were.
    ///
    /// For a listener that could not accept because the process (`EMFILE`) or the system (`ENFILE`) has no descriptors
    /// left: those who connect would otherwise wait without an answer for as long as that lasts. A driver keeps one
    /// descriptor in reserve for it.
    pub fn refuse_waiting(&mut self, listener: Token, max: usize) -> usize {
        let Some(socket) = each!(self, inner => inner.socket(listener)) else { return 0 };
        let refused = self.reserve.refuse(socket, max);
        self.refused += refused as u64;
        refused
    }

    /// Sends what the socket takes now and says how many bytes that was. If it is less than all,
    /// [`Event::Writable`] follows when it takes more.
    ///
    /// # Errors
    /// The connection is lost, or the token names no open socket (`NotConnected`).
    #[inline]
    pub fn send(&mut self, token: Token, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total = slices.iter().map(|slice| slice.len()).sum();
        each!(mut self, inner => inner.send(token, slices, total))
    }

    /// Sends of a file what the socket takes now, up to `len` bytes from `offset` on, and says how many; 0 at the end of the
    /// file. It may wait for the disk: see [`file::is_cached`](crate::file::is_cached).
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing: [`Event::Writable`] follows. The connection is lost, the file cannot be
    /// read, or the token names no open socket (`NotConnected`).
    pub fn send_file(&mut self, token: Token, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let socket = self.socket(token).ok_or_else(not_open)?;
        let sent = crate::sys::file::send(socket, file.as_fd(), offset, len);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.set_write_interest(token)?;
        }
        sent
    }

    /// Forgets a socket and gives it back; dropping it closes it. No event of it follows.
    pub fn close(&mut self, token: Token) -> Option<Socket> {
        each!(mut self, inner => inner.close(token))
    }

    /// There are events that were seen and not yet delivered: do not wait.
    pub fn has_pending(&self) -> bool {
        each!(self, inner => inner.has_pending())
    }

    /// Hands the kernel what is due and waits for events: until one comes, the [`Waker`] is used or `timeout` is
    /// over (`None`: no limit; zero: only look).
    ///
    /// # Errors
    /// The kernel refuses to wait; the driver is of no more use then.
    #[inline]
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.turn_or_park(timeout, &())
    }

    /// [`turn`](Self::turn) of a thread that others push work to: it ends when something was pushed, and `parking` is
    /// told only if the thread really sleeps.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    #[inline]
    pub fn turn_or_park(&mut self, timeout: Option<Duration>, parking: &impl Parking) -> io::Result<()> {
        each!(mut self, inner => inner.turn(timeout, parking))
    }

    /// The next event of this turn.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        each!(mut self, inner => inner.next_event())
    }
}
