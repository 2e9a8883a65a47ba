//! A worker's timers, and its clock.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::{Duration, Instant};

use corewire_driver::{Token, clock};

use crate::conn::ConnId;
use crate::timer_wheel::{TimerKey, TimerWheel};

/// What a timer does when its time has come.
pub(crate) enum TimerAction {
    Wake(Waker),
    /// Look whether peers have had their time, those of this round.
    Deadlines(u32),
    /// The peer does not take the last bytes of a closing connection.
    CloseTimeout(ConnId),
    /// The handshake of TLS has had its time.
    Handshake(ConnId),
    /// [`Protocol::on_timer`](crate::Protocol::on_timer).
    Protocol(ConnId),
    /// The peer of a closed connection has had its time to finish.
    Linger(Token),
    /// Memory is short: look again whether it is.
    WatchMemory,
    /// A listener that failed to accept tries again.
    ResumeAccept(Token),
    /// [`UdpProtocol::on_timer`](crate::udp::UdpProtocol::on_timer).
    Udp(Token),
}

/// The clock is read once a tick; what is due is taken out one by one.
pub(crate) struct Timers {
    wheel: RefCell<TimerWheel<TimerAction>>,
    now_ms: Cell<u64>,
    epoch: Instant,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self { wheel: RefCell::new(TimerWheel::new(0)), now_ms: Cell::new(0), epoch: clock::now() }
    }

    /// Milliseconds since the worker began, as of this tick.
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    pub(crate) fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.now_ms.get())
    }

    pub(super) fn read_clock(&self) {
        self.now_ms.set(clock::now().duration_since(self.epoch).as_millis() as u64);
    }

    fn instant_to_ms(&self, at: Instant) -> u64 {
        // Up, so that nothing fires before its time.
        let after = at.saturating_duration_since(self.epoch) + Duration::from_micros(999);
        u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn add(&self, after: Duration, action: TimerAction) -> TimerKey {
        self.add_at(crate::time::instant_after(after), action)
    }

    pub(crate) fn add_at(&self, at: Instant, action: TimerAction) -> TimerKey {
        self.wheel.borrow_mut().insert(self.instant_to_ms(at), action)
    }

    pub(crate) fn add_at_ms(&self, at_ms: u64, action: TimerAction) -> TimerKey {
        self.wheel.borrow_mut().insert(at_ms, action)
    }

    pub(crate) fn cancel(&self, key: TimerKey) -> Option<TimerAction> {
        self.wheel.borrow_mut().cancel(key)
    }

    /// One timer that is due in this tick.
    pub(super) fn expire(&self) -> Option<TimerAction> {
        self.wheel.borrow_mut().expire(self.now_ms.get())
    }

    /// How long until the next one is due.
    pub(super) fn until_next(&self) -> Option<Duration> {
        let at = self.wheel.borrow().next_expiry()?;
        Some(Duration::from_millis(at).saturating_sub(clock::now().duration_since(self.epoch)))
    }

    /// Takes all, to be dropped when nothing is borrowed: a timer's waker may drop a task, and that one's timers.
    pub(super) fn take(&self) -> TimerWheel<TimerAction> {
        self.wheel.replace(TimerWheel::new(0))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.wheel.borrow().len()
    }
}
