//! The 24-byte segment header.

use super::error::ReceiveError;

/// Bytes of header before the data of each segment.
pub const HEADER_LEN: usize = 24;

/// What a segment is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Command {
    /// Carries data.
    Push = 81,
    /// Acknowledges the segment [`Header::number`] and echoes its time-stamp.
    Ack = 82,
    /// Asks for the peer's window.
    WindowAsk = 83,
    /// Tells the own window.
    WindowTell = 84,
    /// Corewire's end of a conversation; KCP has none. It always travels in a datagram of its own: a peer that
    /// does not know it (ikcp, kcp-go, the `kcp` crate) rejects that datagram as a whole and loses nothing.
    Fin = 85,
    /// Corewire's offer of a cookie to a peer for whom there is no room, and its echo (see [`challenge`]). In a datagram of
    /// its own, as [`Fin`](Self::Fin).
    Cookie = 86,
}

impl Command {
    const fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            81 => Self::Push,
            82 => Self::Ack,
            83 => Self::WindowAsk,
            84 => Self::WindowTell,
            85 => Self::Fin,
            86 => Self::Cookie,
            _ => return None,
        })
    }
}

/// Bits of [`Header::fragment`] in a [`Command::Fin`] segment.
pub mod fin {
    /// The sender has sent everything; [`timestamp`](super::Header::timestamp) is the number after its last segment.
    pub const END: u8 = 1;
    /// The sender has seen the peer's end.
    pub const ACKNOWLEDGE: u8 = 2;
    /// The sender has given up: what was not acknowledged is lost.
    pub const RESET: u8 = 4;
    /// [`number`](super::Header::number) of every such segment. Never 0, because kcp-go opens a session for a
    /// datagram from an unknown address whose number is 0.
    pub const NUMBER: u32 = u32::MAX;
}

/// A segment's header as on the wire: little-endian, in the order of the fields, the length last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Conversation id, the same in both directions.
    pub conversation: u32,
    /// What the segment is for.
    pub command: Command,
    /// How many fragments of the same message follow this one.
    pub fragment: u8,
    /// How many more segments the sender can take.
    pub window: u16,
    /// The sender's milliseconds; in an acknowledgement those of the segment that it answers.
    pub timestamp: u32,
    /// Segment number.
    pub number: u32,
    /// The sender has received every segment before this number.
    pub unacknowledged: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

/// How a peer shows that it receives what is sent to its address.
pub mod challenge {
    /// The number of the empty [`Push`](super::Command::Push) that asks for it: one before the first. Every KCP takes it for a
    /// repetition, drops it and acknowledges it, with its time-stamp.
    pub const NUMBER: u32 = u32::MAX;
    /// [`fragment`](super::Header::fragment) of a [`Cookie`](super::Command::Cookie) segment that offers one.
    /// [`timestamp`](super::Header::timestamp) and [`number`](super::Header::number) are the cookie.
    pub const COOKIE_OFFER: u8 = 0;
    /// The same of one that echoes it and opens the conversation.
    pub const COOKIE_ECHO: u8 = 1;
}

impl Header {
    /// Cuts the first segment off `datagram`: its header, its data, and what follows.
    ///
    /// # Errors
    /// [`ReceiveError::TooShort`], [`ReceiveError::UnknownCommand`] or [`ReceiveError::Truncated`].
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8], &[u8]), ReceiveError> {
        let Some((head, rest)) = datagram.split_first_chunk::<HEADER_LEN>() else {
            return Err(ReceiveError::TooShort { len: datagram.len() });
        };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = word(20);
        let command = Command::from_u8(head[4]).ok_or(ReceiveError::UnknownCommand { command: head[4] })?;
        if len as usize > rest.len() {
            return Err(ReceiveError::Truncated { announced: len, left: rest.len() });
        }
        let (data, rest) = rest.split_at(len as usize);
        let header = Self {
            conversation: word(0),
            command,
            fragment: head[5],
            window: u16::from_le_bytes([head[6], head[7]]),
            timestamp: word(8),
            number: word(12),
            unacknowledged: word(16),
            len,
        };
        Ok((header, data, rest))
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&self.conversation.to_le_bytes());
        bytes[4] = self.command as u8;
        bytes[5] = self.fragment;
        bytes[6..8].copy_from_slice(&self.window.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.unacknowledged.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }
}

/// The conversation id of a datagram, to find the session it belongs to; `None` when it is too short for KCP.
#[inline]
pub fn conversation(datagram: &[u8]) -> Option<u32> {
    if datagram.len() < HEADER_LEN {
        return None;
    }
    datagram.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// How far `a` lies behind `b`, on a circle of 2³² (negative when it lies before).
#[inline]
pub(super) const fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Header = Header {
        conversation: 0x1122_3344,
        command: Command::Push,
        fragment: 2,
        window: 128,
        timestamp: 0x0102_0304,
        number: 7,
        unacknowledged: 5,
        len: 3,
    };
    const BYTES: [u8; 27] = [
        0x44, 0x33, 0x22, 0x11, 81, 2, 128, 0, 4, 3, 2, 1, 7, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, b'a', b'b',
        b'c',
    ];

    #[test]
    fn a_header_is_24_little_endian_bytes() {
        assert_eq!(EXAMPLE.to_bytes(), BYTES[..24]);
        let (header, data, rest) = Header::parse(&BYTES).unwrap();
        assert_eq!((header, data, rest), (EXAMPLE, &b"abc"[..], &b""[..]));
        assert_eq!(conversation(&BYTES), Some(0x1122_3344));
    }

    #[test]
    fn the_next_segment_follows_the_data() {
        let two = [&BYTES[..], &BYTES[..]].concat();
        assert_eq!(Header::parse(&two).unwrap().2, BYTES);
    }

    #[test]
    fn each_fault_has_its_error() {
        assert_eq!(Header::parse(&BYTES[..23]), Err(ReceiveError::TooShort { len: 23 }));
        assert_eq!(Header::parse(&BYTES[..26]), Err(ReceiveError::Truncated { announced: 3, left: 2 }));
        for command in [0, 80, 87, 255] {
            let mut bytes = BYTES;
            bytes[4] = command;
            assert_eq!(Header::parse(&bytes), Err(ReceiveError::UnknownCommand { command }));
        }
        let mut huge = BYTES;
        huge[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Header::parse(&huge), Err(ReceiveError::Truncated { announced: u32::MAX, left: 3 }));
    }
}
