//! What carries the bytes of a connection.
//!
//! There is one life cycle of connections (`worker/connections.rs`), over this enum. A new transport is a file here and a
//! variant: it says how bytes are handed over, how receiving is held back, how the peer is told the end, and what is left
//! to do when the connection is over.

pub mod kcp;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_absent.rs"]
pub mod tls;
pub mod udp;

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use corewire_driver::{Driver, Token};

use self::kcp::Conversation;
use self::tls::TlsSocket;
use self::udp::UdpPeer;
use crate::conn::ConnId;
use crate::panic::guarded;
use crate::secured::TlsInfo;
use crate::worker::Core;

/// Makes what serves a new peer of a datagram socket; `None`: it is not served.
pub type MakeProtocol = Box<dyn Fn() -> Option<Box<dyn crate::Protocol>>>;

/// A panic costs the peer that it was to serve, and no other.
fn make_protocol(core: &Core, make: &MakeProtocol) -> Option<Box<dyn crate::Protocol>> {
    guarded(make).unwrap_or_else(|message| {
        core.note_panic(&message);
        None
    })
}

/// What carries the bytes of one connection.
pub(crate) enum Transport {
    /// A socket of its own, TCP or Unix: the driver receives, and tells what happens.
    Socket(Token),
    /// The same, encrypted.
    Tls(Box<TlsSocket>),
    /// A peer on a datagram socket: each send is a datagram, which joins the queue of the socket.
    UdpPeer(Box<UdpPeer>),
    /// A KCP conversation on a datagram socket: what has arrived waits in it until it is read.
    Kcp(Box<Conversation>),
}

impl Transport {
    /// The socket, which others may share.
    pub(crate) fn socket(&self) -> Token {
        match self {
            Self::Socket(token) => *token,
            Self::Tls(tls) => tls.token(),
            Self::UdpPeer(peer) => peer.socket(),
            Self::Kcp(conversation) => conversation.socket(),
        }
    }

    /// The socket, if it is no other connection's.
    pub(crate) fn own_socket(&self) -> Option<Token> {
        match self {
            Self::Socket(token) => Some(*token),
            Self::Tls(tls) => Some(tls.token()),
            Self::UdpPeer(_) | Self::Kcp(_) => None,
        }
    }

    /// It is this socket, and no other connection's.
    #[inline]
    pub(crate) fn owns(&self, socket: Token) -> bool {
        match self {
            Self::Socket(token) => *token == socket,
            _ => self.own_socket() == Some(socket),
        }
    }

    #[inline]
    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// What was agreed on, of a connection over TLS.
    pub(crate) fn tls_info(&self) -> Option<Rc<TlsInfo>> {
        match self {
            Self::Tls(tls) => tls.info(),
            Self::Socket(_) | Self::UdpPeer(_) | Self::Kcp(_) => None,
        }
    }

    /// Bytes that were handed over and wait in the transport for the socket.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        match self {
            Self::Tls(tls) => tls.unsent(),
            Self::Socket(_) | Self::UdpPeer(_) | Self::Kcp(_) => 0,
        }
    }

    /// Sends those. True if nothing of them is left.
    #[inline]
    pub(crate) fn flush(&mut self, core: &Core, driver: &mut Driver) -> io::Result<bool> {
        match self {
            Self::Tls(tls) => tls.flush(core, driver),
            Self::Socket(_) | Self::UdpPeer(_) | Self::Kcp(_) => Ok(true),
        }
    }

    /// A part of what cannot be read before it is whole has come, and since when, in the worker's milliseconds.
    pub(crate) fn partial_since(&self) -> Option<u64> {
        match self {
            Self::Tls(tls) => tls.partial_since(),
            Self::Socket(_) | Self::UdpPeer(_) | Self::Kcp(_) => None,
        }
    }

    /// A close in good order has something to say to the peer, even if nothing is queued.
    pub(crate) fn owes_goodbye(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.owes_close_notify())
    }

    /// Each send is a datagram of its own and may be lost.
    #[inline]
    pub(crate) const fn is_datagram(&self) -> bool {
        matches!(self, Self::UdpPeer(_))
    }

    pub(crate) fn peer_addr(&self, driver: &Driver) -> Option<SocketAddr> {
        match self {
            Self::Socket(_) | Self::Tls(_) => driver.socket(self.socket())?.peer_addr().ok()?.as_socket(),
            Self::UdpPeer(peer) => Some(peer.address()),
            Self::Kcp(conversation) => Some(conversation.peer()),
        }
    }

    /// Hands over what there is room for, of a stream. If that is less than all, `Core::writable` follows.
    #[inline]
    pub(crate) fn write(
        &mut self,
        core: &Core,
        driver: &mut Driver,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        match self {
            Self::Socket(token) => core.write_to_socket(driver, *token, slices),
            Self::Tls(tls) => tls.write(core, driver, slices),
            Self::Kcp(conversation) => Ok(conversation.write(core, slices)),
            // Datagrams have no queue of their own (`Core::send_datagram`).
            Self::UdpPeer(_) => Ok(0),
        }
    }

    /// Bytes that a task may send in one tick before others have their turn.
    pub(crate) const fn sent_in_tick_max(&self) -> u32 {
        match self {
            // Enough for the kernel to be busy with, little enough for the peer to find it in cache.
            Self::Socket(_) | Self::Tls(_) | Self::Kcp(_) => 2 * crate::conn::SEGMENT_BYTES as u32,
            // A system call takes many datagrams.
            Self::UdpPeer(_) => 1 << 20,
        }
    }

    /// Receives from now on, or holds the peer back. (Datagrams are dropped instead: `Core::received_run`.)
    pub(crate) fn set_receiving(&self, driver: &mut Driver, receives: bool) {
        match self {
            Self::Socket(_) | Self::Tls(_) if receives => driver.resume_receive(self.socket()),
            Self::Socket(_) | Self::Tls(_) => driver.pause_receive(self.socket()),
            // Nothing is read of a conversation that is paused: its window closes.
            Self::UdpPeer(_) | Self::Kcp(_) => {}
        }
    }

    /// Limits one receive, in bytes.
    pub(crate) fn set_receive_max(&self, driver: &mut Driver, bytes: usize) {
        if let Some(token) = self.own_socket() {
            driver.set_receive_max(token, bytes);
        }
    }

    /// Bytes wait here to be [read](Self::read).
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self, Self::Kcp(conversation) if conversation.is_readable())
    }

    /// What has arrived and waits here, a piece at a time.
    #[inline]
    pub(crate) fn read(&self, core: &Core) -> Option<Bytes> {
        match self {
            Self::Kcp(conversation) => conversation.read(core),
            Self::Socket(_) | Self::Tls(_) | Self::UdpPeer(_) => None,
        }
    }

    /// What was handed over and is kept until the peer has it, 0 if nothing is.
    pub(crate) fn unacknowledged(&self) -> usize {
        match self {
            Self::Kcp(conversation) => conversation.unacknowledged(),
            Self::Socket(_) | Self::Tls(_) | Self::UdpPeer(_) => 0,
        }
    }

    /// All that the peer will ever send was read. (Of sockets the driver tells.)
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self, Self::Kcp(conversation) if conversation.is_at_end())
    }

    /// Bytes that one turn of a connection takes, for protocols that do not count frames.
    #[inline]
    pub(crate) const fn turn_bytes(&self) -> usize {
        match self {
            Self::Socket(_) | Self::Tls(_) | Self::UdpPeer(_) => 256 * 1024,
            Self::Kcp(_) => kcp::PIECE_MAX,
        }
    }

    /// Tells the peer that nothing more follows, once all was handed over.
    pub(crate) fn finish_write(&mut self, core: &Core, driver: &mut Driver) {
        match self {
            Self::Socket(token) => {
                if let Some(socket) = driver.socket(*token) {
                    // It fails only if the connection is gone, which the receiving side reports.
                    let _ = socket.shutdown(Shutdown::Write);
                }
            }
            Self::Tls(tls) => drop(tls.finish(core, driver, true)),
            Self::Kcp(conversation) => drop(conversation.finish(core)),
            // There is no way to say so.
            Self::UdpPeer(_) => {}
        }
    }

    /// The connection closes, and all was handed over. True: that is all; false: the peer has still to take it, and
    /// `Core::ended` or `Core::writable` follows.
    pub(crate) fn finish(&mut self, core: &Core, driver: &mut Driver) -> bool {
        match self {
            Self::Tls(tls) => tls.finish(core, driver, false),
            Self::Socket(_) | Self::UdpPeer(_) => true,
            Self::Kcp(conversation) => conversation.finish(core),
        }
    }

    /// When the peer took something last of what was handed over, in ms, where that is known.
    pub(crate) fn taken_at(&self) -> Option<u64> {
        match self {
            Self::Socket(_) | Self::Tls(_) | Self::UdpPeer(_) => None,
            Self::Kcp(conversation) => conversation.taken_at(),
        }
    }

    /// The peer has said that it has everything; its own end alone is still to come.
    pub(crate) fn is_delivered(&self) -> bool {
        matches!(self, Self::Kcp(conversation) if conversation.is_delivered())
    }

    /// The connection is over. A socket `lingers` if the peer may still be sending.
    pub(crate) fn release(&self, core: &Core, id: ConnId, lingers: bool) {
        match self {
            Self::Socket(_) | Self::Tls(_) => core.release_socket(self.socket(), lingers),
            Self::UdpPeer(peer) => peer.release(core, id),
            Self::Kcp(conversation) => conversation.release(core),
        }
    }
}
