//! What goes with a call beside its messages.

use bytes::Bytes;
use corewire_proto::rpc::{Extensions, TraceContext};

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    entries: Vec<(String, Bytes)>,
}

impl Metadata {
    pub(crate) const EMPTY: Self = Self { entries: Vec::new() };

    /// Adds a value. A name has 1 to 255 characters of `a-z 0-9 - _ .`; a call with another one fails.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.entries.push((name.into(), value.into()));
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The first value of a name, if it is text.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(name, value)| (name.as_str(), &value[..]))
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The metadata of a received block.
    pub(crate) fn read(extensions: &Extensions<'_>) -> Self {
        let entries =
            extensions.metadata().map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)));
        Self { entries: entries.collect() }
    }
}

/// What the first frame of a call says beside its message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) metadata: Metadata,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) trace_state: String,
}

impl Head {
    pub(crate) fn read(extensions: &Extensions<'_>) -> Self {
        Self {
            metadata: Metadata::read(extensions),
            trace: extensions.trace(),
            trace_state: extensions.trace_state().unwrap_or_default().to_owned(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.metadata.entries.is_empty() && self.trace.is_none()
    }
}
