//! Datagram sockets for tasks.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};

use corewire_driver::udp::{
    BufferSizes, Cursor, Datagram, Ecn, RecvBatch, SendBatch, UdpError, UdpOptions, buffer_sizes, open,
    payload_max,
};
use corewire_driver::{Socket, Token};

use super::sockets::Mode;
use crate::conn::{Waiter, Waiters, WaitsFor};
use crate::task_quota::poll_with_quota;
use crate::worker::Core;

/// A datagram socket that is received from and sent on by tasks of its worker.
///
/// Calls go to the kernel at once and never lend it memory, so **any future of this type can be dropped at any point**: a
/// receive that was dropped has taken nothing (what the socket has received in a batch waits in it), a send that was
/// dropped before it was done has sent nothing.
///
/// What goes wrong with a datagram is told and does not stop the socket.
///
/// ```
/// use corewire_runtime::udp::UdpSocket;
///
/// corewire_runtime::run(async {
///     let server = UdpSocket::bind("127.0.0.1:0".parse().unwrap())?;
///     let client = UdpSocket::bind("127.0.0.1:0".parse().unwrap())?;
///     client.send_to(b"hello", server.local_addr()?).await?;
///     let mut buffer = [0; 1500];
///     let received = server.recv_from(&mut buffer).await?;
///     assert_eq!(&buffer[..received.len], b"hello");
///     assert!(!received.is_truncated());
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UdpSocket {
    core: Rc<Core>,
    pub(super) token: Token,
    inbox: RefCell<Inbox>,
}

/// What was received in a batch and not taken yet.
struct Inbox {
    batch: RecvBatch,
    next: Cursor,
    drops: u32,
}

/// What [`UdpSocket::recv_from`] says about a datagram.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Received {
    /// Bytes that were written to the buffer.
    pub len: usize,
    /// How long the datagram was, in bytes.
    pub full_len: usize,
    /// Who sent it; `None` if the kernel does not tell.
    pub from: Option<SocketAddr>,
    /// The address that it was sent to ([`UdpOptions::packet_info`]).
    pub destination: Option<IpAddr>,
    /// The index of the interface that it came by ([`UdpOptions::packet_info`]).
    pub interface: Option<u32>,
    /// Its congestion mark ([`UdpOptions::ecn`]).
    pub ecn: Ecn,
}

impl Received {
    /// The datagram was longer than the buffer: its rest is lost.
    pub const fn is_truncated(&self) -> bool {
        self.full_len > self.len
    }
}

impl UdpSocket {
    /// Binds with the default options.
    ///
    /// # Errors
    /// What the kernel says: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, …
    ///
    /// # Panics
    /// Outside a worker.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(address, &UdpOptions::default())
    }

    /// Binds with options.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Panics
    /// Outside a worker.
    pub fn bind_with(address: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        Self::from_socket(open(address, options)?)
    }

    /// Makes one of a bound socket of the standard library, which becomes non-blocking.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::from_socket(Socket::from_fd(socket.into())?)
    }

    /// Makes one of a bound, non-blocking datagram socket.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn from_socket(socket: Socket) -> io::Result<Self> {
        let core = Core::current_or_panic("UdpSocket");
        let kind = Mode::Pull { readers: Waiters::default(), writers: Waiters::default() };
        let token = core.add_udp(socket, &UdpOptions::default(), kind)?;
        let inbox = RefCell::new(Inbox { batch: RecvBatch::new(), next: Cursor::default(), drops: 0 });
        Ok(Self { core, token, inbox })
    }

    /// Sends to this peer from now on, and receives from it only; done at once. Its ICMP answers come as
    /// [`UdpError::Refused`] and do not stop the socket.
    ///
    /// # Errors
    /// The address is of another family, or there is no route to it.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), UdpError> {
        self.look_at(|socket| socket.connect(peer))?.map_err(|error| UdpError::from_io(error, 0, Some(peer)))
    }

    /// Sends a datagram to the peer that the socket is connected to.
    ///
    /// # Errors
    /// It was not sent: [`UdpError::TooLong`], [`UdpError::NotConnected`]; or [`UdpError::Refused`] for an *earlier* one
    /// (send again).
    pub async fn send(&self, payload: &[u8]) -> Result<(), UdpError> {
        self.transmit(payload, None).await
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// It was not sent: [`UdpError::TooLong`], [`UdpError::Family`], [`UdpError::Unreachable`], …
    pub async fn send_to(&self, payload: &[u8], to: SocketAddr) -> Result<(), UdpError> {
        self.transmit(payload, Some(to)).await
    }

    async fn transmit(&self, payload: &[u8], to: Option<SocketAddr>) -> Result<(), UdpError> {
        if let Some(max) = to.map(payload_max).filter(|max| payload.len() > *max) {
            return Err(UdpError::TooLong { len: payload.len(), max });
        }
        self.attempt(true, || {
            self.look_at(|socket| {
                let sent = match to {
                    Some(to) => socket.send_to(payload, to),
                    None => socket.send(payload),
                };
                sent.map(drop).map_err(|error| UdpError::of_send(socket, error, payload.len(), to))
            })?
        })
        .await
    }

    /// Sends what is gathered in a batch, as few system calls as the kernel allows, and says how many datagrams left.
    ///
    /// # Errors
    /// A datagram was refused; it alone is taken out of the batch, what is behind it stays in it: call again.
    pub async fn send_batch(&self, batch: &mut SendBatch) -> Result<usize, UdpError> {
        let mut sent = 0;
        self.attempt(true, || {
            let flushed = self.look_at(|socket| batch.flush(socket))?;
            self.core.count_sent(&flushed);
            sent += flushed.datagrams;
            match flushed.error {
                Some(error) => Err(error),
                None if flushed.is_blocked => Err(UdpError::Io(io::ErrorKind::WouldBlock.into())),
                None => Ok(()),
            }
        })
        .await?;
        Ok(sent)
    }

    /// Sends `bytes` as datagrams of `segment_size` each (the last may be shorter), in one system call where the kernel
    /// cuts them (GSO).
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to); datagrams before the refused one were sent.
    pub async fn send_segments(
        &self,
        bytes: &[u8],
        segment_size: usize,
        to: Option<SocketAddr>,
    ) -> Result<usize, UdpError> {
        let mut batch = SendBatch::new(true);
        batch.push_segments(to, bytes, segment_size, super::SendMeta::default())?;
        self.send_batch(&mut batch).await
    }

    /// Receives one datagram; [`Received::is_truncated`] says if the buffer was too short for it.
    ///
    /// # Errors
    /// On a connected socket, the peer's ICMP answer to an earlier datagram. Receive again.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> Result<Received, UdpError> {
        self.attempt(false, || {
            self.take(|datagram| {
                let payload = datagram.payload();
                let len = payload.len().min(buffer.len());
                buffer[..len].copy_from_slice(&payload[..len]);
                Received {
                    len,
                    full_len: datagram.full_len(),
                    from: datagram.from(),
                    destination: datagram.destination(),
                    interface: datagram.interface(),
                    ecn: datagram.ecn(),
                }
            })
        })
        .await
    }

    /// The same as [`recv_from`](Self::recv_from), for connected sockets.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv(&self, buffer: &mut [u8]) -> Result<Received, UdpError> {
        self.recv_from(buffer).await
    }

    /// Waits for datagrams and calls `each` with all that one system call brings (up to 32, and runs that the kernel has
    /// joined count as one), where they were received: no copy. Says how many.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    ///
    /// # Panics
    /// When `each` receives from this socket.
    pub async fn recv_many(&self, mut each: impl FnMut(&Datagram<'_>)) -> Result<usize, UdpError> {
        self.attempt(false, || {
            let mut count = 0;
            let mut next = |datagram: &Datagram<'_>| {
                count += 1;
                each(datagram);
            };
            self.take(&mut next)?;
            let mut inbox = self.inbox.borrow_mut();
            let Inbox { batch, next: cursor, .. } = &mut *inbox;
            while let Some(datagram) = batch.next_at(cursor) {
                next(&datagram);
            }
            Ok(count)
        })
        .await
    }

    /// Takes the next datagram of the inbox, which is filled if it is empty.
    fn take<R>(&self, take: impl FnOnce(&Datagram<'_>) -> R) -> Result<R, UdpError> {
        let mut inbox = self.inbox.borrow_mut();
        let Inbox { batch, next, drops } = &mut *inbox;
        if let Some(datagram) = batch.next_at(next) {
            return Ok(take(&datagram));
        }
        *next = Cursor::default();
        self.look_at(|socket| batch.recv(socket))??;
        *drops = batch.drops().unwrap_or(*drops);
        crate::stats::Counters::add(&self.core.counters.receives, 1);
        match batch.next_at(next) {
            Some(datagram) => Ok(take(&datagram)),
            None => Err(UdpError::Io(io::ErrorKind::WouldBlock.into())),
        }
    }

    /// Tries until it does not block.
    async fn attempt<R>(
        &self,
        to_send: bool,
        mut attempt: impl FnMut() -> Result<R, UdpError>,
    ) -> Result<R, UdpError> {
        let mut waiter = Waiter::new();
        let mut poll = |context: &mut Context<'_>| match attempt() {
            Err(UdpError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait(to_send, &mut waiter, context);
                if to_send && let Err(error) = self.core.driver.borrow_mut().set_write_interest(self.token) {
                    return Poll::Ready(Err(UdpError::Io(error)));
                }
                Poll::Pending
            }
            result => Poll::Ready(result),
        };
        poll_fn(|context| poll_with_quota(context, &mut poll)).await
    }

    fn wait(&self, to_send: bool, waiter: &mut Waiter, context: &Context<'_>) {
        let of = if to_send { WaitsFor::DatagramRoom(self.token) } else { WaitsFor::Datagrams(self.token) };
        self.core.udp.with_waiters(self.token, to_send, |waiters| {
            waiter.wait(self.core.id(), of, waiters, context.waker());
        });
    }

    /// Looks at the socket, for its options.
    ///
    /// # Errors
    /// The worker has stopped, and the socket is closed.
    pub fn with_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Result<R, UdpError> {
        self.core.lend_socket(self.token, look).ok_or(UdpError::Closed)
    }

    /// The same for code of this crate.
    pub(super) fn look_at<R>(&self, look: impl FnOnce(&Socket) -> R) -> Result<R, UdpError> {
        self.core.with_socket(self.token, look).ok_or(UdpError::Closed)
    }

    /// Datagrams dropped so far because the receive buffer was full, as far as the kernel has told with those that were
    /// received ([`UdpOptions::count_drops`]).
    pub fn drops(&self) -> u32 {
        self.inbox.borrow().drops
    }

    /// What the kernel gave the buffers: it may be less than was asked for.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn buffer_sizes(&self) -> Result<BufferSizes, UdpError> {
        self.look_at(buffer_sizes)?.map_err(UdpError::Io)
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.core.close_udp(self.token);
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("token", &self.token).finish_non_exhaustive()
    }
}
