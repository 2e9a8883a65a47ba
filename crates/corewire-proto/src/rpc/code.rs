//! Status codes of calls.

use super::header::Version;

/// How a call ended: a number on the wire, of which 0 to 10 are those of galay-rpc.
///
/// 1,000 and above belong to applications, in version 2.
///
/// ```
/// use corewire_proto::rpc::{Code, Version};
///
/// assert_eq!(Code::CANCELLED.on_wire(Version::V2), Code::CANCELLED);
/// assert_eq!(Code::CANCELLED.on_wire(Version::V1), Code::UNKNOWN, "version 1 ends at 10");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Code(pub u16);

impl Code {
    /// The call succeeded.
    pub const OK: Self = Self(0);
    /// Something else went wrong.
    pub const UNKNOWN: Self = Self(1);
    /// The server has no such service.
    pub const SERVICE_NOT_FOUND: Self = Self(2);
    /// The service has no such method, or not in this mode.
    pub const METHOD_NOT_FOUND: Self = Self(3);
    /// The request cannot be read.
    pub const INVALID_REQUEST: Self = Self(4);
    /// The response cannot be read.
    pub const INVALID_RESPONSE: Self = Self(5);
    /// The deadline passed.
    pub const DEADLINE_EXCEEDED: Self = Self(6);
    /// The connection went away.
    pub const CONNECTION_CLOSED: Self = Self(7);
    /// A message could not be written.
    pub const SERIALIZATION: Self = Self(8);
    /// A message could not be read.
    pub const DESERIALIZATION: Self = Self(9);
    /// A fault of the server.
    pub const INTERNAL: Self = Self(10);
    /// Somebody cancelled the call.
    pub const CANCELLED: Self = Self(11);
    /// A limit is reached; the call was not begun or not finished.
    pub const RESOURCE_EXHAUSTED: Self = Self(12);
    /// The caller is not known.
    pub const UNAUTHENTICATED: Self = Self(13);
    /// The caller is known and may not.
    pub const PERMISSION_DENIED: Self = Self(14);
    /// The service cannot answer now; another try may succeed.
    pub const UNAVAILABLE: Self = Self(15);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(16);
    /// The peer sent without credit, or granted too much.
    pub const FLOW_CONTROL_ERROR: Self = Self(17);

    /// The number that stands for this code in frames of `version`.
    pub const fn on_wire(self, version: Version) -> Self {
        match (version, self.0) {
            (Version::V2, _) | (Version::V1, 0..=10) => self,
            (Version::V1, 12 | 15) => Self::INTERNAL,
            (Version::V1, _) => Self::UNKNOWN,
        }
    }

    /// Not a failure.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }
}
