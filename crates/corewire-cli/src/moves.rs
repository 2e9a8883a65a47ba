//! What moves on a connection: so many bytes there for so many back, again and again.

use std::fmt;

/// Bytes of a request of `BenchEchoService/echo` beside its payload: the header, and both names with their lengths.
const CALL_THERE: u64 = 16 + 2 + 16 + 2 + 4;
/// Bytes of its response beside the payload: the header and the code.
const CALL_BACK: u64 = 16 + 2;
/// Bytes of a stream's frame beside its payload.
const FRAME: u64 = 16;
/// Bytes of the names in the first frame of a stream on `StreamBenchService/echo`.
const ROUTE: u64 = 2 + 18 + 2 + 4;

/// Bytes there, and bytes that come back for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) there: u64,
    pub(crate) back: u64,
}

/// The exchanges of a connection.
///
/// Either messages without end, or rounds: an opening, a number of messages, a closing. Written `87:65`, or
/// `42:16,16x144:144,16:16`, with `42:16!` where messages wait for what comes back for the opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moves {
    opening: Exchange,
    message: Exchange,
    closing: Exchange,
    /// The first message of a round goes when the opening is answered.
    waits: bool,
    /// Messages of a round; as many as there can be where there are no rounds.
    messages: u64,
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the limit is there on Linux only"))]
impl Moves {
    /// Messages without end.
    pub(crate) const fn endless(there: u64, back: u64) -> Self {
        const NOTHING: Exchange = Exchange { there: 0, back: 0 };
        let message = Exchange { there, back };
        Self { opening: NOTHING, message, closing: NOTHING, waits: false, messages: u64::MAX }
    }

    /// Calls of `BenchEchoService/echo`, alike in every mode and version: one frame there and one back.
    pub(crate) const fn calls(payload: u64) -> Self {
        Self::endless(payload + CALL_THERE, payload + CALL_BACK)
    }

    /// Streams on `StreamBenchService/echo`: INIT and ACK, then the frames, then END and END. In version 1 a client
    /// sends no frame before the ACK.
    pub(crate) const fn streams(payload: u64, frames: u64, wire: u8) -> Self {
        Self {
            opening: Exchange { there: FRAME + ROUTE, back: FRAME },
            message: Exchange { there: payload + FRAME, back: payload + FRAME },
            closing: Exchange { there: FRAME, back: FRAME },
            waits: wire == 1,
            messages: frames,
        }
    }

    /// Messages of a round, or `None` where they have no end.
    pub(crate) fn round(&self) -> Option<u64> {
        (self.messages != u64::MAX).then_some(self.messages)
    }

    /// Bytes in both directions for each message, its share of the opening and the closing included.
    pub(crate) fn per_message(&self) -> (f64, f64) {
        let share = |around: u64| self.round().map_or(0.0, |messages| around as f64 / messages as f64);
        (
            self.message.there as f64 + share(self.opening.there + self.closing.there),
            self.message.back as f64 + share(self.opening.back + self.closing.back),
        )
    }

    /// Whether messages may be sent after so many bytes back in a round.
    #[inline]
    pub(crate) fn is_open(&self, back: u64) -> bool {
        !self.waits || back >= self.opening.back
    }

    /// What is due back after so many bytes, counted from the connection's first.
    #[inline]
    pub(crate) fn due(&self, received: u64) -> u64 {
        let whole = self.there_by(self.messages);
        let (rounds, rest) = (received / whole, received % whole);
        let messages = rest.saturating_sub(self.opening.there) / self.message.there;
        let opened = if rest >= self.opening.there { self.opening.back } else { 0 };
        rounds * self.back_of_round() + opened + messages.min(self.messages) * self.message.back
    }

    /// Bytes to send in a round up to this many messages; the closing goes with the last.
    #[inline]
    pub(crate) fn there_by(&self, messages: u64) -> u64 {
        let closing = if messages == self.messages { self.closing.there } else { 0 };
        messages.saturating_mul(self.message.there).saturating_add(self.opening.there + closing)
    }

    /// Messages that are whole after so many bytes back in a round.
    #[inline]
    pub(crate) fn messages_in(&self, back: u64) -> u64 {
        (back.saturating_sub(self.opening.back) / self.message.back).min(self.messages)
    }

    /// All that comes back in a round.
    #[inline]
    pub(crate) fn back_of_round(&self) -> u64 {
        let messages = self.messages.saturating_mul(self.message.back);
        messages.saturating_add(self.opening.back + self.closing.back)
    }
}

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opening, message, closing, waits, .. } = self;
        let waits = if *waits { "!" } else { "" };
        match self.round() {
            None => write!(f, "{}:{}", message.there, message.back),
            Some(messages) => write!(
                f,
                "{}:{}{waits},{messages}x{}:{},{}:{}",
                opening.there, opening.back, message.there, message.back, closing.there, closing.back
            ),
        }
    }
}

/// For clap: reads what [`Moves`] writes.
pub(crate) fn moves(text: &str) -> Result<Moves, String> {
    let bad = || format!("{text:?} is not of the form 87:65 or 42:16,16x144:144,16:16");
    let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| bad());
    let exchange = |text: &str| -> Result<Exchange, String> {
        let (there, back) = text.split_once(':').ok_or_else(bad)?;
        Ok(Exchange { there: number(there)?, back: number(back)? })
    };
    let moves = match text.split(',').collect::<Vec<_>>()[..] {
        [message] => {
            let Exchange { there, back } = exchange(message)?;
            Moves::endless(there, back)
        }
        [opening, messages, closing] => {
            let (count, message) = messages.split_once('x').ok_or_else(bad)?;
            let waits = opening.ends_with('!');
            Moves {
                opening: exchange(opening.trim_end_matches('!'))?,
                waits,
                message: exchange(message)?,
                closing: exchange(closing)?,
                messages: number(count)?,
            }
        }
        _ => return Err(bad()),
    };
    if moves.message.there == 0 || moves.message.back == 0 || moves.messages == 0 {
        return Err(format!("{text:?}: a message has a byte each way at least, and a round has a message"));
    }
    Ok(moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for written in
            [Moves::endless(1, 7), Moves::calls(47), Moves::streams(128, 16, 1), Moves::streams(1, 2, 2)]
        {
            assert_eq!(moves(&written.to_string()).unwrap(), written);
        }
        assert_eq!(Moves::calls(47).to_string(), "87:65");
        assert_eq!(Moves::streams(128, 16, 1).to_string(), "42:16!,16x144:144,16:16");
        assert_eq!(Moves::streams(128, 16, 2).to_string(), "42:16,16x144:144,16:16");
    }

    #[test]
    fn what_cannot_move_is_refused() {
        for bad in
            ["", "87", "0:5", "5:0", "1:1,2:2,3:3", "1:1,0x2:2,3:3", "1:1,2x2:2", "-1:1", "9999999999:1"]
        {
            assert!(moves(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_reply_is_due_when_its_request_is_whole() {
        let calls = Moves::endless(10, 3);
        assert_eq!([0, 9, 10, 19, 20, 105].map(|received| calls.due(received)), [0, 0, 3, 3, 6, 30]);
    }

    #[test]
    fn the_parts_of_a_round_are_due_one_by_one_and_rounds_add_up() {
        // There 5 + 2 × 10 + 4 = 29, back 1 + 2 × 7 + 2 = 17.
        let rounds = moves("5:1,2x10:7,4:2").unwrap();
        let due = [4, 5, 14, 15, 25, 28, 29, 33, 34].map(|received| rounds.due(received));
        assert_eq!(due, [0, 1, 1, 8, 15, 15, 17, 17, 18]);
    }

    #[test]
    fn messages_share_the_opening_and_the_closing() {
        assert_eq!(Moves::calls(47).per_message(), (87.0, 65.0));
        assert_eq!(Moves::streams(128, 16, 1).per_message(), (2362.0 / 16.0, 2336.0 / 16.0));
    }
}
