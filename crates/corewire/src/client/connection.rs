//! The connection that a client keeps: made, lost, and made again.

use std::cell::{Ref, RefCell};
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use corewire_driver::clock;
use corewire_runtime::backoff::Backoff;
use corewire_runtime::{sleep, spawn_local};
use futures_lite::FutureExt;

use super::error::ConnectError;
use super::settings::Reconnect;

/// The state machine of a client's connection, without the connection itself: `S` is what its owner has of it while it
/// is established.
///
/// | state | leaves it by |
/// |---|---|
/// | `Idle` | [`begin`](Self::begin) → `Connecting` |
/// | `Connecting` | [`established`](Self::established) → `Established`; the attempt fails → `Backoff` |
/// | `Established` | [`lost`](Self::lost) → `Backoff`; or `Idle`, if it was proven and is not [kept always](Keep) |
/// | `Backoff` | its time is over → `Connecting`, or `Idle` if nobody wants one; attempts used up → `Closed` |
/// | `Closed` | never; every state is left for it by [`close`](Self::close) |
///
/// The waits between attempts grow until a connection has *proven* itself: it has received something, or has lasted 5 s.
/// So a server that accepts and closes at once is no better than one that does not answer. While somebody waits for the
/// connection, the next attempt is made 250 ms after the last one at the latest (or after the initial bound of the
/// back-off, if that is longer): a server that comes back is used at once.
///
/// It lives on one worker.
#[derive(Debug)]
pub struct ClientConnection<S> {
    state: RefCell<State<S>>,
    pace: RefCell<Pace>,
}

/// Where a [`ClientConnection`] is.
#[derive(Debug)]
#[non_exhaustive]
pub enum State<S> {
    /// None, and none is being made.
    Idle,
    /// An attempt is under way.
    Connecting,
    /// Messages can be sent on this.
    Established(S),
    /// The last attempt failed, or the connection was lost, for this reason; the next attempt is not due.
    Backoff(String),
    /// There will be none any more.
    Closed,
}

/// Who keeps a [`ClientConnection`]: a weak handle.
pub trait ConnectionOwner: Clone + 'static {
    /// What the owner has of an established connection.
    type Established;

    /// Looks at the connection; `None`: the owner is gone.
    fn with<R>(&self, look: impl FnOnce(&ClientConnection<Self::Established>) -> R) -> Option<R>;

    /// Makes one attempt. Before it succeeds, its protocol calls [`ClientConnection::established`].
    fn attempt(&self) -> impl Future<Output = Result<(), ConnectError>>;

    /// Somebody waits for the connection now.
    fn is_wanted(&self) -> bool;

    /// When there is to be a connection.
    fn keep(&self) -> Keep;

    /// The connection is lost, or an attempt has failed.
    fn changed(&self);
}

/// When there is to be a connection, although nobody waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Always: it is made again after each loss.
    Always,
    /// Once it was wanted, attempts go on until one succeeds.
    OnceWanted,
    /// Never.
    WhileWanted,
}

impl<S> ClientConnection<S> {
    /// No connection yet. Clients that lose the same server must not come back in step: `seed` is random.
    pub fn new(reconnect: &Reconnect, seed: u64) -> Self {
        Self { state: RefCell::new(State::Idle), pace: RefCell::new(Pace::new(reconnect, seed)) }
    }

    /// Where it is.
    #[inline]
    pub fn state(&self) -> Ref<'_, State<S>> {
        self.state.borrow()
    }

    /// There will be no connection any more.
    pub fn is_closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    /// An attempt that the owner makes by itself, the first one: `false` if one is under way, or none is needed.
    pub fn begin(&self) -> bool {
        let is_idle = matches!(*self.state(), State::Idle);
        if is_idle {
            self.set(State::Connecting);
        }
        is_idle
    }

    /// Somebody wants a connection: one is made if there is none, now if the last attempt is long enough ago.
    pub fn want<O: ConnectionOwner<Established = S>>(&self, owner: &O) {
        if self.begin() {
            drop(spawn_local(keep_trying(owner.clone())));
        } else if matches!(*self.state(), State::Backoff(_)) {
            self.pace.borrow_mut().hurry();
        }
    }

    /// The attempt under way has succeeded. `false`, and nothing changes, if none is wanted any more.
    pub fn established(&self, with: S) -> bool {
        let is_wanted = matches!(*self.state(), State::Connecting);
        if is_wanted {
            self.pace.borrow_mut().established(clock::now());
            self.set(State::Established(with));
        }
        is_wanted
    }

    /// The established connection is lost, or of no more use. `has_received`: something came on it.
    pub fn lost<O>(&self, owner: &O, why: String, has_received: bool)
    where
        O: ConnectionOwner<Established = S>,
    {
        if !matches!(*self.state(), State::Established(_)) {
            return;
        }
        let is_proven = self.pace.borrow_mut().lost(clock::now(), has_received);
        if is_proven && owner.keep() != Keep::Always {
            self.set(State::Idle);
            return owner.changed();
        }
        self.set(State::Connecting);
        self.failed(owner, why);
        drop(spawn_local(keep_trying(owner.clone())));
    }

    /// Ends for good; gives what was established.
    pub fn close(&self) -> Option<S> {
        let before = self.state.replace(State::Closed);
        self.pace.borrow_mut().wake();
        if let State::Established(with) = before { Some(with) } else { None }
    }

    fn failed<O: ConnectionOwner<Established = S>>(&self, owner: &O, why: String) {
        if !matches!(*self.state(), State::Connecting) {
            return;
        }
        let goes_on = self.pace.borrow_mut().failed(clock::now(), owner.is_wanted());
        self.set(if goes_on { State::Backoff(why) } else { State::Closed });
        owner.changed();
    }

    fn set(&self, state: State<S>) {
        let before = self.state.replace(state);
        // It may look at this when it is dropped.
        drop(before);
    }
}

/// Waits while the connection is in its back-off, and makes attempts while it is `Connecting`.
async fn keep_trying<O: ConnectionOwner>(owner: O) {
    loop {
        while let Some(Some(left)) = owner.with(|connection| match *connection.state() {
            State::Backoff(_) => connection.pace.borrow().left(clock::now()),
            _ => None,
        }) {
            let hurried = poll_fn(|context| {
                let polled =
                    owner.with(|connection| connection.pace.borrow_mut().poll_hurried(context.waker()));
                polled.unwrap_or(Poll::Ready(()))
            });
            sleep(left).or(hurried).await;
        }
        let goes_on = owner.with(|connection| {
            if matches!(*connection.state(), State::Backoff(_)) {
                let is_needed = owner.keep() != Keep::WhileWanted || owner.is_wanted();
                connection.set(if is_needed { State::Connecting } else { State::Idle });
            }
            matches!(*connection.state(), State::Connecting)
        });
        if goes_on != Some(true) {
            return;
        }
        // What makes codecs and handlers is the user's.
        let why = match AssertUnwindSafe(owner.attempt()).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "what makes the codec or the handler panicked".to_owned(),
        };
        tracing::debug!(%why, "connecting failed");
        owner.with(|connection| connection.failed(&owner, why));
    }
}

/// When the next attempt is due. It reads no clock.
#[derive(Debug)]
struct Pace {
    backoff: Backoff,
    /// The longest wait while somebody wants the connection.
    wanted_wait_max: Duration,
    established_at: Option<Instant>,
    failed_at: Option<Instant>,
    due: Option<Instant>,
    sleeper: Option<Waker>,
    is_hurried: bool,
}

impl Pace {
    /// A connection that lasted this long is proven although nothing came on it.
    const PROVEN_AFTER: Duration = Duration::from_secs(5);
    const WANTED_WAIT_MAX: Duration = Duration::from_millis(250);

    fn new(reconnect: &Reconnect, seed: u64) -> Self {
        Self {
            backoff: reconnect.backoff(seed),
            wanted_wait_max: Self::WANTED_WAIT_MAX.max(reconnect.initial),
            established_at: None,
            failed_at: None,
            due: None,
            sleeper: None,
            is_hurried: false,
        }
    }

    const fn established(&mut self, now: Instant) {
        self.established_at = Some(now);
    }

    /// Whether the connection that ends had proven itself: the waits begin anew then.
    fn lost(&mut self, now: Instant, has_received: bool) -> bool {
        let lasted = self.established_at.take().map(|since| now.saturating_duration_since(since));
        let is_proven = has_received || lasted.is_some_and(|lasted| lasted >= Self::PROVEN_AFTER);
        if is_proven {
            self.backoff.reset();
        }
        is_proven
    }

    /// Whether there may be another attempt.
    fn failed(&mut self, now: Instant, is_wanted: bool) -> bool {
        let Some(wait) = self.backoff.next() else { return false };
        let wait = if is_wanted { wait.min(self.wanted_wait_max) } else { wait };
        self.failed_at = Some(now);
        // A time beyond the clock's end never comes.
        self.due = now.checked_add(wait);
        self.is_hurried = false;
        true
    }

    /// Somebody wants the connection.
    fn hurry(&mut self) {
        let Some(soon) = self.failed_at.and_then(|failed| failed.checked_add(self.wanted_wait_max)) else {
            return;
        };
        if self.due.is_none_or(|due| soon < due) {
            self.due = Some(soon);
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.is_hurried = true;
        if let Some(sleeper) = self.sleeper.take() {
            sleeper.wake();
        }
    }

    /// How long to wait still; `None`: the attempt is due.
    fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.due.map_or(Duration::MAX, |due| due.saturating_duration_since(now));
        (!left.is_zero()).then_some(left)
    }

    fn poll_hurried(&mut self, waker: &Waker) -> Poll<()> {
        if std::mem::take(&mut self.is_hurried) {
            return Poll::Ready(());
        }
        self.sleeper = Some(waker.clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
