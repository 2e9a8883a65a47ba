//! What a server or load process tells the benchmark that started it, and how it is asked.
//!
//! With `--control` a process answers each line of its standard input: `snapshot` with one JSON object on one
//! line, `driver` with the driver's name; `stop` and the end of the input make it stop. A load process
//! also takes `start` and `measure` (see [`crate::run_control`]).

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::{heap, system};

/// The state of a process at one moment; every figure but `sessions` and `heap_live_bytes` only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Monotonic clock, ns.
    pub(crate) at_ns: u64,
    /// CPU time of the process, ns.
    pub(crate) cpu_ns: u64,
    /// Heap allocations.
    pub(crate) heap_allocs: u64,
    /// Heap bytes asked for.
    pub(crate) heap_bytes: u64,
    /// Heap bytes in use.
    pub(crate) heap_live_bytes: u64,
    /// Receives that brought bytes.
    pub(crate) recv_calls: u64,
    /// Bytes received.
    pub(crate) recv_bytes: u64,
    /// Sends that took bytes.
    pub(crate) send_calls: u64,
    /// Bytes sent.
    pub(crate) sent_bytes: u64,
    /// Messages completed (load), or frames handled (server).
    pub(crate) messages: u64,
    /// Calls of an open load that were sent late.
    pub(crate) late: u64,
    /// Errors seen.
    pub(crate) errors: u64,
    /// Connections open now.
    pub(crate) sessions: u64,
}

impl Snapshot {
    /// Clocks and heap as they are now; the traffic is for the caller to fill in.
    pub(crate) fn of_process() -> Self {
        let heap = heap::totals();
        Self {
            at_ns: system::monotonic_ns(),
            cpu_ns: system::process_cpu_ns(),
            heap_allocs: heap.calls,
            heap_bytes: heap.bytes,
            heap_live_bytes: heap.live_bytes,
            ..Self::default()
        }
    }
}

/// A figure with one writing thread and any number of readers: adding is a plain load and store.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn subtract(&self, less: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(less), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The traffic of one thread, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Traffic {
    pub(crate) recv_calls: Count,
    pub(crate) recv_bytes: Count,
    pub(crate) send_calls: Count,
    pub(crate) sent_bytes: Count,
    pub(crate) messages: Count,
    pub(crate) sessions: Count,
    pub(crate) late: Count,
    /// Messages or tasks that a drain waits for; not part of a snapshot.
    pub(crate) in_flight: Count,
}

impl Traffic {
    /// Adds this thread's part to a snapshot.
    pub(crate) fn add_to(&self, snapshot: &mut Snapshot) {
        snapshot.recv_calls += self.recv_calls.value();
        snapshot.recv_bytes += self.recv_bytes.value();
        snapshot.send_calls += self.send_calls.value();
        snapshot.sent_bytes += self.sent_bytes.value();
        snapshot.messages += self.messages.value();
        snapshot.sessions += self.sessions.value();
        snapshot.late += self.late.value();
    }
}

/// One line of the dialogue, as the controlled process reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Begin to send.
    Start,
    /// The warm-up is over: forget the latencies seen so far.
    Measure,
    /// Answer with a [`Snapshot`].
    Snapshot,
    /// Answer with the name of the driver.
    Driver,
    /// Stop; also the end of the input.
    Stop,
}

/// Both ends of the dialogue, with buffers that are made once: answering a snapshot allocates nothing, so the
/// dialogue does not show in the heap bytes it reports.
#[derive(Debug)]
pub(crate) struct Dialogue {
    line: String,
    answer: Vec<u8>,
}

impl Dialogue {
    pub(crate) fn new() -> Self {
        Self { line: String::with_capacity(256), answer: Vec::with_capacity(4096) }
    }

    /// Waits for the next command; an unknown one is a failure, since only our own benchmark speaks here.
    pub(crate) fn command(&mut self) -> Result<Command, Failure> {
        self.line.clear();
        io::stdin().lock().read_line(&mut self.line).map_err(Failure::io("cannot read a control line"))?;
        parse_command(self.line.trim())
    }

    /// Writes one object as one line.
    pub(crate) fn answer<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        self.answer.clear();
        serde_json::to_writer(&mut self.answer, value).map_err(Failure::io("cannot write an answer"))?;
        self.answer.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&self.answer).and_then(|()| out.flush()).map_err(Failure::io("cannot write an answer"))
    }
}

/// Serves the dialogue of a server process until it is told to stop.
pub(crate) fn attend_server(driver: &str, traffic: impl Fn(&mut Snapshot)) -> Result<(), Failure> {
    let mut dialogue = Dialogue::new();
    loop {
        match dialogue.command()? {
            Command::Snapshot => {
                let mut snapshot = Snapshot::of_process();
                traffic(&mut snapshot);
                dialogue.answer(&snapshot)?;
            }
            Command::Driver => dialogue.answer(&driver)?,
            Command::Stop => return Ok(()),
            Command::Start | Command::Measure => {
                return Err(Failure::Setting("start and measure are for load processes".into()));
            }
        }
    }
}

fn parse_command(line: &str) -> Result<Command, Failure> {
    Ok(match line {
        "start" => Command::Start,
        "measure" => Command::Measure,
        "snapshot" => Command::Snapshot,
        "driver" => Command::Driver,
        "stop" | "" => Command::Stop,
        other => return Err(Failure::Setting(format!("unknown control line {other:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_survives_the_wire() {
        let sent = Snapshot { at_ns: 1, cpu_ns: 2, recv_bytes: u64::MAX, sessions: 3, ..Snapshot::default() };
        let line = serde_json::to_string(&sent).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Snapshot>(&line).unwrap(), sent);
    }

    #[test]
    fn the_end_of_the_input_stops_and_an_unknown_line_is_refused() {
        assert_eq!(parse_command("").unwrap(), Command::Stop);
        assert_eq!(parse_command("measure").unwrap(), Command::Measure);
        assert!(parse_command("dance").is_err());
    }

    #[test]
    fn traffic_of_several_threads_adds_up() {
        let (a, b) = (Traffic::default(), Traffic::default());
        a.recv_bytes.add(10);
        b.recv_bytes.add(5);
        a.sessions.add(2);
        a.sessions.subtract(1);
        let mut sum = Snapshot::default();
        a.add_to(&mut sum);
        b.add_to(&mut sum);
        assert_eq!((sum.recv_bytes, sum.sessions), (15, 1));
    }
}
