//! The limits of a connection.

use super::body::SettingsBody;
use super::header::Version;

const WINDOW: u16 = 1;
const BODY: u16 = 2;
const CALLS: u16 = 3;
const STREAMS: u16 = 4;
const EXTENSION: u16 = 5;

/// Limits and settings of one connection. Every limit has a default that suits most servers.
///
/// ```
/// use corewire_proto::rpc::Settings;
///
/// let settings = Settings { window: 64 * 1024, max_calls: 1_000, ..Settings::default() };
/// assert_eq!(settings.max_body, 16 * 1024 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of one call's messages that the peer may have sent and the consumer here not yet taken. 256 KiB;
    /// 1 to 2,147,483,647. In version 1, which has no credits, reading pauses instead.
    pub window: u32,
    /// Longest body accepted and sent, in bytes. 16 MiB; a longer one closes the connection.
    pub max_body: u32,
    /// Calls in flight. 16,384; one more is refused with [`Code::RESOURCE_EXHAUSTED`](super::Code).
    pub max_calls: u32,
    /// Streams of the `STREAM_*` family open. 4,096; one more is refused by CANCEL.
    pub max_streams: u32,
    /// Longest extension block, in bytes, at most 65,535. 16 KiB; a call with a longer one is refused.
    pub max_extension: u32,
    /// Bytes handed to consumers of all calls and not yet taken. 64 MiB; over it,
    /// [`Connection::is_receive_paused`](super::Connection::is_receive_paused) is true until half of them are taken. Here
    /// messages without END count, since only those are released; servers and channels of `corewire-rpc` count all that
    /// a connection holds, by the memory that it occupies: last messages, requests of handlers that wait, metadata.
    pub max_buffered: u64,
    /// Pings of the peer. 64 at once, then 8 a second; one more closes the connection.
    pub pings: Rate,
    /// Aborts, by the peer, of calls that were being worked on: it cancels them, or sends for them what cannot be read.
    /// 1,024 at once, then 256 a second, and each response half that ends cleanly gives one back; one more closes the
    /// connection.
    pub cancels: Rate,
    /// Frames of the peer that move nothing: for calls that never were, pongs without a ping, more CREDIT frames than
    /// there were messages, a GOAWAY after another. What may have crossed the end of a call does not count. 1,024 at
    /// once, then 256 a second; one more closes the connection.
    pub strays: Rate,
    /// The id of a client's first call. 0.
    pub first_id: u32,
    /// The versions that a server speaks. Both; a client of another one is told so, see [`Versions`].
    pub versions: Versions,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: 256 * 1024,
            max_body: 16 * 1024 * 1024,
            max_calls: 16_384,
            max_streams: 4_096,
            max_extension: 16 * 1024,
            max_buffered: 64 * 1024 * 1024,
            pings: Rate { burst: 64, per_second: 8 },
            cancels: Rate { burst: 1_024, per_second: 256 },
            strays: Rate { burst: 1_024, per_second: 256 },
            first_id: 0,
            versions: Versions::ALL,
        }
    }
}

/// Versions of the protocol that a server speaks.
///
/// A client of a version that is left out gets an answer in its own: GOAWAY with code 16 in version 2; in version 1, which
/// has no word for it, each of its calls is refused with code 4 (invalid request), each stream with STREAM_CANCEL.
///
/// ```
/// use corewire_proto::rpc::{Version, Versions};
///
/// let only: Versions = [Version::V2].into_iter().collect();
/// assert!(only.has(Version::V2) && !only.has(Version::V1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    v1: bool,
    v2: bool,
}

impl Versions {
    /// Both.
    pub const ALL: Self = Self { v1: true, v2: true };

    /// Whether this one is spoken.
    #[inline]
    pub const fn has(self, version: Version) -> bool {
        match version {
            Version::V1 => self.v1,
            Version::V2 => self.v2,
        }
    }

    /// None at all is spoken.
    pub const fn is_empty(self) -> bool {
        !self.v1 && !self.v2
    }
}

impl FromIterator<Version> for Versions {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Self {
        let mut all = Self { v1: false, v2: false };
        for version in versions {
            match version {
                Version::V1 => all.v1 = true,
                Version::V2 => all.v2 = true,
            }
        }
        all
    }
}

/// How often something may happen: `burst` times at once, and `per_second` in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Times at once.
    pub burst: u32,
    /// Times a second after that.
    pub per_second: u32,
}

/// What the peer announced in its SETTINGS, or the specification's defaults until it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerSettings {
    /// Initial credit of each half sent to the peer, in bytes.
    pub window: u32,
    /// Longest body that the peer accepts, in bytes.
    pub max_body: u32,
    /// Calls in flight that the peer accepts.
    pub max_calls: u32,
    /// Streams open that the peer accepts.
    pub max_streams: u32,
    /// Longest extension block that the peer accepts, in bytes.
    pub max_extension: u32,
}

impl PeerSettings {
    /// The default of every key, but for the window: until it is known, one message per half may go.
    pub(super) fn unknown() -> Self {
        Self { window: 1, ..Self::from_own(&Settings::default()) }
    }

    pub(super) fn read(body: SettingsBody<'_>) -> Self {
        let mut peer = Self::from_own(&Settings::default());
        for (key, value) in body.entries() {
            match key {
                WINDOW => peer.window = value.max(1),
                BODY => peer.max_body = value,
                CALLS => peer.max_calls = value,
                STREAMS => peer.max_streams = value,
                EXTENSION => peer.max_extension = value,
                _ => {}
            }
        }
        peer
    }

    fn from_own(own: &Settings) -> Self {
        Self {
            window: own.window,
            max_body: own.max_body,
            max_calls: own.max_calls,
            max_streams: own.max_streams,
            max_extension: own.max_extension,
        }
    }
}

impl Settings {
    /// Values that the wire can carry: those out of range are moved to the nearest that is in range.
    pub(super) fn clamped(mut self) -> Self {
        const MAX: u32 = i32::MAX as u32;
        self.window = self.window.clamp(1, MAX);
        self.max_body = self.max_body.min(MAX);
        self.max_calls = self.max_calls.min(MAX);
        self.max_streams = self.max_streams.min(MAX);
        self.max_extension = self.max_extension.min(u32::from(u16::MAX));
        self
    }

    /// The entries of a SETTINGS body.
    pub(super) fn to_body(self) -> [[u8; 6]; 5] {
        let pairs = [
            (WINDOW, self.window),
            (BODY, self.max_body),
            (CALLS, self.max_calls),
            (STREAMS, self.max_streams),
            (EXTENSION, self.max_extension),
        ];
        pairs.map(|(key, value)| {
            let ([k0, k1], [v0, v1, v2, v3]) = (key.to_be_bytes(), value.to_be_bytes());
            [k0, k1, v0, v1, v2, v3]
        })
    }
}
