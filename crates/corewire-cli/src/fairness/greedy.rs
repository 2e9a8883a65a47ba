//! Greedy clients: each sends as fast as its connection takes it and reads all answers, without ever waiting for one.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::GreedyArgs;
use super::frames::GreedyFrames;
use super::plan::Protocol;
use crate::failure::Failure;
use crate::one_thread::OneThread;
use crate::run_control::{Latency, Phase, Shared, Workers, latency};
use crate::system;

/// How long a look at the connections waits: the phase is looked at as often.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The room for answers of one read.
const READ_BUFFER: usize = 256 * 1024;
/// How long answers may take after the end; what still comes then is left to the server.
const PATIENCE: Duration = Duration::from_secs(2);
/// Answers that are due and of which none came for so long never come.
const STALL: Duration = Duration::from_secs(1);
/// From one byte of a slow client to the next.
const BYTE_PERIOD: Duration = Duration::from_secs(1);

/// Connects, and starts the one thread of all clients.
pub(crate) fn greedy(args: &GreedyArgs) -> Result<Workers, Failure> {
    if matches!(args.protocol, Protocol::Udp | Protocol::Kcp) {
        return Err(Failure::Usage("datagrams and KCP have greedy clients in `load`".into()));
    }
    let target = super::address(&args.target)?;
    let connections: Vec<_> =
        (0..args.connections).map(|_| Connection::open(target)).collect::<Result<_, _>>()?;
    let args = args.clone();
    let thread = OneThread::start(args.connections, move |shared| {
        connections.iter().for_each(|_| shared.connected());
        let frames = GreedyFrames::new(args.protocol, args.size);
        let greed = Greed { frames, connections, shared, protocol: args.protocol };
        greed.run(args.cpus.0.first().copied())
    });
    Ok(thread.workers("greedy", || ()))
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the opening that have been sent, then the place in the block.
    opened: usize,
    at: usize,
    sent: u64,
    received: u64,
    is_open: bool,
}

impl Connection {
    fn open(target: std::net::SocketAddr) -> Result<Self, Failure> {
        let stream =
            TcpStream::connect(target).map_err(Failure::io(format!("cannot connect to {target}")))?;
        stream.set_nodelay(true).map_err(Failure::io("cannot set TCP_NODELAY"))?;
        stream.set_nonblocking(true).map_err(Failure::io("cannot set up a connection"))?;
        Ok(Self { stream, opened: 0, at: 0, sent: 0, received: 0, is_open: true })
    }

    /// What is to be sent now: the opening, the block from its place on, or after the end the rest of a request.
    fn next<'a>(&self, frames: &'a GreedyFrames, is_running: bool) -> &'a [u8] {
        let (opening, answer) = &frames.opening;
        if self.opened < opening.len() {
            return &opening[self.opened..];
        }
        if self.received < *answer as u64 {
            return &[];
        }
        let rest = self.at % frames.request_bytes;
        match (is_running, rest) {
            (true, _) => &frames.block[self.at..],
            (false, 0) => &[],
            (false, rest) => &frames.block[self.at..self.at - rest + frames.request_bytes],
        }
    }

    fn has_sent(&mut self, frames: &GreedyFrames, bytes: usize) {
        self.sent += bytes as u64;
        if self.opened < frames.opening.0.len() {
            self.opened += bytes;
        } else {
            self.at = (self.at + bytes) % frames.block.len();
        }
    }

    /// Answers that are due for what was sent, in bytes.
    fn due(&self, frames: &GreedyFrames) -> u64 {
        let requests = (self.sent - self.opened as u64) / frames.request_bytes as u64;
        frames.opening.1 as u64 + requests * frames.response_bytes as u64
    }
}

struct Greed<'a> {
    frames: GreedyFrames,
    connections: Vec<Connection>,
    shared: &'a Shared,
    protocol: Protocol,
}

impl Greed<'_> {
    fn run(mut self, cpu: Option<usize>) -> Result<Latency, Failure> {
        if let Some(cpu) = cpu {
            system::pin_to(cpu)?;
        }
        while self.shared.phase() == Phase::Idle {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.protocol == Protocol::OneByte {
            self.drip();
        } else {
            self.pour()?;
        }
        Ok(latency())
    }

    /// Sends and reads until all answers are there, or enough of them.
    fn pour(&mut self) -> Result<(), Failure> {
        let mut answers = vec![0; READ_BUFFER];
        let is_reader = self.protocol.is_answered();
        let mut stopped: Option<Instant> = None;
        let mut last_answer = Instant::now();
        while self.shared.phase() < Phase::Abort {
            let is_running = self.shared.phase() == Phase::Run;
            if !is_running {
                let stopped = *stopped.get_or_insert_with(Instant::now);
                if !is_reader || self.is_idle() || stopped.elapsed() > PATIENCE {
                    break;
                }
            }
            for (slot, flags) in self.ready(is_running, is_reader)? {
                if flags.contains(PollFlags::OUT) {
                    self.send(slot, is_running);
                }
                if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    self.receive(slot, &mut answers);
                    last_answer = Instant::now();
                }
            }
        }
        if last_answer.elapsed() > STALL {
            self.count_missing();
        }
        Ok(())
    }

    /// Whether nothing is to be sent, and nothing is due.
    fn is_idle(&self) -> bool {
        let frames = &self.frames;
        let is_idle = |c: &Connection| c.next(frames, false).is_empty() && c.received == c.due(frames);
        self.connections.iter().all(|connection| !connection.is_open || is_idle(connection))
    }

    /// The connections that something can be done with.
    fn ready(&self, is_running: bool, is_reader: bool) -> Result<Vec<(usize, PollFlags)>, Failure> {
        let open = || self.connections.iter().enumerate().filter(|(_, connection)| connection.is_open);
        let mut polled: Vec<_> = open()
            .map(|(_, connection)| {
                let mut flags = if is_reader { PollFlags::IN } else { PollFlags::empty() };
                flags.set(PollFlags::OUT, !connection.next(&self.frames, is_running).is_empty());
                PollFd::new(&connection.stream, flags)
            })
            .collect();
        match poll(&mut polled, Some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::io("cannot wait for events")(error)),
        }
        let ready = open().zip(&polled).map(|((slot, _), polled)| (slot, polled.revents()));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn send(&mut self, slot: usize, is_running: bool) {
        let connection = &mut self.connections[slot];
        let bytes = connection.next(&self.frames, is_running);
        match (&connection.stream).write(bytes) {
            Ok(sent) => {
                connection.has_sent(&self.frames, sent);
                self.shared.traffic(0).sent_bytes.add(sent as u64);
            }
            Err(error) if is_for_later(&error) => {}
            Err(error) => self.lose(slot, &error.to_string()),
        }
    }

    fn receive(&mut self, slot: usize, answers: &mut [u8]) {
        let connection = &mut self.connections[slot];
        let received = match (&connection.stream).read(answers) {
            Ok(0) => return self.lose(slot, "closed by the server"),
            Ok(received) => received as u64,
            Err(error) if is_for_later(&error) => return,
            Err(error) => return self.lose(slot, &error.to_string()),
        };
        let messages = |bytes: u64| {
            bytes.saturating_sub(self.frames.opening.1 as u64) / self.frames.response_bytes as u64
        };
        let before = messages(connection.received);
        connection.received += received;
        let traffic = self.shared.traffic(0);
        traffic.recv_bytes.add(received);
        traffic.messages.add(messages(connection.received) - before);
    }

    /// A byte of a request each second on each connection.
    fn drip(&mut self) {
        let mut last: Option<Instant> = None;
        while self.shared.phase() == Phase::Run {
            if last.is_none_or(|last| last.elapsed() >= BYTE_PERIOD) {
                last = Some(Instant::now());
                for slot in 0..self.connections.len() {
                    let connection = &mut self.connections[slot];
                    let byte = &connection.next(&self.frames, true)[..1];
                    match (&connection.stream).write(byte) {
                        Ok(sent) => connection.has_sent(&self.frames, sent),
                        Err(error) => self.lose(slot, &error.to_string()),
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A server may close a client that does not behave; one that does must be kept.
    fn lose(&mut self, slot: usize, why: &str) {
        self.connections[slot].is_open = false;
        if self.protocol.is_answered() {
            self.shared.error(|| format!("greedy connection {slot} was lost: {why}"));
        }
    }

    fn count_missing(&self) {
        let missing = |c: &Connection| c.due(&self.frames).saturating_sub(c.received);
        let bytes: u64 = self.connections.iter().filter(|c| c.is_open).map(missing).sum();
        let answers = bytes.div_ceil(self.frames.response_bytes as u64);
        if self.protocol.is_answered() {
            self.shared.errors(answers, || format!("{answers} answers to greedy clients never came"));
        }
    }
}

fn is_for_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
