//! Sends at the rate at which the path delivers, by a model of the path: the highest rate at which it has delivered
//! lately and its shortest round trip. After "BBR: Congestion-Based Congestion Control" (Cardwell et al., 2016) and
//! draft-cardwell-iccrg-bbr-congestion-control-00.

use super::pacer::Pacer;
use super::rate::{Delivered, Stamp};

/// Segments in flight before anything is known.
const INITIAL_SEGMENTS: u64 = 32;
const LEAST_SEGMENTS: u64 = 4;
/// Gains are in hundredths. 2/ln 2: doubles the rate every round trip.
const STARTUP_GAIN: u64 = 289;
const DRAIN_GAIN: u64 = 35;
const WINDOW_GAIN: u64 = 200;
/// The pace over the eight phases of a cycle: looks for more, makes up for it, and stays.
const CYCLE: [u64; 8] = [125, 75, 100, 100, 100, 100, 100, 100];
/// While it stays, a little less than the rate, so that a queue drains.
const MARGIN: u64 = 99;
/// Rounds without growth by a quarter after which the path is full.
const FULL_ROUNDS: u32 = 3;
/// How long a shortest round trip is believed, and for how long less is in flight to see a new one.
const ROUND_TRIP_BELIEVED_MS: u64 = 10_000;
const ROUND_TRIP_PROBE_MS: u64 = 200;
/// Clocks tick in milliseconds here, and acknowledgements come together.
const TICKS_MS: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Doubles the rate until the path delivers no more.
    Startup,
    /// Lets the queue drain that the start has made.
    Drain,
    /// Sends at the rate found and looks for more now and then.
    Cruise { phase: usize, since: u64 },
    /// Keeps little in flight to see the shortest round trip; `until` once that is so.
    ProbeRoundTrip { until: Option<u64> },
}

#[derive(Debug)]
pub(in super::super) struct Bbr {
    mode: Mode,
    segment: u64,
    /// Bytes sent and not acknowledged.
    in_flight: u64,
    delivered: u64,
    delivered_at: u32,
    first_sent_at: u32,
    /// There was nothing to send until so many bytes are delivered: rates measured before say little.
    app_limited_until: u64,
    /// A round ends when something is acknowledged that was sent after so many bytes had been delivered.
    round_end: u64,
    /// The highest rates in bytes per second of this cycle and the last one.
    rates: [u64; 2],
    full_rate: u64,
    full_rounds: u32,
    round_trip_ms: Option<u32>,
    round_trip_at: u64,
    /// Nothing has come back for a whole time-out.
    is_silent: bool,
    pacer: Pacer,
}

impl Bbr {
    pub(super) fn new(mtu: u64) -> Self {
        Self {
            mode: Mode::Startup,
            segment: mtu,
            in_flight: 0,
            delivered: 0,
            delivered_at: 0,
            first_sent_at: 0,
            app_limited_until: 0,
            round_end: 0,
            rates: [0; 2],
            full_rate: 0,
            full_rounds: 0,
            round_trip_ms: None,
            round_trip_at: 0,
            is_silent: false,
            pacer: Pacer::new(mtu),
        }
    }

    pub(super) fn advance(&mut self, now: u64) {
        self.pacer.advance(now);
    }

    #[inline]
    pub(super) const fn may_resend(&self) -> bool {
        self.pacer.has_credit()
    }

    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.pacer.has_credit() && self.in_flight < self.window()
    }

    pub(super) fn resend_at(&self, now: u64) -> u64 {
        self.pacer.credit_at(now)
    }

    pub(super) fn send_at(&self, now: u64) -> Option<u64> {
        (self.in_flight < self.window()).then(|| self.pacer.credit_at(now))
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now: u64, len: u64, is_first: bool) -> Stamp {
        if self.in_flight == 0 {
            // What passed while nothing was sent is no time of delivery.
            self.first_sent_at = now as u32;
            self.delivered_at = now as u32;
        }
        if is_first {
            self.in_flight += len;
        }
        self.pacer.spend(len);
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.app_limited_until > 0,
        }
    }

    #[inline]
    pub(super) fn on_drained(&mut self) {
        if self.in_flight < self.window() {
            self.app_limited_until = (self.delivered + self.in_flight).max(1);
        }
    }

    pub(super) fn on_silence(&mut self) {
        self.is_silent = true;
        self.set_pace();
    }

    pub(super) fn clear(&mut self) {
        self.in_flight = 0;
    }

    pub(super) fn on_acknowledged(&mut self, now: u64, delivered: &Delivered) {
        self.is_silent = false;
        self.delivered += delivered.bytes;
        self.delivered_at = now as u32;
        self.in_flight = self.in_flight.saturating_sub(delivered.bytes);
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let has_expired = self.note_round_trip(now, delivered.round_trip_ms);
        if let Some((stamp, sent_at)) = delivered.newest {
            self.first_sent_at = sent_at;
            let is_round_over = stamp.delivered >= self.round_end;
            if is_round_over {
                self.round_end = self.delivered;
            }
            self.note_rate(now as u32, stamp, sent_at);
            if is_round_over && !stamp.is_app_limited {
                self.check_full();
            }
        }
        self.change_mode(now, has_expired);
        self.set_pace();
    }

    /// True when the shortest round trip is not believed any more.
    fn note_round_trip(&mut self, now: u64, sample_ms: Option<u32>) -> bool {
        let has_expired = now >= self.round_trip_at + ROUND_TRIP_BELIEVED_MS;
        if let Some(sample_ms) = sample_ms
            && (has_expired || self.round_trip_ms.is_none_or(|least| sample_ms <= least))
        {
            self.round_trip_ms = Some(sample_ms);
            self.round_trip_at = now;
        }
        has_expired
    }

    fn note_rate(&mut self, now: u32, stamp: Stamp, sent_at: u32) {
        let sending_ms = sent_at.wrapping_sub(stamp.first_sent_at);
        let arriving_ms = now.wrapping_sub(stamp.delivered_at);
        let interval_ms = sending_ms.max(arriving_ms).max(1);
        // Faster than the path can answer: an acknowledgement of an earlier transmission.
        if self.round_trip_ms.is_some_and(|least| interval_ms < least) {
            return;
        }
        let rate = (self.delivered - stamp.delivered) * 1000 / u64::from(interval_ms);
        if rate >= self.rate() || !stamp.is_app_limited {
            self.rates[0] = self.rates[0].max(rate);
        }
    }

    fn check_full(&mut self) {
        if self.mode != Mode::Startup {
            return;
        }
        if self.rate() >= self.full_rate * 5 / 4 {
            self.full_rate = self.rate();
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    fn change_mode(&mut self, now: u64, has_round_trip_expired: bool) {
        if has_round_trip_expired && !matches!(self.mode, Mode::ProbeRoundTrip { .. }) {
            self.mode = Mode::ProbeRoundTrip { until: None };
        }
        match self.mode {
            Mode::Startup if self.is_full() => self.mode = Mode::Drain,
            Mode::Drain if self.in_flight <= self.holds(100) => {
                self.mode = Mode::Cruise { phase: 2, since: now }
            }
            Mode::Cruise { phase, since } if self.is_phase_over(CYCLE[phase], now - since) => {
                let phase = (phase + 1) % CYCLE.len();
                if phase == 0 {
                    self.rates = [0, self.rates[0]];
                }
                self.mode = Mode::Cruise { phase, since: now };
            }
            Mode::ProbeRoundTrip { until: None } if self.in_flight <= self.window() => {
                self.mode = Mode::ProbeRoundTrip { until: Some(now + ROUND_TRIP_PROBE_MS) };
            }
            Mode::ProbeRoundTrip { until: Some(until) } if now >= until => {
                self.round_trip_at = now;
                self.mode =
                    if self.is_full() { Mode::Cruise { phase: 2, since: now } } else { Mode::Startup };
            }
            Mode::Startup | Mode::Drain | Mode::Cruise { .. } | Mode::ProbeRoundTrip { .. } => {}
        }
    }

    fn is_phase_over(&self, gain: u64, took_ms: u64) -> bool {
        let round_trip_ms = u64::from(self.round_trip_ms.unwrap_or(0)).max(1);
        match gain {
            // Until so much is in flight that a queue would show; but what there is to send may be less.
            125 => {
                took_ms >= round_trip_ms
                    && (self.in_flight >= self.holds(125) || took_ms >= 2 * round_trip_ms)
            }
            75 => took_ms >= round_trip_ms || self.in_flight <= self.holds(100),
            _ => took_ms >= round_trip_ms,
        }
    }

    fn rate(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// Bytes that the path holds without a queue, by a gain in hundredths.
    fn holds(&self, gain: u64) -> u64 {
        let round_trip_ms = u64::from(self.round_trip_ms.unwrap_or(0)).max(1);
        self.rate() * (round_trip_ms + TICKS_MS) / 1000 * gain / 100 + LEAST_SEGMENTS * self.segment
    }

    /// Bytes that may be in flight.
    fn window(&self) -> u64 {
        if self.rate() == 0 {
            return INITIAL_SEGMENTS * self.segment;
        }
        match self.mode {
            Mode::ProbeRoundTrip { .. } => self.holds(50),
            Mode::Startup => self.holds(STARTUP_GAIN).max(INITIAL_SEGMENTS * self.segment),
            Mode::Drain | Mode::Cruise { .. } => self.holds(WINDOW_GAIN),
        }
    }

    fn set_pace(&mut self) {
        if self.rate() == 0 {
            return;
        }
        let gain = match self.mode {
            _ if self.is_silent => DRAIN_GAIN,
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::Cruise { phase, .. } if CYCLE[phase] == 100 => MARGIN,
            Mode::Cruise { phase, .. } => CYCLE[phase],
            Mode::ProbeRoundTrip { .. } => MARGIN,
        };
        self.pacer.set_rate(Some((self.rate() * gain / 100).max(self.segment)));
    }
}
