//! RPC state machines joined in memory, with events that own their bytes.

use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{
    Advance, CallKey, Code, Connection, ConnectionError, Event, Mode, PeerSettings, Reassembly, Settings,
    Version,
};

/// A client and a server, joined.
///
/// ```
/// use corewire_proto::rpc::{MethodPath, Version};
/// use corewire_testkit::rpc_pair::{RpcPair, Seen};
///
/// let mut pair = RpcPair::new(Version::V2);
/// let path = MethodPath::new("Echo", "echo")?;
/// pair.client.machine.unary(&path, b"hi", &mut pair.client.out)?;
/// let seen = pair.to_server();
/// assert!(matches!(&seen[..], [Seen::Settings(_), Seen::Request { .. }]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RpcPair {
    /// The client.
    pub client: RpcPeer,
    /// The server.
    pub server: RpcPeer,
}

/// One state machine, what it has written and not delivered, and the front of a frame that has come in.
#[derive(Debug)]
pub struct RpcPeer {
    /// The state machine.
    pub machine: Connection,
    /// Written, to be delivered to the other side.
    pub out: Vec<u8>,
    /// The time that the machine is told.
    pub now: Duration,
    inbox: Reassembly,
}

impl RpcPair {
    /// Both sides with default settings.
    pub fn new(version: Version) -> Self {
        Self::with_settings(version, Settings::default(), Settings::default())
    }

    /// Both sides with settings of their own.
    pub fn with_settings(version: Version, client: Settings, server: Settings) -> Self {
        Self {
            client: RpcPeer::new(Connection::client(version, client)),
            server: RpcPeer::new(Connection::server(server)),
        }
    }

    /// Delivers all that the client has written.
    ///
    /// # Panics
    /// The server calls it a breach of the protocol.
    pub fn to_server(&mut self) -> Vec<Seen> {
        let bytes = std::mem::take(&mut self.client.out);
        self.server.receive(&bytes).unwrap_or_else(|error| panic!("the server refuses: {error}"))
    }

    /// Delivers all that the server has written.
    ///
    /// # Panics
    /// The client calls it a breach of the protocol.
    pub fn to_client(&mut self) -> Vec<Seen> {
        let bytes = std::mem::take(&mut self.server.out);
        self.client.receive(&bytes).unwrap_or_else(|error| panic!("the client refuses: {error}"))
    }

    /// Delivers both ways until nothing is on the way.
    ///
    /// # Panics
    /// One side calls it a breach of the protocol, or something of a call is left.
    pub fn assert_settles_idle(&mut self) {
        while !self.client.out.is_empty() || !self.server.out.is_empty() {
            self.to_server();
            self.to_client();
        }
        self.client.assert_idle();
        self.server.assert_idle();
    }
}

impl RpcPeer {
    /// A machine with nothing written or received.
    pub fn new(machine: Connection) -> Self {
        Self { machine, out: Vec::new(), now: Duration::ZERO, inbox: Reassembly::new() }
    }

    /// Receives a chunk, which may end anywhere.
    ///
    /// # Errors
    /// The machine's.
    pub fn receive(&mut self, chunk: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        let mut seen = Vec::new();
        let Self { machine, out, now, inbox } = self;
        inbox.drive(&Bytes::copy_from_slice(chunk), |input, _| {
            let mut rest = input;
            let event = machine.receive(&mut rest, *now, out)?;
            let consumed = input.len() - rest.len();
            let Some(event) = event else {
                return Ok::<_, ConnectionError>(Advance::Needs { consumed, total: machine.needed() });
            };
            if event != Event::Handled {
                seen.push(Seen::of(event, machine));
            }
            if matches!(event, Event::GoingAway(_)) {
                seen.extend(std::iter::from_fn(|| machine.next_refused()).map(Seen::Refused));
            }
            if matches!(event, Event::Settings(_)) {
                seen.extend(std::iter::from_fn(|| machine.next_writable()).map(Seen::Writable));
            }
            Ok(Advance::Consumed(consumed))
        })?;
        Ok(seen)
    }

    /// The connection has died: the calls that it takes along.
    pub fn lose(&mut self) -> Vec<CallKey> {
        std::iter::from_fn(|| self.machine.next_lost()).collect()
    }

    /// Nothing of any call is left.
    ///
    /// # Panics
    /// Something is.
    pub fn assert_idle(&self) {
        let machine = &self.machine;
        assert!(machine.is_idle(), "{} calls, {} streams", machine.calls_in_flight(), machine.streams_open());
        assert_eq!((machine.calls_in_flight(), machine.streams_open()), (0, 0));
        assert_eq!((machine.calls_abandoned(), machine.buffered_bytes()), (0, 0));
        assert!(!machine.is_receive_paused());
    }
}

/// An [`Event`] that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A call or stream was begun.
    Request {
        /// The call.
        call: CallKey,
        /// Its mode.
        mode: Mode,
        /// Opened by STREAM_INIT.
        is_stream: bool,
        /// `service/method`.
        path: String,
        /// The first message.
        payload: Option<Vec<u8>>,
        /// The client's half has ended.
        end: bool,
        /// What came with it.
        extensions: SeenExtensions,
    },
    /// A message came.
    Message(CallKey, Vec<u8>, bool, SeenExtensions),
    /// The peer's half ended cleanly.
    Ended(CallKey, SeenExtensions),
    /// The server failed the call: code, message, details.
    Failed(CallKey, Code, String, Vec<u8>),
    /// The peer cancelled the call: code, reason.
    Cancelled(CallKey, Code, String),
    /// The server accepted the stream.
    Accepted(CallKey),
    /// There is credit.
    Writable(CallKey),
    /// The call was never begun.
    Refused(CallKey),
    /// The peer's limits.
    Settings(PeerSettings),
    /// A ping was answered.
    Pong([u8; 8]),
    /// The peer is going away: last accepted id, code, reason.
    GoingAway(Option<u32>, Code, String),
}

/// An extension block that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenExtensions {
    /// Deadline.
    pub timeout: Option<Duration>,
    /// `traceparent`.
    pub trace: Option<String>,
    /// `tracestate`.
    pub trace_state: Option<String>,
    /// Metadata.
    pub metadata: Vec<(String, Vec<u8>)>,
}

impl From<corewire_proto::rpc::Extensions<'_>> for SeenExtensions {
    fn from(from: corewire_proto::rpc::Extensions<'_>) -> Self {
        Self {
            timeout: from.timeout(),
            trace: from.trace().map(|trace| trace.to_string()),
            trace_state: from.trace_state().map(str::to_owned),
            metadata: from.metadata().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        }
    }
}

impl Seen {
    /// What `machine` has told.
    fn of(event: Event<'_>, machine: &Connection) -> Self {
        let is_stream = matches!(event, Event::StreamOpened { .. });
        match event {
            Event::Request { call, request } | Event::StreamOpened { call, request } => Self::Request {
                call,
                mode: request.mode,
                is_stream,
                path: <[_; 2]>::from(machine.names(request.method)).map(String::from_utf8_lossy).join("/"),
                payload: request.payload.map(<[u8]>::to_vec),
                end: request.end,
                extensions: request.extensions.into(),
            },
            Event::Message { call, payload, end, extensions } => {
                Self::Message(call, payload.to_vec(), end, extensions.into())
            }
            Event::Ended { call, extensions } => Self::Ended(call, extensions.into()),
            Event::Failed { call, error } => {
                Self::Failed(call, error.code, error.message.to_owned(), error.details.to_vec())
            }
            Event::Cancelled { call, cancel } => Self::Cancelled(call, cancel.code, cancel.reason.to_owned()),
            Event::Accepted { call } => Self::Accepted(call),
            Event::Writable { call } => Self::Writable(call),
            Event::Settings(settings) => Self::Settings(settings),
            Event::Pong(data) => Self::Pong(data),
            Event::GoingAway(body) => Self::GoingAway(body.last_accepted, body.code, body.reason.to_owned()),
            other => unreachable!("an event that the test kit does not know: {other:?}"),
        }
    }

    /// The call that it is about.
    pub fn call(&self) -> Option<CallKey> {
        match *self {
            Self::Request { call, .. }
            | Self::Message(call, ..)
            | Self::Ended(call, _)
            | Self::Failed(call, ..)
            | Self::Cancelled(call, ..)
            | Self::Accepted(call)
            | Self::Writable(call)
            | Self::Refused(call) => Some(call),
            Self::Settings(_) | Self::Pong(_) | Self::GoingAway(..) => None,
        }
    }
}
