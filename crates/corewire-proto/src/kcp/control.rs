//! One conversation.

use super::acks::Acks;
use super::close::Ending;
use super::config::{Config, LEAST_RECEIVE_WINDOW};
use super::congestion::{Congestion, CongestionControl};
use super::error::ConfigError;
use super::pool::Pool;
use super::receive_ring::ReceiveRing;
use super::round_trip::RoundTrip;
use super::send_ring::SendRing;
use super::transmit::Resending;
use super::validation::Validation;

/// One conversation: a reliable, ordered exchange of messages (or a byte stream) over lossy datagrams.
///
/// It does no I/O and reads no clock. The caller, for each conversation:
///
/// 1. gives it every datagram that arrives: [`receive`](Self::receive);
/// 2. takes what can be read: [`recv`](Self::recv), [`recv_into`](Self::recv_into) or [`read`](Self::read);
/// 3. hands it what is to be sent: [`send`](Self::send), [`send_bytes`](Self::send_bytes) or
///    [`write`](Self::write);
/// 4. after a batch of the above, and when the time of step 5 has come, calls
///    [`poll_transmit`](Self::poll_transmit) until it gives `None`, and sends what it gave;
/// 5. asks [`next_timeout`](Self::next_timeout) when to call `poll_transmit` again if nothing happens before;
/// 6. looks at [`state`](Self::state): a conversation that is closed sends and receives no more.
///
/// `now` is in milliseconds from any fixed moment and must not go back.
///
/// ```
/// use corewire_proto::kcp::{Config, Kcp};
///
/// let mut alice = Kcp::new(1, Config::turbo())?;
/// let mut bob = Kcp::new(1, Config::turbo())?;
/// alice.send(b"hello")?;
///
/// let mut out = Vec::new();
/// while let Some(transmit) = alice.poll_transmit(0, &mut out, 64) {
///     for datagram in out.chunks(transmit.segment_size) {
///         bob.receive(0, datagram)?; // here a socket would be in between
///     }
///     out.clear();
/// }
/// assert_eq!(bob.recv().as_deref(), Some(&b"hello"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Kcp {
    pub(super) conversation: u32,
    pub(super) config: Config,
    pub(super) outgoing: SendRing,
    pub(super) incoming: ReceiveRing,
    /// Bytes of the oldest unread segment that [`Kcp::read`] has given out already.
    pub(super) read_offset: usize,
    pub(super) pool: Pool,
    pub(super) acks: Acks,
    pub(super) round_trip: RoundTrip,
    pub(super) congestion: Congestion,
    pub(super) resending: Resending,
    pub(super) remote: Remote,
    pub(super) window_news: WindowNews,
    pub(super) validation: Validation,
    /// A cookie that waits to be echoed.
    pub(super) cookie: Option<(u32, u32)>,
    pub(super) ending: Ending,
    pub(super) stats: Stats,
}

/// What the peer has told about itself.
#[derive(Debug)]
pub(super) struct Remote {
    /// Segments it can take.
    pub(super) window: u32,
    /// The highest cumulative number seen: an older datagram says nothing about the window.
    pub(super) unacknowledged: u32,
    /// It answered to something that was sent from here.
    pub(super) has_answered: bool,
    /// When it acknowledged data last.
    pub(super) acknowledged_at: Option<u64>,
    /// How many transmissions of any segment there had been by then.
    pub(super) acknowledged_after: u64,
}

/// Questions and answers about windows that wait to be sent.
#[derive(Debug)]
pub(super) struct WindowNews {
    pub(super) ask: bool,
    pub(super) tell: bool,
    /// When to ask after a closed window, and how long to wait after that; `None` while it is open.
    pub(super) probe: Option<(u64, u32)>,
}

/// Counts since the conversation began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams written.
    pub datagrams_sent: u64,
    /// Data segments written, repeated ones included.
    pub segments_sent: u64,
    /// Data segments sent again because their time-out had passed.
    pub timeout_resends: u64,
    /// Data segments sent again early, because later ones were acknowledged.
    pub fast_resends: u64,
    /// Acknowledgements written.
    pub acks_sent: u64,
    /// Datagrams given to [`Kcp::receive`].
    pub datagrams_received: u64,
    /// Data segments taken.
    pub segments_received: u64,
    /// Data segments that were here already.
    pub duplicates: u64,
    /// Segments whose number lies outside of the window; they were ignored.
    pub outside_window: u64,
    /// Data segments that were not taken because the peer's address is not validated and its conversation holds as much as
    /// it may before.
    pub refused_unvalidated: u64,
}

impl Kcp {
    /// A conversation that has not sent or received anything.
    ///
    /// `conversation` is the id that both ends use; it has to be agreed by other means (kcp-go's clients draw it
    /// at random, and its listeners take it from the first datagram).
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn new(conversation: u32, config: Config) -> Result<Self, ConfigError> {
        Self::starting_at(conversation, config, 0, 0)
    }

    /// A conversation whose segment numbers do not start at 0, to test how they wrap around. Peers expect 0.
    ///
    /// # Errors
    /// A setting is out of range.
    #[doc(hidden)]
    pub fn starting_at(
        conversation: u32,
        config: Config,
        send_from: u32,
        receive_from: u32,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::from_valid_at(conversation, config, send_from, receive_from))
    }

    /// For settings that were checked before.
    pub(super) fn from_valid(conversation: u32, config: Config) -> Self {
        Self::from_valid_at(conversation, config, 0, 0)
    }

    fn from_valid_at(conversation: u32, config: Config, send_from: u32, receive_from: u32) -> Self {
        let buffers_kept = usize::from(config.send_window_max().max(config.receive_window_max()));
        let windows = (config.send_window_max().into(), config.mtu);
        Self {
            conversation,
            outgoing: SendRing::new(config.send_queue, send_from),
            incoming: ReceiveRing::new(config.receive_window, config.receive_window_max(), receive_from),
            read_offset: 0,
            pool: Pool::new(buffers_kept),
            acks: Acks::new(usize::from(config.receive_window_max()), config.ack_delay_ms),
            round_trip: RoundTrip::new(
                config.min_rto_ms,
                config.interval_ms,
                config.congestion == CongestionControl::Bbr,
            ),
            congestion: Congestion::new(config.congestion, windows.0, send_from, windows.1),
            resending: Resending::default(),
            remote: Remote {
                window: LEAST_RECEIVE_WINDOW.into(),
                unacknowledged: send_from,
                has_answered: false,
                acknowledged_at: None,
                acknowledged_after: 0,
            },
            window_news: WindowNews { ask: false, tell: false, probe: None },
            validation: Validation::Trusted,
            cookie: None,
            ending: Ending::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// The conversation id.
    pub const fn conversation(&self) -> u32 {
        self.conversation
    }

    /// The settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Segments queued or in flight: 0 when everything was acknowledged.
    pub const fn waiting_send(&self) -> usize {
        self.outgoing.len()
    }

    /// Segments that [`send`](Self::send) can still take.
    pub const fn send_capacity(&self) -> usize {
        self.outgoing.free()
    }

    /// The peer has acknowledged something that was sent from here, or told its window. Anybody who knows the
    /// conversation id can say so; [`is_validated`](Self::is_validated) is what an address is trusted by.
    pub const fn has_answered(&self) -> bool {
        self.remote.has_answered
    }

    /// When the peer acknowledged data last, in milliseconds.
    pub const fn acknowledged_at(&self) -> Option<u64> {
        self.remote.acknowledged_at
    }

    /// The smoothed round trip in milliseconds; `None` before the first measurement.
    pub const fn round_trip_ms(&self) -> Option<u32> {
        self.round_trip.smoothed_ms()
    }

    /// The retransmission time-out for the next segment, in milliseconds.
    pub const fn rto_ms(&self) -> u32 {
        self.round_trip.rto_ms()
    }

    /// Counts since the conversation began.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Has the next datagram ask for the peer's window. Every KCP answers that, so it tells whether the peer is
    /// there without sending data.
    pub const fn ask_window(&mut self) {
        self.window_news.ask = true;
    }

    /// Gives back the memory that is not in use now. Worth a call when a conversation goes idle; the next message
    /// allocates again.
    pub fn release_memory(&mut self) {
        self.pool.release();
        self.outgoing.release();
        self.incoming.release();
        if self.acks.is_empty() {
            self.acks.clear();
        }
    }

    /// Bytes held on the heap, buffers kept for reuse included.
    ///
    /// Bounded by the settings: `send_queue` segments of the MTU, twice the receive window of `max_segment`, and
    /// as many buffers for reuse as the larger window.
    pub fn memory(&self) -> usize {
        self.pool.memory() + self.outgoing.memory() + self.incoming.memory() + self.acks.memory()
    }
}
