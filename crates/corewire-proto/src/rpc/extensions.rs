//! The extension block of version 2: deadline, trace context, metadata.

use std::time::Duration;

use super::block::{BodyError, split_block};
use super::output::Output;
use super::trace::TraceContext;

const DEADLINE: u8 = 1;
const TRACE: u8 = 2;
const TRACE_STATE: u8 = 3;
const METADATA: u8 = 4;

/// Longest name of a metadata entry, in bytes.
pub const METADATA_NAME_MAX: usize = 255;

/// The extension block of a received frame: checked once, then read in place.
///
/// Empty for a frame without one, and for every frame of version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions<'a> {
    entries: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Splits the block off the front of `body` and checks every entry.
    ///
    /// # Errors
    /// An entry is cut short, comes twice where it may not, or has a value that means nothing.
    pub fn parse(body: &'a [u8]) -> Result<(Self, &'a [u8]), BodyError> {
        let (entries, rest) = split_block(body).ok_or(BodyError::Extension("longer than the body"))?;
        let (mut deadlines, mut traces, mut states) = (0, 0, 0);
        let mut at = entries;
        while !at.is_empty() {
            let (kind, value, next) = split_entry(at).ok_or(BodyError::Extension("an entry cut short"))?;
            match kind {
                DEADLINE => {
                    deadlines += 1;
                    if value.len() != 8 {
                        return Err(BodyError::Extension("a deadline that is not 8 bytes"));
                    }
                }
                TRACE => {
                    traces += 1;
                    if TraceContext::from_bytes(value).is_none() {
                        return Err(BodyError::Extension("an invalid trace context"));
                    }
                }
                TRACE_STATE => {
                    states += 1;
                    if std::str::from_utf8(value).is_err() {
                        return Err(BodyError::Extension("a trace state that is not text"));
                    }
                }
                METADATA if split_metadata(value).is_none() => {
                    return Err(BodyError::Extension("metadata without a valid name"));
                }
                _ => {}
            }
            at = next;
        }
        if deadlines > 1 || traces > 1 || states > traces {
            return Err(BodyError::Extension("an entry that may come only once"));
        }
        Ok((Self { entries }, rest))
    }

    /// No entries.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Time left for the call when the frame was written.
    pub fn timeout(&self) -> Option<Duration> {
        let micros = self.find(DEADLINE)?.first_chunk::<8>()?;
        Some(Duration::from_micros(u64::from_be_bytes(*micros)))
    }

    /// The W3C trace context of the caller.
    pub fn trace(&self) -> Option<TraceContext> {
        TraceContext::from_bytes(self.find(TRACE)?)
    }

    /// The W3C `tracestate` of the caller.
    pub fn trace_state(&self) -> Option<&'a str> {
        std::str::from_utf8(self.find(TRACE_STATE)?).ok()
    }

    /// Metadata, in the order of the wire. A name may come more than once.
    pub fn metadata(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        entries(self.entries)
            .filter(|(kind, _)| *kind == METADATA)
            .filter_map(|(_, value)| split_metadata(value))
    }

    /// Length of the block in bytes, its own length field included.
    pub const fn block_len(&self) -> usize {
        self.entries.len() + 2
    }

    /// The entries as they came, to be kept and read again by [`of_entries`](Self::of_entries).
    pub const fn entries(&self) -> &'a [u8] {
        self.entries
    }

    /// The block that [`entries`](Self::entries) are of. Of other bytes it gives what can be read.
    pub const fn of_entries(entries: &'a [u8]) -> Self {
        Self { entries }
    }

    fn find(&self, wanted: u8) -> Option<&'a [u8]> {
        entries(self.entries).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }
}

/// What a frame says beside its message, to be written (version 2).
///
/// ```
/// use std::time::Duration;
/// use corewire_proto::rpc::{Extensions, Options};
///
/// let options = Options {
///     timeout: Some(Duration::from_millis(250)),
///     metadata: &[("user", b"ann")],
///     ..Options::default()
/// };
/// let mut block = Vec::new();
/// options.emit(&mut block);
/// let (read, _) = Extensions::parse(&block)?;
/// assert_eq!(read.timeout(), options.timeout);
/// assert_eq!(read.metadata().next(), Some(("user", &b"ann"[..])));
/// # Ok::<(), corewire_proto::rpc::BodyError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Time left for the call, to the microsecond. In version 1 it stays on this side.
    pub timeout: Option<Duration>,
    /// The caller's W3C trace context.
    pub trace: Option<TraceContext>,
    /// W3C `tracestate`; sent only with a trace.
    pub trace_state: &'a str,
    /// Names of 1 to 255 bytes of `a-z 0-9 - _ .`, and values of any bytes.
    pub metadata: &'a [(&'a str, &'a [u8])],
}

impl Options<'_> {
    /// Nothing to say beside the message.
    pub const fn is_empty(&self) -> bool {
        self.timeout.is_none() && self.is_local()
    }

    /// Nothing here needs the wire but a timeout, which the caller can enforce without the peer.
    pub const fn is_local(&self) -> bool {
        self.trace.is_none() && self.metadata.is_empty()
    }

    /// Length of the block in bytes, its own length field included.
    pub fn block_len(&self) -> usize {
        let mut len = 2;
        if self.timeout.is_some() {
            len += 3 + 8;
        }
        if self.trace.is_some() {
            len += 3 + TraceContext::LEN;
            if !self.trace_state.is_empty() {
                len += 3 + self.trace_state.len();
            }
        }
        self.metadata.iter().fold(len, |len, (name, value)| len + 4 + name.len() + value.len())
    }

    /// The first metadata name that cannot be sent.
    pub fn invalid_name(&self) -> Option<&str> {
        self.metadata.iter().map(|(name, _)| *name).find(|name| !is_valid_name(name.as_bytes()))
    }

    /// Writes the block. Its length must have been held against a limit of at most 65,535 bytes before.
    pub fn emit<O: Output + ?Sized>(&self, out: &mut O) {
        out.write(&(self.block_len() as u16 - 2).to_be_bytes());
        if let Some(timeout) = self.timeout {
            emit_entry(out, DEADLINE, 8);
            let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            out.write(&micros.to_be_bytes());
        }
        if let Some(trace) = &self.trace {
            emit_entry(out, TRACE, TraceContext::LEN);
            out.write(&trace.to_bytes());
            if !self.trace_state.is_empty() {
                emit_entry(out, TRACE_STATE, self.trace_state.len());
                out.write(self.trace_state.as_bytes());
            }
        }
        for (name, value) in self.metadata {
            emit_entry(out, METADATA, 1 + name.len() + value.len());
            out.write(&[name.len() as u8]);
            out.write(name.as_bytes());
            out.write(value);
        }
    }
}

fn emit_entry<O: Output + ?Sized>(out: &mut O, kind: u8, len: usize) {
    let [high, low] = (len as u16).to_be_bytes();
    out.write(&[kind, high, low]);
}

fn entries(mut at: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, value, next) = split_entry(at)?;
        at = next;
        Some((kind, value))
    })
}

fn split_entry(at: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, at) = at.split_first()?;
    let (value, next) = split_block(at)?;
    Some((kind, value, next))
}

fn split_metadata(value: &[u8]) -> Option<(&str, &[u8])> {
    let (&len, value) = value.split_first()?;
    let (name, value) = value.split_at_checked(usize::from(len))?;
    if !is_valid_name(name) {
        return None;
    }
    Some((std::str::from_utf8(name).ok()?, value))
}

fn is_valid_name(name: &[u8]) -> bool {
    (1..=METADATA_NAME_MAX).contains(&name.len())
        && name.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
}
