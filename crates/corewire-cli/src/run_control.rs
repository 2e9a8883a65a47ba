//! How a load runs, whatever makes the load: connect, start, warm up, measure, drain, report.

use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::control::{Command, Dialogue, Snapshot, Traffic};
use crate::failure::Failure;
use crate::percentiles::Percentiles;
pub(crate) use crate::percentiles::{Latency, latency};
use crate::system::monotonic_ns;
use crate::trend::Progress;

/// How long the connections may take to be made.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the messages in flight may take to come back once sending has stopped.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the load is to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Connect, then wait.
    Idle = 0,
    /// Send and receive.
    Run = 1,
    /// Send nothing new; wait for what is in flight.
    Drain = 2,
    /// End at once.
    Abort = 3,
}

/// What the run control and the threads of a load share.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: AtomicU8,
    measurement: AtomicU32,
    connected: AtomicUsize,
    finished: AtomicUsize,
    seen_the_end: AtomicUsize,
    errors: AtomicU64,
    first_error: Mutex<Option<String>>,
    traffic: Box<[Traffic]>,
    /// Latencies of whole streams.
    streams: Mutex<Latency>,
    paces: Mutex<Paces>,
    /// Of an open load: when the last call could be due, and the calls that were due and never sent.
    stopped_ns: AtomicU64,
    unsent: AtomicU64,
}

/// How far streams that ran side by side came.
#[derive(Debug, Clone, Copy, Default)]
struct Paces {
    streams: u64,
    frames: u64,
    slowest: Option<u64>,
}

impl Shared {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Idle as u8),
            measurement: AtomicU32::new(0),
            connected: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            seen_the_end: AtomicUsize::new(0),
            errors: AtomicU64::new(0),
            first_error: Mutex::new(None),
            traffic: (0..threads).map(|_| Traffic::default()).collect(),
            streams: Mutex::new(latency()),
            paces: Mutex::default(),
            stopped_ns: AtomicU64::new(u64::MAX),
            unsent: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Idle,
            1 => Phase::Run,
            2 => Phase::Drain,
            _ => Phase::Abort,
        }
    }

    /// Grows by one whenever the latencies seen so far are to be forgotten.
    #[inline]
    pub(crate) fn measurement(&self) -> u32 {
        self.measurement.load(Ordering::Relaxed)
    }

    /// Says that one more connection is ready.
    pub(crate) fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Release);
    }

    /// Says that one more connection has nothing left to do.
    pub(crate) fn finished(&self) {
        self.finished.fetch_add(1, Ordering::Release);
    }

    /// Counts an error and keeps the first one's story.
    pub(crate) fn error(&self, story: impl FnOnce() -> String) {
        self.errors(1, story);
    }

    /// Counts several errors of one kind.
    pub(crate) fn errors(&self, count: u64, story: impl FnOnce() -> String) {
        if count > 0 && self.errors.fetch_add(count, Ordering::Relaxed) == 0 {
            *self.first_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(story());
        }
    }

    /// The counters of one thread.
    pub(crate) fn traffic(&self, thread: usize) -> &Traffic {
        &self.traffic[thread]
    }

    /// Adds a thread's latencies of whole streams.
    pub(crate) fn add_streams(&self, own: &Latency) {
        let added = self.streams.lock().unwrap_or_else(PoisonError::into_inner).add(own);
        debug_assert!(added.is_ok(), "all histograms have the same bounds");
    }

    /// Adds the frames of one of several streams at a time.
    pub(crate) fn add_pace(&self, frames: u64) {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        paces.streams += 1;
        paces.frames += frames;
        paces.slowest = Some(paces.slowest.map_or(frames, |slowest| slowest.min(frames)));
    }

    /// The frames of the slowest stream by the mean of all of them.
    fn fairness(&self) -> Option<f64> {
        let paces = *self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = paces.frames as f64 / paces.streams as f64;
        paces.slowest.filter(|_| mean > 0.0).map(|slowest| slowest as f64 / mean)
    }

    /// Adds calls that were due and never sent.
    pub(crate) fn add_unsent(&self, calls: u64) {
        self.unsent.fetch_add(calls, Ordering::Relaxed);
    }

    /// When sending ended.
    pub(crate) fn stopped_ns(&self) -> u64 {
        self.stopped_ns.load(Ordering::Acquire)
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        if phase > Phase::Run {
            self.stopped_ns.fetch_min(monotonic_ns(), Ordering::Release);
        }
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Forgets the latencies seen so far.
    pub(crate) fn begin_measurement(&self) {
        self.measurement.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that one more worker knows that nothing new is to be sent.
    pub(crate) fn has_seen_the_end(&self) {
        self.seen_the_end.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn have_seen_the_end(&self) -> usize {
        self.seen_the_end.load(Ordering::Acquire)
    }

    /// What a drain still waits for, over all threads.
    pub(crate) fn in_flight(&self) -> u64 {
        self.traffic.iter().map(|traffic| traffic.in_flight.value()).sum()
    }

    fn snapshot(&self, calls: (u64, u64)) -> Snapshot {
        let mut snapshot = Snapshot::of_process();
        (snapshot.recv_calls, snapshot.send_calls) = calls;
        for traffic in &self.traffic {
            traffic.add_to(&mut snapshot);
        }
        snapshot.errors = self.errors.load(Ordering::Relaxed);
        snapshot
    }
}

/// The threads of a load: made by the baseline program or by the library's clients, run the same way.
pub(crate) struct Workers {
    /// Shared with the threads.
    pub(crate) shared: Arc<Shared>,
    /// How many connections there will be.
    pub(crate) connections: usize,
    /// The driver's name, for the report.
    pub(crate) driver: String,
    /// Makes every thread look at the phase.
    pub(crate) wake: Box<dyn Fn()>,
    /// Receives and sends so far, where a thread does not count its own.
    pub(crate) calls: Box<dyn Fn() -> (u64, u64)>,
    /// Whether all threads have ended by themselves, or have nothing left to wait for.
    pub(crate) ended: Box<dyn Fn() -> bool>,
    /// Ends the threads and gathers their latencies. Called after [`Phase::Drain`].
    pub(crate) join: Box<dyn FnOnce() -> Result<Latency, Failure>>,
}

impl Workers {
    fn snapshot(&self) -> Snapshot {
        self.shared.snapshot((self.calls)())
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers")
            .field("connections", &self.connections)
            .field("driver", &self.driver)
            .finish()
    }
}

/// What a load process says at its end, as one JSON line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// The totals after the drain.
    pub(crate) totals: Snapshot,
    /// Of messages.
    #[serde(flatten)]
    pub(crate) latency: Percentiles,
    /// Of whole streams.
    pub(crate) streams: Percentiles,
    /// Of streams side by side on a connection: the slowest by the mean.
    pub(crate) fairness: Option<f64>,
    /// Calls of an open load that were due and never sent.
    pub(crate) unsent: u64,
    /// The story of the first error.
    pub(crate) first_error: Option<String>,
}

/// What a run between two clocks gave.
#[derive(Debug)]
pub(crate) struct Timed {
    /// At the start of the measured window.
    pub(crate) before: Snapshot,
    /// At its end.
    pub(crate) after: Snapshot,
    /// After the drain.
    pub(crate) report: LoadReport,
}

/// How a run without `--control` is timed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    /// A warm-up, then a measured window.
    Clock {
        /// Not measured.
        warmup: Duration,
        /// Measured.
        duration: Duration,
    },
    /// Until every connection has done its share of a number of messages; all of it is measured.
    Messages,
}

/// Runs workers by the lines of standard input; ends with the [`LoadReport`] on standard output.
pub(crate) fn by_control(workers: Workers) -> Result<(), Failure> {
    await_connections(&workers)?;
    let mut dialogue = Dialogue::new();
    println!("ready");
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    loop {
        match dialogue.command()? {
            Command::Start => set_phase(&workers, Phase::Run),
            Command::Measure => workers.shared.begin_measurement(),
            Command::Snapshot => dialogue.answer(&workers.snapshot())?,
            Command::Driver => dialogue.answer(&workers.driver)?,
            Command::Stop => break,
        }
    }
    let report = drain(workers)?;
    dialogue.answer(&report)
}

/// Runs workers by the clock or by a number of messages.
pub(crate) fn by_clock(workers: Workers, length: Length) -> Result<Timed, Failure> {
    await_connections(&workers)?;
    if let Length::Clock { warmup, .. } = length {
        set_phase(&workers, Phase::Run);
        std::thread::sleep(warmup);
        workers.shared.begin_measurement();
    }
    let before = workers.snapshot();
    match length {
        Length::Clock { duration, .. } => watch(&workers, Some(duration)),
        Length::Messages => {
            set_phase(&workers, Phase::Run);
            watch(&workers, None);
        }
    }
    let after = workers.snapshot();
    let report = drain(workers)?;
    Ok(Timed { before, after, report })
}

fn await_connections(workers: &Workers) -> Result<(), Failure> {
    let begun = Instant::now();
    while workers.shared.connected.load(Ordering::Acquire) < workers.connections {
        if let Some(story) = workers.shared.first_error.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            return Err(Failure::Library(story));
        }
        if begun.elapsed() > CONNECT_TIMEOUT {
            return Err(Failure::TimedOut {
                what: format!("connecting {} connections", workers.connections),
                limit: CONNECT_TIMEOUT,
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits for the end of the window, or for the end of all connections when there is no window.
fn watch(workers: &Workers, window: Option<Duration>) {
    const STEP: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    let mut progress = Progress::new(window);
    loop {
        let left = window.map(|w| w.saturating_sub(begun.elapsed()));
        let finished = workers.shared.finished.load(Ordering::Acquire) >= workers.connections;
        if progress.is_shown() {
            progress.take(begun.elapsed(), &workers.snapshot());
        }
        if left.is_some_and(|left| left.is_zero()) || finished || (workers.ended)() {
            break;
        }
        let step = if window.is_none() { Duration::from_millis(1) } else { STEP };
        std::thread::sleep(left.map_or(step, |left| left.min(step)));
    }
    progress.finish();
}

fn drain(workers: Workers) -> Result<LoadReport, Failure> {
    set_phase(&workers, Phase::Drain);
    let begun = Instant::now();
    while !(workers.ended)() && begun.elapsed() < DRAIN_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
    set_phase(&workers, Phase::Abort);
    let calls = (workers.calls)();
    let latency = (workers.join)()?;
    let streams = Percentiles::of(&workers.shared.streams.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(LoadReport {
        totals: workers.shared.snapshot(calls),
        latency: Percentiles::of(&latency),
        streams,
        fairness: workers.shared.fairness(),
        unsent: workers.shared.unsent.load(Ordering::Relaxed),
        first_error: workers.shared.first_error.lock().unwrap_or_else(PoisonError::into_inner).take(),
    })
}

fn set_phase(workers: &Workers, phase: Phase) {
    workers.shared.set_phase(phase);
    (workers.wake)();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_error_is_told_but_all_are_counted() {
        let shared = Shared::new(1);
        shared.error(|| "first".into());
        shared.errors(3, || "second".into());
        shared.errors(0, || "never".into());
        assert_eq!(shared.snapshot((0, 0)).errors, 4);
        assert_eq!(shared.first_error.lock().unwrap().as_deref(), Some("first"));
    }

    #[test]
    fn fairness_is_the_slowest_by_the_mean_of_all_threads() {
        let shared = Shared::new(1);
        assert_eq!(shared.fairness(), None);
        [30, 50, 40].into_iter().for_each(|frames| shared.add_pace(frames));
        assert_eq!(shared.fairness(), Some(0.75));
        shared.add_pace(0);
        assert_eq!(shared.fairness(), Some(0.0));
    }

    #[test]
    fn workers_that_cannot_connect_fail_with_the_reason() {
        let shared = Arc::new(Shared::new(1));
        shared.error(|| "refused".into());
        let workers = Workers {
            shared,
            connections: 1,
            driver: String::new(),
            wake: Box::new(|| ()),
            calls: Box::new(|| (0, 0)),
            ended: Box::new(|| true),
            join: Box::new(|| Ok(latency())),
        };
        let failure = by_clock(workers, Length::Messages).unwrap_err();
        assert_eq!(failure.to_string(), "refused");
    }
}
