//! A socket, and how it is received from.

use super::operation::Operation;
use crate::ready::Pending;
use crate::role::{Receiving, Role};
use crate::socket::Socket;

#[derive(Debug)]
pub(super) struct Io {
    pub(super) socket: Socket,
    pub(super) role: Role,
    pub(super) path: ReceivePath,
    /// What of the receiving side (receive, poll for it, accept) is in the kernel's hands.
    pub(super) armed: Option<Operation>,
    /// It has been asked to end.
    pub(super) cancelling: bool,
    pub(super) receiving: Receiving,
    /// Bytes that one receive takes at most; a connection with a limit stays on the direct path.
    pub(super) receive_max: usize,
    /// A poll for the peer's end is in the kernel's hands. It is there from the first pause on: while bytes are received
    /// it tells nothing that the receive does not.
    pub(super) watches_hang_up: bool,
    pub(super) poll_out: OneShot,
    /// Of a descriptor of the user's own.
    pub(super) poll_in: OneShot,
    /// In the list of sockets that something is to be armed for.
    pub(super) is_to_arm: bool,
    /// The peer has closed its half, or the connection is lost: what is left is to be read to the end.
    pub(super) peer_closed: bool,
    /// That there may be something to receive directly, or an end to tell.
    pub(super) pending: Pending,
    /// Grows with full buffers, shrinks with others: see [`Io::note_chunk`].
    pub(super) fullness: u8,
    pub(super) small_in_a_row: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceivePath {
    /// Multishot receive into the ring's buffers.
    Buffers,
    /// Poll, then receive into the shared block.
    Direct,
}

/// One poll: for room to send, for the end of a connect, or of a descriptor of the user's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OneShot {
    No,
    Wanted,
    Armed,
}

impl Io {
    /// Full buffers, counted with decay, that send a connection to the direct path.
    const FULL_TO_DIRECT: u8 = 4;
    /// Receives below a quarter of a buffer, in a row, that send it back.
    const SMALL_TO_BUFFERS: u8 = 32;

    pub(super) fn new(socket: Socket, role: Role) -> Self {
        Self {
            socket,
            role,
            path: if role == Role::Datagram { ReceivePath::Direct } else { ReceivePath::Buffers },
            armed: None,
            cancelling: false,
            receiving: Receiving::On,
            receive_max: usize::MAX,
            watches_hang_up: false,
            poll_out: OneShot::No,
            poll_in: OneShot::No,
            is_to_arm: false,
            peer_closed: false,
            pending: Pending::default(),
            fullness: 0,
            small_in_a_row: 0,
        }
    }

    /// What of the receiving side is to be given to the kernel.
    pub(super) fn to_arm(&self) -> Option<Operation> {
        let is_idle = self.armed.is_none() && !matches!(self.role, Role::Connecting | Role::Watched);
        (is_idle && self.receiving == Receiving::On).then(|| self.operation())
    }

    /// Nothing is received from it, and nothing is in the kernel's hands that would tell that its peer has hung up.
    pub(super) const fn wants_hang_up(&self) -> bool {
        self.is_paused_stream() && !self.watches_hang_up
    }

    pub(super) const fn is_paused_stream(&self) -> bool {
        matches!(self.role, Role::Stream) && self.receiving.is_paused()
    }

    /// What should be in the kernel's hands for the receiving side.
    pub(super) const fn operation(&self) -> Operation {
        match (self.role, self.path) {
            (Role::Listener, _) => Operation::Accept,
            (_, ReceivePath::Buffers) => Operation::Receive,
            (_, ReceivePath::Direct) => Operation::PollIn,
        }
    }

    /// True when this takes the connection off the ring.
    pub(super) fn limit_receive(&mut self, max: usize) -> bool {
        self.receive_max = max;
        let receives = matches!(self.role, Role::Stream | Role::Connecting);
        let leaves = receives && max < usize::MAX && self.path == ReceivePath::Buffers;
        if leaves {
            (self.path, self.small_in_a_row) = (ReceivePath::Direct, 0);
        }
        leaves
    }

    /// Chooses the path by what arrives; true when it has just changed.
    pub(super) fn note_chunk(&mut self, len: usize, buffer_size: usize) -> bool {
        match self.path {
            ReceivePath::Buffers if len == buffer_size => {
                self.fullness += 2;
                if self.fullness < Self::FULL_TO_DIRECT {
                    return false;
                }
                (self.path, self.small_in_a_row) = (ReceivePath::Direct, 0);
                true
            }
            ReceivePath::Buffers => {
                self.fullness = self.fullness.saturating_sub(1);
                false
            }
            ReceivePath::Direct if len < buffer_size / 4 && self.receive_max == usize::MAX => {
                self.small_in_a_row += 1;
                if self.small_in_a_row < Self::SMALL_TO_BUFFERS {
                    return false;
                }
                (self.path, self.fullness) = (ReceivePath::Buffers, 0);
                true
            }
            ReceivePath::Direct => {
                self.small_in_a_row = 0;
                false
            }
        }
    }
}
