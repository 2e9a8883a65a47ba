//! What moves on a connection: requests and responses of so many bytes, again and again.

use std::fmt;

/// Bytes of the header of every frame.
const HEADER: u64 = 16;
/// Bytes of the number that a method has in version 2 after its first call.
const METHOD: u64 = 2;
/// Bytes of the names of `BenchEchoService/echo` with their lengths.
const CALL_NAMES: u64 = 2 + 16 + 2 + 4;
/// Bytes of its response beside the payload: the header and the code.
const CALL_RESPONSE: u64 = HEADER + 2;
/// Bytes of the names of `StreamBenchService/echo` with their lengths.
const STREAM_NAMES: u64 = 2 + 18 + 2 + 4;

/// Request bytes, and the response bytes that come back for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) request: u64,
    pub(crate) response: u64,
}

/// The exchanges of a connection.
///
/// Either messages without end, or rounds: an opening, a number of messages, a closing. Written `87:65`, or
/// `42:16,16x144:144,16:16`, with `42:16!` where messages wait for the answer to the opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    opening: Sizes,
    message: Sizes,
    closing: Sizes,
    /// The first message of a round goes when the opening is answered.
    waits: bool,
    /// Messages of a round; as many as there can be where there are no rounds.
    messages: u64,
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the baseline is there on Linux only"))]
impl Exchange {
    /// Messages without end.
    pub(crate) const fn endless(request: u64, response: u64) -> Self {
        const NOTHING: Sizes = Sizes { request: 0, response: 0 };
        let message = Sizes { request, response };
        Self { opening: NOTHING, message, closing: NOTHING, waits: false, messages: u64::MAX }
    }

    /// Calls of `BenchEchoService/echo`, alike in every mode: one frame each way. In version 2 the method is named in the
    /// first call of a connection alone.
    pub(crate) const fn calls(payload: u64, wire: u8) -> Self {
        let method = if wire == 1 { CALL_NAMES } else { METHOD };
        Self::endless(HEADER + method + payload, payload + CALL_RESPONSE)
    }

    /// Streams on `StreamBenchService/echo`: INIT and ACK, then the frames, then END and END. In version 1 a client
    /// sends no frame before the ACK.
    pub(crate) const fn streams(payload: u64, frames: u64, wire: u8) -> Self {
        let method = if wire == 1 { STREAM_NAMES } else { METHOD };
        Self {
            opening: Sizes { request: HEADER + method, response: HEADER },
            message: Sizes { request: payload + HEADER, response: payload + HEADER },
            closing: Sizes { request: HEADER, response: HEADER },
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
            self.message.request as f64 + share(self.opening.request + self.closing.request),
            self.message.response as f64 + share(self.opening.response + self.closing.response),
        )
    }

    /// Whether messages may be sent after so many response bytes in a round.
    #[inline]
    pub(crate) fn is_open(&self, response: u64) -> bool {
        !self.waits || response >= self.opening.response
    }

    /// Response bytes that are due after so many request bytes, counted from the connection's first.
    #[inline]
    pub(crate) fn due(&self, received: u64) -> u64 {
        let whole = self.request_bytes_by(self.messages);
        let (rounds, rest) = (received / whole, received % whole);
        let messages = rest.saturating_sub(self.opening.request) / self.message.request;
        let opened = if rest >= self.opening.request { self.opening.response } else { 0 };
        rounds * self.response_bytes_of_round() + opened + messages.min(self.messages) * self.message.response
    }

    /// Request bytes of a round up to this many messages; the closing goes with the last.
    #[inline]
    pub(crate) fn request_bytes_by(&self, messages: u64) -> u64 {
        let closing = if messages == self.messages { self.closing.request } else { 0 };
        messages.saturating_mul(self.message.request).saturating_add(self.opening.request + closing)
    }

    /// Messages that are whole after so many response bytes in a round.
    #[inline]
    pub(crate) fn messages_in(&self, response: u64) -> u64 {
        (response.saturating_sub(self.opening.response) / self.message.response).min(self.messages)
    }

    /// All response bytes of a round.
    #[inline]
    pub(crate) fn response_bytes_of_round(&self) -> u64 {
        let messages = self.messages.saturating_mul(self.message.response);
        messages.saturating_add(self.opening.response + self.closing.response)
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opening, message, closing, waits, .. } = self;
        let waits = if *waits { "!" } else { "" };
        match self.round() {
            None => write!(f, "{}:{}", message.request, message.response),
            Some(messages) => write!(
                f,
                "{}:{}{waits},{messages}x{}:{},{}:{}",
                opening.request,
                opening.response,
                message.request,
                message.response,
                closing.request,
                closing.response
            ),
        }
    }
}

/// For clap: reads what [`Exchange`] writes.
pub(crate) fn exchange(text: &str) -> Result<Exchange, String> {
    let bad = || format!("{text:?} is not of the form 87:65 or 42:16,16x144:144,16:16");
    let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| bad());
    let exchange = |text: &str| -> Result<Sizes, String> {
        let (request, response) = text.split_once(':').ok_or_else(bad)?;
        Ok(Sizes { request: number(request)?, response: number(response)? })
    };
    let exchange = match text.split(',').collect::<Vec<_>>()[..] {
        [message] => {
            let Sizes { request, response } = exchange(message)?;
            Exchange::endless(request, response)
        }
        [opening, messages, closing] => {
            let (count, message) = messages.split_once('x').ok_or_else(bad)?;
            let waits = opening.ends_with('!');
            Exchange {
                opening: exchange(opening.trim_end_matches('!'))?,
                waits,
                message: exchange(message)?,
                closing: exchange(closing)?,
                messages: number(count)?,
            }
        }
        _ => return Err(bad()),
    };
    if exchange.message.request == 0 || exchange.message.response == 0 || exchange.messages == 0 {
        return Err(format!("{text:?}: a message has a byte each way at least, and a round has a message"));
    }
    Ok(exchange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for written in [
            Exchange::endless(1, 7),
            Exchange::calls(47, 1),
            Exchange::streams(128, 16, 1),
            Exchange::streams(1, 2, 2),
        ] {
            assert_eq!(exchange(&written.to_string()).unwrap(), written);
        }
        assert_eq!(Exchange::calls(47, 1).to_string(), "87:65");
        assert_eq!(Exchange::streams(128, 16, 1).to_string(), "42:16!,16x144:144,16:16");
        assert_eq!(Exchange::calls(47, 2).to_string(), "65:65");
        assert_eq!(Exchange::streams(128, 16, 2).to_string(), "18:16,16x144:144,16:16");
    }

    #[test]
    fn what_cannot_move_is_refused() {
        for bad in
            ["", "87", "0:5", "5:0", "1:1,2:2,3:3", "1:1,0x2:2,3:3", "1:1,2x2:2", "-1:1", "9999999999:1"]
        {
            assert!(exchange(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_reply_is_due_when_its_request_is_whole() {
        let calls = Exchange::endless(10, 3);
        assert_eq!([0, 9, 10, 19, 20, 105].map(|received| calls.due(received)), [0, 0, 3, 3, 6, 30]);
    }

    #[test]
    fn the_parts_of_a_round_are_due_one_by_one_and_rounds_add_up() {
        // Request bytes 5 + 2 × 10 + 4 = 29, response bytes 1 + 2 × 7 + 2 = 17.
        let rounds = exchange("5:1,2x10:7,4:2").unwrap();
        let due = [4, 5, 14, 15, 25, 28, 29, 33, 34].map(|received| rounds.due(received));
        assert_eq!(due, [0, 1, 1, 8, 15, 15, 17, 17, 18]);
    }

    #[test]
    fn messages_share_the_opening_and_the_closing() {
        assert_eq!(Exchange::calls(47, 1).per_message(), (87.0, 65.0));
        assert_eq!(Exchange::streams(128, 16, 1).per_message(), (2362.0 / 16.0, 2336.0 / 16.0));
    }
}
