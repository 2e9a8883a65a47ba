//! What a completion belongs to: the operation and the socket, packed into the 64 bits that the kernel returns.

use crate::event::Token;

/// 56 bits: 8 stay free for the operation.
impl Token {
    pub(super) const fn to_bits(self) -> u64 {
        (self.index as u64) << Self::GENERATION_BITS | self.generation as u64
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self {
            index: (bits >> Self::GENERATION_BITS) as u32,
            generation: bits as u32 & Self::GENERATION_MASK,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    /// Multishot accept.
    Accept = 1,
    /// Multishot receive into the buffer ring.
    Receive,
    /// Multishot poll for bytes to receive directly.
    PollIn,
    /// One poll for room to send, or for the end of a connect.
    PollOut,
    /// Multishot poll for the peer's end, of a stream that has been paused.
    HangUp,
    /// One poll of a descriptor of the user's own for something to read.
    WatchIn,
    /// Multishot poll of the waker's eventfd.
    Wake,
    /// A cancellation; its own completion tells nothing.
    Cancel,
}

impl Operation {
    const ALL: [Self; 8] = [
        Self::Accept,
        Self::Receive,
        Self::PollIn,
        Self::PollOut,
        Self::HangUp,
        Self::WatchIn,
        Self::Wake,
        Self::Cancel,
    ];

    pub(super) const fn user_data(self, token: Token) -> u64 {
        token.to_bits() << 8 | self as u64
    }

    /// `None` for a number that this backend never gave out.
    pub(super) fn from_user_data(user_data: u64) -> Option<(Self, Token)> {
        let operation = Self::ALL.into_iter().find(|operation| *operation as u64 == user_data & 0xff)?;
        Some((operation, Token::from_bits(user_data >> 8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_is_read_as_it_was_written() {
        let token = Token { index: u32::MAX, generation: Token::GENERATION_MASK };
        for operation in Operation::ALL {
            assert_eq!(Operation::from_user_data(operation.user_data(token)), Some((operation, token)));
        }
        assert_eq!(Operation::from_user_data(0), None);
    }
}
