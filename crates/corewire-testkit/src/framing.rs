//! Drives a codec as a connection does, and checks the codec's contract at every step.

use corewire_proto::codec::{Codec, DecodeError, Decoded, EncodeError, FrameHead, Prefix};

/// What came out of a stream, apart from how it fell into chunks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    /// Frames and errors in their order.
    pub events: Vec<Event>,
    /// Bytes at the end that make no whole frame; empty after a fatal error.
    pub left_over: Vec<u8>,
}

/// One thing that came out of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A whole frame.
    Frame(FrameHead, Vec<u8>),
    /// A frame that could not be read, and was stepped over. What the error says of its length depends on how
    /// much had arrived.
    Unreadable,
    /// An error that ended the stream.
    Fatal(DecodeError),
}

impl Transcript {
    /// The payloads of the frames.
    pub fn payloads(&self) -> Vec<&[u8]> {
        let frames = self.events.iter().filter_map(|event| match event {
            Event::Frame(_, payload) => Some(&payload[..]),
            _ => None,
        });
        frames.collect()
    }

    /// The heads of the frames.
    pub fn heads(&self) -> Vec<FrameHead> {
        let frames = self.events.iter().filter_map(|event| match event {
            Event::Frame(head, _) => Some(*head),
            _ => None,
        });
        frames.collect()
    }
}

/// Feeds `chunks` to `codec` one after the other, asking again only when as many bytes are there as the codec
/// said it needs.
///
/// # Panics
/// When the codec breaks its contract: a range outside the input, no progress, a need that is already met.
pub fn frames_of<C: Codec, B: AsRef<[u8]>>(codec: &mut C, chunks: impl IntoIterator<Item = B>) -> Transcript {
    let mut transcript = Transcript::default();
    let mut buffer = Vec::new();
    let mut needed = 1;
    for chunk in chunks {
        buffer.extend_from_slice(chunk.as_ref());
        let mut at = 0;
        let mut failed_at = None;
        while buffer.len() - at >= needed {
            let input = &buffer[at..];
            match codec.decode(input) {
                Ok(Decoded::Frame { head, payload, consumed }) => {
                    assert!(
                        payload.start <= payload.end && payload.end <= consumed,
                        "{payload:?} {consumed}"
                    );
                    assert!((1..=input.len()).contains(&consumed), "{consumed} of {}", input.len());
                    transcript.events.push(Event::Frame(head, input[payload].to_vec()));
                    (at, needed) = (at + consumed, 1);
                }
                Ok(Decoded::Skipped { consumed }) => {
                    assert!((1..=input.len()).contains(&consumed), "{consumed} of {}", input.len());
                    (at, needed) = (at + consumed, 1);
                }
                Ok(Decoded::Incomplete { needed: more }) => {
                    assert!(more > input.len(), "{more} bytes are needed, but {} are there", input.len());
                    assert_ne!(failed_at, Some(at), "no progress after a recoverable error");
                    needed = more;
                }
                Err(error) if error.is_recoverable() => {
                    assert_ne!(failed_at, Some(at), "the same error twice: {error}");
                    failed_at = Some(at);
                    transcript.events.push(Event::Unreadable);
                }
                Err(error) => {
                    transcript.events.push(Event::Fatal(error));
                    return transcript;
                }
            }
        }
        buffer.drain(..at);
    }
    transcript.left_over = buffer;
    transcript
}

/// Cuts `stream` after each of the given bytes (taken modulo its length).
pub fn cut<'a>(stream: &'a [u8], points: &[usize]) -> Vec<&'a [u8]> {
    let mut points: Vec<usize> = points.iter().map(|point| point % (stream.len() + 1)).collect();
    points.sort_unstable();
    let mut chunks = Vec::with_capacity(points.len() + 1);
    let mut from = 0;
    for point in points {
        chunks.push(&stream[from..point]);
        from = point;
    }
    chunks.push(&stream[from..]);
    chunks
}

/// Checks that the stream gives the same frames in one piece, byte by byte, and cut in two at every byte.
///
/// # Panics
/// When it does not.
pub fn assert_split_independent<C: Codec>(new: impl Fn() -> C, stream: &[u8]) -> Transcript {
    let whole = frames_of(&mut new(), [stream]);
    let drip = frames_of(&mut new(), stream.chunks(1));
    assert_eq!(whole, drip, "byte by byte");
    for at in 0..=stream.len() {
        let two = frames_of(&mut new(), [&stream[..at], &stream[at..]]);
        assert_eq!(whole, two, "cut at {at}");
    }
    whole
}

/// Header, payload and suffix of one frame.
///
/// # Errors
/// What the codec says of the payload.
pub fn frame<C: Codec>(codec: &mut C, head: FrameHead, payload: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let mut prefix = Prefix::new();
    let result = codec.encode(head, payload, &mut prefix);
    if result.is_err() {
        assert!(prefix.as_slice().is_empty(), "an error, but header bytes were written");
    }
    result?;
    let mut bytes = prefix.as_slice().to_vec();
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(codec.suffix());
    Ok(bytes)
}

/// Bytes from hexadecimal digits; anything else between them is ignored.
///
/// # Panics
/// When the number of digits is odd.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        digits.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    assert!(digits.len().is_multiple_of(2), "an odd number of digits");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
