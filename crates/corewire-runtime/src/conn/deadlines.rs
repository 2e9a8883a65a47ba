//! How long a peer may take. One look of the connection is at all of it; what moves bytes only counts them.

use std::time::Duration;

use super::options::ConnectionOptions;
use super::reason::CloseReason;

/// How far a protocol is with what it receives, as it tells by
/// [`Connection::set_progress`](crate::Connection::set_progress).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameProgress {
    /// Nothing has arrived yet, and the peer is the one to begin.
    AwaitingFirst,
    /// All frames that have begun are whole.
    Between,
    /// A frame has begun, and its rest is awaited. Told again, it is another frame.
    InFrame,
}

/// What one connection has done since its deadlines were last looked at. Times are the worker's milliseconds.
#[derive(Debug)]
pub(crate) struct Deadlines {
    opened: u64,
    window_began: u64,
    /// Bytes since the window began.
    pub(crate) received: usize,
    pub(crate) sent: usize,
    /// What was queued when the window began.
    queued: usize,
    progress: Progress,
    /// Milliseconds in which this side has received, of those that `received` is counted over.
    received_ms: u32,
    /// Until when they are counted; the low bits.
    counted_until: u32,
}

/// Which frame is awaited.
#[derive(Debug, Clone, Copy)]
enum Progress {
    /// The first, of which nothing has come.
    AwaitingFirst,
    Between,
    /// The rest of one.
    InFrame {
        since: u64,
        is_first: bool,
    },
}

/// What the connection looks like when it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed {
    pub(crate) now: u64,
    /// When a byte last moved.
    pub(crate) last_active: u64,
    pub(crate) queued: usize,
    /// Bytes are received; else what the peer sends cannot arrive.
    pub(crate) receives: bool,
    /// It was told to close, and only its queue counts.
    pub(crate) is_draining: bool,
    /// Since when a part of something has come that the transport can read only whole.
    pub(crate) partial_since: Option<u64>,
    /// No frame spans two datagrams, and nobody holds their sender back: only silence counts.
    pub(crate) is_datagram: bool,
}

impl Deadlines {
    pub(crate) const fn new(now: u64) -> Self {
        Self {
            opened: now,
            window_began: now,
            received: 0,
            sent: 0,
            queued: 0,
            progress: Progress::Between,
            received_ms: 0,
            counted_until: now as u32,
        }
    }

    /// When they are to be looked at for the first time; `None`: never.
    pub(crate) fn first(&self, options: &ConnectionOptions) -> Option<Duration> {
        let window = options.rate_min.map(|rate| rate.window);
        [options.idle_timeout, options.first_frame_timeout, options.frame_timeout, window]
            .into_iter()
            .flatten()
            .min()
    }

    /// This side stops receiving, or goes on. The time in between is not the peer's.
    pub(crate) const fn set_receiving(&mut self, receives: bool, now: u64) {
        self.pass_time(!receives, now);
    }

    /// Takes the time until now into account, in which this side received or not.
    const fn pass_time(&mut self, received: bool, now: u64) {
        let passed = (now as u32).wrapping_sub(self.counted_until);
        self.counted_until = now as u32;
        if received {
            self.received_ms = self.received_ms.saturating_add(passed);
        } else if let Progress::InFrame { since, .. } = &mut self.progress {
            let moved = *since + passed as u64;
            *since = if moved < now { moved } else { now };
        }
    }

    pub(crate) const fn set_progress(&mut self, progress: FrameProgress, now: u64) {
        self.progress = match progress {
            FrameProgress::AwaitingFirst => Progress::AwaitingFirst,
            FrameProgress::Between => Progress::Between,
            // The frame that had begun before is whole.
            FrameProgress::InFrame => {
                Progress::InFrame { since: now, is_first: matches!(self.progress, Progress::AwaitingFirst) }
            }
        };
    }

    /// Since when a frame, or what the transport can read only whole, is awaited.
    fn in_frame_since(&self, observed: Observed) -> Option<u64> {
        let frame = match self.progress {
            Progress::InFrame { since, .. } => Some(since),
            Progress::AwaitingFirst | Progress::Between => None,
        };
        frame.into_iter().chain(observed.partial_since.filter(|_| observed.receives)).min()
    }

    /// No whole frame has come from a peer that is to begin.
    const fn awaits_first(&self) -> bool {
        matches!(self.progress, Progress::AwaitingFirst | Progress::InFrame { is_first: true, .. })
    }

    /// One that is served without having asked need not begin.
    const fn note_served(&mut self) {
        match &mut self.progress {
            Progress::InFrame { is_first, .. } => *is_first = false,
            progress => *progress = Progress::Between,
        }
    }

    /// The reason to close, or when to look again; `None`: never.
    pub(crate) fn check(
        &mut self,
        options: &ConnectionOptions,
        observed: Observed,
    ) -> Result<Option<Duration>, CloseReason> {
        let mut next = NextLook { now: observed.now, at: None };
        self.pass_time(observed.receives, observed.now);
        if self.sent > 0 {
            self.note_served();
        }
        if !observed.is_draining {
            if let Some(timeout) = options.idle_timeout
                && next.is_over(observed.last_active, timeout)
            {
                return Err(CloseReason::IdleTimeout(timeout));
            }
            if observed.is_datagram {
                return Ok(next.at);
            }
            if let Some(timeout) = options.first_frame_timeout
                && self.awaits_first()
                && next.is_over(self.opened, timeout)
            {
                return Err(CloseReason::FirstFrameTimeout(timeout));
            }
            if let Some(timeout) = options.frame_timeout
                && next.is_over_or_unbegun(self.in_frame_since(observed), timeout)
            {
                return Err(CloseReason::FrameTimeout(timeout));
            }
        }
        if let Some(rate) = options.rate_min.filter(|_| !observed.is_datagram)
            && next.is_over(self.window_began, rate.window)
        {
            self.check_reader(rate, observed)?;
            self.check_sender(rate, observed)?;
            (self.window_began, self.sent, self.queued) = (observed.now, 0, observed.queued);
            next.is_over(observed.now, rate.window);
        }
        Ok(next.at)
    }

    fn check_reader(&self, rate: RateMin, observed: Observed) -> Result<(), CloseReason> {
        if observed.queued > 0 && self.sent < rate.bytes_in_window().min(self.queued) {
            let (taken, queued) = (self.sent, observed.queued);
            return Err(CloseReason::ReaderTooSlow { taken, queued, window: rate.window });
        }
        Ok(())
    }

    /// What the peer sends is counted over a window in which this side receives, however long that takes.
    fn check_sender(&mut self, rate: RateMin, observed: Observed) -> Result<(), CloseReason> {
        let window_ms = u64::try_from(rate.window.as_millis()).unwrap_or(u64::MAX);
        if u64::from(self.received_ms) < window_ms {
            return Ok(());
        }
        // Only whole windows count: it may have been somewhere else before the frame began.
        let is_in_frame =
            self.in_frame_since(observed).is_some_and(|since| since + window_ms <= observed.now);
        let received = std::mem::take(&mut self.received);
        self.received_ms = 0;
        if is_in_frame && !observed.is_draining && received < rate.bytes_in_window() {
            return Err(CloseReason::SenderTooSlow { received, window: rate.window });
        }
        Ok(())
    }
}

/// The least that a peer must do while it has something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateMin {
    /// Bytes a second.
    pub bytes_per_second: usize,
    /// The time over which they are counted. One that is too slow is closed after one to two of these.
    pub window: Duration,
}

impl RateMin {
    fn bytes_in_window(self) -> usize {
        let bytes = self.bytes_per_second as u128 * self.window.as_millis() / 1000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Gathers the earliest time at which there is something to decide.
struct NextLook {
    now: u64,
    at: Option<Duration>,
}

impl NextLook {
    fn is_over(&mut self, since: u64, timeout: Duration) -> bool {
        let passed = Duration::from_millis(self.now.saturating_sub(since));
        if passed >= timeout {
            return true;
        }
        let left = timeout - passed;
        self.at = Some(self.at.map_or(left, |at| at.min(left)));
        false
    }

    /// As `is_over`; if it has not begun, it may at any time from now on.
    fn is_over_or_unbegun(&mut self, since: Option<u64>, timeout: Duration) -> bool {
        self.is_over(since.unwrap_or(self.now), timeout) && since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    fn options() -> ConnectionOptions {
        ConnectionOptions {
            first_frame_timeout: Some(Duration::from_secs(60)),
            frame_timeout: Some(Duration::from_secs(300)),
            rate_min: Some(RateMin { bytes_per_second: 100, window: Duration::from_secs(30) }),
            ..ConnectionOptions::default()
        }
    }

    fn at(now: u64) -> Observed {
        Observed {
            now,
            last_active: now,
            queued: 0,
            receives: true,
            is_draining: false,
            partial_since: None,
            is_datagram: false,
        }
    }

    /// Looks when it is time to, at an end that `change` describes, until the connection is closed or `end` has come.
    fn run(
        deadlines: &mut Deadlines,
        options: &ConnectionOptions,
        end: u64,
        mut change: impl FnMut(&mut Deadlines, &mut Observed),
    ) -> Option<(u64, CloseReason)> {
        let mut now = deadlines.first(options)?.as_millis() as u64;
        while now <= end {
            let mut observed = at(now);
            change(deadlines, &mut observed);
            match deadlines.check(options, observed) {
                Ok(next) => now += next?.as_millis() as u64,
                Err(reason) => return Some((now / SECOND, reason)),
            }
        }
        None
    }

    #[test]
    fn a_peer_that_says_nothing_is_closed_unless_it_is_not_the_one_to_begin() {
        let mut silent = Deadlines::new(0);
        silent.set_progress(FrameProgress::AwaitingFirst, 0);
        let end = run(&mut silent, &options(), 1000 * SECOND, |_, _| {});
        assert!(matches!(end, Some((60, CloseReason::FirstFrameTimeout(_)))), "{end:?}");
        let end = run(&mut Deadlines::new(0), &options(), 1000 * SECOND, |_, _| {});
        assert!(end.is_none(), "{end:?}");
        let mut listener = Deadlines::new(0);
        listener.set_progress(FrameProgress::AwaitingFirst, 0);
        listener.sent = 10;
        let end = run(&mut listener, &options(), 1000 * SECOND, |_, _| {});
        assert!(end.is_none(), "it was served: {end:?}");
    }

    #[test]
    fn a_byte_now_and_then_does_not_keep_a_frame_alive() {
        let mut slow = Deadlines::new(0);
        slow.set_progress(FrameProgress::AwaitingFirst, 0);
        slow.set_progress(FrameProgress::Between, SECOND);
        slow.set_progress(FrameProgress::InFrame, 2 * SECOND);
        let end = run(&mut slow, &options(), 1000 * SECOND, |slow, _| slow.received += 20);
        assert!(matches!(end, Some((60, CloseReason::SenderTooSlow { received: 20, .. }))), "{end:?}");
    }

    #[test]
    fn a_frame_that_arrives_fast_enough_has_its_own_limit() {
        let mut large = Deadlines::new(0);
        large.set_progress(FrameProgress::InFrame, 0);
        let end = run(&mut large, &options(), 1000 * SECOND, |large, _| large.received += 100_000);
        assert!(matches!(end, Some((300, CloseReason::FrameTimeout(_)))), "{end:?}");
        let mut many = Deadlines::new(0);
        let end = run(&mut many, &options(), 1000 * SECOND, |many, observed| {
            many.received += 3000;
            many.set_progress(FrameProgress::InFrame, observed.now - SECOND);
        });
        assert!(end.is_none(), "each of them is another frame: {end:?}");
    }

    #[test]
    fn what_this_side_does_not_receive_is_no_fault_of_the_peer() {
        let mut held_back = Deadlines::new(0);
        held_back.set_progress(FrameProgress::InFrame, 0);
        held_back.set_receiving(false, 0);
        let end = run(&mut held_back, &options(), 2000 * SECOND, |_, observed| observed.receives = false);
        assert!(end.is_none(), "{end:?}");
    }

    #[test]
    fn only_the_time_in_which_this_side_paused_is_not_the_peers() {
        // It receives for a third of the time, in turns, and nothing comes.
        let mut held_back = Deadlines::new(0);
        held_back.set_progress(FrameProgress::InFrame, 0);
        let mut until = 0;
        let end = run(&mut held_back, &options(), 1000 * SECOND, |slow, observed| {
            while until + 3 * SECOND <= observed.now {
                slow.set_receiving(true, until + 2 * SECOND);
                slow.set_receiving(false, until + 3 * SECOND);
                until += 3 * SECOND;
            }
            observed.receives = until == 0;
        });
        let Some((at, CloseReason::SenderTooSlow { received: 0, .. })) = end else { panic!("{end:?}") };
        assert!((90..=180).contains(&at), "30 s of receiving take 90 s; closed after {at} s");
    }

    #[test]
    fn a_frame_has_its_time_without_the_pauses_in_it() {
        let only_frame =
            ConnectionOptions { frame_timeout: Some(Duration::from_secs(300)), ..Default::default() };
        let mut large = Deadlines::new(0);
        large.set_progress(FrameProgress::InFrame, 0);
        large.set_receiving(false, 100 * SECOND);
        large.set_receiving(true, 250 * SECOND);
        let end = run(&mut large, &only_frame, 1000 * SECOND, |_, _| {});
        assert!(matches!(end, Some((450, CloseReason::FrameTimeout(_)))), "{end:?}");
    }

    #[test]
    fn a_peer_that_does_not_read_is_closed_also_while_it_drains() {
        for is_draining in [false, true] {
            let end = run(&mut Deadlines::new(0), &options(), 1000 * SECOND, |reader, observed| {
                (observed.queued, observed.is_draining) = (1 << 20, is_draining);
                reader.sent += 1;
            });
            assert!(matches!(end, Some((60, CloseReason::ReaderTooSlow { .. }))), "{end:?}");
        }
    }

    #[test]
    fn a_reader_that_takes_all_that_there_was_is_fast_enough() {
        let end = run(&mut Deadlines::new(0), &options(), 1000 * SECOND, |reader, observed| {
            observed.queued = 50;
            reader.sent += 50;
        });
        assert!(end.is_none(), "{end:?}");
        let end = run(&mut Deadlines::new(0), &options(), 1000 * SECOND, |reader, observed| {
            observed.queued = 1 << 20;
            reader.sent += 3000;
        });
        assert!(end.is_none(), "{end:?}");
    }

    #[test]
    fn an_idle_connection_is_looked_at_when_it_is_due_and_no_sooner() {
        let only_idle =
            ConnectionOptions { idle_timeout: Some(Duration::from_secs(20)), ..ConnectionOptions::default() };
        let mut looks = 0;
        let end = run(&mut Deadlines::new(0), &only_idle, 1000 * SECOND, |_, observed| {
            observed.last_active = 15 * SECOND;
            looks += 1;
        });
        assert!(matches!(end, Some((35, CloseReason::IdleTimeout(_)))), "{end:?}");
        assert_eq!(looks, 2);
        assert!(Deadlines::new(0).first(&ConnectionOptions::default()).is_none());
    }
}
