//! One datagram a call, where the system has nothing better.

use std::io;

use crate::socket::Socket;

use super::send::{Entry, Memory};

#[derive(Debug, Default)]
pub(super) struct Sender;

impl Sender {
    pub(super) const CAN_JOIN: bool = false;

    pub(super) fn send(
        &mut self,
        socket: &Socket,
        memory: Memory<'_>,
        entries: &[Entry],
    ) -> io::Result<usize> {
        let Some(entry) = entries.first() else { return Ok(0) };
        let payload = entry.payload(memory);
        match entry.to {
            Some(to) => socket.send_to(payload, to)?,
            None => socket.send(payload)?,
        };
        Ok(1)
    }
}
