//! `recvmmsg`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use super::address::{self, Storage};
use super::control::{self, Control};
use crate::socket::Socket;
use crate::udp::message::Meta;

/// What one call needs beside the places that it receives into, kept for the next.
pub(crate) struct Receiver {
    scratch: Vec<Scratch>,
    headers: Vec<libc::mmsghdr>,
}

/// What the kernel writes beside one message's bytes.
struct Scratch {
    name: Storage,
    control: Control,
    iovec: libc::iovec,
}

impl Receiver {
    pub(crate) fn new(messages: usize) -> Self {
        let scratch = |_| Scratch {
            name: MaybeUninit::uninit(),
            control: Control::EMPTY,
            iovec: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
        };
        // SAFETY: a header of zeroes is one that points to nothing.
        let header = |_| unsafe { std::mem::zeroed() };
        Self { scratch: (0..messages).map(scratch).collect(), headers: (0..messages).map(header).collect() }
    }

    /// Receives up to one message into each place. Gives the drops of the socket, if they were told.
    pub(crate) fn receive<'a>(
        &mut self,
        socket: &Socket,
        places: impl Iterator<Item = &'a mut [u8]>,
        metas: &mut Vec<Meta>,
    ) -> io::Result<Option<u32>> {
        let mut asked = 0;
        for ((header, scratch), place) in self.headers.iter_mut().zip(&mut self.scratch).zip(places) {
            scratch.iovec = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
            let message = &mut header.msg_hdr;
            message.msg_name = scratch.name.as_mut_ptr().cast();
            message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            message.msg_iov = &raw mut scratch.iovec;
            message.msg_iovlen = 1;
            message.msg_control = scratch.control.0.as_mut_ptr().cast();
            message.msg_controllen = Control::LEN as _;
            message.msg_flags = 0;
            asked += 1;
        }
        let count = receive(socket, &mut self.headers[..asked])?;
        let mut drops = None;
        for (header, scratch) in self.headers[..count].iter().zip(&self.scratch) {
            // SAFETY: the kernel has filled in the first `count` headers.
            let control = unsafe { control::read(&header.msg_hdr) };
            drops = control.drops.or(drops);
            let full_len = header.msg_len as usize;
            metas.push(Meta {
                from: address::read(&scratch.name, header.msg_hdr.msg_namelen),
                len: full_len.min(scratch.iovec.iov_len),
                full_len,
                segment_size: control.segment_size,
                traffic_class: control.traffic_class,
                destination: control.destination,
                interface: control.interface,
            });
        }
        Ok(drops)
    }
}

fn receive(socket: &Socket, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    // With MSG_TRUNC the length is that of the datagram, not of the room for it.
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    loop {
        // SAFETY: each header points to memory that is not used otherwise and lives through the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        if count >= 0 {
            return Ok(count as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
