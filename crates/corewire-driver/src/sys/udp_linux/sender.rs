//! `sendmmsg` with segmentation.

use std::io;
use std::os::fd::AsRawFd;

use socket2::SockAddr;

use crate::socket::Socket;

use super::control::{self, Control, Sent};
use crate::udp::message::{Entry, Memory};

/// What one call needs beside the datagrams, kept for the next.
#[derive(Default)]
pub(crate) struct Sender {
    scratch: Vec<Scratch>,
    headers: Vec<libc::mmsghdr>,
}

struct Scratch {
    name: Option<SockAddr>,
    control: Control,
    iovec: libc::iovec,
}

impl Sender {
    pub(crate) const CAN_JOIN: bool = true;
    /// Messages in one call.
    const BATCH: usize = 32;

    /// Sends the first entries; says how many left.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        memory: Memory<'_>,
        entries: &[Entry],
    ) -> io::Result<usize> {
        let count = entries.len().min(Self::BATCH);
        self.reserve(count);
        for (at, entry) in entries[..count].iter().enumerate() {
            self.fill(at, entry, entry.payload(memory));
        }
        loop {
            // SAFETY: the headers point to `memory` and to the scratch, which live through the call and are only read.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
                )
            };
            if sent >= 0 {
                return Ok(sent as usize);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn reserve(&mut self, count: usize) {
        while self.scratch.len() < count {
            self.scratch.push(Scratch {
                name: None,
                control: Control::EMPTY,
                iovec: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            });
            // SAFETY: a header of zeroes is one that points to nothing.
            self.headers.push(unsafe { std::mem::zeroed() });
        }
    }

    #[inline]
    fn fill(&mut self, at: usize, entry: &Entry, payload: &[u8]) {
        let (scratch, message) = (&mut self.scratch[at], &mut self.headers[at].msg_hdr);
        scratch.name = entry.to.map(SockAddr::from);
        scratch.iovec = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        (message.msg_name, message.msg_namelen) = match &scratch.name {
            Some(name) => (name.as_ptr().cast_mut().cast(), name.len() as _),
            None => (std::ptr::null_mut(), 0),
        };
        message.msg_iov = &raw mut scratch.iovec;
        message.msg_iovlen = 1;
        let segment_size = if entry.datagrams > 1 { entry.segment as u16 } else { 0 };
        let (ecn, source) = (entry.meta.ecn as u8, entry.meta.source);
        message.msg_controllen = 0;
        message.msg_control = std::ptr::null_mut();
        if segment_size > 0 || ecn > 0 || source.is_some() {
            let v6 = entry.to.is_some_and(|to| to.is_ipv6());
            let len = control::write(&mut scratch.control, &Sent { segment_size, ecn, source, v6 });
            message.msg_control = scratch.control.0.as_mut_ptr().cast();
            message.msg_controllen = len as _;
        }
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
