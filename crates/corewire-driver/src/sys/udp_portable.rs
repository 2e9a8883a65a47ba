//! Datagrams where the system has no calls for many: one a call. Congestion marks, destinations, interfaces and drops are
//! not told, and nothing is joined.

use std::io::{self, IoSliceMut};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg, send, sendto};

use super::stream::SEND_FLAGS;
use crate::socket::Socket;
use crate::udp::UdpOptions;
use crate::udp::message::{Entry, Memory, Meta};

/// What the system says of a buffer's size, for each byte that can be used.
pub(crate) const BUFFER_SHARE: usize = 1;

/// There is no way past the system's limit.
pub(crate) fn force_receive_buffer(_: &Socket, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn force_send_buffer(_: &Socket, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// None of the options exists here.
#[expect(clippy::unnecessary_wraps, reason = "other systems ask the kernel")]
pub(crate) const fn prepare(_: &Socket, _: bool, _: &UdpOptions) -> io::Result<()> {
    Ok(())
}

pub(crate) struct Receiver;

impl Receiver {
    pub(crate) const fn new(_: usize) -> Self {
        Self
    }

    /// Receives up to one message into each place; drops are not told.
    pub(crate) fn receive<'a>(
        &mut self,
        socket: &Socket,
        places: impl Iterator<Item = &'a mut [u8]>,
        metas: &mut Vec<Meta>,
    ) -> io::Result<Option<u32>> {
        for place in places {
            match receive_one(socket, place) {
                Ok(meta) => metas.push(meta),
                // The error is told by the next call, unless it has passed by then.
                Err(_) if !metas.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

fn receive_one(socket: &Socket, place: &mut [u8]) -> rustix::io::Result<Meta> {
    let room = place.len();
    loop {
        let mut control = RecvAncillaryBuffer::default();
        match recvmsg(socket, &mut [IoSliceMut::new(place)], &mut control, RecvFlags::DONTWAIT) {
            Ok(message) => {
                let is_truncated = message.flags.contains(ReturnFlags::TRUNC);
                return Ok(Meta {
                    from: message.address.and_then(|address| address.try_into().ok()),
                    len: message.bytes.min(room),
                    // How much longer it was is not told.
                    full_len: if is_truncated { room + 1 } else { message.bytes },
                    ..Meta::default()
                });
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sender(());

impl Sender {
    pub(crate) const CAN_JOIN: bool = false;

    /// Sends the first entry.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        memory: Memory<'_>,
        entries: &[Entry],
    ) -> io::Result<usize> {
        let Some(entry) = entries.first() else { return Ok(0) };
        let payload = entry.payload(memory);
        loop {
            let sent = match entry.to {
                Some(to) => sendto(socket, payload, SEND_FLAGS, &to),
                None => send(socket, payload, SEND_FLAGS),
            };
            match sent {
                Ok(_) => return Ok(1),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
