//! The load side of the baseline.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};

use super::HOT_BUFFER;
use super::pipeline::Pipeline;
use super::poll::{Moved, Poll, address, receive, transmit};
use crate::args::{BaselineLoadArgs, BaselineLoadKind};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::one_thread::OneThread;
use crate::pattern::Probe;
use crate::run_control::{Latency, Phase, Shared, Workers, latency};
use crate::system;

const WAKE: u64 = u64::MAX;
/// One-way blocks. A loopback segment over IPv4 holds 65,483 bytes, so a block of 64 KiB is followed by a runt that
/// wakes the server for nothing: at one connection, blocks that just fit make three times the rate of it.
const BLOCK: usize = 64 * 1024 - 64;
/// One-way blocks sent on one event before the next connection has its turn.
const BLOCKS_PER_EVENT: usize = 4;

/// Starts the one load thread; it connects at once and waits for its phase.
pub(crate) fn workers(args: &BaselineLoadArgs) -> Result<Workers, Failure> {
    let target = address(&args.target)?;
    let wake = Arc::new(
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Failure::io("cannot create an eventfd"))?,
    );
    let (args, thread_wake) = (args.clone(), Arc::clone(&wake));
    let thread =
        OneThread::start(args.connections, move |shared| run(&args, target, Arc::clone(shared), thread_wake));
    Ok(thread.workers("baseline", move || {
        // A full counter means that a wake-up is already on its way.
        let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
    }))
}

fn run(
    args: &BaselineLoadArgs,
    target: SocketAddr,
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
) -> Result<Latency, Failure> {
    if let Some(&cpu) = args.cpus.0.first() {
        system::pin_to(cpu)?;
    }
    let mut load = Load::connect(args, target, shared, wake)?;
    load.run()?;
    load.shared.add_streams(&load.rounds_latency);
    Ok(load.latency)
}

struct Load {
    poll: Poll,
    wake: Arc<OwnedFd>,
    echo: bool,
    hot: Vec<u8>,
    /// What is sent: not what was received, as in any program that has something to say.
    payload: Payload,
    connections: Vec<Connection>,
    shared: Arc<Shared>,
    phase: Phase,
    /// Connections that have bytes in flight or to send.
    busy: usize,
    latency: Latency,
    /// Of whole rounds.
    rounds_latency: Latency,
    measurement: u32,
}

/// Bytes to send: of a message that is longer than a buffer each byte has its own place, shorter ones are side by side.
struct Payload {
    bytes: Vec<u8>,
    message: u64,
}

impl Payload {
    fn new(message: usize) -> Self {
        Self { bytes: vec![0x5a; message.max(HOT_BUFFER)], message: message as u64 }
    }

    /// What is next on a connection that has sent `at` bytes, and may send so many more.
    #[inline]
    fn next(&self, at: u64, most: usize) -> &[u8] {
        let begin = if self.message > HOT_BUFFER as u64 { (at % self.message) as usize } else { 0 };
        &self.bytes[begin..self.bytes.len().min(begin.saturating_add(most))]
    }

    fn block(&self) -> &[u8] {
        &self.bytes[..BLOCK]
    }
}

struct Connection {
    fd: OwnedFd,
    /// Bytes that may be sent now.
    to_send: usize,
    /// Bytes sent so far: where in a message the next one is.
    at: u64,
    pipeline: Pipeline,
    round_begun_ns: u64,
    /// Messages handed to `to_send`, and messages back.
    sent: u64,
    back: u64,
    blocked: bool,
    open: bool,
    probe: Probe,
}

impl Load {
    fn connect(
        args: &BaselineLoadArgs,
        target: SocketAddr,
        shared: Arc<Shared>,
        wake: Arc<OwnedFd>,
    ) -> Result<Self, Failure> {
        let poll = Poll::new()?;
        poll.add(&*wake, WAKE, EventFlags::IN)?;
        let exchange = args.exchange.unwrap_or(Exchange::endless(args.size as u64, args.size as u64));
        let mut connections = Vec::with_capacity(args.connections);
        for slot in 0..args.connections {
            let stream =
                TcpStream::connect(target).map_err(Failure::io(format!("cannot connect to {target}")))?;
            stream.set_nodelay(true).map_err(Failure::io("cannot set TCP_NODELAY"))?;
            stream.set_nonblocking(true).map_err(Failure::io("cannot set up a connection"))?;
            let fd = OwnedFd::from(stream);
            poll.add(&fd, slot as u64, EventFlags::IN)?;
            let probe = Probe::new(args.depth);
            connections.push(Connection {
                fd,
                to_send: 0,
                at: 0,
                pipeline: Pipeline::new(exchange, args.depth),
                round_begun_ns: 0,
                sent: 0,
                back: 0,
                blocked: false,
                open: true,
                probe,
            });
            shared.connected();
        }
        Ok(Self {
            poll,
            wake,
            echo: args.kind == BaselineLoadKind::Echo,
            hot: vec![0; HOT_BUFFER],
            payload: Payload::new(args.size),
            connections,
            shared,
            phase: Phase::Idle,
            busy: 0,
            latency: latency(),
            rounds_latency: latency(),
            measurement: 0,
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        loop {
            let events = self.poll.wait()?;
            let measurement = self.shared.measurement();
            if measurement != self.measurement {
                self.measurement = measurement;
                self.latency.reset();
                self.rounds_latency.reset();
            }
            for at in 0..events {
                let (token, flags) = self.poll.event(at);
                let slot = token as usize;
                if token == WAKE {
                    self.obey()?;
                } else if self.echo {
                    if flags.contains(EventFlags::OUT) {
                        self.flush(slot)?;
                    }
                    if flags != EventFlags::OUT {
                        self.on_echoed(slot)?;
                    }
                } else {
                    self.pour(slot, flags)?;
                }
            }
            match self.phase {
                Phase::Abort => break,
                Phase::Drain if self.busy == 0 || !self.echo => break,
                _ => {}
            }
        }
        self.count_missing();
        Ok(())
    }

    fn obey(&mut self) -> Result<(), Failure> {
        let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        let before = std::mem::replace(&mut self.phase, self.shared.phase());
        if before != Phase::Idle || self.phase != Phase::Run {
            return Ok(());
        }
        for slot in 0..self.connections.len() {
            if self.echo {
                self.busy += 1;
                self.hand_over(slot, true);
                self.flush(slot)?;
            } else {
                self.poll.change(
                    &self.connections[slot].fd,
                    slot as u64,
                    EventFlags::IN | EventFlags::OUT,
                )?;
            }
        }
        Ok(())
    }

    /// Allows what the pipeline has room for to be sent, and times one of the messages when it is its turn.
    #[inline]
    fn hand_over(&mut self, slot: usize, is_new_round: bool) {
        let connection = &mut self.connections[slot];
        let (messages, bytes) = connection.pipeline.take();
        connection.probe.sending(connection.sent, connection.sent + messages, system::monotonic_ns);
        connection.sent += messages;
        connection.to_send += usize::try_from(bytes).unwrap_or(usize::MAX);
        if is_new_round && connection.pipeline.has_rounds() {
            connection.round_begun_ns = system::monotonic_ns();
        }
    }

    /// Sends all that may be sent, in one call where the kernel takes it.
    #[inline]
    fn flush(&mut self, slot: usize) -> Result<(), Failure> {
        let traffic = self.shared.traffic(0);
        let connection = &mut self.connections[slot];
        while connection.to_send > 0 {
            let bytes = self.payload.next(connection.at, connection.to_send);
            match transmit(&connection.fd, bytes) {
                Moved::Bytes(sent) => {
                    traffic.send_calls.add(1);
                    traffic.sent_bytes.add(sent as u64);
                    connection.to_send -= sent;
                    connection.at += sent as u64;
                    if sent < bytes.len() {
                        break;
                    }
                }
                Moved::NotNow => break,
                Moved::Closed => return self.lost(slot),
            }
        }
        let blocked = connection.to_send > 0;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            self.poll.change(&connection.fd, slot as u64, flags)?;
        }
        Ok(())
    }

    #[inline]
    fn on_echoed(&mut self, slot: usize) -> Result<(), Failure> {
        let connection = &mut self.connections[slot];
        let received = match receive(&connection.fd, &mut self.hot) {
            Moved::Bytes(bytes) => bytes,
            Moved::NotNow => return Ok(()),
            Moved::Closed => return self.lost(slot),
        };
        let arrived = connection.pipeline.arrived(received);
        connection.back += arrived.messages;
        let traffic = self.shared.traffic(0);
        traffic.recv_calls.add(1);
        traffic.recv_bytes.add(received as u64);
        traffic.messages.add(arrived.messages);
        let has_rounds = connection.pipeline.has_rounds();
        if arrived.messages == 0 && !arrived.is_idle && !has_rounds {
            return Ok(());
        }
        if let Some(nanoseconds) = connection.probe.received(connection.back, system::monotonic_ns) {
            self.latency.saturating_record(nanoseconds);
        }
        if has_rounds && arrived.is_idle {
            let took = system::monotonic_ns().saturating_sub(connection.round_begun_ns);
            self.rounds_latency.saturating_record(took);
        }
        if self.phase == Phase::Run || (has_rounds && !arrived.is_idle) {
            self.hand_over(slot, arrived.is_idle);
            return self.flush(slot);
        }
        if arrived.is_idle {
            self.busy -= 1;
        }
        Ok(())
    }

    /// One way: writes blocks for as long as the socket takes them, within the connection's turn.
    fn pour(&mut self, slot: usize, flags: EventFlags) -> Result<(), Failure> {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return self.lost(slot);
        }
        if self.phase != Phase::Run {
            return Ok(());
        }
        let traffic = self.shared.traffic(0);
        let fd = &self.connections[slot].fd;
        for _ in 0..BLOCKS_PER_EVENT {
            match transmit(fd, self.payload.block()) {
                Moved::Bytes(sent) => {
                    traffic.send_calls.add(1);
                    traffic.sent_bytes.add(sent as u64);
                    if sent < BLOCK {
                        break;
                    }
                }
                Moved::NotNow => break,
                Moved::Closed => return self.lost(slot),
            }
        }
        Ok(())
    }

    fn lost(&mut self, slot: usize) -> Result<(), Failure> {
        let connection = &mut self.connections[slot];
        if std::mem::replace(&mut connection.open, false) {
            self.shared.error(|| format!("connection {slot} was closed by the server"));
            self.poll.change(&connection.fd, slot as u64, EventFlags::ET)?;
            if self.echo && connection.back < connection.sent {
                self.busy = self.busy.saturating_sub(1);
            }
        }
        Ok(())
    }

    fn count_missing(&self) {
        if self.echo {
            let missing = self.connections.iter().map(|c| c.sent - c.back).sum();
            self.shared.errors(missing, || format!("{missing} messages never came back"));
        }
    }
}
