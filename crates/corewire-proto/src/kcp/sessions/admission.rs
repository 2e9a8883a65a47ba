//! Who gets a session, and what those are told who get none.

use std::hash::{BuildHasher, Hash};

use super::super::control::Kcp;
use super::super::error::{CloseReason, ReceiveError};
use super::super::wire::{Command, Header, challenge, conversation};
use super::memory::MemoryMeter;
use super::settings::{SessionError, SessionEvent, SessionId};
use super::{ASK_AGAIN_MS, Session, Sessions, Slot};

/// How long a peer is safe from newer ones before it is validated.
const SAFE_FOR_MS: u64 = 1000;
/// Of a table that is full, peers that are not validated take the places of others up to one in so many.
const UNVALIDATED_SHARE: usize = 8;
const COOKIE_PERIOD_MS: u64 = 10_000;
/// A peer that has heard nothing of a conversation cannot have more segments in flight: it is the least window of KCP.
const FIRST_FLIGHT_MAX: u32 = 128;

/// Who has begun a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Own,
    Accepted { is_validated: bool },
}

/// The peer takes the conversation to be established: it was told something by who had it before. One whose first segment
/// is late or lost must not be taken for that.
fn is_of_an_older_session(header: &Header) -> bool {
    let was_answered = header.unacknowledged > 0 || header.number >= FIRST_FLIGHT_MAX;
    matches!(header.command, Command::Push | Command::WindowAsk) && was_answered
}

impl<A: Copy + Eq + Hash> Sessions<A> {
    pub(super) fn find_or_open(
        &mut self,
        now: u64,
        from: A,
        datagram: &[u8],
    ) -> Result<SessionId, SessionError> {
        let conversation = conversation(datagram).ok_or(ReceiveError::TooShort { len: datagram.len() })?;
        if let Some(&id) = self.by_peer.get(&(from, conversation)) {
            return Ok(id);
        }
        let (header, data, _) = Header::parse(datagram)?;
        if self.ended.contains(now, from, conversation) {
            if let Some(flags) = self.ended.answer(from, &header) {
                self.answers.end(from, &header, flags);
            }
            return Err(SessionError::Ended { conversation });
        }
        if !self.config.accept {
            return Err(SessionError::Unknown { conversation });
        }
        if header.command == Command::Cookie && self.is_own_cookie(now, from, &header) {
            return self.open(now, from, conversation, Origin::Accepted { is_validated: true });
        }
        if header.command != Command::Push || header.number != 0 {
            if is_of_an_older_session(&header) {
                self.answers.reset(now, from, &header);
            }
            return Err(SessionError::Unknown { conversation });
        }
        let limit = self.config.conversation.max_segment;
        if data.len() > limit {
            return Err(ReceiveError::SegmentTooLong { len: data.len(), limit }.into());
        }
        let limit = self.config.unvalidated_max;
        if self.config.validate && self.unvalidated >= limit && !self.evict_newcomer(now) {
            self.answers.offer(from, &header, self.cookie(now, from, conversation));
            return Err(SessionError::TooManySessions { name: "unvalidated_max", limit });
        }
        let origin = Origin::Accepted { is_validated: !self.config.validate };
        let opened = self.open(now, from, conversation, origin);
        if opened.is_err() && self.config.validate {
            self.answers.offer(from, &header, self.cookie(now, from, conversation));
        }
        opened
    }

    /// What shows that the peer receives at its address, for as long as this period and the next.
    fn cookie(&self, now: u64, from: A, conversation: u32) -> u64 {
        self.secret.hash_one((from, conversation, now / COOKIE_PERIOD_MS))
    }

    fn is_own_cookie(&self, now: u64, from: A, header: &Header) -> bool {
        let echoed = u64::from(header.timestamp) | u64::from(header.number) << 32;
        header.fragment == challenge::COOKIE_ECHO
            && [now, now.saturating_sub(COOKIE_PERIOD_MS)]
                .into_iter()
                .any(|at| self.cookie(at, from, header.conversation) == echoed)
    }

    /// Ends the oldest session whose peer is not validated, if it has had its time.
    fn evict_newcomer(&mut self, now: u64) -> bool {
        while let Some(&id) = self.newcomers.front() {
            let is_unvalidated = self.get(id).is_some_and(|session| !session.kcp.is_validated());
            if is_unvalidated {
                let is_safe = self.get(id).is_some_and(|session| now < session.opened_at + SAFE_FOR_MS);
                if !is_safe {
                    self.newcomers.pop_front();
                    self.discard(now, id, CloseReason::Unvalidated);
                }
                return !is_safe;
            }
            self.newcomers.pop_front();
        }
        false
    }

    /// Has one of the sessions of peers make room for a new one. Peers that are not validated can take no more than a part of
    /// the table that way.
    fn make_room(&mut self, now: u64, origin: Origin) -> bool {
        let may_evict = match origin {
            Origin::Own => false,
            Origin::Accepted { is_validated: true } => true,
            Origin::Accepted { is_validated: false } => {
                self.unvalidated < (self.config.sessions_max / UNVALIDATED_SHARE).max(1)
            }
        };
        if origin != Origin::Own && self.evict_newcomer(now) {
            return true;
        }
        let first_out = self.recency.first_out().filter(|_| may_evict);
        let Some(index) = first_out else { return false };
        let generation = self.slots[index as usize].generation;
        self.discard(now, SessionId { index, generation }, CloseReason::Evicted);
        true
    }

    /// Forgets those among the newcomers that are validated or gone.
    fn prune_newcomers(&mut self) {
        if self.newcomers.len() > 2 * self.unvalidated + 64 {
            let mut newcomers = std::mem::take(&mut self.newcomers);
            newcomers.retain(|id| self.get(*id).is_some_and(|session| !session.kcp.is_validated()));
            self.newcomers = newcomers;
        }
    }

    pub(super) fn open(
        &mut self,
        now: u64,
        address: A,
        conversation: u32,
        origin: Origin,
    ) -> Result<SessionId, SessionError> {
        let limit = self.config.sessions_max;
        // Events of sessions that are over count too, or a user who does not poll would let them pile up.
        let has_room = self.by_peer.len() < limit || self.make_room(now, origin);
        if !has_room || self.events.len() >= limit.saturating_mul(3) {
            return Err(SessionError::TooManySessions { name: "sessions_max", limit });
        }
        let mut kcp = Kcp::from_valid(conversation, self.config.conversation.clone());
        match origin {
            // It tells the peer's window before there is anything to acknowledge.
            Origin::Own => kcp.ask_window(),
            Origin::Accepted { is_validated: true } => {}
            Origin::Accepted { is_validated: false } => {
                self.tokens += 1;
                kcp.validate_by(self.secret.hash_one((address, conversation, self.tokens)) as u32);
            }
        }
        let is_validated = kcp.is_validated();
        let session = Box::new(Session {
            address,
            kcp,
            received_at: now,
            opened_at: now,
            ask_at: now + ASK_AGAIN_MS,
            ask_after_ms: ASK_AGAIN_MS,
            is_own: origin == Origin::Own,
            owed_since: None,
            is_queued: false,
            is_readable_told: false,
            is_end_told: false,
            is_trimmed: true,
            memory: MemoryMeter::default(),
        });
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, session: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.session = Some(session);
        let id = SessionId { index, generation: slot.generation };
        self.by_peer.insert((address, conversation), id);
        if let Some(repair) = &mut self.repair {
            repair.opened(address, id);
        }
        if origin == (Origin::Accepted { is_validated: true }) {
            self.recency.insert(now, id.index);
        }
        if !is_validated {
            self.unvalidated += 1;
            self.newcomers.push_back(id);
            self.prune_newcomers();
        }
        if origin != Origin::Own {
            self.events.push_back(SessionEvent::Opened(id));
        }
        self.enqueue(id);
        Ok(id)
    }
}
