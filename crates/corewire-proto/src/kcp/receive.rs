//! Taking datagrams apart, and handing out what they carried.

use bytes::{Bytes, BytesMut};

use super::acks::Ack;
use super::congestion::Delivered;
use super::control::Kcp;
use super::error::{CloseReason, ReceiveError};
use super::receive_ring::Inserted;
use super::wire::{Command, HEADER_LEN, Header, challenge, distance};

/// KCP counts fragments in a byte.
const FRAGMENTS_MAX: usize = 256;
/// An acknowledgement this far back is old but may be true; one before that is nonsense.
const ACKS_BACK: u32 = 65_536;

/// What the acknowledgements of one datagram amount to.
#[derive(Debug, Default)]
struct Acknowledged {
    delivered: Delivered,
    /// The highest number that was acknowledged by name for the first time.
    newest: Option<u32>,
    /// The last transmission that was answered, in the order of all.
    order: Option<u64>,
}

/// Where data goes that arrives in its turn.
trait Sink {
    /// Takes the data of a segment that is a whole message, if it is not to be kept for `recv`.
    fn take_now(&mut self, data: &[u8]) -> bool;
}

/// Keeps everything for `recv`.
struct Keep;

impl Sink for Keep {
    #[inline]
    fn take_now(&mut self, _data: &[u8]) -> bool {
        false
    }
}

impl<F: FnMut(&[u8])> Sink for F {
    #[inline]
    fn take_now(&mut self, data: &[u8]) -> bool {
        self(data);
        true
    }
}

impl Kcp {
    /// Takes a datagram from the peer; what it carries is kept for [`recv`](Self::recv) and its kin.
    ///
    /// # Errors
    /// The datagram is not KCP, not of this conversation, or breaks a limit. Segments before the fault count;
    /// the conversation goes on, except after [`ReceiveError::MessageTooLong`].
    pub fn receive(&mut self, now: u64, datagram: &[u8]) -> Result<(), ReceiveError> {
        self.receive_into(now, datagram, &mut Keep)
    }

    /// Takes a datagram from the peer and hands every message that can be read then to `handler` (in stream mode,
    /// every piece of the stream). A message that arrives in its turn and in one segment is handed over where it
    /// lies in `datagram`, without being copied.
    ///
    /// # Errors
    /// As [`receive`](Self::receive); the messages before the fault have been handed over.
    pub fn receive_each(
        &mut self,
        now: u64,
        datagram: &[u8],
        mut handler: impl FnMut(&[u8]),
    ) -> Result<(), ReceiveError> {
        self.drain_each(&mut handler);
        let outcome = self.receive_into(now, datagram, &mut handler);
        self.drain_each(&mut handler);
        outcome
    }

    #[inline]
    fn receive_into(&mut self, now: u64, datagram: &[u8], sink: &mut impl Sink) -> Result<(), ReceiveError> {
        self.stats.datagrams_received += 1;
        self.earn_credit(datagram.len());
        let mut acknowledged = Acknowledged::default();
        let outcome = self.take_segments(now, datagram, sink, &mut acknowledged);
        if acknowledged.delivered.segments > 0 {
            self.remote.has_answered = true;
            self.remote.acknowledged_at = Some(now);
            self.remote.acknowledged_after = self.stats.segments_sent;
            self.congestion.on_acknowledged(now, &acknowledged.delivered);
            if self.outgoing.in_flight() == 0 {
                self.resending = Default::default();
            }
        }
        self.look_for_losses(&acknowledged);
        outcome
    }

    /// The length in bytes of the next whole message; in stream mode, of the next segment.
    pub fn peek_size(&self) -> Option<usize> {
        let message = self.incoming.message()?;
        Some(message.map(|segment| segment.data.len()).sum::<usize>() - self.read_offset)
    }

    /// The next whole message, in memory of its own; in stream mode, the data of the next segment.
    ///
    /// To receive without an allocation per message use [`recv_into`](Self::recv_into) or [`read`](Self::read).
    pub fn recv(&mut self) -> Option<Bytes> {
        let len = self.peek_size()?;
        let is_single = self.incoming.front().is_some_and(|segment| segment.fragment == 0);
        if is_single {
            let offset = self.read_offset;
            let bytes = self.incoming.front().map(|segment| Bytes::copy_from_slice(&segment.data[offset..]));
            self.discard_front();
            return bytes;
        }
        let mut message = BytesMut::with_capacity(len);
        self.drain_message(|data| message.extend_from_slice(data));
        Some(message.freeze())
    }

    /// Appends the next whole message to `buffer` and gives its length; `None` when no message is whole.
    pub fn recv_into(&mut self, buffer: &mut Vec<u8>) -> Option<usize> {
        if !self.incoming.has_message() {
            return None;
        }
        let before = buffer.len();
        self.drain_message(|data| buffer.extend_from_slice(data));
        Some(buffer.len() - before)
    }

    /// Copies what is here into `buffer`, across segments, and gives the number of bytes: for stream mode. 0 means
    /// that nothing is here now; whether more can come, [`is_at_end`](Self::is_at_end) says.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() && self.incoming.has_message() {
            let Some(segment) = self.incoming.front() else { break };
            let data = &segment.data[self.read_offset..];
            let taken = data.len().min(buffer.len() - filled);
            buffer[filled..filled + taken].copy_from_slice(&data[..taken]);
            filled += taken;
            if taken == data.len() {
                self.discard_front();
            } else {
                self.read_offset += taken;
            }
        }
        filled
    }

    /// Something can be read now.
    pub const fn is_readable(&self) -> bool {
        self.incoming.has_message()
    }

    /// Hands every whole message to `handler`.
    fn drain_each(&mut self, handler: &mut impl FnMut(&[u8])) {
        while self.incoming.has_message() {
            let Some(segment) = self.incoming.front() else { return };
            if segment.fragment == 0 {
                handler(&segment.data[self.read_offset..]);
                self.discard_front();
            } else {
                let mut message = self.pool.take(self.peek_size().unwrap_or(0));
                self.drain_message(|data| message.extend_from_slice(data));
                handler(&message);
                self.pool.give_if_at_most(message, self.config.max_segment);
            }
        }
    }

    fn drain_message(&mut self, mut take: impl FnMut(&[u8])) {
        loop {
            let Some(segment) = self.incoming.front() else { return };
            let is_last = segment.fragment == 0;
            take(&segment.data[self.read_offset..]);
            self.discard_front();
            if is_last {
                return;
            }
        }
    }

    fn discard_front(&mut self) {
        let was_full = self.incoming.free_window() == 0;
        self.read_offset = 0;
        if let Some(segment) = self.incoming.pop() {
            self.pool.give(segment.data);
        }
        // The peer saw a closed window and may be waiting for it to open.
        self.window_news.tell |= was_full && self.incoming.free_window() > 0;
    }

    fn take_segments(
        &mut self,
        now: u64,
        datagram: &[u8],
        sink: &mut impl Sink,
        acknowledged: &mut Acknowledged,
    ) -> Result<(), ReceiveError> {
        let mut rest = datagram;
        loop {
            let (header, data, after) = Header::parse(rest)?;
            if header.conversation != self.conversation {
                return Err(ReceiveError::WrongConversation {
                    expected: self.conversation,
                    found: header.conversation,
                });
            }
            if data.len() > self.config.max_segment {
                return Err(ReceiveError::SegmentTooLong { len: data.len(), limit: self.config.max_segment });
            }
            if header.command == Command::Fin {
                self.take_end(&header);
            } else if header.command == Command::Cookie {
                self.take_cookie(now, &header);
            } else if self.ending.is_closed() {
                return Err(ReceiveError::Closed);
            } else {
                self.take_segment(now, &header, data, sink, acknowledged)?;
            }
            // Fewer bytes than a header are padding to every implementation.
            if after.len() < HEADER_LEN {
                return Ok(());
            }
            rest = after;
        }
    }

    #[inline]
    fn take_segment(
        &mut self,
        now: u64,
        header: &Header,
        data: &[u8],
        sink: &mut impl Sink,
        acknowledged: &mut Acknowledged,
    ) -> Result<(), ReceiveError> {
        if header.command == Command::Ack {
            self.take_ack(now, header, acknowledged);
        }
        self.take_window(header);
        let delivered = &mut acknowledged.delivered;
        self.outgoing.acknowledge_before(header.unacknowledged, delivered, &mut self.pool);
        match header.command {
            Command::Push => self.take_data(now, header, data, sink),
            Command::WindowAsk => {
                self.window_news.tell = true;
                Ok(())
            }
            Command::WindowTell => {
                self.remote.has_answered = true;
                Ok(())
            }
            Command::Ack | Command::Fin | Command::Cookie => Ok(()),
        }
    }

    #[inline]
    fn take_ack(&mut self, now: u64, header: &Header, acknowledged: &mut Acknowledged) {
        let is_token = self.take_echo(header.timestamp);
        if is_token && header.number == challenge::NUMBER {
            return;
        }
        let back = self.outgoing.next().wrapping_sub(header.number);
        if !self.outgoing.is_sent(header.number) || back > ACKS_BACK {
            self.stats.outside_window += 1;
            return;
        }
        let datagram = self.stats.datagrams_received;
        let (number, echoed_ms) = (header.number, header.timestamp);
        let (delivered, pool) = (&mut acknowledged.delivered, &mut self.pool);
        let news = self.outgoing.acknowledge(number, echoed_ms, datagram, delivered, pool);
        // A repeated acknowledgement says nothing about the time of a round trip.
        let Some(news) = news else { return };
        if !is_token && let Some(round_trip_ms) = self.round_trip.sample(now as u32, echoed_ms) {
            delivered.add_round_trip(round_trip_ms);
        }
        acknowledged.order = acknowledged.order.max(news.order);
        if acknowledged.newest.is_none_or(|newest| distance(number, newest) > 0) {
            acknowledged.newest = Some(number);
        }
    }

    #[inline]
    fn take_window(&mut self, header: &Header) {
        let is_news = distance(header.unacknowledged, self.remote.unacknowledged) >= 0;
        let is_possible = distance(header.unacknowledged, self.outgoing.next()) <= 0;
        if !is_news || !is_possible {
            return;
        }
        self.remote.unacknowledged = header.unacknowledged;
        self.remote.window = header.window.into();
        if header.window > 0 {
            self.window_news.probe = None;
        }
    }

    #[inline]
    fn take_data(
        &mut self,
        now: u64,
        header: &Header,
        data: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), ReceiveError> {
        if self.ending.is_past_end(header.number) {
            self.stats.outside_window += 1;
            return Ok(());
        }
        let ack = Ack { number: header.number, timestamp: header.timestamp };
        if !self.may_hold(header.number, data.len()) {
            self.stats.refused_unvalidated += 1;
            return Ok(());
        }
        let is_whole = header.fragment == 0;
        if is_whole && self.incoming.is_awaited(header.number) && sink.take_now(data) {
            self.incoming.pass_over();
            self.acks.push_covered(ack, now);
            self.stats.segments_received += 1;
            return Ok(());
        }
        match self.incoming.insert(header.number, header.fragment, data, &mut self.pool) {
            Inserted::InTurn => self.acks.push_covered(ack, now),
            Inserted::Ahead => {
                self.acks.push_ahead(ack, now);
            }
            Inserted::Duplicate if header.number == challenge::NUMBER && data.is_empty() => {
                self.acks.push_echo(ack);
                return Ok(());
            }
            Inserted::Duplicate => {
                self.stats.duplicates += 1;
                if distance(header.number, self.incoming.next()) < 0 {
                    self.acks.push_covered(ack, now);
                } else {
                    self.acks.push_ahead(ack, now);
                }
                return Ok(());
            }
            Inserted::Outside => {
                self.stats.outside_window += 1;
                return Ok(());
            }
        }
        self.stats.segments_received += 1;
        if self.incoming.is_stuck() || self.incoming.partial() >= FRAGMENTS_MAX {
            self.close_now(CloseReason::MessageTooLong);
            let limit = FRAGMENTS_MAX.min(self.config.receive_window.into());
            return Err(ReceiveError::MessageTooLong { limit });
        }
        Ok(())
    }

    #[inline]
    fn look_for_losses(&mut self, acknowledged: &Acknowledged) {
        let (Some(newest), Some(order)) = (acknowledged.newest, acknowledged.order) else { return };
        let has_gap = distance(newest, self.outgoing.first()) > 0;
        if !has_gap {
            return;
        }
        let datagram = self.stats.datagrams_received;
        // Without fast resending the count still tells a lost segment from a dead path.
        let threshold = if self.config.fast_resend == 0 { u32::MAX } else { self.config.fast_resend };
        let is_due = self.outgoing.count_overtaken(newest, datagram, order, threshold);
        self.resending.is_fast_due |= is_due;
    }
}
