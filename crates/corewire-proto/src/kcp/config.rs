//! Settings of a conversation.

use super::congestion::CongestionControl;
use super::error::ConfigError;
use super::fec::Shards;
use super::wire::HEADER_LEN;

/// Whether message boundaries are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// What one `send` takes, one `recv` at the peer gives.
    #[default]
    Message,
    /// A byte stream: small writes share segments, and boundaries mean nothing. Both ends must agree.
    Stream,
}

/// Settings of a conversation; checked when a [`Kcp`](super::Kcp) is made from them.
///
/// ```
/// use corewire_proto::kcp::{Config, Kcp, Mode};
/// let config = Config::turbo().windows(256, 256).mtu(1200).mode(Mode::Stream);
/// let kcp = Kcp::new(7, config)?;
/// assert_eq!(kcp.conversation(), 7);
/// # Ok::<(), corewire_proto::kcp::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub(super) mode: Mode,
    pub(super) mtu: usize,
    pub(super) send_window: u16,
    pub(super) receive_window: u16,
    pub(super) send_queue: usize,
    pub(super) nodelay: bool,
    pub(super) interval_ms: u32,
    pub(super) fast_resend: u32,
    pub(super) fast_resend_limit: u32,
    pub(super) windows_max: u16,
    pub(super) shards: Option<Shards>,
    pub(super) congestion: CongestionControl,
    pub(super) min_rto_ms: u32,
    pub(super) dead_link: u32,
    pub(super) ack_delay_ms: u32,
    pub(super) max_fragments: usize,
    pub(super) max_segment: usize,
    pub(super) probe_initial_ms: u32,
    pub(super) linger_ms: u32,
    pub(super) fin_attempts: u32,
}

/// The window every KCP implementation offers at least, and the one assumed before the peer has told its own.
pub(super) const LEAST_RECEIVE_WINDOW: u16 = 128;
const MAX_WINDOW: u64 = 32_768;
/// The longest datagram that UDP over IPv4 carries.
const MAX_DATAGRAM: usize = 65_507;

impl Default for Config {
    /// `nodelay(0, 40, 0, 0)`, windows 32 and 128, MTU 1400: polite, congestion-controlled.
    fn default() -> Self {
        Self {
            mode: Mode::Message,
            mtu: 1400,
            send_window: 32,
            receive_window: LEAST_RECEIVE_WINDOW,
            send_queue: 1024,
            nodelay: false,
            interval_ms: 40,
            fast_resend: 0,
            fast_resend_limit: 5,
            windows_max: 0,
            shards: None,
            congestion: CongestionControl::Kcp,
            min_rto_ms: 100,
            dead_link: 20,
            ack_delay_ms: 0,
            max_fragments: 127,
            max_segment: 1500 - HEADER_LEN,
            probe_initial_ms: 500,
            linger_ms: 5000,
            fin_attempts: 5,
        }
    }
}

impl Config {
    /// `nodelay(1, 10, 2, 1)`: quick retransmission, no congestion window. Windows 128 and 128.
    pub fn turbo() -> Self {
        Self::default().nodelay(true, 10, 2, true).windows(128, 128)
    }

    /// KCP's four parameters of speed.
    ///
    /// `nodelay`: the retransmission time-out may fall to 30 ms instead of 100 ms and grows by 1.5 instead of 2.
    /// `interval_ms` (1 to 5000): how coarse the peer's clock tick may be; the time-out leaves it that much.
    /// `resend`: a segment is sent again at once after this many later ones were acknowledged; 0 never.
    /// `no_congestion`: only the windows limit what is in flight.
    pub fn nodelay(mut self, nodelay: bool, interval_ms: u32, resend: u32, no_congestion: bool) -> Self {
        self.nodelay = nodelay;
        self.interval_ms = interval_ms;
        self.fast_resend = resend;
        self.congestion = if no_congestion { CongestionControl::Off } else { CongestionControl::Kcp };
        self.min_rto_ms = if nodelay { 30 } else { 100 };
        self
    }

    /// Segments in flight at most (1 to 32,768, default 32), and segments held for reading (128 to 32,768,
    /// default 128: a peer may send a message of as many fragments).
    pub fn windows(mut self, send: u16, receive: u16) -> Self {
        self.send_window = send;
        self.receive_window = receive;
        self
    }

    /// How far the windows may grow with what the path takes (up to 32,768 segments; default: not at all). The receive
    /// window grows while the peer uses it up and everything is read at once; the send window grows with
    /// [`CongestionControl::Bbr`] alone. The send queue gets as many segments at least.
    ///
    /// At a loss of 10 %, a path is full with about five times the segments that it holds in a round trip.
    pub fn windows_max(mut self, segments: u16) -> Self {
        self.windows_max = segments;
        self.send_queue = self.send_queue.max(segments.into());
        self
    }

    /// Forward error correction as kcp-go's, where a peer has it too: after every `data` datagrams `parity` more, from which as
    /// many lost ones are made up at once (each 1 or more, 255 together at most; kcp-go's own are 10 and 3). It takes
    /// 8 bytes of each datagram. [`Sessions`](super::Sessions) alone do it; default: none.
    ///
    /// It spends bandwidth to save the time of a retransmission, and helps only where a group is sent in less than
    /// that: with a message now and then, take groups of one or two.
    pub fn fec(mut self, data: u8, parity: u8) -> Self {
        self.shards = Some(Shards { data, parity });
        self
    }

    /// What limits the data in flight beside the windows; [`nodelay`](Self::nodelay) sets it too, so call this after.
    pub fn congestion(mut self, control: CongestionControl) -> Self {
        self.congestion = control;
        self
    }

    /// The longest datagram to send in bytes, IP and UDP headers not counted (64 to 65,507, default 1400).
    /// Receiving accepts as much, and 1500 in any case.
    pub fn mtu(mut self, mtu: usize) -> Self {
        self.mtu = mtu;
        self.max_segment = self.max_segment.max(mtu.saturating_sub(HEADER_LEN));
        self
    }

    /// Makes the longest datagram so many bytes shorter, to leave room for something around it, such as
    /// `ENVELOPE_OVERHEAD`. Call after [`mtu`](Self::mtu).
    pub fn reserve(mut self, bytes: usize) -> Self {
        self.mtu = self.mtu.saturating_sub(bytes);
        self
    }

    /// Whether this is the mode.
    #[inline]
    pub fn has_mode(&self, mode: Mode) -> bool {
        self.mode == mode
    }

    /// Message boundaries or stream. Default: messages.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Segments that may wait or be in flight before `send` answers would-block (default 1024; at least the
    /// fragments of one message, and the send window).
    pub fn send_queue(mut self, segments: usize) -> Self {
        self.send_queue = segments;
        self
    }

    /// The least retransmission time-out in milliseconds (1 to 60,000; default 100, with nodelay 30).
    /// Call after [`nodelay`](Self::nodelay), which sets it.
    pub fn min_rto_ms(mut self, min_rto_ms: u32) -> Self {
        self.min_rto_ms = min_rto_ms;
        self
    }

    /// How often one segment is sent before the peer counts as dead (1 or more, default 20). It counts anew when the peer has
    /// acknowledged anything since: then it lives, and what is lost is lost on the way.
    pub fn dead_link(mut self, transmissions: u32) -> Self {
        self.dead_link = transmissions;
        self
    }

    /// How often a segment may be sent again early, on the strength of later acknowledgements (default 5; 0 is
    /// no limit). Time-outs are not limited by it.
    pub fn fast_resend_limit(mut self, limit: u32) -> Self {
        self.fast_resend_limit = limit;
        self
    }

    /// Milliseconds that an acknowledgement may wait for data to travel with (0 to 1000, default 0: it goes with
    /// the next [`poll_transmit`](super::Kcp::poll_transmit)). Out-of-order arrivals are never kept waiting.
    pub fn ack_delay_ms(mut self, ack_delay_ms: u32) -> Self {
        self.ack_delay_ms = ack_delay_ms;
        self
    }

    /// Fragments per message sent (1 to 255, default 127: what a peer with KCP's least window can take).
    pub fn max_fragments(mut self, fragments: usize) -> Self {
        self.max_fragments = fragments;
        self
    }

    /// Bytes of data per segment received (default 1476, or what the MTU allows if that is more). With the
    /// receive window it bounds the memory that a peer can make this end hold: twice the window times this.
    pub fn max_segment(mut self, bytes: usize) -> Self {
        self.max_segment = bytes;
        self
    }

    /// Milliseconds before a closed window is asked after, growing by half up to 120 s (1 to 120,000, default 500).
    pub fn probe_initial_ms(mut self, probe_initial_ms: u32) -> Self {
        self.probe_initial_ms = probe_initial_ms;
        self
    }

    /// How long [`close`](super::Kcp::close) waits for data to be acknowledged while nothing is (default 5000 ms).
    pub fn linger_ms(mut self, linger_ms: u32) -> Self {
        self.linger_ms = linger_ms;
        self
    }

    /// Segments in flight at most.
    pub(super) fn send_window_max(&self) -> u16 {
        match self.congestion {
            CongestionControl::Bbr => self.send_window.max(self.windows_max),
            CongestionControl::Off | CongestionControl::Kcp => self.send_window,
        }
    }

    /// Segments held for reading at most.
    pub(super) fn receive_window_max(&self) -> u16 {
        self.receive_window.max(self.windows_max)
    }

    pub(super) const fn mss(&self) -> usize {
        self.mtu - HEADER_LEN
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let check = |name, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { name, value, min, max })
            }
        };
        check("mtu", self.mtu as u64, 64, MAX_DATAGRAM as u64)?;
        check("send_window", self.send_window.into(), 1, MAX_WINDOW)?;
        check("windows_max", self.windows_max.into(), 0, MAX_WINDOW)?;
        check("receive_window", self.receive_window.into(), LEAST_RECEIVE_WINDOW.into(), MAX_WINDOW)?;
        check("max_fragments", self.max_fragments as u64, 1, 255)?;
        let least_queue = self.max_fragments.max(self.send_window_max().into()) as u64;
        check("send_queue", self.send_queue as u64, least_queue, 1 << 20)?;
        if let Some(Shards { data, parity }) = self.shards {
            check("fec's data", data.into(), 1, 254)?;
            check("fec's parity", parity.into(), 1, 255 - u64::from(data))?;
        }
        check("interval_ms", self.interval_ms.into(), 1, 5000)?;
        check("min_rto_ms", self.min_rto_ms.into(), 1, 60_000)?;
        check("dead_link", self.dead_link.into(), 1, u32::MAX.into())?;
        check("ack_delay_ms", self.ack_delay_ms.into(), 0, 1000)?;
        check("probe_initial_ms", self.probe_initial_ms.into(), 1, 120_000)?;
        let datagram_data = MAX_DATAGRAM - HEADER_LEN;
        check("max_segment", self.max_segment as u64, 1, datagram_data as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_bad_values_are_named() {
        Config::default().validate().unwrap();
        Config::turbo().validate().unwrap();
        Config::default().mtu(65_507).validate().unwrap();
        let bad = [
            (Config::default().mtu(63), "mtu"),
            (Config::default().mtu(65_508), "mtu"),
            (Config::default().windows(0, 128), "send_window"),
            (Config::default().windows(32, 127), "receive_window"),
            (Config::default().windows(32_769, 128), "send_window"),
            (Config::default().send_queue(126), "send_queue"),
            (Config::default().max_fragments(256), "max_fragments"),
            (Config::default().nodelay(true, 0, 0, false), "interval_ms"),
            (Config::default().fec(0, 3), "fec's data"),
            (Config::default().fec(250, 6), "fec's parity"),
            (Config::default().windows_max(32_769), "windows_max"),
            (Config::default().max_segment(0), "max_segment"),
        ];
        for (config, expected) in bad {
            let Err(ConfigError::OutOfRange { name, .. }) = config.validate() else {
                panic!("{expected} was taken");
            };
            assert_eq!(name, expected);
        }
    }
}
