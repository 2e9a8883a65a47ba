//! The little of epoll and sockets that both sides of the baseline share.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::spin::Spin;
use crate::failure::Failure;

/// How many events one wait takes.
const EVENTS_MAX: usize = 1024;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An epoll instance and the events of its last wait.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
    spin: Spin,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Failure> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(Failure::io("cannot create an epoll instance"))?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX), spin: Spin::new() })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, flags: EventFlags) -> Result<(), Failure> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)
            .map_err(Failure::io("cannot watch a socket"))
    }

    pub(crate) fn change(&self, fd: impl AsFd, token: u64, flags: EventFlags) -> Result<(), Failure> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)
            .map_err(Failure::io("cannot watch a socket"))
    }

    /// Waits without a time limit, and looks for a moment before it sleeps, as the library does; the count of events to
    /// fetch with [`Poll::event`].
    #[inline]
    pub(crate) fn wait(&mut self) -> Result<usize, Failure> {
        let Self { epoll, events, spin } = self;
        events.clear();
        let mut take =
            |timeout: Option<&Timespec>| match epoll::wait(&*epoll, spare_capacity(events), timeout) {
                Ok(_) => Ok(events.len()),
                Err(Errno::INTR) => Ok(0),
                Err(error) => Err(Failure::io("cannot wait for events")(error)),
            };
        let mut found = Ok(0);
        spin.until(|| {
            found = take(Some(&NO_TIME));
            !matches!(found, Ok(0))
        });
        while matches!(found, Ok(0)) {
            found = take(None);
        }
        found
    }

    /// Token and readiness of one event of the last wait.
    #[inline]
    pub(crate) fn event(&self, at: usize) -> (u64, EventFlags) {
        let event = self.events[at];
        (event.data.u64(), event.flags)
    }
}

/// What one receive or send came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing now; readiness will tell.
    NotNow,
    /// The peer has closed its side, or the connection is broken.
    Closed,
}

#[inline]
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> Moved {
    loop {
        match recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return Moved::Closed,
            Ok((bytes, _)) => return Moved::Bytes(bytes),
            Err(Errno::AGAIN) => return Moved::NotNow,
            Err(Errno::INTR) => {}
            Err(_) => return Moved::Closed,
        }
    }
}

#[inline]
pub(crate) fn transmit(fd: &OwnedFd, bytes: &[u8]) -> Moved {
    loop {
        match send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(0) => return Moved::NotNow,
            Ok(sent) => return Moved::Bytes(sent),
            Err(Errno::AGAIN) => return Moved::NotNow,
            Err(Errno::INTR) => {}
            Err(_) => return Moved::Closed,
        }
    }
}

/// The address in `tcp://host:port`; the baseline speaks nothing else.
pub(crate) fn address(uri: &str) -> Result<SocketAddr, Failure> {
    use std::net::ToSocketAddrs;
    let bad = |reason: String| Failure::Target { target: uri.into(), reason };
    let host = uri.strip_prefix("tcp://").ok_or_else(|| bad("the baseline speaks tcp:// only".into()))?;
    let mut found = host.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("the host has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_tcp_with_a_port() {
        assert_eq!(address("tcp://127.0.0.1:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        for bad in ["127.0.0.1:80", "udp://127.0.0.1:80", "tcp://127.0.0.1", "tcp://127.0.0.1:70000"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
