//! The 16-byte header that both versions share.

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 16;

/// The first four bytes of every frame ("GRPC" in ASCII).
pub const MAGIC: u32 = 0x4752_5043;

/// The header of one frame, checked.
///
/// `parse` accepts only what the version allows: see `docs/rpc-protocol-v2.md`, section 2, for version 2. Version 1
/// has the types up to `0x14`, and flags on REQUEST and RESPONSE only.
///
/// ```
/// use corewire_proto::rpc::{FrameType, Header, Version};
///
/// let bytes = [0x47, 0x52, 0x50, 0x43, 1, 0x12, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5];
/// let header = Header::parse(&bytes)?.expect("16 bytes are a whole header");
/// assert_eq!((header.version, header.kind), (Version::V1, FrameType::StreamData));
/// assert_eq!((header.id, header.body_len), (1, 5));
/// assert_eq!(header.emit(), bytes);
/// # Ok::<(), corewire_proto::rpc::HeaderError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version byte.
    pub version: Version,
    /// What the frame is.
    pub kind: FrameType,
    /// Flags; only bits that the version gives to the type.
    pub flags: Flags,
    /// The call or stream the frame belongs to; 0 on frames of the connection.
    pub id: u32,
    /// Length of the body in bytes; not yet held against any limit.
    pub body_len: u32,
}

impl Header {
    /// Reads the header at the front of `input`; `None` when there are fewer than 16 bytes.
    ///
    /// # Errors
    /// The bytes are no header of version 1 or 2: the stream is out of step and cannot go on.
    #[inline]
    pub fn parse(input: &[u8]) -> Result<Option<Self>, HeaderError> {
        let Some(bytes) = input.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let [m0, m1, m2, m3, version, kind, flags, reserved, i0, i1, i2, i3, l0, l1, l2, l3] = *bytes;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != MAGIC {
            return Err(HeaderError::Magic { found: magic });
        }
        let version = Version::from_byte(version)?;
        let Some((kind, allowed)) = FrameType::known(version, kind) else {
            return Err(HeaderError::Type { version, found: kind });
        };
        let flags = Flags(flags);
        if flags.0 & !allowed.0 != 0 || reserved != 0 {
            return Err(HeaderError::ReservedBits { kind, flags: flags.0, reserved });
        }
        Ok(Some(Self {
            version,
            kind,
            flags,
            id: u32::from_be_bytes([i0, i1, i2, i3]),
            body_len: u32::from_be_bytes([l0, l1, l2, l3]),
        }))
    }

    /// The header's bytes.
    #[inline]
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let m = MAGIC.to_be_bytes();
        let i = self.id.to_be_bytes();
        let l = self.body_len.to_be_bytes();
        let (version, kind, flags) = (self.version as u8, self.kind as u8, self.flags.0);
        [m[0], m[1], m[2], m[3], version, kind, flags, 0, i[0], i[1], i[2], i[3], l[0], l[1], l[2], l[3]]
    }
}

/// Which version of the wire a connection speaks; the client's first frame decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Version {
    /// The format of galay-rpc.
    V1 = 1,
    /// Corewire's own: deadlines, metadata, cancellation, error detail, credits, ping, settings, going away.
    V2 = 2,
}

impl Version {
    #[inline]
    const fn from_byte(byte: u8) -> Result<Self, HeaderError> {
        match byte {
            1 => Ok(Self::V1),
            2 => Ok(Self::V2),
            found => Err(HeaderError::Version { found }),
        }
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// A message of the client; the first one begins a call.
    Request = 0x01,
    /// A message of the server.
    Response = 0x02,
    /// A ping or its answer (version 1 names the type HEARTBEAT and never uses it).
    Ping = 0x03,
    /// The failure of a call, with detail (version 1 names the type and never uses it).
    Error = 0x04,
    /// The client opens a stream.
    StreamInit = 0x10,
    /// The server accepts a stream.
    StreamInitAck = 0x11,
    /// A message of a stream.
    StreamData = 0x12,
    /// A clean end of one half of a stream.
    StreamEnd = 0x13,
    /// An unclean end: of a stream in version 1, of any call in version 2.
    Cancel = 0x14,
    /// More credit for the peer's half of a call (version 2).
    Credit = 0x20,
    /// The sender's limits (version 2).
    Settings = 0x21,
    /// The sender begins (client) or accepts (server) no more calls (version 2).
    GoAway = 0x22,
}

impl FrameType {
    /// The type of this number, and the flags that it may carry.
    #[inline]
    fn known(version: Version, byte: u8) -> Option<(Self, Flags)> {
        const COUNT: usize = FrameType::GoAway as usize + 1;
        static V1: [Option<(FrameType, Flags)>; COUNT] = FrameType::all(Version::V1);
        static V2: [Option<(FrameType, Flags)>; COUNT] = FrameType::all(Version::V2);
        let all = match version {
            Version::V1 => &V1,
            Version::V2 => &V2,
        };
        *all.get(usize::from(byte))?
    }

    const fn all<const COUNT: usize>(version: Version) -> [Option<(Self, Flags)>; COUNT] {
        let mut all = [None; COUNT];
        let mut byte = 0;
        while byte < COUNT {
            if let Some(kind) = Self::from_byte(version, byte as u8) {
                all[byte] = Some((kind, kind.allowed_flags(version)));
            }
            byte += 1;
        }
        all
    }

    const fn from_byte(version: Version, byte: u8) -> Option<Self> {
        Some(match (byte, version) {
            (0x01, _) => Self::Request,
            (0x02, _) => Self::Response,
            (0x03, _) => Self::Ping,
            (0x04, _) => Self::Error,
            (0x10, _) => Self::StreamInit,
            (0x11, _) => Self::StreamInitAck,
            (0x12, _) => Self::StreamData,
            (0x13, _) => Self::StreamEnd,
            (0x14, _) => Self::Cancel,
            (0x20, Version::V2) => Self::Credit,
            (0x21, Version::V2) => Self::Settings,
            (0x22, Version::V2) => Self::GoAway,
            _ => return None,
        })
    }

    /// The flags that a frame of this type may carry.
    #[inline]
    pub const fn allowed_flags(self, version: Version) -> Flags {
        Flags(match (self, version) {
            (Self::Request | Self::Response, Version::V1) => 0x07,
            (_, Version::V1) => 0,
            (Self::Request, Version::V2) => 0x7f,
            (Self::Response, Version::V2) => 0x2f,
            (Self::Error, Version::V2) => Flags::EXT.0,
            (Self::StreamInit, Version::V2) => Flags::EXT.0 | Flags::NAMES.0,
            (Self::Ping | Self::GoAway, Version::V2) => 0x01,
            (_, Version::V2) => 0,
        })
    }
}

/// The flag byte. Bits 1..0 of REQUEST and RESPONSE are the call's [`Mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The last frame of its half of the call.
    pub const END: Self = Self(0x04);
    /// The body begins with an extension block (version 2).
    pub const EXT: Self = Self(0x08);
    /// A REQUEST that is not the first of its call, so that it has no names (version 2).
    pub const CONT: Self = Self(0x10);
    /// Ends the half and carries no message (version 2).
    pub const EMPTY: Self = Self(0x20);
    /// The number of the method is followed by the names that it stands for (version 2).
    pub const NAMES: Self = Self(0x40);
    /// A PING that answers one.
    pub const ACK: Self = Self(0x01);
    /// A GOAWAY that accepts no call at all.
    pub const NONE_ACCEPTED: Self = Self(0x01);

    /// Whether every bit of `other` is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The call mode in bits 1..0.
    #[inline]
    pub const fn mode(self) -> Mode {
        match self.0 & 0x03 {
            0 => Mode::Unary,
            1 => Mode::ClientStream,
            2 => Mode::ServerStream,
            _ => Mode::Bidi,
        }
    }
}

/// How many messages each half of a call carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Mode {
    /// One request, one response.
    #[default]
    Unary = 0,
    /// Any number of requests, one response.
    ClientStream = 1,
    /// One request, any number of responses.
    ServerStream = 2,
    /// Any number both ways, each half ending by itself.
    Bidi = 3,
}

impl Mode {
    /// The mode as flag bits.
    #[inline]
    pub const fn flags(self) -> Flags {
        Flags(self as u8)
    }

    /// The client may send more than one message.
    #[inline]
    pub const fn streams_requests(self) -> bool {
        matches!(self, Self::ClientStream | Self::Bidi)
    }

    /// The server may send more than one message.
    #[inline]
    pub const fn streams_responses(self) -> bool {
        matches!(self, Self::ServerStream | Self::Bidi)
    }
}

/// The bytes at the front of a frame are no header; the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The magic is missing.
    #[error(
        "the peer sent {found:#010x} where a frame begins with 0x47525043: it does not speak this RPC protocol, or the stream is out of step"
    )]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// A version that is neither 1 nor 2.
    #[error("the peer speaks version {found} of the RPC protocol: this side speaks 1 and 2")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// A type that the version does not have.
    #[error("a frame of unknown type {found:#04x} ({version:?}): upgrade this side, or check the peer")]
    Type {
        /// The frame's version.
        version: Version,
        /// The type byte.
        found: u8,
    },
    /// Bits that must be 0 are set.
    #[error(
        "a {kind:?} frame has bits set that must be 0 (flags {flags:#04x}, reserved byte {reserved:#04x}): check the peer's implementation"
    )]
    ReservedBits {
        /// The frame's type.
        kind: FrameType,
        /// The flag byte.
        flags: u8,
        /// The reserved byte.
        reserved: u8,
    },
}
