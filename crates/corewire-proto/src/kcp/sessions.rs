//! Many conversations on one port.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::close::State;
use super::config::Config;
use super::control::Kcp;
use super::ended::Ended;
use super::error::{CloseReason, ConfigError, ReceiveError};
use super::timers::Timers;
use super::transmit::Transmit;
use super::wire::{Command, Header, conversation};

/// Names a session of one [`Sessions`]; never used again after the session is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    index: u32,
    generation: u32,
}

/// Limits and times of a [`Sessions`]; `conversation` is used for every session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// Settings of each conversation. Default: [`Config::default`].
    pub conversation: Config,
    /// New peers may open sessions. Default: true.
    pub accept: bool,
    /// Sessions at most (default 65,536). New peers are refused beyond that.
    pub sessions_max: usize,
    /// Accepted sessions at most whose peer has not yet answered anything, so that its address may be forged
    /// (default 2048). Beyond that a new peer takes the place of the oldest of them if that has had a second to
    /// answer, and is refused otherwise; those that have answered are safe from the flood. A flood that
    /// forges the answers too runs into `sessions_max`; only encryption (`Envelope`, feature `aead`) keeps that one out.
    pub unproven_max: usize,
    /// How long an accepted peer has to answer, in milliseconds (default 5000). Every KCP answers the window
    /// question that it is asked on accept.
    pub unproven_timeout_ms: u64,
    /// A session ends when nothing was received for so long, in milliseconds (default 20 minutes).
    pub idle_timeout_ms: u64,
    /// How long what a session begun here has sent may stay without any answer at all, in milliseconds (default
    /// 10,000). Then it ends with [`CloseReason::NoAnswer`].
    pub answer_timeout_ms: u64,
    /// How long the datagrams of a session that is over are told from those of a new one, in milliseconds
    /// (default 10,000). A peer cannot use the same conversation id again before.
    pub quiet_ms: u64,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            conversation: Config::default(),
            accept: true,
            sessions_max: 65_536,
            unproven_max: 2048,
            unproven_timeout_ms: 5_000,
            idle_timeout_ms: 20 * 60 * 1000,
            answer_timeout_ms: 10_000,
            quiet_ms: 10_000,
        }
    }
}

/// A datagram, or a wish to connect, that led to no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session refused the datagram.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The datagram belongs to no session and cannot open one: only the first segment of a conversation can.
    #[error(
        "conversation {conversation} is not known from this address, and this datagram does not begin one"
    )]
    Unknown {
        /// The conversation id in the datagram.
        conversation: u32,
    },
    /// The session is over, and its id not free again yet.
    #[error("conversation {conversation} with this address is over: use another id")]
    Ended {
        /// The conversation id.
        conversation: u32,
    },
    /// There is such a session already.
    #[error("conversation {conversation} with this address exists already: use another id")]
    InUse {
        /// The conversation id.
        conversation: u32,
    },
    /// The peer has not answered yet, and its session holds all that it may hold before.
    #[error("the peer has not answered yet, and its session holds {limit} bytes already")]
    Unproven {
        /// The most that it may hold, in bytes.
        limit: usize,
    },
    /// The limit on sessions is reached.
    #[error("there are {limit} sessions, which is the limit {name}: raise it or let sessions end")]
    TooManySessions {
        /// Which limit.
        name: &'static str,
        /// Its value.
        limit: usize,
    },
}

/// Something the user of a [`Sessions`] may want to act upon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent<A> {
    /// A new peer has opened a session.
    Opened(SessionId),
    /// Messages can be read, or the peer has ended its side. Told once until it is polled.
    Readable(SessionId),
    /// The session is over and its id is void.
    Closed {
        /// The session.
        id: SessionId,
        /// Its peer.
        address: A,
        /// Its conversation id.
        conversation: u32,
        /// Why it is over.
        reason: CloseReason,
    },
}

#[derive(Debug)]
struct Session<A> {
    address: A,
    kcp: Kcp,
    received_at: u64,
    opened_at: u64,
    asked_at: u64,
    is_own: bool,
    is_proven: bool,
    /// Since when a peer that was connected to from here owes its first answer.
    owed_since: Option<u64>,
    is_queued: bool,
    is_readable_told: bool,
    is_end_told: bool,
    is_trimmed: bool,
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
    unproven: usize,
    /// Those that were not proven when they came, in that order; some are meanwhile, or gone.
    newcomers: VecDeque<SessionId>,
    /// Sessions that may have something to send.
    queue: VecDeque<SessionId>,
    timers: Timers<SessionId>,
    events: VecDeque<SessionEvent<A>>,
    ended: Ended<A>,
}

/// How often a peer that has not answered yet is asked.
const ASK_EVERY_MS: u64 = 1000;
/// How long a peer is safe from newer ones before it has answered.
const ANSWER_FROM_MS: u64 = 1000;
/// What a peer that has not answered may make its session hold, in bytes; more of its data is not taken. A first flight
/// of 128 segments fits.
const UNPROVEN_MEMORY_MAX: usize = 256 * 1024;
/// A session that has been quiet for so long gives back its spare memory.
const TRIM_AFTER_MS: u64 = 10_000;

impl<A: Copy + Eq + Hash> Sessions<A> {
    /// No sessions yet.
    ///
    /// # Errors
    /// A setting of the conversations is out of range.
    pub fn new(config: SessionsConfig) -> Result<Self, ConfigError> {
        config.conversation.validate()?;
        Ok(Self {
            ended: Ended::new(config.sessions_max, config.quiet_ms),
            config,
            slots: Vec::new(),
            free: Vec::new(),
            by_peer: HashMap::new(),
            unproven: 0,
            newcomers: VecDeque::new(),
            queue: VecDeque::new(),
            timers: Timers::default(),
            events: VecDeque::new(),
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
        self.open(now, address, conversation, true)
    }

    /// Takes a datagram from the peer at `from` and says which session it was for.
    ///
    /// # Errors
    /// The datagram is for no session and opens none, or the session refuses it. No error concerns any other
    /// session, and none needs an answer: count it and go on.
    pub fn receive(&mut self, now: u64, from: A, datagram: &[u8]) -> Result<SessionId, SessionError> {
        let id = self.find_or_open(now, from, datagram)?;
        let outcome = match self.get_mut(id) {
            Some(session) => session.kcp.receive(now, datagram),
            None => Err(ReceiveError::Closed),
        };
        self.after_receive(now, id, outcome)
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
        let id = self.find_or_open(now, from, datagram)?;
        let outcome = match self.get_mut(id) {
            Some(session) => session.kcp.receive_each(now, datagram, |message| handler(id, message)),
            None => Err(ReceiveError::Closed),
        };
        self.after_receive(now, id, outcome)
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
        if let Some((address, header)) = self.ended.take_answer() {
            out.extend_from_slice(&header.to_bytes());
            let len = header.to_bytes().len();
            return Some((address, Transmit { segment_size: len, datagrams: 1, len }));
        }
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
                let address = session.address;
                // There may be more, but the others come first.
                self.queue.push_back(id);
                return Some((address, transmit));
            }
            self.settle(now, id);
        }
        self.timers.sweep_top();
        None
    }

    /// Milliseconds until [`poll_transmit`](Self::poll_transmit) has something to do if nothing is received or
    /// sent before.
    pub fn next_timeout(&self, now: u64) -> Option<u64> {
        if !self.queue.is_empty() || self.ended.owes_answer() {
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

    fn find_or_open(&mut self, now: u64, from: A, datagram: &[u8]) -> Result<SessionId, SessionError> {
        let conversation = conversation(datagram).ok_or(ReceiveError::TooShort { len: datagram.len() })?;
        if let Some(&id) = self.by_peer.get(&(from, conversation)) {
            return self.check_memory(id, datagram).map(|()| id);
        }
        let (header, data, _) = Header::parse(datagram)?;
        if self.ended.contains(now, from, conversation) {
            self.ended.answer(from, &header);
            return Err(SessionError::Ended { conversation });
        }
        let begins = header.command == Command::Push && header.number == 0;
        if !begins || !self.config.accept {
            return Err(SessionError::Unknown { conversation });
        }
        let limit = self.config.conversation.max_segment;
        if data.len() > limit {
            return Err(ReceiveError::SegmentTooLong { len: data.len(), limit }.into());
        }
        let limit = self.config.unproven_max;
        if self.unproven >= limit && !self.evict_newcomer(now) {
            return Err(SessionError::TooManySessions { name: "unproven_max", limit });
        }
        self.open(now, from, conversation, false)
    }

    /// Refuses data of a peer that has not answered but makes its session hold much already. It will send it again.
    #[inline]
    fn check_memory(&self, id: SessionId, datagram: &[u8]) -> Result<(), SessionError> {
        let Some(session) = self.get(id).filter(|session| !session.is_proven) else { return Ok(()) };
        if session.kcp.memory() < UNPROVEN_MEMORY_MAX || !Header::begins_with_data(datagram) {
            return Ok(());
        }
        Err(SessionError::Unproven { limit: UNPROVEN_MEMORY_MAX })
    }

    /// Ends the oldest session whose peer has not answered, if it has had its time.
    fn evict_newcomer(&mut self, now: u64) -> bool {
        while let Some(&id) = self.newcomers.front() {
            let is_unproven = self.get(id).is_some_and(|session| !session.is_proven);
            if is_unproven {
                let is_safe = self.get(id).is_some_and(|session| now < session.opened_at + ANSWER_FROM_MS);
                if !is_safe {
                    self.newcomers.pop_front();
                    self.discard(now, id, CloseReason::Unproven);
                }
                return !is_safe;
            }
            self.newcomers.pop_front();
        }
        false
    }

    /// Forgets those among the newcomers that have answered or are gone.
    fn prune_newcomers(&mut self) {
        if self.newcomers.len() > 2 * self.unproven + 64 {
            let mut newcomers = std::mem::take(&mut self.newcomers);
            newcomers.retain(|id| self.get(*id).is_some_and(|session| !session.is_proven));
            self.newcomers = newcomers;
        }
    }

    fn open(
        &mut self,
        now: u64,
        address: A,
        conversation: u32,
        is_own: bool,
    ) -> Result<SessionId, SessionError> {
        let limit = self.config.sessions_max;
        // Events of sessions that are over count too, or a user who does not poll would let them pile up.
        if self.by_peer.len() >= limit || self.events.len() >= limit.saturating_mul(3) {
            return Err(SessionError::TooManySessions { name: "sessions_max", limit });
        }
        let kcp = Kcp::from_valid(conversation, self.config.conversation.clone());
        let session = Box::new(Session {
            address,
            kcp,
            received_at: now,
            opened_at: now,
            asked_at: now,
            is_own,
            is_proven: is_own,
            owed_since: None,
            is_queued: false,
            is_readable_told: false,
            is_end_told: false,
            is_trimmed: true,
        });
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, session: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.session = Some(session);
        let id = SessionId { index, generation: slot.generation };
        self.by_peer.insert((address, conversation), id);
        if !is_own {
            self.unproven += 1;
            self.newcomers.push_back(id);
            self.prune_newcomers();
            self.events.push_back(SessionEvent::Opened(id));
            if let Some(session) = self.get_mut(id) {
                session.kcp.ask_window();
            }
        }
        self.enqueue(id);
        Ok(id)
    }

    fn after_receive(
        &mut self,
        now: u64,
        id: SessionId,
        outcome: Result<(), ReceiveError>,
    ) -> Result<SessionId, SessionError> {
        self.enqueue(id);
        let Some(session) = self.get_mut(id) else { return Ok(id) };
        let mut is_news = false;
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
        let is_proof = !session.is_proven && session.kcp.has_answered();
        session.is_proven |= is_proof;
        self.unproven -= usize::from(is_proof);
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

    /// Ends sessions that have been idle or unproven for too long, asks the unproven ones again, and trims.
    fn check_time_limits(&mut self, now: u64, id: SessionId) {
        let (idle_ms, unproven_ms) = (self.config.idle_timeout_ms, self.config.unproven_timeout_ms);
        let answer_ms = self.config.answer_timeout_ms;
        let Some(session) = self.get_mut(id) else { return };
        if now >= session.received_at + idle_ms {
            return self.discard(now, id, CloseReason::Idle);
        }
        if session.owed_since.is_some_and(|since| now >= since + answer_ms) {
            return self.discard(now, id, CloseReason::NoAnswer);
        }
        if !session.is_proven {
            if now >= session.opened_at + unproven_ms {
                return self.discard(now, id, CloseReason::Unproven);
            }
            if now >= session.asked_at + ASK_EVERY_MS {
                session.asked_at = now;
                session.kcp.ask_window();
            }
        }
        let is_quiet = now >= session.received_at + TRIM_AFTER_MS && session.kcp.waiting_send() == 0;
        if is_quiet && !std::mem::replace(&mut session.is_trimmed, true) {
            session.kcp.release_memory();
        }
    }

    /// Nothing is to be sent on this session now: sets its timer, or lets it go if it is over.
    fn settle(&mut self, now: u64, id: SessionId) {
        let (idle_ms, unproven_ms) = (self.config.idle_timeout_ms, self.config.unproven_timeout_ms);
        let answer_ms = self.config.answer_timeout_ms;
        let Some(session) = self.get_mut(id) else { return };
        session.is_queued = false;
        if let State::Closed(reason) = session.kcp.state()
            && !session.kcp.is_readable()
        {
            return self.discard(now, id, reason);
        }
        let mut at = session.received_at + idle_ms;
        if let Some(since) = session.owed_since {
            at = at.min(since + answer_ms);
        }
        if !session.is_proven {
            at = at.min(session.opened_at + unproven_ms).min(session.asked_at + ASK_EVERY_MS);
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
        let (address, conversation, is_proven) =
            (session.address, session.kcp.conversation(), session.is_proven);
        self.unproven -= usize::from(!is_proven);
        // Of one that never answered too: what it has sent was read, and must not be read again.
        let is_broken = !matches!(reason, CloseReason::Finished | CloseReason::Unanswered);
        self.ended.insert(now, address, conversation, is_broken);
        self.by_peer.remove(&(address, conversation));
        self.timers.clear(id.index);
        let slot = &mut self.slots[id.index as usize];
        slot.session = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        self.events.push_back(SessionEvent::Closed { id, address, conversation, reason });
    }
}
