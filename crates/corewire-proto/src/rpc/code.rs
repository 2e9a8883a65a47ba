//! Status codes of calls.

use super::header::Version;

/// How a call ended: a number on the wire, of which 0 to 10 are those of galay-rpc.
///
/// 1,000 and above belong to applications, in version 2. Each code of gRPC has one here under the same name, see
/// [`to_grpc`](Self::to_grpc) and [`from_grpc`](Self::from_grpc); the others say what gRPC has no word for.
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

    /// An argument means nothing, whatever the state of the service.
    pub const INVALID_ARGUMENT: Self = Self(18);
    /// What was asked for does not exist.
    pub const NOT_FOUND: Self = Self(19);
    /// What was to be made exists.
    pub const ALREADY_EXISTS: Self = Self(20);
    /// The service is not in the state that the call needs; another try does not help before that is mended.
    pub const FAILED_PRECONDITION: Self = Self(21);
    /// Another call came between; the whole may be tried again.
    pub const ABORTED: Self = Self(22);
    /// Beyond the end of what there is.
    pub const OUT_OF_RANGE: Self = Self(23);
    /// The server does not do this.
    pub const UNIMPLEMENTED: Self = Self(24);
    /// Data is lost or spoilt for good.
    pub const DATA_LOSS: Self = Self(25);

    /// By number in gRPC.
    const GRPC: [Self; 17] = [
        Self::OK,
        Self::CANCELLED,
        Self::UNKNOWN,
        Self::INVALID_ARGUMENT,
        Self::DEADLINE_EXCEEDED,
        Self::NOT_FOUND,
        Self::ALREADY_EXISTS,
        Self::PERMISSION_DENIED,
        Self::RESOURCE_EXHAUSTED,
        Self::FAILED_PRECONDITION,
        Self::ABORTED,
        Self::OUT_OF_RANGE,
        Self::UNIMPLEMENTED,
        Self::INTERNAL,
        Self::UNAVAILABLE,
        Self::DATA_LOSS,
        Self::UNAUTHENTICATED,
    ];

    /// The code with this number in gRPC (0 to 16).
    ///
    /// ```
    /// use corewire_proto::rpc::Code;
    ///
    /// assert_eq!(Code::from_grpc(5), Some(Code::NOT_FOUND));
    /// assert_eq!(Code::NOT_FOUND.to_grpc(), 5);
    /// ```
    pub fn from_grpc(number: u32) -> Option<Self> {
        Self::GRPC.get(usize::try_from(number).ok()?).copied()
    }

    /// The number in gRPC of this code, or of the one there that comes nearest: a code of an application is 2 (unknown).
    pub fn to_grpc(self) -> u32 {
        let nearest = match self {
            Self::SERVICE_NOT_FOUND | Self::METHOD_NOT_FOUND => Self::UNIMPLEMENTED,
            Self::INVALID_REQUEST => Self::INVALID_ARGUMENT,
            Self::CONNECTION_CLOSED => Self::UNAVAILABLE,
            Self::INVALID_RESPONSE
            | Self::SERIALIZATION
            | Self::DESERIALIZATION
            | Self::PROTOCOL_ERROR
            | Self::FLOW_CONTROL_ERROR => Self::INTERNAL,
            code => code,
        };
        Self::GRPC.iter().position(|code| *code == nearest).map_or(2, |number| number as u32)
    }

    /// The number that stands for this code in frames of `version`.
    pub const fn on_wire(self, version: Version) -> Self {
        match (version, self.0) {
            (Version::V2, _) | (Version::V1, 0..=10) => self,
            (Version::V1, 12 | 15) => Self::INTERNAL,
            (Version::V1, 18) => Self::INVALID_REQUEST,
            (Version::V1, _) => Self::UNKNOWN,
        }
    }

    /// Not a failure.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_of_grpc_has_one_of_its_own() {
        for number in 0..17 {
            let code = Code::from_grpc(number).expect("0 to 16 are codes");
            assert_eq!(code.to_grpc(), number, "{code:?}");
        }
        assert_eq!(Code::from_grpc(17), None);
        for code in 0..26 {
            assert!(
                Code(code) == Code::UNKNOWN || Code(code).to_grpc() != 2,
                "{code} has none that comes near"
            );
        }
        assert_eq!(Code(1_000).to_grpc(), 2);
    }
}
