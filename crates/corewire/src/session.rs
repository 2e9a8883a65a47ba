//! One connection as handlers see it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::codec::{Codec, EncodeError, FrameHead, FrameKind, Prefix};
use corewire_runtime::{CloseReason, Connection, SendError, TlsInfo, Waiter};

use crate::frame::Frame;

/// A frame was not accepted for sending; nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameSendError {
    /// The connection is closed, or its queue is full.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The codec cannot carry this payload.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The message that was to be answered expects no reply: its number is that of no call, and a client could take the
    /// reply for another one's. Ask [`FrameHead::expects_reply`] before, or send a message of its own.
    #[error("a {0:?} frame expects no reply: send a message of its own by `send`")]
    NoReplyExpected(FrameKind),
}

/// The head that answers a frame with this one.
#[inline]
pub(crate) fn reply_head(request: FrameHead) -> Result<FrameHead, FrameSendError> {
    match request.expects_reply() {
        true => Ok(request.reply()),
        false => Err(FrameSendError::NoReplyExpected(request.kind)),
    }
}

/// As [`reply_head`], to say that the request failed.
pub(crate) fn error_reply_head(request: FrameHead) -> Result<FrameHead, FrameSendError> {
    reply_head(request).map(|_| request.error_reply())
}

/// A handle on a session. Cheap to clone, bound to its worker; outliving the session it does no harm.
///
/// What is sent is queued and leaves at the end of the tick in one system call with all else that is sent to this
/// peer; a large payload leaves at once, straight from the caller's memory. The header goes before the payload on its
/// way into the queue, so a payload is copied at most once and needs no headroom.
///
/// Sending does not wait. When the peer does not keep up, a server session stops receiving from it at the high-water
/// mark; at the queue's limit a send fails with [`SendError::QueueFull`]. A task can wait for room:
/// [`ready`](Self::ready).
#[derive(Clone)]
pub struct Session {
    inner: Rc<Inner<dyn Framing>>,
}

/// What a session needs of its codec, whatever its type.
trait Framing {
    fn send(&self, base: &Base, head: Head, payload: &[u8]) -> Result<(), FrameSendError>;
    fn send_bytes(&self, base: &Base, head: Head, payload: Bytes) -> Result<(), FrameSendError>;
}

/// The head of a frame, or that which the codec gives to a message that is no reply.
#[derive(Clone, Copy)]
enum Head {
    Given(FrameHead),
    OneWay,
}

/// A session with its codec.
pub(crate) type SessionInner<C> = Inner<RefCell<C>>;

/// The codec comes last, so that handles need not know its type.
pub(crate) struct Inner<F: ?Sized> {
    base: Base,
    pub(crate) codec: F,
}

struct Base {
    id: u64,
    connection: Connection,
    peer: Peer,
    open: Cell<bool>,
    /// The codec adds nothing: payloads are sent past it.
    is_transparent: bool,
    data: RefCell<Option<Box<dyn Any>>>,
}

/// The address of a peer in half the memory that it has by itself where it is short.
enum Peer {
    Unknown,
    V4(SocketAddrV4),
    V6(Box<SocketAddrV6>),
}

impl Peer {
    fn new(address: Option<SocketAddr>) -> Self {
        match address {
            None => Self::Unknown,
            Some(SocketAddr::V4(address)) => Self::V4(address),
            Some(SocketAddr::V6(address)) => Self::V6(Box::new(address)),
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unknown => None,
            Self::V4(address) => Some((*address).into()),
            Self::V6(address) => Some((**address).into()),
        }
    }
}

impl<C: Codec> Inner<RefCell<C>> {
    pub(crate) fn new(id: u64, codec: C, connection: Connection) -> Self {
        let base = Base {
            id,
            peer: Peer::new(connection.peer_addr()),
            connection,
            open: Cell::new(true),
            is_transparent: codec.is_transparent(),
            data: RefCell::default(),
        };
        Self { base, codec: RefCell::new(codec) }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.base.open.get()
    }

    pub(crate) fn note_closed(&self) {
        self.base.open.set(false);
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.base.connection
    }

    #[inline]
    pub(crate) fn send_with(
        &self,
        head: impl FnOnce(&C) -> FrameHead,
        payload: &[u8],
    ) -> Result<(), FrameSendError> {
        send_with(&self.codec, &self.base.connection, head, payload)
    }

    /// Sends a frame, or remembers whom to wake when the queue has fallen.
    #[inline]
    pub(crate) fn poll_send_with(
        &self,
        head: impl FnOnce(&C) -> FrameHead,
        payload: &[u8],
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), FrameSendError>> {
        let codec = &mut *self.codec.borrow_mut();
        let head = head(codec);
        let mut prefix = Prefix::new();
        if let Err(error) = codec.encode(head, payload, &mut prefix) {
            return Poll::Ready(Err(error.into()));
        }
        let parts = [prefix.as_slice(), payload, codec.suffix()];
        match self.base.connection.poll_send(parts, waiter, context) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends a frame whose payload is shared.
    pub(crate) fn send_bytes_with(
        &self,
        head: impl FnOnce(&C) -> FrameHead,
        payload: Bytes,
    ) -> Result<(), FrameSendError> {
        send_bytes_with(&self.codec, &self.base.connection, head, payload)
    }
}

#[inline]
fn send_with<C: Codec>(
    codec: &RefCell<C>,
    connection: &Connection,
    head: impl FnOnce(&C) -> FrameHead,
    payload: &[u8],
) -> Result<(), FrameSendError> {
    let codec = &mut *codec.borrow_mut();
    let head = head(codec);
    let mut prefix = Prefix::new();
    codec.encode(head, payload, &mut prefix)?;
    connection.send_parts([prefix.as_slice(), payload, codec.suffix()])?;
    Ok(())
}

fn send_bytes_with<C: Codec>(
    codec: &RefCell<C>,
    connection: &Connection,
    head: impl FnOnce(&C) -> FrameHead,
    payload: Bytes,
) -> Result<(), FrameSendError> {
    let codec = &mut *codec.borrow_mut();
    let head = head(codec);
    let mut prefix = Prefix::new();
    codec.encode(head, &payload, &mut prefix)?;
    connection.send_framed(prefix.as_slice(), payload, codec.suffix())?;
    Ok(())
}

impl<C: Codec> Framing for RefCell<C> {
    #[inline]
    fn send(&self, base: &Base, head: Head, payload: &[u8]) -> Result<(), FrameSendError> {
        match head {
            Head::Given(head) => send_with(self, &base.connection, |_| head, payload),
            Head::OneWay => send_with(self, &base.connection, C::one_way_head, payload),
        }
    }

    fn send_bytes(&self, base: &Base, head: Head, payload: Bytes) -> Result<(), FrameSendError> {
        match head {
            Head::Given(head) => send_bytes_with(self, &base.connection, |_| head, payload),
            Head::OneWay => send_bytes_with(self, &base.connection, C::one_way_head, payload),
        }
    }
}

impl Session {
    pub(crate) fn new<C: Codec>(inner: Rc<SessionInner<C>>) -> Self {
        Self { inner }
    }

    #[inline]
    fn base(&self) -> &Base {
        &self.inner.base
    }

    #[inline]
    fn send_head(&self, head: Head, payload: &[u8]) -> Result<(), FrameSendError> {
        self.inner.codec.send(self.base(), head, payload)
    }

    fn send_head_bytes(&self, head: Head, payload: Bytes) -> Result<(), FrameSendError> {
        self.inner.codec.send_bytes(self.base(), head, payload)
    }

    /// The session's number: from 1 on per server, never used again; for a client, the number of its connection.
    pub fn id(&self) -> u64 {
        self.base().id
    }

    /// The peer's address; `None` on Unix-domain sockets.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.base().peer.address()
    }

    /// This end's address; `None` on Unix-domain sockets and after the end.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.connection().with_socket(|socket| socket.local_addr().ok()?.as_socket()).flatten()
    }

    /// Sends a message that expects no reply.
    ///
    /// # Errors
    /// The session is over, its queue is full, or the codec cannot carry the payload. Nothing was sent.
    #[inline]
    pub fn send(&self, payload: &[u8]) -> Result<(), FrameSendError> {
        if self.base().is_transparent {
            return Ok(self.connection().send(payload)?);
        }
        self.send_head(Head::OneWay, payload)
    }

    /// Sends the reply to a request.
    ///
    /// # Errors
    /// As [`send`](Self::send); and [`FrameSendError::NoReplyExpected`] to a message that expects none, or to a reply.
    #[inline]
    pub fn reply(&self, request: &Frame<'_>, payload: &[u8]) -> Result<(), FrameSendError> {
        if self.base().is_transparent {
            return Ok(self.connection().send(payload)?);
        }
        self.send_head(Head::Given(reply_head(request.head())?), payload)
    }

    /// Tells the peer that its request failed; `payload` is the reason.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_error(&self, request: &Frame<'_>, payload: &[u8]) -> Result<(), FrameSendError> {
        self.send_head(Head::Given(error_reply_head(request.head())?), payload)
    }

    /// Sends a frame with this head; for replies that are sent later, from a task
    /// ([`FrameHead::reply`], where the head [expects one](FrameHead::expects_reply)).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_frame(&self, head: FrameHead, payload: &[u8]) -> Result<(), FrameSendError> {
        self.send_head(Head::Given(head), payload)
    }

    /// Sends a message whose payload is shared instead of copied (when it is more than a few KiB): for one payload
    /// to many sessions, and for large ones.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_bytes(&self, payload: Bytes) -> Result<(), FrameSendError> {
        self.send_head_bytes(Head::OneWay, payload)
    }

    /// Sends the reply to a request, sharing the payload; see [`send_bytes`](Self::send_bytes).
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_bytes(&self, request: &Frame<'_>, payload: Bytes) -> Result<(), FrameSendError> {
        self.send_head_bytes(Head::Given(reply_head(request.head())?), payload)
    }

    /// Sends bytes past the codec.
    ///
    /// # Errors
    /// The session is over, or its queue is full.
    pub fn send_raw(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.connection().send(bytes)
    }

    /// Sends memory past the codec without copying it.
    ///
    /// # Errors
    /// The session is over, or its queue is full.
    pub fn send_raw_bytes(&self, bytes: Bytes) -> Result<(), SendError> {
        self.connection().send_bytes(bytes)
    }

    /// Waits until the send queue is below its high-water mark.
    ///
    /// # Errors
    /// The session is over.
    pub async fn ready(&self) -> Result<(), SendError> {
        self.connection().send_ready().await
    }

    /// Waits until the kernel has taken all that was sent.
    ///
    /// # Errors
    /// The session is over.
    pub async fn flushed(&self) -> Result<(), SendError> {
        self.connection().flushed().await
    }

    /// Bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.connection().queued()
    }

    /// Closes once what was sent before has left. What the peer still sends is not received.
    pub fn close(&self) {
        self.close_with(CloseReason::Local);
    }

    /// Closes once what was sent before has left, with this reason for [`Handler::on_close`](crate::Handler::on_close).
    pub fn close_with(&self, reason: CloseReason) {
        self.base().open.set(false);
        self.connection().close_with(reason);
    }

    /// Neither over nor told to be.
    pub fn is_open(&self) -> bool {
        self.base().open.get()
    }

    /// Receives nothing until [`resume_receive`](Self::resume_receive); the peer is held back in the end.
    pub fn pause_receive(&self) {
        self.connection().pause_receive();
    }

    /// Receives again.
    pub fn resume_receive(&self) {
        self.connection().resume_receive();
    }

    /// Calls [`Handler::on_timer`](crate::Handler::on_timer) after `delay`; `None` cancels it.
    pub fn set_timer(&self, delay: Option<Duration>) {
        self.connection().set_timer(delay);
    }

    /// Attaches data of the user's own, in place of what was attached before; broadcasts can pick by it.
    pub fn set_data<T: 'static>(&self, data: T) {
        *self.base().data.borrow_mut() = Some(Box::new(data));
    }

    /// Looks at the attached data. `None` if there is none of this type.
    ///
    /// # Panics
    /// When called from inside itself.
    pub fn with_data<T: 'static, R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.base().data.borrow_mut().as_mut()?.downcast_mut().map(look)
    }

    /// What was agreed on in the handshake, of a session over TLS: the certificates of the peer, which are verified, the
    /// protocol chosen by ALPN, the name that was asked for.
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.connection().tls()
    }

    /// The connection below.
    pub fn connection(&self) -> &Connection {
        &self.inner.base.connection
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
