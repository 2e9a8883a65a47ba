//! Many conversations on one port.

mod admission;
mod answers;
mod ended;
mod memory;
mod repair;
mod settings;
mod timers;

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use self::admission::Origin;
use self::answers::Answers;
use self::ended::Ended;
use self::memory::MemoryMeter;
use self::repair::Repair;
pub use self::settings::{SessionError, SessionEvent, SessionId, SessionsConfig};
use self::timers::Timers;
use super::close::State;
use super::control::Kcp;
use super::error::{CloseReason, ConfigError, ReceiveError};
use super::fec::{FEC_OVERHEAD, Shard};
use super::transmit::Transmit;
use super::validation::HELD_MAX;
use crate::recency::Recency;

#[derive(Debug)]
struct Session<A> {
    address: A,
    kcp: Kcp,
    received_at: u64,
    opened_at: u64,
    /// When a peer that is not validated is asked again, and how long after that the next time.
    ask_at: u64,
    ask_after_ms: u64,
    is_own: bool,
    /// Since when a peer that was connected to from here owes its first answer.
    owed_since: Option<u64>,
    is_queued: bool,
    is_readable_told: bool,
    is_end_told: bool,
    is_trimmed: bool,
    memory: MemoryMeter,
}

/// Data segments of a session that were not taken because its peer is not validated.
const fn refused<A>(session: &Session<A>) -> u64 {
    session.kcp.stats().refused_unvalidated
}

#[derive(Debug)]
struct Slot<A> {
    generation: u32,
    session: Option<Box<Session<A>>>,
}

/// The sessions of one UDP port, found by peer address `A` and conversation id.
///
/// A new peer needs no handshake: the first segment of a conversation opens a session, as with kcp-go. The caller:
///
/// 1. gives it every datagram: [`receive`](Self::receive) (or [`receive_each`](Self::receive_each));
/// 2. takes the events: [`poll_event`](Self::poll_event);
/// 3. sends and reads through [`session`](Self::session);
/// 4. after each batch of the above, and when the time of step 5 has come, calls
///    [`poll_transmit`](Self::poll_transmit) until it gives `None`;
/// 5. asks [`next_timeout`](Self::next_timeout) when to do so again.
///
/// A call costs what the sessions that have something to do cost, not what all of them cost.
///
/// ```
/// use std::net::SocketAddr;
/// use corewire_proto::kcp::{Sessions, SessionsConfig};
///
/// let (here, there): (SocketAddr, SocketAddr) = ("[::1]:1000".parse()?, "[::1]:2000".parse()?);
/// let mut client = Sessions::new(SessionsConfig::default())?;
/// let mut server = Sessions::new(SessionsConfig::default())?;
/// let id = client.connect(0, there, 0x1234_5678)?;
/// client.session(id).ok_or("it was opened just now")?.send(b"hello")?;
///
/// let mut out = Vec::new();
/// let mut seen = Vec::new();
/// while let Some((_to, transmit)) = client.poll_transmit(0, &mut out, 64) {
///     for datagram in out.chunks(transmit.segment_size) {
///         server.receive_each(0, here, datagram, |_id, message| seen.extend_from_slice(message))?;
///     }
///     out.clear();
/// }
/// assert_eq!(seen, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sessions<A> {
    config: SessionsConfig,
    slots: Vec<Slot<A>>,
    free: Vec<u32>,
    by_peer: HashMap<(A, u32), SessionId>,
    /// Sessions whose peer is not validated.
    unvalidated: usize,
    /// Those that were not validated when they came, in that order; some are meanwhile, or gone.
    newcomers: VecDeque<SessionId>,
    /// Those that were opened by peers which are validated.
    recency: Recency,
    /// Sessions that may have something to send.
    queue: VecDeque<SessionId>,
    timers: Timers<SessionId>,
    events: VecDeque<SessionEvent<A>>,
    ended: Ended<A>,
    answers: Answers<A>,
    repair: Option<Repair<A>>,
    /// Makes tokens and cookies that nobody can guess.
    secret: RandomState,
    tokens: u64,
}

/// How long after the first time a peer that is not validated is asked again. It doubles up to a limit.
const ASK_AGAIN_MS: u64 = 100;
const ASK_EVERY_MS: u64 = 1000;
/// A session that has been quiet for so long gives back its spare memory.
const TRIM_AFTER_MS: u64 = 10_000;

impl<A: Copy + Eq + Hash> Sessions<A> {
    /// No sessions yet.
    ///
    /// # Errors
    /// A setting of the conversations is out of range.
    pub fn new(mut config: SessionsConfig) -> Result<Self, ConfigError> {
        config.conversation.validate()?;
        let repair = config.conversation.shards.map(Repair::new);
        if repair.is_some() {
            config.conversation = config.conversation.reserve(FEC_OVERHEAD);
            config.conversation.validate()?;
        }
        Ok(Self {
            ended: Ended::new(config.sessions_max, config.quiet_ms),
            recency: Recency::new(config.sessions_max),
            config,
            slots: Vec::new(),
            free: Vec::new(),
            by_peer: HashMap::new(),
            unvalidated: 0,
            newcomers: VecDeque::new(),
            queue: VecDeque::new(),
            timers: Timers::default(),
            events: VecDeque::new(),
            answers: Answers::default(),
            repair,
            secret: RandomState::new(),
            tokens: 0,
        })
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.by_peer.len()
    }

    /// There is no session.
    pub fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    /// Begins a conversation with a peer. Draw `conversation` at random, as kcp-go's clients do.
    ///
    /// # Errors
    /// [`SessionError::InUse`], [`SessionError::Ended`] or [`SessionError::TooManySessions`].
    pub fn connect(&mut self, now: u64, address: A, conversation: u32) -> Result<SessionId, SessionError> {
        if self.by_peer.contains_key(&(address, conversation)) {
            return Err(SessionError::InUse { conversation });
        }
        if self.ended.contains(now, address, conversation) {
            return Err(SessionError::Ended { conversation });
        }
        self.open(now, address, conversation, Origin::Own)
    }

    /// Takes a datagram from the peer at `from` and says which session it was for.
    ///
    /// # Errors
    /// The datagram is for no session and opens none, or the session refuses it. No error concerns any other
    /// session, and none needs an answer: count it and go on.
    pub fn receive(&mut self, now: u64, from: A, datagram: &[u8]) -> Result<SessionId, SessionError> {
        self.receive_by(now, from, datagram, &mut |kcp, _, datagram| kcp.receive(now, datagram))
    }

    /// As [`receive`](Self::receive), but hands messages to `handler` at once, without copying those that arrive in
    /// their turn (see [`Kcp::receive_each`]).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_each(
        &mut self,
        now: u64,
        from: A,
        datagram: &[u8],
        mut handler: impl FnMut(SessionId, &[u8]),
    ) -> Result<SessionId, SessionError> {
        self.receive_by(now, from, datagram, &mut |kcp, id, datagram| {
            kcp.receive_each(now, datagram, |message| handler(id, message))
        })
    }

    /// A session to send on, read from or close; `None` when it is over. What is sent leaves with the next
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn session(&mut self, id: SessionId) -> Option<&mut Kcp> {
        self.enqueue(id);
        self.get_mut(id).map(|session| &mut session.kcp)
    }

    /// A session to look at.
    pub fn peek(&self, id: SessionId) -> Option<&Kcp> {
        self.get(id).map(|session| &session.kcp)
    }

    /// The address of a session's peer.
    pub fn address(&self, id: SessionId) -> Option<A> {
        self.get(id).map(|session| session.address)
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<SessionEvent<A>> {
        let event = self.events.pop_front()?;
        if let SessionEvent::Readable(id) = &event
            && let Some(session) = self.get_mut(*id)
        {
            session.is_readable_told = false;
        }
        Some(event)
    }

    /// Appends datagrams for one peer to `out`, as [`Kcp::poll_transmit`] does, and gives the peer's address.
    pub fn poll_transmit(
        &mut self,
        now: u64,
        out: &mut Vec<u8>,
        max_datagrams: usize,
    ) -> Option<(A, Transmit)> {
        if self.repair.is_none() {
            let (address, transmit, _) = self.poll_plain(now, out, max_datagrams)?;
            return Some((address, transmit));
        }
        loop {
            if let Some(run) = self.repair.as_mut()?.poll(out, max_datagrams) {
                return Some(run);
            }
            let mut plain = self.repair.as_mut()?.take_plain();
            let polled = self.poll_plain(now, &mut plain, max_datagrams);
            let (address, transmit, may_repair) = polled?;
            self.repair.as_mut()?.encode(now, address, plain, transmit, may_repair);
        }
    }

    /// Writes datagrams without forward error correction, and says whether it may be added.
    fn poll_plain(
        &mut self,
        now: u64,
        out: &mut Vec<u8>,
        max_datagrams: usize,
    ) -> Option<(A, Transmit, bool)> {
        if let Some((address, header)) = self.answers.take() {
            out.extend_from_slice(&header.to_bytes());
            let len = header.to_bytes().len();
            return Some((address, Transmit { segment_size: len, datagrams: 1, len }, false));
        }
        let overhead = if self.repair.is_some() { FEC_OVERHEAD } else { 0 };
        while let Some(id) = self.timers.pop_due(now) {
            self.enqueue(id);
        }
        while let Some(&id) = self.queue.front() {
            self.check_time_limits(now, id);
            self.queue.pop_front();
            if let Some(session) = self.get_mut(id)
                && let Some(transmit) = session.kcp.poll_transmit(now, out, max_datagrams)
            {
                if session.is_own && !session.kcp.has_answered() {
                    session.owed_since.get_or_insert(now);
                }
                session.kcp.spend_credit(overhead * transmit.datagrams);
                let (address, may_repair) = (session.address, session.kcp.is_validated());
                // There may be more, but the others come first.
                self.queue.push_back(id);
                return Some((address, transmit, may_repair));
            }
            self.settle(now, id);
        }
        self.timers.sweep_top();
        None
    }

    /// Milliseconds until [`poll_transmit`](Self::poll_transmit) has something to do if nothing is received or
    /// sent before.
    pub fn next_timeout(&self, now: u64) -> Option<u64> {
        let is_ready = self.repair.as_ref().is_some_and(|repair| !repair.is_empty());
        if is_ready || !self.queue.is_empty() || !self.answers.is_empty() {
            return Some(0);
        }
        self.timers.next_at().map(|at| at.saturating_sub(now))
    }

    /// Drops a session at once. The peer is told if it goes on sending.
    pub fn remove(&mut self, now: u64, id: SessionId) {
        self.discard(now, id, CloseReason::Aborted);
    }

    fn get(&self, id: SessionId) -> Option<&Session<A>> {
        let slot = self.slots.get(id.index as usize)?;
        slot.session.as_deref().filter(|_| slot.generation == id.generation)
    }

    fn get_mut(&mut self, id: SessionId) -> Option<&mut Session<A>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.session.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    /// Takes a datagram, and those that can be made up with it.
    #[inline]
    fn receive_by(
        &mut self,
        now: u64,
        from: A,
        datagram: &[u8],
        take: &mut impl FnMut(&mut Kcp, SessionId, &[u8]) -> Result<(), ReceiveError>,
    ) -> Result<SessionId, SessionError> {
        if self.repair.is_some()
            && let Some(shard) = Shard::parse(datagram)
        {
            return self.receive_shard(now, from, shard, take);
        }
        self.receive_plain(now, from, datagram, take)
    }

    fn receive_shard(
        &mut self,
        now: u64,
        from: A,
        shard: Shard<'_>,
        take: &mut impl FnMut(&mut Kcp, SessionId, &[u8]) -> Result<(), ReceiveError>,
    ) -> Result<SessionId, SessionError> {
        let received = shard.datagram().map(|datagram| self.receive_plain(now, from, datagram, take));
        let id = received.as_ref().and_then(|received| received.as_ref().ok()).copied();
        let made_up = self.repair.as_mut().map(|repair| repair.make_up(from, shard, id)).unwrap_or_default();
        for datagram in made_up {
            // What is wrong with one does not concern the datagram that was received.
            let _ = self.receive_plain(now, from, &datagram, take);
        }
        let of_parity = || self.repair.as_ref().and_then(|repair| repair.last(from));
        received.unwrap_or_else(|| of_parity().ok_or(SessionError::Unknown { conversation: 0 }))
    }

    #[inline]
    fn receive_plain(
        &mut self,
        now: u64,
        from: A,
        datagram: &[u8],
        take: &mut impl FnMut(&mut Kcp, SessionId, &[u8]) -> Result<(), ReceiveError>,
    ) -> Result<SessionId, SessionError> {
        let id = self.find_or_open(now, from, datagram)?;
        let before = self.get(id).map(|session| (session.kcp.is_validated(), refused(session)));
        let outcome = match self.get_mut(id) {
            Some(session) => take(&mut session.kcp, id, datagram),
            None => Err(ReceiveError::Closed),
        };
        let (was_validated, refused_before) = before.unwrap_or_default();
        let id = self.after_receive(now, id, datagram.len(), was_validated, outcome)?;
        match self.get(id) {
            Some(session) if refused(session) > refused_before => {
                Err(SessionError::Unvalidated { limit: HELD_MAX })
            }
            _ => Ok(id),
        }
    }

    fn after_receive(
        &mut self,
        now: u64,
        id: SessionId,
        len: usize,
        was_validated: bool,
        outcome: Result<(), ReceiveError>,
    ) -> Result<SessionId, SessionError> {
        self.enqueue(id);
        let Some(session) = self.get_mut(id) else { return Ok(id) };
        let mut is_news = false;
        // Also if it is refused: what came before the fault in it is kept.
        session.memory.note_received(len);
        if outcome.is_ok() {
            session.received_at = now;
            session.is_trimmed = false;
            let is_end_news = !session.is_end_told && session.kcp.is_at_end();
            session.is_end_told |= is_end_news;
            is_news = session.kcp.is_readable() || is_end_news;
            is_news = is_news && !std::mem::replace(&mut session.is_readable_told, is_news);
        }
        if outcome.is_ok() {
            session.owed_since = None;
        }
        let is_validated = session.kcp.is_validated();
        if is_validated && !was_validated {
            self.unvalidated -= 1;
            self.recency.insert(now, id.index);
        } else if is_validated && outcome.is_ok() {
            self.recency.heard(now, id.index);
        }
        if is_news {
            self.events.push_back(SessionEvent::Readable(id));
        }
        outcome.map(|()| id).map_err(SessionError::from)
    }

    fn enqueue(&mut self, id: SessionId) {
        if let Some(session) = self.get_mut(id)
            && !std::mem::replace(&mut session.is_queued, true)
        {
            self.queue.push_back(id);
        }
    }

    /// Ends sessions that have been idle or not validated for too long, asks those again, and trims.
    fn check_time_limits(&mut self, now: u64, id: SessionId) {
        let (idle_ms, unvalidated_ms) = (self.config.idle_timeout_ms, self.config.unvalidated_timeout_ms);
        let answer_ms = self.config.answer_timeout_ms;
        let Some(session) = self.get_mut(id) else { return };
        if now >= session.received_at + idle_ms {
            return self.discard(now, id, CloseReason::Idle);
        }
        if session.owed_since.is_some_and(|since| now >= since + answer_ms) {
            return self.discard(now, id, CloseReason::NoAnswer);
        }
        if !session.kcp.is_validated() {
            if now >= session.opened_at + unvalidated_ms {
                return self.discard(now, id, CloseReason::Unvalidated);
            }
            if now >= session.ask_at {
                session.ask_after_ms = (2 * session.ask_after_ms).min(ASK_EVERY_MS);
                session.ask_at = now + session.ask_after_ms;
                session.kcp.challenge_again();
            }
        }
        let is_quiet = now >= session.received_at + TRIM_AFTER_MS && session.kcp.waiting_send() == 0;
        if is_quiet && !std::mem::replace(&mut session.is_trimmed, true) {
            session.kcp.release_memory();
            if let Some(bytes) = session.memory.look_now(&session.kcp) {
                self.events.push_back(SessionEvent::Memory { id, bytes });
            }
        }
    }

    /// Nothing is to be sent on this session now: sets its timer, or lets it go if it is over.
    fn settle(&mut self, now: u64, id: SessionId) {
        let (idle_ms, unvalidated_ms) = (self.config.idle_timeout_ms, self.config.unvalidated_timeout_ms);
        let answer_ms = self.config.answer_timeout_ms;
        let Some(session) = self.get_mut(id) else { return };
        session.is_queued = false;
        if let State::Closed(reason) = session.kcp.state()
            && !session.kcp.is_readable()
        {
            return self.discard(now, id, reason);
        }
        if let Some(bytes) = session.memory.look(&session.kcp) {
            self.events.push_back(SessionEvent::Memory { id, bytes });
        }
        let Some(session) = self.get_mut(id) else { return };
        let mut at = session.received_at + idle_ms;
        if let Some(since) = session.owed_since {
            at = at.min(since + answer_ms);
        }
        if !session.kcp.is_validated() {
            at = at.min(session.opened_at + unvalidated_ms).min(session.ask_at);
        }
        if !session.is_trimmed {
            at = at.min(session.received_at + TRIM_AFTER_MS);
        }
        if let Some(wait_ms) = session.kcp.next_timeout(now) {
            at = at.min(now + wait_ms);
        }
        // A time that has passed already would fire again and again within this millisecond.
        self.timers.set(id.index, at.max(now + 1), id);
    }

    fn discard(&mut self, now: u64, id: SessionId, reason: CloseReason) {
        let Some(session) = self.get(id) else { return };
        let (address, conversation) = (session.address, session.kcp.conversation());
        self.unvalidated -= usize::from(!session.kcp.is_validated());
        // Of one that never answered too: what it has sent was read, and must not be read again.
        let is_broken = !matches!(reason, CloseReason::Finished | CloseReason::Unanswered);
        self.ended.insert(now, address, conversation, is_broken);
        self.by_peer.remove(&(address, conversation));
        if let Some(repair) = &mut self.repair {
            repair.closed(address);
        }
        self.recency.remove(id.index);
        self.timers.clear(id.index);
        let slot = &mut self.slots[id.index as usize];
        slot.session = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        self.events.push_back(SessionEvent::Closed { id, address, conversation, reason });
    }
}
