//! What the kernel is asked for, and asked to end.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{opcode, types};

use super::buffers::GROUP;
use super::operation::Operation;
use super::state::Role;
use super::{NO_SOCKET, Uring};
use crate::event::Token;

const POLL_IN: u32 = (libc_poll::IN | libc_poll::RDHUP) as u32;
const POLL_OUT: u32 = libc_poll::OUT as u32;

/// Values of poll(2), which are the same on every Linux this runs on.
pub(super) mod libc_poll {
    pub(in crate::uring) const IN: u16 = 0x001;
    pub(in crate::uring) const OUT: u16 = 0x004;
    pub(in crate::uring) const RDHUP: u16 = 0x2000;
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

    /// Begins to receive (or accept) unless that is under way, not wanted or over.
    pub(super) fn rearm(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        if io.armed.is_some() || io.paused || io.ended || io.role == Role::Connecting {
            return;
        }
        if let Err(error) = self.arm(token) {
            tracing::error!(%error, "a receive cannot be armed again");
        }
    }

    pub(super) fn arm(&mut self, token: Token) -> io::Result<()> {
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
        io.armed = Some(operation);
        self.in_flight += 1;
        if operation == Operation::PollIn && !std::mem::replace(&mut io.listed, true) {
            // Bytes may have come before the poll.
            self.readable.push_back(token);
        }
        Ok(())
    }

    pub(super) fn arm_poll_out(&mut self, token: Token) -> io::Result<()> {
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
    pub(super) fn disarm(&mut self, token: Token) {
        let Some(io) = self.table.get_mut(token) else { return };
        let Some(armed) = io.armed.filter(|_| !io.cancelling) else { return };
        io.cancelling = true;
        self.cancel(armed, token);
    }

    pub(super) fn cancel(&mut self, operation: Operation, token: Token) {
        let cancel = opcode::AsyncCancel::new(operation.user_data(token))
            .build()
            .user_data(Operation::Cancel.user_data(NO_SOCKET));
        match self.ring.push(&cancel) {
            Ok(()) => self.in_flight += 1,
            Err(error) => tracing::error!(%error, "an operation cannot be cancelled"),
        }
    }
}
