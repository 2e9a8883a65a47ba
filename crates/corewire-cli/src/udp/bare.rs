//! The baseline: a bare loop on epoll around the calls of [`Wire`]. No sessions, no queues, no look at a single datagram.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::runtime::driver::Socket;
use corewire::runtime::udp::open;
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};

use super::credit::{Credit, Received};
use super::wire::Wire;
use super::{QUIET_LOOKS, STALL_MS, address, any_for, options};
use crate::args::{BaselineLoadArgs, BaselineLoadKind, BaselineServeArgs};
use crate::baseline::poll::Poll;
use crate::control::{Traffic, attend_server};
use crate::failure::Failure;
use crate::one_thread::OneThread;
use crate::run_control::{Latency, Phase, Shared, Workers, latency};
use crate::system;

const WAKE: u64 = u64::MAX;

/// Serves until standard input says `stop` or ends.
pub(crate) fn baseline_serve(args: &BaselineServeArgs) -> Result<(), Failure> {
    let listen = address(&args.listen)?;
    let socket = open(listen, &options(args.no_offload)).map_err(Failure::io("cannot bind"))?;
    let local = socket.local_addr().ok().and_then(|address| address.as_socket());
    let local = local.ok_or_else(|| Failure::Setting("the socket has no address".into()))?;
    let traffic = Arc::new(Traffic::default());
    let (args, counters) = (args.clone(), Arc::clone(&traffic));
    std::thread::spawn(move || {
        if let Err(failure) = serve(&args, &socket, &counters) {
            eprintln!("corewire: {failure}");
        }
        std::process::exit(1);
    });
    println!("listening on udp://{local}");
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    attend_server("baseline", |snapshot| traffic.add_to(snapshot))
}

fn serve(args: &BaselineServeArgs, socket: &Socket, traffic: &Traffic) -> Result<(), Failure> {
    if let Some(&cpu) = args.cpus.0.first() {
        system::pin_to(cpu)?;
    }
    let mut poll = Poll::new()?;
    poll.add(socket, 0, EventFlags::IN)?;
    let mut wire = Wire::new(args.no_offload, args.size);
    let mut peers: HashMap<SocketAddr, Received> = HashMap::new();
    loop {
        poll.wait()?;
        while let Some(received) = wire.receive(socket) {
            traffic.recv_calls.add(1);
            traffic.recv_bytes.add(received.bytes as u64);
            if args.kind.is_echo() {
                let sent = wire.send_back(socket, &received);
                traffic.send_calls.add(sent.calls as u64);
                traffic.sent_bytes.add(sent.bytes as u64);
            } else if let Some(from) = received.from
                && let Some(count) = peers.entry(from).or_default().add(received.datagrams as u64)
            {
                // One that is lost is made up for by the next.
                let _ = socket.send_to(&count, from);
            }
        }
    }
}

/// The load thread.
pub(crate) fn baseline_workers(args: &BaselineLoadArgs) -> Result<Workers, Failure> {
    let target = address(&args.target)?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = Arc::new(eventfd(0, flags).map_err(Failure::io("cannot create an eventfd"))?);
    let (args, run_wake, ticks) = (args.clone(), Arc::clone(&wake), Arc::clone(&wake));
    let thread = OneThread::start(args.connections, move |shared| run(&args, target, shared, &run_wake));
    let has_ended = thread.has_ended();
    std::thread::spawn(move || {
        while !has_ended() {
            std::thread::sleep(Duration::from_millis(STALL_MS));
            // A full counter means that a wake-up is already on its way.
            let _ = rustix::io::write(&*ticks, &1u64.to_ne_bytes());
        }
    });
    Ok(thread.workers("baseline", move || {
        // As above.
        let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
    }))
}

struct Client {
    socket: Socket,
    in_flight: usize,
    /// Of one-way load.
    credit: Credit,
    has_moved: bool,
    sent_at: Instant,
}

fn run(
    args: &BaselineLoadArgs,
    target: SocketAddr,
    shared: &Shared,
    wake: &OwnedFd,
) -> Result<Latency, Failure> {
    if let Some(&cpu) = args.cpus.0.first() {
        system::pin_to(cpu)?;
    }
    let mut poll = Poll::new()?;
    poll.add(wake, WAKE, EventFlags::IN)?;
    let mut clients = Vec::with_capacity(args.connections);
    for slot in 0..args.connections {
        let socket = open(any_for(target), &options(args.no_offload)).map_err(Failure::io("cannot bind"))?;
        socket.connect(target).map_err(Failure::io("cannot connect"))?;
        poll.add(&socket, slot as u64, EventFlags::IN)?;
        let (credit, sent_at) = (Credit::new(args.no_offload, args.connections), Instant::now());
        clients.push(Client { socket, in_flight: 0, credit, has_moved: true, sent_at });
        shared.connected();
    }
    let mut load = Load {
        depth: if args.kind == BaselineLoadKind::UdpSend { 0 } else { args.depth },
        wire: Wire::new(args.no_offload, args.size),
        latency: latency(),
        measurement: 0,
        shared,
    };
    let mut quiet_looks = 0;
    while shared.phase() < Phase::Abort {
        let events = poll.wait()?;
        for at in 0..events {
            match poll.event(at).0 {
                WAKE => {
                    let mut count = [0; 8];
                    // Non-blocking: it is zero now either way.
                    let _ = rustix::io::read(wake, &mut count);
                    let has_moved = clients.iter().any(|client| client.has_moved);
                    quiet_looks = if has_moved { 0 } else { quiet_looks + 1 };
                    clients.iter_mut().for_each(|client| load.look_for_losses(client));
                }
                slot => load.receive(&mut clients[slot as usize]),
            }
        }
        // What was given up as lost may be late.
        let traffic = shared.traffic(0);
        let is_over = load.depth == 0
            || traffic.recv_bytes.value() == traffic.sent_bytes.value()
            || quiet_looks >= QUIET_LOOKS;
        if shared.phase() >= Phase::Drain && is_over {
            break;
        }
    }
    Ok(load.latency)
}

struct Load<'a> {
    /// 0: one way.
    depth: usize,
    wire: Wire,
    latency: Latency,
    measurement: u32,
    shared: &'a Shared,
}

impl Load<'_> {
    fn fill(&mut self, client: &mut Client) {
        if self.shared.phase() != Phase::Run {
            return;
        }
        let count = match self.depth {
            0 => client.credit.room() as usize,
            depth => depth - client.in_flight,
        };
        if self.depth == 1 && count == 1 {
            client.sent_at = Instant::now();
        }
        let sent = self.wire.send(&client.socket, count);
        let traffic = self.shared.traffic(0);
        traffic.sent_bytes.add(sent.bytes as u64);
        traffic.send_calls.add(sent.calls as u64);
        match self.depth {
            0 => {
                client.credit.sent(sent.datagrams as u64);
                traffic.messages.add(sent.datagrams as u64);
            }
            _ => client.in_flight += sent.datagrams,
        }
    }

    fn receive(&mut self, client: &mut Client) {
        let Some(received) = self.wire.receive(&client.socket) else { return };
        client.has_moved = true;
        if self.depth == 0 {
            client.credit.told(self.wire.last(&received));
            return self.fill(client);
        }
        let traffic = self.shared.traffic(0);
        traffic.recv_calls.add(1);
        traffic.recv_bytes.add(received.bytes as u64);
        traffic.messages.add(received.datagrams as u64);
        client.in_flight = client.in_flight.saturating_sub(received.datagrams);
        if self.depth == 1 && self.shared.phase() == Phase::Run {
            if self.measurement != self.shared.measurement() {
                self.measurement = self.shared.measurement();
                self.latency.reset();
            }
            self.latency.saturating_record(client.sent_at.elapsed().as_nanos() as u64);
        }
        self.fill(client);
    }

    /// What has not come back for a while will not.
    fn look_for_losses(&mut self, client: &mut Client) {
        if !std::mem::take(&mut client.has_moved) {
            client.in_flight = 0;
            client.credit.stalled();
        }
        self.fill(client);
    }
}
