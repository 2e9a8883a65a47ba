//! What the baseline does with a socket: the fewest system calls that move the datagrams, and nothing else.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use corewire::runtime::driver::Socket;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use rustix::net::{RecvFlags, recvfrom};
use socket2::{MsgHdr, SockAddr, SockRef};

/// The longest run of datagrams that one send carries, in bytes.
const RUN_MAX: usize = 65_487;
/// The most datagrams in it; kernels before 6.11 take [`SEGMENTS_OLD`].
const SEGMENTS_MAX: usize = 128;
const SEGMENTS_OLD: usize = 64;

/// With offload: one `recvfrom` of joined datagrams, one `sendmsg` that has the kernel cut them again. All datagrams have
/// one size, so that the kernel need not be asked for it.
pub(super) struct Runs {
    size: usize,
    buffer: Vec<u8>,
    control: [u8; 24],
    run: Vec<u8>,
}

impl Runs {
    pub(super) fn new(size: usize) -> Self {
        let longest = (RUN_MAX / size.max(1)).clamp(1, SEGMENTS_MAX) * size;
        Self { size, buffer: vec![0; 65_536], control: cut_into(size), run: vec![b'u'; longest] }
    }

    /// Receives one run; the number of its datagrams, its bytes, and whom it is from.
    fn receive(&mut self, socket: &Socket) -> Option<(usize, usize, Option<SocketAddr>)> {
        let (len, _, from) = recvfrom(socket, &mut self.buffer[..], RecvFlags::DONTWAIT).ok()?;
        Some((len.div_ceil(self.size.max(1)), len, from.and_then(|from| from.try_into().ok())))
    }

    /// Sends back the run that was received last.
    fn send_back(&self, socket: &Socket, len: usize, to: SocketAddr) -> bool {
        self.send(socket, &self.buffer[..len], Some(&to.into())).is_ok()
    }

    fn send(&self, socket: &Socket, bytes: &[u8], to: Option<&SockAddr>) -> io::Result<usize> {
        let parts = [IoSlice::new(bytes)];
        let mut message = MsgHdr::new().with_buffers(&parts);
        if let Some(to) = to {
            message = message.with_addr(to);
        }
        if bytes.len() > self.size {
            message = message.with_control(&self.control);
        }
        SockRef::from(socket).sendmsg(&message, 0)
    }
}

/// The control message `UDP_SEGMENT`, as the kernel reads it.
fn cut_into(size: usize) -> [u8; 24] {
    const SOL_UDP: i32 = 17;
    const UDP_SEGMENT: i32 = 103;
    let mut message = [0; 24];
    message[..8].copy_from_slice(&18_usize.to_ne_bytes());
    message[8..12].copy_from_slice(&SOL_UDP.to_ne_bytes());
    message[12..16].copy_from_slice(&UDP_SEGMENT.to_ne_bytes());
    message[16..18].copy_from_slice(&(size as u16).to_ne_bytes());
    message
}

/// Without offload: `recvmmsg` and `sendmmsg`, so many datagrams at a time.
const BATCH: usize = 64;

pub(super) struct Singles {
    size: usize,
    /// A buffer for each datagram of a batch, one behind the other.
    buffers: Vec<u8>,
    received: Vec<(usize, Option<SockaddrStorage>)>,
    /// One for each direction: after a send they would have a receive write to the addresses of that send.
    recv_headers: MultiHeaders<SockaddrStorage>,
    send_headers: MultiHeaders<SockaddrStorage>,
    payload: Vec<u8>,
}

impl Singles {
    /// A count that is told is longer than the least datagram.
    const BUFFER_MIN: usize = 64;

    pub(super) fn new(size: usize) -> Self {
        Self {
            size: size.max(Self::BUFFER_MIN),
            buffers: vec![0; size.max(Self::BUFFER_MIN) * BATCH],
            received: Vec::with_capacity(BATCH),
            recv_headers: MultiHeaders::preallocate(BATCH, None),
            send_headers: MultiHeaders::preallocate(BATCH, None),
            payload: vec![b'u'; size],
        }
    }

    fn receive(&mut self, socket: &Socket) -> Option<Moved> {
        self.received.clear();
        let mut buffers = self.buffers.chunks_exact_mut(self.size);
        let mut slices: [_; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(buffers.next().unwrap_or_default())]);
        let received = recvmmsg(
            socket.as_raw_fd(),
            &mut self.recv_headers,
            slices.iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        );
        self.received.extend(received.ok()?.map(|one| (one.bytes, one.address)));
        let bytes = self.received.iter().map(|(length, _)| length).sum();
        let from = self.received.last().and_then(|(_, from)| from.as_ref()).and_then(socket_address);
        (!self.received.is_empty()).then_some(Moved { datagrams: self.received.len(), bytes, calls: 1, from })
    }

    /// Sends back what was received last, each to where it came from.
    fn send_back(&mut self, socket: &Socket) -> Moved {
        let mut lengths = [0; BATCH];
        let mut to = [None; BATCH];
        for (at, (length, from)) in self.received.iter().enumerate() {
            (lengths[at], to[at]) = (*length, *from);
        }
        let count = self.received.len();
        let buffers = self.buffers.chunks_exact(self.size);
        Self::send(&mut self.send_headers, socket, buffers, &lengths[..count], &to[..count])
    }

    fn send_new(&mut self, socket: &Socket, count: usize) -> Moved {
        let lengths = [self.payload.len(); BATCH];
        let mut all = Moved::default();
        while all.datagrams < count {
            let batch = BATCH.min(count - all.datagrams);
            let payloads = std::iter::repeat(self.payload.as_slice());
            let sent = Self::send(
                &mut self.send_headers,
                socket,
                payloads,
                &lengths[..batch],
                &[None; BATCH][..batch],
            );
            all.datagrams += sent.datagrams;
            all.bytes += sent.bytes;
            all.calls += sent.calls;
            if sent.datagrams < batch {
                break;
            }
        }
        all
    }

    /// One call; what the kernel does not take is not sent.
    fn send<'a>(
        headers: &mut MultiHeaders<SockaddrStorage>,
        socket: &Socket,
        mut payloads: impl Iterator<Item = &'a [u8]>,
        lengths: &[usize],
        to: &[Option<SockaddrStorage>],
    ) -> Moved {
        let slices: [_; BATCH] = std::array::from_fn(|at| {
            let length = lengths.get(at).copied().unwrap_or(0);
            [IoSlice::new(&payloads.next().unwrap_or_default()[..length])]
        });
        let slices = slices[..lengths.len()].iter();
        let sent = sendmmsg(socket.as_raw_fd(), headers, slices, to, [], MsgFlags::MSG_DONTWAIT);
        let datagrams = sent.map_or(0, Iterator::count);
        Moved { datagrams, bytes: lengths[..datagrams].iter().sum(), calls: 1, from: None }
    }

    fn last(&self) -> &[u8] {
        let Some((length, _)) = self.received.last() else { return &[] };
        let begin = (self.received.len() - 1) * self.size;
        &self.buffers[begin..begin + length]
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// Either.
pub(super) enum Wire {
    Runs(Runs),
    Singles(Box<Singles>),
}

/// What one call moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) datagrams: usize,
    pub(super) bytes: usize,
    pub(super) calls: usize,
    pub(super) from: Option<SocketAddr>,
}

impl Wire {
    pub(super) fn new(no_offload: bool, size: usize) -> Self {
        if no_offload { Self::Singles(Box::new(Singles::new(size))) } else { Self::Runs(Runs::new(size)) }
    }

    /// Receives once; `None` when nothing is there. `from` is whom the last datagram is from.
    pub(super) fn receive(&mut self, socket: &Socket) -> Option<Moved> {
        match self {
            Self::Runs(runs) => {
                let (datagrams, bytes, from) = runs.receive(socket)?;
                Some(Moved { datagrams, bytes, calls: 1, from })
            }
            Self::Singles(singles) => singles.receive(socket),
        }
    }

    /// Sends back what was received last. What does not fit is lost, and counted by the load.
    pub(super) fn send_back(&mut self, socket: &Socket, received: &Moved) -> Moved {
        match self {
            Self::Runs(runs) => {
                let Some(to) = received.from else { return Moved::default() };
                match runs.send_back(socket, received.bytes, to) {
                    true => Moved { calls: 1, ..*received },
                    false => Moved::default(),
                }
            }
            Self::Singles(singles) => singles.send_back(socket),
        }
    }

    /// Sends so many datagrams to the peer that the socket is connected to, as far as the kernel takes them.
    pub(super) fn send(&mut self, socket: &Socket, count: usize) -> Moved {
        let mut moved = Moved::default();
        match self {
            Self::Runs(runs) => {
                while moved.datagrams < count {
                    let longest = runs.run.len() / runs.size.max(1);
                    let datagrams = longest.min(count - moved.datagrams);
                    let bytes = datagrams * runs.size;
                    moved.calls += 1;
                    match runs.send(socket, &runs.run[..bytes], None) {
                        Ok(_) => {
                            moved.datagrams += datagrams;
                            moved.bytes += bytes;
                        }
                        Err(error)
                            if error.kind() == io::ErrorKind::InvalidInput && datagrams > SEGMENTS_OLD =>
                        {
                            runs.run.truncate(SEGMENTS_OLD * runs.size);
                        }
                        Err(_) => break,
                    }
                }
            }
            Self::Singles(singles) => moved = singles.send_new(socket, count),
        }
        moved
    }

    /// The bytes of the datagram that was received last, if it came alone.
    pub(super) fn last(&self, received: &Moved) -> &[u8] {
        match self {
            Self::Runs(runs) => &runs.buffer[..received.bytes],
            Self::Singles(singles) => singles.last(),
        }
    }
}
