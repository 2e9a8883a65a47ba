//! The state machine of one connection.

mod begin;
mod budget;
mod call;
mod dialect;
mod emit;
mod end;
mod event;
mod ids;
mod left;
mod methods;
mod peer_end;
mod receive;
mod receive_call;
mod receive_connection;
mod receive_stream;
mod release;
mod send;
mod state;
mod table;

pub use begin::Begin;
pub use event::{Event, Failure, Request};
pub use methods::{METHOD_NAMES_MAX, METHODS_MAX};
pub use table::CallKey;

use std::time::Duration;

use self::budget::{Budget, Strays};
use self::methods::Methods;
use self::table::Table;
use super::body::MethodRef;
use super::code::Code;
use super::error::ConnectionError;
use super::header::{Header, Version};
use super::output::Output;
use super::path::MethodPath;
use super::settings::{PeerSettings, Settings};

/// One RPC connection, client or server, without the socket: bytes and the time go in, bytes and events come out.
///
/// Methods are to be called in this order:
///
/// 1. Make it: [`client`](Self::client) with the version to speak, or [`server`](Self::server), which speaks what
///    the client speaks.
/// 2. For all bytes that arrive, call [`receive`](Self::receive) until it answers `None`.
///    [`Reassembly`](super::Reassembly) keeps what it has not taken. After [`Event::GoingAway`] take
///    the refused calls by [`next_refused`](Self::next_refused), after [`Event::Settings`] the calls that may go
///    on by [`next_writable`](Self::next_writable).
/// 3. In between, in any order: a client begins calls by [`unary`](Self::unary), [`begin`](Self::begin) and
///    [`open_stream`](Self::open_stream); both sides go on by [`send`](Self::send), [`finish`](Self::finish) and
///    [`cancel`](Self::cancel); a server also answers by [`fail`](Self::fail) and [`accept`](Self::accept).
///    Consumers give back what they have taken by [`release`](Self::release).
/// 4. Every method that takes `out` may append bytes to it; send them in that order. While the peer does not read
///    and `out` grows, stop calling `receive`; stop also while [`is_receive_paused`](Self::is_receive_paused).
/// 5. To stop gracefully, [`go_away`](Self::go_away), then wait for [`is_idle`](Self::is_idle).
/// 6. When the socket is gone, or after an error of `receive` (first [`abort`](Self::abort), and send what it
///    writes), call [`next_lost`](Self::next_lost) until it answers `None`: each call still in flight comes out
///    exactly once, and every counter is back at 0.
///
/// Deadlines are carried, not kept: the owner has timers, and calls `fail` or `cancel` when one fires. The time is
/// only used to limit floods; any clock that does not go back will do.
///
/// The machine allocates when more calls are in flight than ever before, and never per call or message.
///
/// Its table of calls is the only one that is needed: the owner can [`keep`](Self::keep) a `T` of its own with each.
///
/// ```
/// use std::time::Duration;
/// use corewire_proto::rpc::{Connection, Event, MethodPath, Settings, Version};
///
/// let mut client = Connection::client(Version::V1, Settings::default());
/// let mut server = Connection::server(Settings::default());
/// let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
///
/// let echo = MethodPath::new("EchoService", "echo")?;
/// let call = client.unary(&echo, b"Hello", &mut to_server)?;
///
/// let event = server.receive(&mut &to_server[..], Duration::ZERO, &mut to_client)?;
/// let Some(Event::Request { call: served, request }) = event else { panic!() };
/// server.send(served, request.payload.unwrap_or_default(), true, &mut to_client)?;
///
/// let event = client.receive(&mut &to_client[..], Duration::ZERO, &mut to_server)?;
/// let Some(Event::Message { call: answered, payload, end, .. }) = event else { panic!() };
/// assert_eq!((answered, payload, end), (call, &b"Hello"[..], true));
/// assert!(client.is_idle() && server.is_idle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection<T = ()> {
    is_client: bool,
    needed: usize,
    /// None on a server until the first header.
    version: Option<Version>,
    settings: Settings,
    peer: PeerSettings,
    settings_sent: bool,
    settings_received: bool,
    calls: Table<T>,
    /// Methods that have numbers (version 2).
    methods: Methods,
    /// By slot: the names that further requests of version 1 repeat (client). Those of calls that are over stay
    /// until another such call takes the slot.
    repeated: Vec<Option<MethodPath>>,
    next_id: u32,
    last_accepted: Option<u32>,
    /// The id of the last call that the client began, accepted or not (server, version 2).
    last_begun: Option<u32>,
    is_going_away: bool,
    is_peer_going_away: bool,
    /// The peer's GOAWAY refuses the calls after this one; the outer `None` when there is none to refuse.
    refused_after: Option<Option<u32>>,
    /// Where `next_refused`, `next_writable` and `next_lost` go on looking.
    cursor: u32,
    pings: Budget,
    /// Calls that the peer may stop while they are worked on.
    aborts: Budget,
    strays: Strays,
    pings_unanswered: u32,
    buffered: u64,
    /// `buffered` came over its limit and has not fallen to half of it since.
    is_over_buffered: bool,
    /// Calls with more unreleased than the window (version 1, which cannot stop one sender).
    over_window: u32,
}

impl Connection {
    /// The client's side of a new connection.
    pub fn client(version: Version, settings: Settings) -> Self {
        Self::client_keeping(version, settings)
    }

    /// The server's side of a new connection; the version is the client's choice.
    pub fn server(settings: Settings) -> Self {
        Self::server_keeping(settings)
    }
}

impl<T> Connection<T> {
    /// The client's side of a new connection, which keeps a `T` with calls.
    pub fn client_keeping(version: Version, settings: Settings) -> Self {
        let mut connection = Self::new(true, settings);
        connection.set_version(version);
        connection
    }

    /// The server's side of a new connection, which keeps a `T` with calls.
    pub fn server_keeping(settings: Settings) -> Self {
        Self::new(false, settings)
    }

    fn new(is_client: bool, settings: Settings) -> Self {
        let settings = settings.clamped();
        Self {
            is_client,
            needed: super::header::HEADER_LEN,
            version: None,
            settings,
            peer: PeerSettings::unknown(),
            settings_sent: false,
            settings_received: false,
            calls: Table::new(),
            methods: Methods::default(),
            repeated: Vec::new(),
            next_id: settings.first_id,
            last_accepted: None,
            last_begun: None,
            is_going_away: false,
            is_peer_going_away: false,
            refused_after: None,
            cursor: 0,
            pings: Budget::new(settings.pings),
            aborts: Budget::new(settings.cancels),
            strays: Strays::new(settings.strays, settings.window),
            pings_unanswered: 0,
            buffered: 0,
            is_over_buffered: false,
            over_window: 0,
        }
    }

    /// The version spoken; `None` on a server that has received nothing.
    pub const fn version(&self) -> Option<Version> {
        self.version
    }

    /// The limits of this side, as they are in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The limits of the peer, or the defaults until they are known.
    pub const fn peer_settings(&self) -> &PeerSettings {
        &self.peer
    }

    /// Calls of which a half is open, those included that this side has given up and whose end the peer still owes.
    pub const fn calls_in_flight(&self) -> usize {
        self.calls.in_use().calls as usize
    }

    /// How many calls can be begun now without being refused by the peer. In version 2 it is one until the peer's SETTINGS
    /// have come.
    #[inline]
    pub fn calls_left(&self) -> usize {
        let most = self.settings.max_calls.min(self.peer.max_calls).min(self.begun_unheard_max());
        most.saturating_sub(self.calls.in_use().calls) as usize
    }

    /// The same for streams of the `STREAM_*` family.
    #[inline]
    pub fn streams_left(&self) -> usize {
        let most = self.settings.max_streams.min(self.peer.max_streams).min(self.begun_unheard_max());
        most.saturating_sub(self.calls.in_use().streams) as usize
    }

    /// Each server takes one.
    #[inline]
    fn begun_unheard_max(&self) -> u32 {
        let waits_for_settings = !self.settings_received && self.version == Some(Version::V2);
        if waits_for_settings { 1 } else { u32::MAX }
    }

    /// Streams of the `STREAM_*` family of which a half is open, those included that this side has given up.
    pub const fn streams_open(&self) -> usize {
        self.calls.in_use().streams as usize
    }

    /// Calls and streams that this side has given up and whose end the peer still owes.
    pub const fn calls_abandoned(&self) -> usize {
        self.calls.abandoned().all()
    }

    /// Bytes of messages handed out and not yet released (16 are counted for each message beside its payload).
    pub const fn buffered_bytes(&self) -> u64 {
        self.buffered
    }

    /// The id that a call has on the wire, for logs; `None` when it is over.
    pub fn wire_id(&self, call: CallKey) -> Option<u32> {
        self.calls.resolve(call).map(|index| self.calls.id(index))
    }

    /// No call is in flight and no stream is open.
    pub const fn is_idle(&self) -> bool {
        self.calls.in_use().all() == 0
    }

    /// Either side has said that it begins or accepts no more calls.
    pub const fn is_going_away(&self) -> bool {
        self.is_going_away || self.is_peer_going_away
    }

    /// Consumers hold more than the limits allow: read no more until [`release`](Self::release) has made room.
    ///
    /// It says so when the whole connection holds more than [`Settings::max_buffered`], and in version 1, where one
    /// sender cannot be stopped alone, when a single call holds more than [`Settings::window`]; and then until it holds
    /// no more than half of that, so that a slow consumer does not stop and start the reader for each message. A consumer that waits
    /// for another call of the same connection before it takes what it has can then wait for ever.
    #[inline]
    pub const fn is_receive_paused(&self) -> bool {
        self.over_window > 0 || self.is_over_buffered
    }

    /// The service and the method of a call that was begun, as its first frame said them.
    pub fn names<'a>(&'a self, method: MethodRef<'a>) -> (&'a [u8], &'a [u8]) {
        match method {
            MethodRef::Names { service, method, .. } => (service, method),
            MethodRef::Number(number) => {
                self.methods.get(number).map_or_else(Default::default, |path| (path.service(), path.method()))
            }
            MethodRef::Unsaid => Default::default(),
        }
    }

    /// Memory that is held for the methods that have numbers, in bytes.
    pub const fn method_bytes(&self) -> usize {
        self.methods.bytes()
    }

    /// Writes the GOAWAY that tells the peer why the connection is being closed; nothing in version 1.
    pub fn abort<O: Output + ?Sized>(&mut self, error: &ConnectionError, out: &mut O) {
        self.is_going_away = true;
        if self.dialect().has_control() {
            self.start(out);
            let reason = error.to_string();
            emit::go_away(self.last_accepted, error.code(), &reason, out);
        }
    }

    /// Begins (client) or accepts (server) no more calls, and says so in version 2; calls in flight go on.
    ///
    /// A server answers later calls with nothing in version 2, since the client knows from the GOAWAY that they were
    /// not begun, and with [`Code::CONNECTION_CLOSED`] or STREAM_CANCEL in version 1.
    pub fn go_away<O: Output + ?Sized>(&mut self, code: Code, reason: &str, out: &mut O) {
        self.is_going_away = true;
        if self.dialect().has_control() {
            self.start(out);
            emit::go_away(self.last_accepted, code, reason, out);
        }
    }

    /// Sends a ping; [`Event::Pong`] answers it. False in version 1, which has none, and on a server that does not
    /// know the version yet.
    pub fn ping<O: Output + ?Sized>(&mut self, data: [u8; 8], out: &mut O) -> bool {
        if !self.dialect().has_control() {
            return false;
        }
        self.start(out);
        self.pings_unanswered = self.pings_unanswered.saturating_add(1);
        emit::ping(false, data, out);
        true
    }

    /// Writes what a side says first, if it has not yet: SETTINGS in version 2. Other methods do this by themselves.
    #[inline]
    pub fn start<O: Output + ?Sized>(&mut self, out: &mut O) {
        if !self.settings_sent && self.dialect().has_control() {
            self.settings_sent = true;
            emit::settings(&self.settings, out);
        }
    }

    fn set_version(&mut self, version: Version) {
        self.version = Some(version);
        // What does not exist is not awaited.
        self.settings_received = !version.has_control();
        if !version.ids_increase() {
            self.calls.set_streams_apart();
        }
    }

    /// How the connection speaks. Nothing is said or read on a server before the version is known.
    #[inline]
    fn dialect(&self) -> Version {
        self.version.unwrap_or(Version::V1)
    }

    /// False on a server that is told not to speak its client's version.
    #[inline]
    fn is_version_served(&self) -> bool {
        self.is_client || self.version.is_none_or(|version| self.settings.versions.has(version))
    }

    /// The call is over.
    #[inline]
    fn free(&mut self, index: u32) {
        let call = self.calls.at(index);
        let (is_open, credit, has_unreleased) =
            (!call.has_peer_ended(), call.receive_credit, call.unreleased > 0);
        if has_unreleased {
            self.drop_unreleased(index);
        }
        self.calls.remove(index);
        self.expect_rest(is_open, credit);
    }

    /// Nobody waits for the call any more; the slot stays until the peer has ended its half.
    fn abandon(&mut self, index: u32) {
        self.drop_unreleased(index);
        self.calls.abandon(index);
    }

    /// What the peer may send for a call that is over, before it knows: its CREDIT, CANCEL and END, and messages if its
    /// half is open.
    #[inline]
    fn expect_rest(&mut self, is_open: bool, credit: i64) {
        if is_open && !self.dialect().has_credit() {
            return self.strays.expect_most();
        }
        let messages = if is_open { credit.max(0) as u64 } else { 0 };
        self.strays.expect(messages + REST_LEN);
    }

    /// A frame that moves nothing: it crossed the end of what it belongs to, or is one too many.
    fn stray(&mut self, header: &Header, now: Duration) -> Result<(), ConnectionError> {
        if self.strays.take(cost(header.body_len as usize), now) {
            return Ok(());
        }
        let rate = self.settings.strays;
        Err(ConnectionError::StrayFlood { kind: header.kind, burst: rate.burst, per_second: rate.per_second })
    }
}

/// What a CREDIT frame takes on the wire: the peer may send one for each message.
const CREDIT_LEN: u64 = 4 + super::header::HEADER_LEN as u64;

/// Frames without a message that may follow the end of a call, in bytes.
const REST_LEN: u64 = 4 * super::header::HEADER_LEN as u64;

/// Whether an id comes after another one in the sequence of a client, which goes on from 0 after the highest.
const fn is_later(id: u32, than: u32) -> bool {
    matches!(id.wrapping_sub(than), 1..0x8000_0000)
}

/// What a message without END costs of a half's credit, in bytes.
#[inline]
const fn cost(payload_len: usize) -> u64 {
    payload_len as u64 + super::header::HEADER_LEN as u64
}
