//! The push interface for datagrams.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::udp::{Datagram, Run, SendMeta, UdpError, UdpOptions};
use corewire_driver::{Socket, Token};

use super::sockets::Mode;
use crate::worker::Core;

/// What is done with the datagrams of one socket. Made for it, owned by it, called on its worker only.
///
/// A panic in any call closes the socket, with [`on_closed`](Self::on_closed), and nothing else.
pub trait UdpProtocol: 'static {
    /// A datagram arrived; it is borrowed from the receive memory.
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>);

    /// A datagram arrived, or several of one peer that the kernel has joined. By default
    /// [`on_datagram`](Self::on_datagram) is called for each.
    #[inline]
    fn on_run(&mut self, port: &UdpPort, run: &Run<'_>) {
        run.datagrams().for_each(|datagram| self.on_datagram(port, &datagram));
    }

    /// All datagrams of a batch have been handed over; what follows from them together is to be done now.
    fn on_batch(&mut self, port: &UdpPort) {
        let _ = port;
    }

    /// Called at the end of the tick after [`UdpPort::request_flush`]: what waits here is to be sent now.
    fn on_flush(&mut self, port: &UdpPort) {
        let _ = port;
    }

    /// A datagram was refused, or (on a connected socket) an earlier one was answered by ICMP. The socket goes on.
    fn on_error(&mut self, port: &UdpPort, error: UdpError) {
        let _ = (port, error);
    }

    /// All that was queued has left after the kernel had taken no more for a while.
    fn on_drained(&mut self, port: &UdpPort) {
        let _ = port;
    }

    /// The time set by [`UdpPort::set_timer`] has come.
    fn on_timer(&mut self, port: &UdpPort) {
        let _ = port;
    }

    /// The socket is gone.
    fn on_closed(&mut self, port: &UdpPort) {
        let _ = port;
    }
}

/// A handle on a datagram socket that calls a [`UdpProtocol`]. Cheap to clone; outliving the socket it does no harm.
///
/// What is sent is queued; it leaves when much is queued, or at the end of the tick with all else in as few system calls
/// as the kernel allows. Neighbours of one size and destination are joined. Payloads are copied into the queue, but for
/// those that [`UdpProtocol::on_datagram`] or [`UdpProtocol::on_run`] sends on from where they were received, and those of
/// [`send_shared`](Self::send_shared).
///
/// ```
/// use corewire_runtime::udp::{Datagram, UdpOptions, UdpPort, UdpProtocol, UdpSocket, open};
///
/// struct Echo;
///
/// impl UdpProtocol for Echo {
///     fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
///         let Some(from) = datagram.from() else { return };
///         if let Err(error) = port.send_to(from, datagram.payload()) {
///             eprintln!("{error}");
///         }
///     }
/// }
///
/// corewire_runtime::run(async {
///     let options = UdpOptions::default();
///     let socket = open("127.0.0.1:0".parse().unwrap(), &options)?;
///     let address = socket.local_addr()?.as_socket().unwrap();
///     let port = UdpPort::open(socket, &options, Echo)?;
///
///     let client = UdpSocket::bind("127.0.0.1:0".parse().unwrap())?;
///     client.connect(address)?;
///     client.send(b"hello").await?;
///     let mut reply = [0; 100];
///     let received = client.recv(&mut reply).await?;
///     assert_eq!(&reply[..received.len], b"hello");
///     port.close();
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct UdpPort {
    pub(crate) core: Rc<Core>,
    pub(crate) token: Token,
}

impl UdpPort {
    /// Hands a bound, non-blocking socket to the current worker.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn open(socket: Socket, options: &UdpOptions, protocol: impl UdpProtocol) -> io::Result<Self> {
        let core = Core::current_or_panic("UdpPort::open");
        let token = core.add_udp(socket, options, Mode::Push(Some(Box::new(protocol))))?;
        Ok(Self { core, token })
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// It is too long, too much is queued, or the socket is closed; nothing was taken. What the kernel says later comes
    /// by [`UdpProtocol::on_error`].
    #[inline]
    pub fn send_to(&self, to: SocketAddr, payload: &[u8]) -> Result<(), UdpError> {
        self.send_parts(Some(to), &[payload], SendMeta::default())
    }

    /// Sends a datagram to the peer that the socket is connected to.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send(&self, payload: &[u8]) -> Result<(), UdpError> {
        self.send_parts(None, &[payload], SendMeta::default())
    }

    /// Sends a datagram made of parts.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    #[inline]
    pub fn send_parts(
        &self,
        to: Option<SocketAddr>,
        parts: &[&[u8]],
        meta: SendMeta,
    ) -> Result<(), UdpError> {
        self.core.udp_send(self.token, |out| out.push(to, parts, meta))
    }

    /// Sends `bytes` as datagrams of `segment_size` each; the last may be shorter.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to); what was queued before the error stays.
    pub fn send_segments(
        &self,
        to: Option<SocketAddr>,
        bytes: &[u8],
        segment_size: usize,
    ) -> Result<(), UdpError> {
        self.core.udp_send(self.token, |out| out.push_segments(to, bytes, segment_size, SendMeta::default()))
    }

    /// Sends `bytes` as datagrams of `segment_size` each (the last may be shorter), without copying them.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send_shared(
        &self,
        to: Option<SocketAddr>,
        bytes: Bytes,
        segment_size: usize,
        meta: SendMeta,
    ) -> Result<(), UdpError> {
        self.core.udp_send(self.token, |out| out.push_shared(to, bytes, segment_size, meta))
    }

    /// Sends a datagram made of parts, unless this many bytes are queued already.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    #[inline]
    pub fn send_parts_within(
        &self,
        to: Option<SocketAddr>,
        parts: &[&[u8]],
        queue_limit: usize,
    ) -> Result<(), UdpError> {
        self.core.udp_send(self.token, |out| {
            let queued = out.queued();
            if queued >= queue_limit {
                return Err(UdpError::QueueFull { queued, limit: queue_limit });
            }
            out.push(to, parts, SendMeta::default())
        })
    }

    /// Calls [`UdpProtocol::on_flush`] at the end of this tick.
    pub fn request_flush(&self) {
        self.core.udp.request_flush(self.token);
    }

    /// Bytes queued to send.
    pub fn queued(&self) -> usize {
        self.core.udp.with(self.token, |sock| sock.out.queued()).unwrap_or(0)
    }

    /// The kernel takes no more now: what is sent waits.
    pub fn is_blocked(&self) -> bool {
        self.core.udp.with(self.token, |sock| sock.blocked).unwrap_or(false)
    }

    /// Receives nothing until [`resume_receive`](Self::resume_receive); the kernel drops what its buffer does not hold.
    pub fn pause_receive(&self) {
        self.core.driver.borrow_mut().pause_receive(self.token);
    }

    /// Receives again.
    pub fn resume_receive(&self) {
        self.core.driver.borrow_mut().resume_receive(self.token);
    }

    /// Calls [`UdpProtocol::on_timer`] after `delay`; `None` calls it off. There is one timer a socket.
    pub fn set_timer(&self, delay: Option<Duration>) {
        self.core.set_udp_timer(self.token, delay);
    }

    /// Closes the socket at the end of the tick; what was sent before leaves if the kernel takes it.
    pub fn close(&self) {
        self.core.close_udp(self.token);
    }

    /// Not closed.
    pub fn is_open(&self) -> bool {
        self.core.udp.with(self.token, |sock| !sock.closing).unwrap_or(false)
    }

    /// Looks at the socket, for its addresses and options. `None` when it is closed.
    pub fn with_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.core.lend_socket(self.token, look)
    }

    /// The address of this end. `None` when it is closed.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.core.with_socket(self.token, |socket| socket.local_addr().ok()?.as_socket()).flatten()
    }

    /// Datagrams dropped so far because the receive buffer was full, as far as the kernel has told.
    pub fn drops(&self) -> u32 {
        self.core.udp.with(self.token, |sock| sock.drops).unwrap_or(0)
    }

    /// Counts datagrams that were received and are not handled, in
    /// [`WorkerStats::datagrams_dropped`](crate::WorkerStats).
    pub fn count_dropped(&self, datagrams: u64) {
        crate::stats::Counters::add(&self.core.counters.datagrams_dropped, datagrams);
    }

    /// Milliseconds of this worker's clock, which is read once a tick.
    pub fn now_ms(&self) -> u64 {
        self.core.timers.now_ms()
    }
}

impl fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPort").field("token", &self.token).finish_non_exhaustive()
    }
}
