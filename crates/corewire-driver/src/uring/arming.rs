//! What the kernel is asked for, and asked to end.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types};

use super::buffers::GROUP;
use super::operation::Operation;
use super::state::OneShot;
use super::{NO_SOCKET, Uring};
use crate::event::Token;
use crate::ready::Ready;

const POLL_IN: u32 = (libc_poll::IN | libc_poll::RDHUP) as u32;
const HANG_UP: u32 = libc_poll::RDHUP as u32;
const POLL_OUT: u32 = libc_poll::OUT as u32;

/// Values of poll(2), which are the same on every Linux this runs on.
pub(super) mod libc_poll {
    pub(in crate::sys::uring) const IN: u16 = 0x001;
    pub(in crate::sys::uring) const OUT: u16 = 0x004;
    pub(in crate::sys::uring) const RDHUP: u16 = 0x2000;
}

impl Uring {
    pub(super) fn arm_wake(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.wake_fd.as_raw_fd()), u32::from(libc_poll::IN))
            .multi(true)
            .build()
            .user_data(Operation::Wake.user_data(NO_SOCKET));
        self.ring.push(&poll)?;
        self.in_flight += 1;
        self.wake_armed = true;
        Ok(())
    }

    /// Begins to receive (or accept) at the next turn, unless that is under way, not wanted or over then.
    pub(super) fn rearm(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if !std::mem::replace(&mut io.is_to_arm, true) {
            self.to_arm.push(token);
        }
    }

    /// Asks once whether the socket takes bytes.
    pub(super) fn arm_poll_out(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.poll_out == OneShot::No {
            io.poll_out = OneShot::Wanted;
            self.rearm(token);
        }
    }

    /// Asks once whether there is something to read.
    pub(super) fn arm_watch_in(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.poll_in == OneShot::No {
            io.poll_in = OneShot::Wanted;
            self.rearm(token);
        }
    }

    /// Asks the receive under way to end; its last completion begins what is wanted then.
    pub(super) fn disarm(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        let Some(armed) = io.armed.filter(|_| !io.cancelling) else { return };
        io.cancelling = true;
        self.cancel(armed, token);
    }

    /// Ends an operation at the next turn.
    pub(super) fn cancel(&mut self, operation: Operation, token: Token) {
        self.to_cancel.push(operation.user_data(token));
    }

    /// Queues what is to be cancelled and armed. What names a descriptor is queued only here, just before it is
    /// submitted: between turns a socket may be closed, and another thread may get its number.
    pub(super) fn queue_operations(&mut self) -> io::Result<()> {
        while let Some(user_data) = self.to_cancel.pop() {
            let cancel =
                opcode::AsyncCancel::new(user_data).build().user_data(Operation::Cancel.user_data(NO_SOCKET));
            self.ring.push(&cancel)?;
            self.in_flight += 1;
        }
        while let Some(token) = self.to_arm.pop() {
            let Some(io) = self.table.get_mut(token) else { continue };
            io.is_to_arm = false;
            let fd = types::Fd(io.socket.as_raw_fd());
            if io.poll_in == OneShot::Wanted {
                let poll = opcode::PollAdd::new(fd, POLL_IN).build();
                self.ring.push(&poll.user_data(Operation::WatchIn.user_data(token)))?;
                io.poll_in = OneShot::Armed;
                self.in_flight += 1;
            }
            if io.poll_out == OneShot::Wanted {
                let poll = opcode::PollAdd::new(fd, POLL_OUT).build();
                self.ring.push(&poll.user_data(Operation::PollOut.user_data(token)))?;
                io.poll_out = OneShot::Armed;
                self.in_flight += 1;
            }
            if io.wants_hang_up() {
                let poll = opcode::PollAdd::new(fd, HANG_UP).multi(true).build();
                self.ring.push(&poll.user_data(Operation::HangUp.user_data(token)))?;
                io.watches_hang_up = true;
                self.in_flight += 1;
            }
            let Some(operation) = io.to_arm() else { continue };
            self.ring.push(&entry(operation, fd).user_data(operation.user_data(token)))?;
            io.armed = Some(operation);
            self.in_flight += 1;
            if operation == Operation::PollIn {
                // Bytes may have come before the poll.
                self.ready.add(token, &mut io.pending, Ready::READABLE);
            }
        }
        Ok(())
    }
}

fn entry(operation: Operation, fd: types::Fd) -> squeue::Entry {
    match operation {
        Operation::Accept => opcode::AcceptMulti::new(fd)
            .flags((rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC).bits() as i32)
            .build(),
        Operation::PollIn => opcode::PollAdd::new(fd, POLL_IN).multi(true).build(),
        _ => opcode::RecvMulti::new(fd, GROUP).build(),
    }
}
