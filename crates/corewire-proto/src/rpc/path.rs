//! The name of a method, ready for the wire.

use bytes::Bytes;

/// A service and a method, in the layout of a REQUEST, made once and used for many calls. Cheap to clone.
///
/// ```
/// use corewire_proto::rpc::MethodPath;
///
/// let echo = MethodPath::new("EchoService", "echo")?;
/// assert_eq!((echo.service(), echo.method()), (&b"EchoService"[..], &b"echo"[..]));
/// # Ok::<(), corewire_proto::rpc::NameTooLong>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MethodPath {
    wire: Bytes,
}

impl MethodPath {
    /// Longest service or method name, in bytes.
    pub const NAME_MAX: usize = u16::MAX as usize;

    /// A path of these names.
    ///
    /// # Errors
    /// A name has more than 65,535 bytes.
    pub fn new(service: &str, method: &str) -> Result<Self, NameTooLong> {
        let mut wire = Vec::with_capacity(4 + service.len() + method.len());
        for name in [service, method] {
            let len = u16::try_from(name.len()).map_err(|_| NameTooLong { len: name.len() })?;
            wire.extend_from_slice(&len.to_be_bytes());
            wire.extend_from_slice(name.as_bytes());
        }
        Ok(Self { wire: wire.into() })
    }

    /// The service's name.
    pub fn service(&self) -> &[u8] {
        self.names().0
    }

    /// The method's name.
    pub fn method(&self) -> &[u8] {
        self.names().1
    }

    /// Names as they were received.
    pub(super) fn received(service: &[u8], method: &[u8]) -> Self {
        let mut wire = Vec::with_capacity(4 + service.len() + method.len());
        for name in [service, method] {
            // They came with lengths of this size.
            wire.extend_from_slice(&(name.len() as u16).to_be_bytes());
            wire.extend_from_slice(name);
        }
        Self { wire: wire.into() }
    }

    #[inline]
    pub(super) fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Both are clones of one path, and so the same names.
    #[inline]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.wire.as_ptr() == other.wire.as_ptr() && self.wire.len() == other.wire.len()
    }

    fn names(&self) -> (&[u8], &[u8]) {
        let split = || {
            let (service, rest) = super::block::split_block(&self.wire)?;
            Some((service, super::block::split_block(rest)?.0))
        };
        split().unwrap_or_default()
    }
}

/// A name that the wire cannot carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a service or method name of {len} bytes does not fit: it may have at most 65535")]
pub struct NameTooLong {
    /// The name's length in bytes.
    pub len: usize,
}
