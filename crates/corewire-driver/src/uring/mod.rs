//! The io_uring backend (Linux 6.1 or later).
//!
//! Accepts and receives are multishot; receives take their memory from a ring of buffers that is small enough to
//! stay in cache. A connection that keeps filling whole buffers leaves that path for a *direct* one: the ring only
//! says that there are bytes, and they are received into the one large block that all such connections share and
//! that is therefore always hot (a ring of buffers is first-in-first-out: made large enough for large messages, it
//! would be cold). When its messages become small again it comes back. Sends are made at once: a TCP send does
//! the same work wherever it is issued from, and made here it lends the kernel no memory.

mod arming;
mod buffers;
mod completion;
mod operation;
mod probe;
mod ring;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{cqueue, types};
use rustix::event::{EventfdFlags, eventfd};

use self::buffers::BufferRing;
use self::operation::Operation;
pub(crate) use self::probe::probe;
use self::ring::Ring;
use self::state::{Io, OneShot};
use crate::config::DriverConfig;
use crate::counters::DriverCounters;
use crate::event::{Event, Interest, Token};
use crate::net;
use crate::parking::Parking;
use crate::ready::{Ready, ReadyList};
use crate::receive_buffer::ReceiveBuffer;
use crate::role::Role;
use crate::socket::Socket;
use crate::spin::Spin;
use crate::table::Table;
use crate::wake::{Waker, WakerKind};

/// The waker's operations carry this in place of a socket's token.
const NO_SOCKET: Token = Token { index: u32::MAX, generation: 0 };

/// After so many completions a socket of the direct path is served, if there is one: a receive of it moves up to
/// twenty times as many bytes.
const COMPLETIONS_IN_A_ROW: u32 = 16;

// Fields drop in order: the ring is closed before the memory that it reads and writes is freed.
#[derive(Debug)]
pub(crate) struct Uring {
    ring: Ring,
    buffers: BufferRing,
    table: Table<Io>,
    receive_buffer: ReceiveBuffer,
    spin: Spin,
    /// Sockets on the direct path that may have something to receive.
    ready: ReadyList,
    /// Completions that were taken since a listed socket was served.
    in_a_row: u32,
    /// The buffer behind the block that was delivered last.
    lent: Option<u16>,
    /// Sockets that something may have to be armed for, and operations to cancel: at the next turn.
    to_arm: Vec<Token>,
    to_cancel: Vec<u64>,
    wake_fd: Arc<OwnedFd>,
    wake_armed: bool,
    /// Operations the kernel holds for us; drop waits for them.
    in_flight: usize,
    counters: DriverCounters,
    budget: usize,
    events_per_turn: usize,
    buffer_size: usize,
    block_size: usize,
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
            receive_buffer: ReceiveBuffer::new(config.receive_block_size),
            spin: Spin::new(config.spin),
            ready: ReadyList::default(),
            in_a_row: 0,
            lent: None,
            to_arm: Vec::new(),
            to_cancel: Vec::new(),
            wake_fd: Arc::new(wake_fd),
            wake_armed: false,
            in_flight: 0,
            counters: DriverCounters::default(),
            budget: 0,
            events_per_turn: config.events_per_turn,
            buffer_size: config.ring_buffer_size,
            block_size: config.receive_block_size,
        };
        this.arm_wake()?;
        Ok(this)
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(WakerKind::EventFd(self.wake_fd.clone()))
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
        let token = self.table.insert(Io::new(socket, role));
        match role {
            Role::Connecting => self.arm_poll_out(token),
            Role::Listener | Role::Stream | Role::Datagram => self.rearm(token),
            Role::Watched => {}
        }
        Ok(token)
    }

    pub(crate) fn read_again(&mut self, token: Token) {
        if let Some(io) = self.table.get_mut(token) {
            self.ready.add(token, &mut io.pending, Ready::READABLE);
        }
    }

    pub(crate) fn set_write_interest(&mut self, token: Token) -> io::Result<()> {
        self.table.get(token).ok_or_else(net::not_open)?;
        self.arm_poll_out(token);
        Ok(())
    }

    pub(crate) fn watch(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        self.table.get(token).ok_or_else(net::not_open)?;
        match interest {
            Interest::Readable => self.arm_watch_in(token),
            Interest::Writable => self.arm_poll_out(token),
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, token: Token) -> Option<Socket> {
        let io = self.table.remove(token)?;
        if let Some(armed) = io.armed {
            self.cancel(armed, token);
        }
        if io.poll_out == OneShot::Armed {
            self.cancel(Operation::PollOut, token);
        }
        if io.watches_hang_up {
            self.cancel(Operation::HangUp, token);
        }
        if io.poll_in == OneShot::Armed {
            self.cancel(Operation::WatchIn, token);
        }
        // Only if the kernel did not take all at the last turn.
        if self.ring.has_unsubmitted()
            && let Err(error) = self.ring.enter(0, None)
        {
            tracing::error!(%error, "a socket is closed while an operation that names it is not submitted");
        }
        Some(io.socket)
    }

    pub(crate) fn set_receive_max(&mut self, token: Token, bytes: usize) {
        let max = if bytes < self.block_size { bytes.max(1) } else { usize::MAX };
        if self.table.get_mut(token).is_some_and(|io| io.limit_receive(max)) {
            self.disarm(token);
            self.rearm(token);
        }
    }

    pub(crate) fn pause_receive(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        io.receiving.pause();
        // A poll takes no bytes: it stays, and what it says meanwhile is remembered.
        if io.operation() != Operation::PollIn {
            self.disarm(token);
        }
        self.rearm(token);
        self.look_for_end_in_pause(token);
    }

    pub(crate) fn resume_receive(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        match io.receiving.resume() {
            Some(true) => self.ready.add(token, &mut io.pending, Ready::READABLE),
            Some(false) => {}
            None => return,
        }
        self.rearm(token);
    }

    pub(crate) fn resume_accept(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.receiving.resume_accept() {
            self.rearm(token);
        }
    }

    pub(crate) fn send(&mut self, token: Token, slices: &[IoSlice<'_>], total: usize) -> io::Result<usize> {
        let io = self.table.get(token).ok_or_else(net::not_open)?;
        let sent = net::send(&io.socket, slices)?;
        if sent < total {
            self.arm_poll_out(token);
        }
        Ok(sent)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn turn(&mut self, timeout: Option<Duration>, parking: &impl Parking) -> io::Result<()> {
        self.recycle();
        self.buffers.publish();
        self.budget = self.events_per_turn;
        self.queue_operations()?;
        let idle = self.ready.is_empty() && !self.ring.has_completions();
        if !idle || timeout == Some(Duration::ZERO) {
            return self.ring.enter(0, None);
        }
        // Hand over what is queued; what comes while we look again is announced without a wake-up.
        self.ring.enter(0, None)?;
        let ring = &mut self.ring;
        if ring.has_completions()
            || self.spin.until(timeout, || ring.has_work() || parking.has_mail())
            || !parking.prepare_park()
        {
            return self.ring.enter(0, None);
        }
        self.ring.enter(1, timeout)
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.recycle();
        while self.budget > 0 {
            let is_turn_of_ready = self.in_a_row >= COMPLETIONS_IN_A_ROW && !self.ready.is_empty();
            let completion = if is_turn_of_ready { None } else { self.ring.next_completion() };
            let event = match completion {
                Some(completion) => {
                    self.in_a_row += 1;
                    self.budget -= 1;
                    self.complete(&completion)
                }
                None => {
                    self.in_a_row = 0;
                    let token = self.ready.next()?;
                    self.budget -= 1;
                    self.serve(token)
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
}

impl Drop for Uring {
    /// Cancels, drains, and only then lets the fields close the ring and free the buffers: a receive that is still
    /// under way when its buffer is freed shows as memory that changes by itself.
    fn drop(&mut self) {
        let until = crate::clock::now() + Duration::from_secs(1);
        let all = types::CancelBuilder::any().all();
        // What is still queued must reach the kernel first, or it would escape the cancellation.
        let _ = self.ring.enter(0, None);
        if let Err(error) = self.ring.submitter().register_sync_cancel(None, all) {
            tracing::debug!(%error, "nothing to cancel");
        }
        while self.in_flight > 0 && crate::clock::now() < until {
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
        if self.in_flight > 0 {
            // Closing the ring ends them, but when is the kernel's affair: memory that is given to somebody else
            // meanwhile would change by itself. So nobody gets it.
            tracing::error!(
                operations = self.in_flight,
                "the kernel does not end its operations; buffers are leaked"
            );
            self.buffers.leak();
        }
    }
}
