//! Writing datagrams, and when to do it next.

use super::control::Kcp;
use super::error::CloseReason;
use super::round_trip::MAX_RTO_MS;
use super::wire::{Command, HEADER_LEN, Header, distance};

const PROBE_MAX_MS: u32 = 120_000;
/// With so few segments in flight, hardly any acknowledgement of a later one tells that one was lost: the time-out has
/// to, and what it sends again goes twice, for a second time-out would come late.
const THIN_STREAM: u32 = 8;

/// Datagrams that [`Kcp::poll_transmit`] has appended to the buffer, back to back.
///
/// Each is `segment_size` bytes long but for the last, which may be shorter: what UDP segmentation offload takes
/// in one call, and `buffer.chunks(segment_size)` otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of every datagram but the last.
    pub segment_size: usize,
    /// How many there are; at least 1.
    pub datagrams: usize,
    /// Bytes appended in all.
    pub len: usize,
}

/// Which segments have to be sent again, and when to look.
#[derive(Debug)]
pub(super) struct Resending {
    /// No segment in flight is due before this. It may be earlier than needed, never later.
    due_at: u64,
    /// A segment has been overtaken often enough to be sent again at once.
    pub(super) is_fast_due: bool,
    /// A pass over the segments in flight that was interrupted by the end of a datagram.
    pass: Option<Pass>,
}

#[derive(Debug, Clone, Copy)]
struct Pass {
    number: u32,
    /// The earliest time-out of those passed.
    due_at: u64,
}

const NEVER: u64 = u64::MAX;

impl Default for Resending {
    fn default() -> Self {
        Self { due_at: NEVER, is_fast_due: false, pass: None }
    }
}

impl Resending {
    /// Something is due at `at`.
    pub(super) fn look_at(&mut self, at: u64) {
        self.due_at = self.due_at.min(at);
    }
}

impl Kcp {
    /// Appends datagrams that are due to `out`: at most `max_datagrams` (64 is what offload takes on Linux), none
    /// longer than the MTU. `None` when nothing is due; call again until then, for one call never mixes sizes.
    ///
    /// `out` is appended to and should be cleared by the caller; with enough capacity
    /// (`max_datagrams` × MTU) nothing is allocated.
    pub fn poll_transmit(&mut self, now: u64, out: &mut Vec<u8>, max_datagrams: usize) -> Option<Transmit> {
        self.set_blocked(false);
        self.pass_time(now);
        self.congestion.advance(now);
        self.probe_window(now);
        let begin = out.len();
        let mut segment_size = 0;
        let mut datagrams = 0;
        while datagrams < max_datagrams {
            let before = out.len();
            let room = if datagrams == 0 { self.config.mtu } else { segment_size };
            let room = room.min(self.credit());
            if room < HEADER_LEN {
                break;
            }
            self.write_datagram(now, out, before + room);
            let len = out.len() - before;
            if len == 0 {
                break;
            }
            self.spend_credit(len);
            datagrams += 1;
            if datagrams == 1 {
                segment_size = len;
            } else if len < segment_size {
                break;
            }
        }
        self.stats.datagrams_sent += datagrams as u64;
        if datagrams == 0 && !self.is_validated() && self.next_timeout(now) == Some(0) {
            self.set_blocked(true);
        }
        (datagrams > 0).then(|| Transmit { segment_size, datagrams, len: out.len() - begin })
    }

    /// Milliseconds until [`poll_transmit`](Self::poll_transmit) has something to do if nothing is received or
    /// sent before; 0 when it has now, `None` when only an arrival or a send can change anything.
    pub fn next_timeout(&self, now: u64) -> Option<u64> {
        if self.is_blocked() {
            return None;
        }
        let is_resend_due = self.resending.is_fast_due || self.resending.pass.is_some();
        let resend_at = match if is_resend_due { now } else { self.resending.due_at } {
            NEVER => NEVER,
            due_at => due_at.max(self.congestion.resend_at(now)),
        };
        let has_news = self.window_news.ask || self.window_news.tell || self.owes_challenge();
        let has_news = has_news || self.cookie.is_some() || self.acks.has_echo();
        let has_news = has_news && !self.ending.is_closed();
        let has_data = self.outgoing.has_unsent() && !self.ending.is_closed();
        let mut at = resend_at;
        if has_news {
            at = now;
        }
        if has_data
            && self.outgoing.in_flight() < self.send_limit()
            && let Some(send_at) = self.congestion.send_at(now)
        {
            at = at.min(send_at);
        }
        if has_data && self.remote.window == 0 {
            at = at.min(self.window_news.probe.map_or(now, |(probe_at, _)| probe_at));
        }
        if let Some(due_at) = self.acks.due_at() {
            at = at.min(due_at);
        }
        if let Some(due_at) = self.ending_due_at(now) {
            at = at.min(due_at);
        }
        (at != NEVER).then(|| at.saturating_sub(now))
    }

    /// Segments that may be in flight now.
    #[inline]
    fn send_limit(&self) -> u32 {
        u32::from(self.config.send_window_max()).min(self.remote.window).min(self.congestion.window())
    }

    /// Asks after a closed window now and then, for the answer that opens it may get lost.
    fn probe_window(&mut self, now: u64) {
        if self.remote.window > 0 || !self.outgoing.has_unsent() {
            return;
        }
        match &mut self.window_news.probe {
            None => {
                let wait = self.config.probe_initial_ms;
                self.window_news.probe = Some((now + u64::from(wait), wait));
            }
            Some((at, wait)) if now >= *at => {
                *wait = (*wait + *wait / 2).min(PROBE_MAX_MS);
                *at = now + u64::from(*wait);
                self.window_news.ask = true;
            }
            Some(_) => {}
        }
    }

    /// Fills one datagram up to `end` bytes of `out`. Data comes first: full segments then make datagrams of one
    /// size, and the odd one with the acknowledgements is the last.
    fn write_datagram(&mut self, now: u64, out: &mut Vec<u8>, end: usize) {
        let begin = out.len();
        if self.ending.is_closed() {
            self.write_end(now, out);
            return;
        }
        if let Some(header) = self.take_due_cookie() {
            out.extend_from_slice(&header.to_bytes());
            return;
        }
        if let Some(echo) = self.acks.pop_echo() {
            out.extend_from_slice(&self.header(Command::Ack, echo.timestamp, echo.number).to_bytes());
            self.stats.acks_sent += 1;
            return;
        }
        if !self.is_validated() {
            return self.write_unvalidated(now, out, end);
        }
        if !self.write_resends(now, out, end) || !self.write_new(now, out, end) {
            return;
        }
        self.write_news(now, out, end);
        let has_company = out.len() > begin;
        if has_company || self.acks.due_at().is_some_and(|due_at| now >= due_at) {
            self.write_acks(now, out, end);
        }
        if out.len() == begin {
            self.write_end(now, out);
        }
    }

    /// Fills one datagram for a peer to which little may be sent: what brings the conversation on comes first.
    #[cold]
    fn write_unvalidated(&mut self, now: u64, out: &mut Vec<u8>, end: usize) {
        let begin = out.len();
        self.write_acks(now, out, end);
        self.write_challenge(out, end);
        self.write_news(now, out, end);
        if self.write_resends(now, out, end) && self.write_new(now, out, end) && out.len() == begin {
            self.write_end(now, out);
        }
    }

    /// Returns false when the datagram is full, nothing more may be sent now, or the peer was found dead.
    #[inline]
    fn write_resends(&mut self, now: u64, out: &mut Vec<u8>, end: usize) -> bool {
        let is_due = self.resending.is_fast_due || now >= self.resending.due_at;
        if self.resending.pass.is_none() {
            if !is_due {
                return true;
            }
            self.resending.is_fast_due = false;
            self.resending.pass = Some(Pass { number: self.outgoing.first(), due_at: NEVER });
        }
        self.continue_pass(now, out, end)
    }

    fn continue_pass(&mut self, now: u64, out: &mut Vec<u8>, end: usize) -> bool {
        let Some(mut pass) = self.resending.pass else { return true };
        // Acknowledgements may have come in since the pass was interrupted.
        if distance(pass.number, self.outgoing.first()) < 0 {
            pass.number = self.outgoing.first();
        }
        while pass.number != self.outgoing.next() {
            let number = pass.number;
            let fast_resend = self.config.fast_resend;
            let limit = self.config.fast_resend_limit;
            let slot = self.outgoing.slot(number);
            if !slot.acknowledged {
                let is_overtaken = fast_resend > 0
                    && slot.overtaken >= fast_resend
                    && (limit == 0 || slot.transmissions <= limit);
                let is_timed_out = now >= slot.resend_at;
                if is_overtaken || is_timed_out {
                    if !self.congestion.may_resend() {
                        self.resending.pass = Some(pass);
                        return true;
                    }
                    let slot = self.outgoing.slot(number);
                    if out.len() + HEADER_LEN + slot.payload.as_slice().len() > end {
                        self.resending.pass = Some(pass);
                        return false;
                    }
                    if !self.resend(now, number, is_timed_out, out) {
                        return false;
                    }
                }
                pass.due_at = pass.due_at.min(self.outgoing.slot(number).resend_at);
            }
            pass.number = number.wrapping_add(1);
        }
        self.resending.due_at = pass.due_at;
        self.resending.pass = None;
        true
    }

    /// Returns false when the segment has been sent too often already: the peer is dead.
    fn resend(&mut self, now: u64, number: u32, is_timed_out: bool, out: &mut Vec<u8>) -> bool {
        let rto_ms = self.round_trip.rto_ms();
        let nodelay = self.config.nodelay;
        let answered = self.remote.acknowledged_after;
        let slot = self.outgoing.slot(number);
        let transmissions = slot.transmissions;
        let is_path_alive = slot.overtaken > 0;
        // Others came through since it was sent: it was lost with a burst, and to wait longer does not help.
        slot.in_vain = if answered > slot.order { 0 } else { slot.in_vain + 1 };
        if slot.in_vain >= self.config.dead_link {
            self.close_now(CloseReason::DeadLink { transmissions });
            return false;
        }
        if !is_timed_out {
            slot.rto_ms = rto_ms;
            self.stats.fast_resends += 1;
        } else {
            let growth = if nodelay { slot.rto_ms / 2 } else { slot.rto_ms.max(rto_ms) };
            slot.rto_ms = if slot.in_vain == 0 { rto_ms } else { (slot.rto_ms + growth).min(MAX_RTO_MS) };
            self.stats.timeout_resends += 1;
        }
        let (next, in_flight) = (self.outgoing.next(), self.outgoing.in_flight());
        if is_path_alive {
            self.congestion.on_loss(number, next, in_flight);
        } else {
            self.congestion.on_silence(number, next);
        }
        self.write_data(now, number, out);
        let has_heard = self.round_trip.smoothed_ms().is_some();
        if is_timed_out && nodelay && has_heard && transmissions == 1 && in_flight <= THIN_STREAM {
            let copy_at = now + u64::from(self.config.interval_ms);
            let slot = self.outgoing.slot(number);
            slot.resend_at = slot.resend_at.min(copy_at);
        }
        true
    }

    /// Returns false when the datagram is full.
    #[inline]
    fn write_new(&mut self, now: u64, out: &mut Vec<u8>, end: usize) -> bool {
        let limit = self.send_limit();
        while self.outgoing.in_flight() < limit && self.congestion.may_send() {
            if !self.outgoing.has_unsent() {
                self.congestion.on_drained();
                return true;
            }
            let number = self.outgoing.next();
            let len = self.outgoing.slot(number).payload.as_slice().len();
            if out.len() + HEADER_LEN + len > end {
                return false;
            }
            let rto_ms = self.round_trip.rto_ms();
            self.outgoing.launch();
            self.outgoing.slot(number).rto_ms = rto_ms;
            let resend_at = self.write_data(now, number, out);
            self.resending.due_at = self.resending.due_at.min(resend_at);
        }
        true
    }

    /// Writes a data segment and gives the time at which it is due again.
    #[inline]
    fn write_data(&mut self, now: u64, number: u32, out: &mut Vec<u8>) -> u64 {
        let mut header = self.header(Command::Push, self.data_timestamp(now), number);
        // Without nodelay the first time-out has an eighth of slack, as the original gives it.
        let slack_ms = if self.config.nodelay { 0 } else { self.round_trip.rto_ms() / 8 };
        let slot = self.outgoing.slot(number);
        slot.stamp = self.congestion.on_sent(now, slot.payload.as_slice().len(), slot.transmissions == 0);
        slot.order = self.stats.segments_sent;
        slot.resend_at = now + u64::from(slot.rto_ms);
        if slot.transmissions == 0 {
            slot.resend_at += u64::from(slack_ms);
        }
        slot.transmissions += 1;
        slot.overtaken = 0;
        slot.sent_at = now;
        let data = slot.payload.as_slice();
        header.fragment = slot.fragment;
        header.len = data.len() as u32;
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(data);
        let resend_at = slot.resend_at;
        self.stats.segments_sent += 1;
        resend_at
    }

    fn write_news(&mut self, now: u64, out: &mut Vec<u8>, end: usize) {
        if self.window_news.ask && out.len() + HEADER_LEN <= end {
            self.window_news.ask = false;
            out.extend_from_slice(&self.header(Command::WindowAsk, now as u32, 0).to_bytes());
        }
        if self.window_news.tell && out.len() + HEADER_LEN <= end {
            self.window_news.tell = false;
            out.extend_from_slice(&self.header(Command::WindowTell, now as u32, 0).to_bytes());
        }
    }

    fn write_acks(&mut self, now: u64, out: &mut Vec<u8>, end: usize) {
        let next = self.incoming.next();
        let is_covered = |number| distance(number, next) < 0;
        let mut ahead = 0;
        while out.len() + HEADER_LEN <= end {
            let Some(ack) = self.acks.pop(is_covered) else { break };
            out.extend_from_slice(&self.header(Command::Ack, ack.timestamp, ack.number).to_bytes());
            self.stats.acks_sent += 1;
            if !is_covered(ack.number) {
                self.acks.repeat_later(ack, now);
                ahead += 1;
            }
        }
        if ahead > 0 && self.is_validated() {
            let mut header = self.header(Command::Ack, 0, 0);
            let room = (end - out.len()) / HEADER_LEN;
            for ack in self.acks.repeats(now, ahead, is_covered).take(room) {
                (header.timestamp, header.number) = (ack.timestamp, ack.number);
                out.extend_from_slice(&header.to_bytes());
            }
        }
    }

    fn write_end(&mut self, now: u64, out: &mut Vec<u8>) {
        if let Some(header) = self.take_due_end(now) {
            out.extend_from_slice(&header.to_bytes());
        }
    }

    #[inline]
    fn header(&self, command: Command, timestamp: u32, number: u32) -> Header {
        Header {
            conversation: self.conversation,
            command,
            fragment: 0,
            window: self.incoming.free_window(),
            timestamp,
            number,
            unacknowledged: self.incoming.next(),
            len: 0,
        }
    }
}
