//! What goes with a call beside its messages.

use std::fmt;

use bytes::Bytes;
use corewire_proto::rpc::{Extensions, Options, TraceContext};

/// Names and values that go with a call (version 2), in their order; a name may come more than once.
///
/// ```
/// use corewire_rpc::Metadata;
///
/// let mut metadata = Metadata::default();
/// metadata.add("user", "ann");
/// assert_eq!(metadata.get("user"), Some(&b"ann"[..]));
/// assert_eq!(metadata.get("role"), None);
/// ```
#[derive(Clone, Default)]
pub struct Metadata {
    /// As it came: read when it is asked for. Nothing of it is valid that was not checked when it was received.
    received: Bytes,
    added: Vec<(String, Bytes)>,
}

impl Metadata {
    pub(crate) const EMPTY: Self = Self { received: Bytes::new(), added: Vec::new() };

    /// None at all, to be borrowed.
    pub(crate) fn none() -> &'static Self {
        static NONE: Metadata = Metadata::EMPTY;
        &NONE
    }

    /// Adds a value. A name has 1 to 255 characters of `a-z 0-9 - _ .`; a call with another one fails.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.added.push((name.into(), value.into()));
    }

    /// The first value of a name. Looks through all of them.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The first value of a name, if it is text.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let added = self.added.iter().map(|(name, value)| (name.as_str(), &value[..]));
        self.extensions().metadata().chain(added)
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(crate) fn pop(&mut self) {
        self.added.pop();
    }

    pub(crate) fn append(&mut self, other: &Self) {
        let (name, value) = (str::to_owned, Bytes::copy_from_slice);
        self.added.extend(other.iter().map(|(n, v)| (name(n), value(v))));
    }

    /// As the state machine takes it.
    pub(crate) fn as_pairs(&self) -> Vec<(&str, &[u8])> {
        self.iter().collect()
    }

    /// The metadata of the entries of a received block.
    pub(crate) const fn received(entries: Bytes) -> Self {
        Self { received: entries, added: Vec::new() }
    }

    /// The block that it came in, of which it is a part.
    pub(crate) fn extensions(&self) -> Extensions<'_> {
        Extensions::of_entries(&self.received)
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Metadata {}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value| String::from_utf8_lossy(value);
        f.debug_list().entries(self.iter().map(|(name, value)| (name, text(value)))).finish()
    }
}

/// What the first frame of a call says beside its message, to be sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) metadata: Metadata,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) trace_state: String,
}

/// A handler cannot send this metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The client speaks version 1.
    #[error("the client speaks version 1, which carries no metadata: look at `Context::version` first")]
    NotInVersion1,
    /// The call is a stream of the `STREAM_*` family.
    #[error("streams of the STREAM family carry no metadata of the server: use a bidi call")]
    NotOnStreams,
    /// The first response has been sent.
    #[error("the first response has been sent: add headers before it, or use a trailer")]
    HeaderSent,
    /// The call has been answered, has failed, or was cancelled.
    #[error("the call is over: add metadata before it is answered")]
    CallOver,
    /// The name has other characters than `a-z 0-9 - _ .`, none, or more than 255.
    #[error("{0:?} is no metadata name: it has 1 to 255 characters of a-z, 0-9, '-', '_', '.'")]
    Name(String),
    /// All of it together is longer than the client takes.
    #[error("{len} bytes of metadata do not fit: the client takes {limit}")]
    TooLong {
        /// What it would come to, in bytes as on the wire.
        len: usize,
        /// The client's limit in bytes.
        limit: usize,
    },
}

/// The name, if it can be sent.
pub(crate) fn check_name(name: &str) -> Result<(), MetadataError> {
    let metadata = [(name, &b""[..])];
    let options = Options { metadata: &metadata, ..Options::default() };
    match options.invalid_name() {
        Some(name) => Err(MetadataError::Name(name.to_owned())),
        None => Ok(()),
    }
}
