//! What the limit does with a socket: the fewest system calls that move the datagrams, and nothing else.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use corewire::runtime::driver::Socket;
use corewire::runtime::udp::{RecvBatch, SendBatch, SendMeta};
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

/// Without offload: `recvmmsg` and `sendmmsg`.
pub(super) struct Singles {
    batch: RecvBatch,
    out: SendBatch,
    payload: Vec<u8>,
}

impl Singles {
    pub(super) fn new(size: usize) -> Self {
        Self { batch: RecvBatch::new(), out: SendBatch::new(false), payload: vec![b'u'; size] }
    }
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
            Self::Singles(singles) => {
                let Singles { batch, .. } = &mut **singles;
                batch.recv(socket).ok()?;
                let mut moved = Moved { calls: 1, ..Moved::default() };
                for datagram in batch.datagrams() {
                    moved.datagrams += 1;
                    moved.bytes += datagram.payload().len();
                    moved.from = datagram.from();
                }
                Some(moved)
            }
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
            Self::Singles(singles) => {
                let Singles { batch, out, .. } = &mut **singles;
                for datagram in batch.datagrams() {
                    let _ = out.push(datagram.from(), &[datagram.payload()], SendMeta::default());
                }
                let flushed = out.flush(socket);
                Moved { datagrams: flushed.datagrams, bytes: flushed.bytes, calls: flushed.calls, from: None }
            }
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
            Self::Singles(singles) => {
                let Singles { out, payload, .. } = &mut **singles;
                for _ in 0..count {
                    // The batch is empty at the start: all fit.
                    let _ = out.push(None, &[payload], SendMeta::default());
                }
                let flushed = out.flush(socket);
                out.clear();
                moved = Moved {
                    datagrams: flushed.datagrams,
                    bytes: flushed.bytes,
                    calls: flushed.calls,
                    from: None,
                };
            }
        }
        moved
    }

    /// The bytes of the datagram that was received last, if it came alone.
    pub(super) fn last(&self, received: &Moved) -> &[u8] {
        match self {
            Self::Runs(runs) => &runs.buffer[..received.bytes],
            Self::Singles(singles) => {
                singles.batch.datagrams().last().map_or(&[], |datagram| datagram.payload())
            }
        }
    }
}
