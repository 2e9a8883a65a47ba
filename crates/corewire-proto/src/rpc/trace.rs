//! W3C trace context.

use std::fmt;
use std::str::FromStr;

/// A W3C trace context: which trace the caller belongs to.
///
/// ```
/// use corewire_proto::rpc::TraceContext;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let trace: TraceContext = text.parse()?;
/// assert!(trace.is_sampled());
/// assert_eq!(trace.to_string(), text);
/// # Ok::<(), corewire_proto::rpc::InvalidTraceParent>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    parent_id: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// Length on the wire in bytes.
    pub const LEN: usize = 25;

    /// A context of these ids; `None` when one of them is all zero, which W3C forbids.
    pub fn new(trace_id: [u8; 16], parent_id: [u8; 8], flags: u8) -> Option<Self> {
        (trace_id != [0; 16] && parent_id != [0; 8]).then_some(Self { trace_id, parent_id, flags })
    }

    /// The same trace as the calls of another span carry it; `None` when its id is all zero.
    pub fn with_parent(self, parent_id: [u8; 8]) -> Option<Self> {
        Self::new(self.trace_id, parent_id, self.flags)
    }

    /// The id that all spans of the trace share.
    pub const fn trace_id(&self) -> &[u8; 16] {
        &self.trace_id
    }

    /// The caller's span.
    pub const fn parent_id(&self) -> &[u8; 8] {
        &self.parent_id
    }

    /// The W3C flag byte.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// The caller may have recorded the trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & 1 != 0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace_id, rest) = bytes.split_first_chunk::<16>()?;
        let (parent_id, rest) = rest.split_first_chunk::<8>()?;
        let &[flags] = rest else { return None };
        Self::new(*trace_id, *parent_id, flags)
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.parent_id);
        bytes[24] = self.flags;
        bytes
    }
}

/// Written as the `traceparent` header is.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.parent_id.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// Read from a `traceparent` header. Of a version after 00 what version 00 defines is read, as W3C asks.
impl FromStr for TraceContext {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| InvalidTraceParent(text.to_owned()))
    }
}

/// The text is no `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no traceparent: it is written 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case"
)]
pub struct InvalidTraceParent(String);

fn parse(text: &str) -> Option<TraceContext> {
    let mut parts = text.split('-');
    let [version] = hex::<1>(parts.next()?)?;
    let context = TraceContext::new(hex(parts.next()?)?, hex(parts.next()?)?, hex::<1>(parts.next()?)?[0])?;
    let ends = parts.next().is_none();
    (version != 0xff && (ends || version != 0)).then_some(context)
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
    }
    Some(bytes)
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
