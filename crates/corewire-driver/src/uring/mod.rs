//! The io_uring backend (Linux 6.1 or later).
//!
//! Accepts and receives are multishot; receives take their memory from a ring of buffers that is small enough to
//! stay in cache. A connection that keeps filling whole buffers leaves that path for a *direct* one: the ring only
//! says that there are bytes, and they are received into the one large block that all such connections share and
//! that is therefore always hot (a ring of buffers is first-in-first-out: made large enough for large messages, it
//! would be cold). When its messages become small again it comes back. Sends are made at once: a TCP send does
//! the same work wherever it is issued from, and made here it lends the kernel no memory.

mod buffers;
mod operation;
mod ring;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{cqueue, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use socket2::Socket;

use self::buffers::{BufferRing, GROUP};
use self::operation::Operation;
use self::ring::Ring;
pub(crate) use self::ring::try_setup;
use crate::arena::Arena;
use crate::config::DriverConfig;
use crate::event::{Event, Token};
use crate::net;
use crate::spin::Spin;
use crate::table::Table;
use crate::wake::{Waker, WakerKind};

const POLL_IN: u32 = (libc_poll::IN | libc_poll::RDHUP) as u32;
const POLL_OUT: u32 = libc_poll::OUT as u32;

/// Values of poll(2), which are the same on every Linux this runs on.
mod libc_poll {
    pub(super) const IN: u16 = 0x001;
    pub(super) const OUT: u16 = 0x004;
    pub(super) const RDHUP: u16 = 0x2000;
}

/// The waker's operations carry this in place of a socket's token.
const NO_SOCKET: Token = Token { index: u32::MAX, generation: 0 };

// Fields drop in order: the ring is closed before the memory that it reads and writes is freed.
#[derive(Debug)]
pub(crate) struct Uring {
    ring: Ring,
    buffers: BufferRing,
    table: Table<Io>,
    arena: Arena,
    spin: Spin,
    /// Connections on the direct path that may have bytes.
    readable: VecDeque<Token>,
    /// The buffer behind the block that was delivered last.
    lent: Option<u16>,
    wake_fd: Arc<OwnedFd>,
    wake_armed: bool,
    /// Operations the kernel holds for us; drop waits for them.
    in_flight: usize,
    budget: usize,
    events_per_turn: usize,
    buffer_size: usize,
}

#[derive(Debug)]
struct Io {
    socket: Socket,
    role: Role,
    path: ReceivePath,
    /// The receive (or the poll for it, or the accept) is in the kernel's hands.
    armed: bool,
    /// It has been asked to end.
    cancelling: bool,
    paused: bool,
    poll_out_armed: bool,
    /// Direct path: the peer has closed its half; what is left is to be read to the end.
    peer_closed: bool,
    /// The end, or the error that ended it, was reported.
    ended: bool,
    /// Grows with full buffers, shrinks with others: see [`Io::note_chunk`].
    fullness: u8,
    small_in_a_row: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Listener,
    Connecting,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceivePath {
    /// Multishot receive into the ring's buffers.
    Buffers,
    /// Poll, then receive into the shared block.
    Direct,
}

impl Io {
    /// Full buffers, counted with decay, that send a connection to the direct path.
    const FULL_TO_DIRECT: u8 = 4;
    /// Receives below a quarter of a buffer, in a row, that send it back.
    const SMALL_TO_BUFFERS: u8 = 32;

    fn new(socket: Socket, role: Role) -> Self {
        Self {
            socket,
            role,
            path: ReceivePath::Buffers,
            armed: false,
            cancelling: false,
            paused: false,
            poll_out_armed: false,
            peer_closed: false,
            ended: false,
            fullness: 0,
            small_in_a_row: 0,
        }
    }

    /// What is, or would be, in the kernel's hands for the receiving side.
    const fn operation(&self) -> Operation {
        match (self.role, self.path) {
            (Role::Listener, _) => Operation::Accept,
            (_, ReceivePath::Buffers) => Operation::Receive,
            (_, ReceivePath::Direct) => Operation::PollIn,
        }
    }

    /// Chooses the path by what arrives; true when it has just changed.
    fn note_chunk(&mut self, len: usize, buffer_size: usize) -> bool {
        match self.path {
            ReceivePath::Buffers if len == buffer_size => {
                self.fullness += 2;
                if self.fullness < Self::FULL_TO_DIRECT {
                    return false;
                }
                (self.path, self.small_in_a_row) = (ReceivePath::Direct, 0);
                true
            }
            ReceivePath::Buffers => {
                self.fullness = self.fullness.saturating_sub(1);
                false
            }
            ReceivePath::Direct if len < buffer_size / 4 => {
                self.small_in_a_row += 1;
                if self.small_in_a_row < Self::SMALL_TO_BUFFERS {
                    return false;
                }
                (self.path, self.fullness) = (ReceivePath::Buffers, 0);
                true
            }
            ReceivePath::Direct => {
                self.small_in_a_row = 0;
                false
            }
        }
    }
}

impl Uring {
    pub(crate) fn new(config: &DriverConfig) -> io::Result<Self> {
        let ring = Ring::new(config.completion_entries)?;
        let buffers = BufferRing::register(&ring.submitter(), config.ring_buffers, config.ring_buffer_size)?;
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut this = Self {
            ring,
            buffers,
            table: Table::new(),
            arena: Arena::new(config.receive_block_size),
            spin: Spin::new(config.spin),
            readable: VecDeque::new(),
            lent: None,
            wake_fd: Arc::new(wake_fd),
            wake_armed: false,
            in_flight: 0,
            budget: 0,
            events_per_turn: config.events_per_turn,
            buffer_size: config.ring_buffer_size,
        };
        this.arm_wake()?;
        Ok(this)
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(WakerKind::EventFd(self.wake_fd.clone()))
    }

    pub(crate) fn sockets(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn socket(&self, token: Token) -> Option<&Socket> {
        self.table.get(token).map(|io| &io.socket)
    }

    pub(crate) fn add_listener(&mut self, socket: Socket) -> io::Result<Token> {
        self.add(socket, Role::Listener)
    }

    pub(crate) fn add_stream(&mut self, socket: Socket) -> io::Result<Token> {
        self.add(socket, Role::Stream)
    }

    pub(crate) fn add_connecting(&mut self, socket: Socket) -> io::Result<Token> {
        self.add(socket, Role::Connecting)
    }

    fn add(&mut self, socket: Socket, role: Role) -> io::Result<Token> {
        let token = self.table.insert(Io::new(socket, role));
        let armed = if role == Role::Connecting { self.arm_poll_out(token) } else { self.arm(token) };
        if let Err(error) = armed {
            self.table.remove(token);
            return Err(error);
        }
        Ok(token)
    }

    pub(crate) fn close(&mut self, token: Token) -> Option<Socket> {
        let io = self.table.remove(token)?;
        if io.armed {
            self.cancel(io.operation(), token);
        }
        if io.poll_out_armed {
            self.cancel(Operation::PollOut, token);
        }
        Some(io.socket)
    }

    pub(crate) fn pause_receive(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        io.paused = true;
        self.disarm(token);
    }

    pub(crate) fn resume_receive(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if !std::mem::take(&mut io.paused) {
            return;
        }
        self.rearm(token);
    }

    pub(crate) fn resume_accept(&mut self, token: Token) {
        self.rearm(token);
    }

    pub(crate) fn send(&mut self, token: Token, slices: &[IoSlice<'_>], total: usize) -> io::Result<usize> {
        let io = self.table.get(token).ok_or_else(net::not_open)?;
        let sent = net::send(&io.socket, slices)?;
        if sent < total {
            self.arm_poll_out(token)?;
        }
        Ok(sent)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.recycle();
        self.buffers.publish();
        self.budget = self.events_per_turn;
        let idle = self.readable.is_empty() && !self.ring.has_completions();
        if !idle || timeout == Some(Duration::ZERO) {
            return self.ring.enter(0, None);
        }
        // Hand over what is queued; what comes while we look again is announced without a wake-up.
        self.ring.enter(0, None)?;
        let ring = &mut self.ring;
        if ring.has_completions() || self.spin.until(timeout, || ring.has_work()) {
            return self.ring.enter(0, None);
        }
        self.ring.enter(1, timeout)
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.recycle();
        while self.budget > 0 {
            let event = match self.ring.next_completion() {
                Some(completion) => {
                    self.budget -= 1;
                    self.complete(&completion)
                }
                None => {
                    let token = self.readable.pop_front()?;
                    self.budget -= 1;
                    self.receive_directly(token)
                }
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    #[inline]
    fn recycle(&mut self) {
        if let Some(id) = self.lent.take() {
            self.buffers.give_back(id);
        }
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> Option<Event> {
        let more = cqueue::more(completion.flags());
        let (operation, token) = Operation::from_user_data(completion.user_data())?;
        if !more {
            self.in_flight -= 1;
        }
        match operation {
            Operation::Receive => self.received(token, completion, more),
            Operation::PollIn => self.polled_in(token, completion.result(), more),
            Operation::PollOut => self.polled_out(token),
            Operation::Accept => self.accepted(token, completion.result(), more),
            Operation::Wake => {
                self.wake_armed = more;
                self.woken();
                None
            }
            Operation::Cancel => None,
        }
    }

    fn received(&mut self, token: Token, completion: &cqueue::Entry, more: bool) -> Option<Event> {
        let result = completion.result();
        let id = cqueue::buffer_select(completion.flags());
        self.recycle();
        self.lent = id;
        let buffer_size = self.buffer_size;
        let io = self.table.get_mut(token)?;
        if !more {
            io.armed = false;
            io.cancelling = false;
        }
        let event = match (result, id) {
            (1.., Some(id)) => {
                let len = result as usize;
                let data = self.buffers.take(id, len)?;
                if io.note_chunk(len, buffer_size) && more {
                    self.disarm(token);
                }
                Some(Event::Received { token, data })
            }
            (0, _) => {
                io.ended = true;
                return Some(Event::ReadClosed { token });
            }
            _ => match Errno::from_raw_os_error(-result) {
                // The ring was empty, or the receive was asked to end: begin anew if it is still wanted.
                Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN => None,
                error => {
                    io.ended = true;
                    return Some(Event::Failed { token, error: error.into() });
                }
            },
        };
        if !more {
            self.rearm(token);
        }
        event
    }

    fn polled_in(&mut self, token: Token, mask: i32, more: bool) -> Option<Event> {
        let io = self.table.get_mut(token)?;
        // One edge may stand for bytes and the end behind them.
        io.peer_closed |= mask > 0 && mask as u32 & u32::from(libc_poll::RDHUP) != 0;
        if !more {
            io.armed = false;
            io.cancelling = false;
        }
        if io.path == ReceivePath::Direct && !io.paused {
            self.readable.push_back(token);
        }
        if !more {
            self.rearm(token);
        }
        None
    }

    fn receive_directly(&mut self, token: Token) -> Option<Event> {
        let buffer_size = self.buffer_size;
        let io = self.table.get_mut(token)?;
        if io.paused || io.ended || io.path != ReceivePath::Direct {
            return None;
        }
        match self.arena.receive(&io.socket) {
            Ok(None) => None,
            Ok(Some((data, _))) if data.is_empty() => {
                io.ended = true;
                Some(Event::ReadClosed { token })
            }
            Ok(Some((data, filled))) => {
                if io.note_chunk(data.len(), buffer_size) {
                    self.disarm(token);
                    self.rearm(token);
                } else if filled || io.peer_closed {
                    self.readable.push_back(token);
                }
                Some(Event::Received { token, data })
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.readable.push_back(token);
                None
            }
            Err(error) => {
                io.ended = true;
                Some(Event::Failed { token, error })
            }
        }
    }

    fn polled_out(&mut self, token: Token) -> Option<Event> {
        let io = self.table.get_mut(token)?;
        io.poll_out_armed = false;
        if io.role != Role::Connecting {
            return Some(Event::Writable { token });
        }
        if let Err(error) = net::connect_result(&io.socket) {
            return Some(Event::Failed { token, error });
        }
        io.role = Role::Stream;
        self.rearm(token);
        Some(Event::Connected { token })
    }

    fn accepted(&mut self, listener: Token, result: i32, more: bool) -> Option<Event> {
        let socket = (result >= 0).then(|| {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
            Socket::from(unsafe { OwnedFd::from_raw_fd(result) })
        });
        let io = self.table.get_mut(listener)?;
        if !more {
            io.armed = false;
            io.cancelling = false;
        }
        if let Some(socket) = socket {
            if !more {
                self.rearm(listener);
            }
            return Some(Event::Accepted { listener, socket });
        }
        let error = io::Error::from_raw_os_error(-result);
        if Errno::from_raw_os_error(-result) == Errno::CANCELED {
            // Paused, and perhaps resumed since.
            self.rearm(listener);
            return None;
        }
        if net::is_passing_accept_error(&error) {
            self.rearm(listener);
            return None;
        }
        Some(Event::AcceptFailed { listener, error })
    }

    fn woken(&mut self) {
        let mut count = [0; 8];
        // Non-blocking: whether it was set or not, it is zero now.
        let _ = rustix::io::read(&*self.wake_fd, &mut count);
        if !self.wake_armed
            && let Err(error) = self.arm_wake()
        {
            tracing::error!(%error, "the wake-up of an io_uring driver cannot be armed again");
        }
    }

    fn arm_wake(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.wake_fd.as_raw_fd()), u32::from(libc_poll::IN))
            .multi(true)
            .build()
            .user_data(Operation::Wake.user_data(NO_SOCKET));
        self.ring.push(&poll)?;
        self.in_flight += 1;
        self.wake_armed = true;
        Ok(())
    }

    /// Begins to receive (or accept) unless that is under way, not wanted or over.
    fn rearm(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.armed || io.paused || io.ended || io.role == Role::Connecting {
            return;
        }
        if let Err(error) = self.arm(token) {
            tracing::error!(%error, "a receive cannot be armed again");
        }
    }

    fn arm(&mut self, token: Token) -> io::Result<()> {
        let Some(io) = self.table.get_mut(token) else { return Ok(()) };
        let fd = types::Fd(io.socket.as_raw_fd());
        let operation = io.operation();
        let entry = match operation {
            Operation::Accept => opcode::AcceptMulti::new(fd)
                .flags((rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC).bits() as i32)
                .build(),
            Operation::PollIn => opcode::PollAdd::new(fd, POLL_IN).multi(true).build(),
            _ => opcode::RecvMulti::new(fd, GROUP).build(),
        };
        self.ring.push(&entry.user_data(operation.user_data(token)))?;
        io.armed = true;
        self.in_flight += 1;
        if operation == Operation::PollIn {
            // Bytes may have come before the poll.
            self.readable.push_back(token);
        }
        Ok(())
    }

    fn arm_poll_out(&mut self, token: Token) -> io::Result<()> {
        let Some(io) = self.table.get_mut(token) else { return Ok(()) };
        if io.poll_out_armed {
            return Ok(());
        }
        let poll = opcode::PollAdd::new(types::Fd(io.socket.as_raw_fd()), POLL_OUT)
            .build()
            .user_data(Operation::PollOut.user_data(token));
        self.ring.push(&poll)?;
        io.poll_out_armed = true;
        self.in_flight += 1;
        Ok(())
    }

    /// Asks the receive under way to end; its last completion begins what is wanted then.
    fn disarm(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if !io.armed || io.cancelling {
            return;
        }
        io.cancelling = true;
        if io.role == Role::Listener {
            return self.cancel(Operation::Accept, token);
        }
        // The path may have changed since it was armed: cancel whichever it was.
        for operation in [Operation::Receive, Operation::PollIn] {
            self.cancel(operation, token);
        }
    }

    fn cancel(&mut self, operation: Operation, token: Token) {
        let cancel = opcode::AsyncCancel::new(operation.user_data(token))
            .build()
            .user_data(Operation::Cancel.user_data(NO_SOCKET));
        match self.ring.push(&cancel) {
            Ok(()) => self.in_flight += 1,
            Err(error) => tracing::error!(%error, "an operation cannot be cancelled"),
        }
    }
}

impl Drop for Uring {
    /// Cancels, drains, and only then lets the fields close the ring and free the buffers: a receive that is still
    /// under way when its buffer is freed shows as memory that changes by itself.
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(1);
        let all = types::CancelBuilder::any().all();
        // What is still queued must reach the kernel first, or it would escape the cancellation.
        let _ = self.ring.enter(0, None);
        if let Err(error) = self.ring.submitter().register_sync_cancel(None, all) {
            tracing::debug!(%error, "nothing to cancel");
        }
        while self.in_flight > 0 && Instant::now() < until {
            while let Some(completion) = self.ring.next_completion() {
                if !cqueue::more(completion.flags()) {
                    self.in_flight -= 1;
                }
                if let (Some((Operation::Accept, _)), fd @ 0..) =
                    (Operation::from_user_data(completion.user_data()), completion.result())
                {
                    // SAFETY: a connection accepted while we were going: its descriptor is ours alone.
                    drop(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
            if self.in_flight > 0 && self.ring.enter(1, Some(Duration::from_millis(10))).is_err() {
                break;
            }
        }
        debug_assert_eq!(self.in_flight, 0, "operations are left in the kernel");
    }
}
