//! What completions mean.

use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;
use rustix::io::Errno;

use super::Uring;
use super::arming::libc_poll;
use super::operation::Operation;
use super::state::{OneShot, ReceivePath};
use crate::event::{Event, Token};
use crate::net;
use crate::ready::Ready;
use crate::role::{Receiving, Role};
use crate::socket::Socket;

impl Uring {
    pub(super) fn complete(&mut self, completion: &cqueue::Entry) -> Option<Event> {
        let more = cqueue::more(completion.flags());
        let (operation, token) = Operation::from_user_data(completion.user_data())?;
        if !more {
            self.in_flight -= 1;
        }
        match operation {
            Operation::Receive => self.received(token, completion, more),
            Operation::PollIn => self.polled_in(token, completion.result(), more),
            Operation::PollOut => self.polled_out(token),
            Operation::HangUp => {
                self.hung_up(token, completion.result(), more);
                None
            }
            Operation::WatchIn => self.watched_in(token),
            Operation::Accept => self.accepted(token, completion.result(), more),
            Operation::Wake => {
                self.wake_armed = more;
                self.woken();
                None
            }
            Operation::Cancel => None,
        }
    }

    pub(super) fn received(&mut self, token: Token, completion: &cqueue::Entry, more: bool) -> Option<Event> {
        let result = completion.result();
        let id = cqueue::buffer_select(completion.flags());
        self.recycle();
        self.lent = id;
        let buffer_size = self.buffer_size;
        let io = self.table.get_mut(token)?;
        if !more {
            io.armed = None;
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
                io.receiving = Receiving::Ended;
                return Some(Event::ReadClosed { token });
            }
            _ => match Errno::from_raw_os_error(-result) {
                // The ring was empty, or the receive was asked to end: begin anew if it is still wanted.
                Errno::NOBUFS => {
                    self.counters.ring_empty += 1;
                    None
                }
                Errno::CANCELED | Errno::INTR | Errno::AGAIN => None,
                error => {
                    io.receiving = Receiving::Ended;
                    return Some(Event::Failed { token, error: error.into() });
                }
            },
        };
        if !more {
            self.rearm(token);
            self.look_for_end_in_pause(token);
        }
        event
    }

    pub(super) fn polled_in(&mut self, token: Token, mask: i32, more: bool) -> Option<Event> {
        let io = self.table.get_mut(token)?;
        // One edge may stand for bytes and the end behind them.
        io.peer_closed |= mask > 0 && mask as u32 & u32::from(libc_poll::RDHUP) != 0;
        if !more {
            io.armed = None;
            io.cancelling = false;
        }
        if io.path == ReceivePath::Direct && io.receiving.note_edge() {
            self.ready.add(token, &mut io.pending, Ready::READABLE);
        }
        if !more {
            self.rearm(token);
        }
        None
    }

    /// The peer of a stream that has been paused has hung up.
    fn hung_up(&mut self, token: Token, mask: i32, more: bool) {
        let Some(io) = self.table.get_mut(token) else { return };
        io.watches_hang_up = more;
        io.peer_closed |= mask > 0;
        self.look_for_end_in_pause(token);
    }

    /// Has the end of a paused stream told, if it has come and no bytes are before it.
    pub(super) fn look_for_end_in_pause(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token).filter(|io| io.peer_closed && io.is_paused_stream()) else {
            return;
        };
        self.ready.add(token, &mut io.pending, Ready::READABLE);
    }

    /// Serves a socket of the direct path from the list, or one that is paused and whose peer has hung up.
    ///
    /// Completions and listed sockets take turns, so the order in which a connection's bytes were taken from the socket
    /// must not depend on it: while a receive of the ring is armed, bytes that it has taken may wait in the completion
    /// queue (or behind it, if it is full), and nothing is received directly or told to have ended. The last completion of that receive arms
    /// the poll, which lists the connection again. That the peer has closed is said by a poll; if its completion comes
    /// after the direct receive it lists the connection once more, and the end is found then.
    pub(super) fn serve(&mut self, token: Token) -> Option<Event> {
        let buffer_size = self.buffer_size;
        let io = self.table.get_mut(token)?;
        io.pending.take();
        if io.armed == Some(Operation::Receive) {
            return None;
        }
        if io.peer_closed && io.is_paused_stream() {
            return io.receiving.hang_up_in_pause(token, &io.socket);
        }
        if io.path != ReceivePath::Direct || !io.receiving.note_edge() {
            return None;
        }
        if io.role == Role::Datagram {
            return Some(Event::DatagramReadable { token });
        }
        match self.receive_buffer.receive(&io.socket, io.receive_max) {
            Ok(None) => None,
            Ok(Some((data, _))) if data.is_empty() => {
                io.receiving = Receiving::Ended;
                Some(Event::ReadClosed { token })
            }
            Ok(Some((data, filled))) => {
                if io.note_chunk(data.len(), buffer_size) {
                    self.disarm(token);
                    self.rearm(token);
                } else if filled || io.peer_closed {
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

    /// Whatever the poll says, an error too: the user's own call tells what it is.
    fn watched_in(&mut self, token: Token) -> Option<Event> {
        self.table.get_mut(token)?.poll_in = OneShot::No;
        Some(Event::Ready { token, readable: true, writable: false })
    }

    pub(super) fn polled_out(&mut self, token: Token) -> Option<Event> {
        let io = self.table.get_mut(token)?;
        io.poll_out = OneShot::No;
        if io.role == Role::Watched {
            return Some(Event::Ready { token, readable: false, writable: true });
        }
        if io.role == Role::Datagram {
            return Some(Event::DatagramWritable { token });
        }
        if io.role != Role::Connecting {
            return Some(Event::Writable { token });
        }
        if let Err(error) = net::take_error(&io.socket) {
            return Some(Event::Failed { token, error });
        }
        io.role = Role::Stream;
        self.rearm(token);
        Some(Event::Connected { token })
    }

    pub(super) fn accepted(&mut self, listener: Token, result: i32, more: bool) -> Option<Event> {
        let socket = (result >= 0).then(|| {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
            Socket::trusted(unsafe { OwnedFd::from_raw_fd(result) }.into())
        });
        let io = self.table.get_mut(listener)?;
        if !more {
            io.armed = None;
            io.cancelling = false;
        }
        if let Some(socket) = socket {
            if !more {
                self.rearm(listener);
            }
            return Some(Event::Accepted { listener, socket });
        }
        let error = Errno::from_raw_os_error(-result);
        // Cancelled: paused, and perhaps resumed since.
        if error == Errno::CANCELED || net::is_passing_accept_error(error) {
            self.rearm(listener);
            return None;
        }
        io.receiving = Receiving::AcceptBackoff;
        Some(Event::AcceptFailed { listener, error: error.into() })
    }

    pub(super) fn woken(&mut self) {
        self.counters.wakes += 1;
        let mut count = [0; 8];
        // Non-blocking: whether it was set or not, it is zero now.
        let _ = rustix::io::read(&*self.wake_fd, &mut count);
        if !self.wake_armed
            && let Err(error) = self.arm_wake()
        {
            tracing::error!(%error, "the wake-up of an io_uring driver cannot be armed again");
        }
    }
}
