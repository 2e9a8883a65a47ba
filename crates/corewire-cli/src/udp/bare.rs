//! The limit: `recvmmsg` and `sendmmsg`, with or without GRO and GSO, in a bare loop on epoll. No sessions, no queues but
//! the one of the datagrams at hand.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corewire::runtime::driver::Socket;
use corewire::runtime::udp::{RecvBatch, SendBatch, SendMeta, open};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};

use super::{STALL_MS, address, any_for, options};
use crate::args::{LimitLoadArgs, LimitLoadKind, LimitServeArgs};
use crate::conduct::{Crew, Latency, Phase, Shared, latency};
use crate::control::{Traffic, attend_server};
use crate::failure::Failure;
use crate::limit::poll::Poll;
use crate::system;

const WAKE: u64 = u64::MAX;
/// Datagrams of one way that are handed over in one go.
const ONE_WAY_RUN: usize = 1024;

/// Serves until standard input says `stop` or ends.
pub(crate) fn limit_serve(args: &LimitServeArgs) -> Result<(), Failure> {
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
    attend_server("limit", |snapshot| traffic.add_to(snapshot))
}

fn serve(args: &LimitServeArgs, socket: &Socket, traffic: &Traffic) -> Result<(), Failure> {
    if let Some(&cpu) = args.cpus.0.first() {
        system::pin_to(cpu)?;
    }
    let mut poll = Poll::new()?;
    poll.add(socket, 0, EventFlags::IN)?;
    let (mut batch, mut out) = (RecvBatch::new(), SendBatch::new(!args.no_offload));
    let echo = args.kind.is_echo();
    loop {
        poll.wait()?;
        while batch.recv(socket).is_ok() {
            let mut bytes = 0;
            for datagram in batch.datagrams() {
                bytes += datagram.payload().len();
                if echo {
                    // What does not fit is lost, and counted by the load.
                    let _ = out.push(datagram.from(), &[datagram.payload()], SendMeta::default());
                }
            }
            traffic.recv_calls.add(1);
            traffic.recv_bytes.add(bytes as u64);
            let flushed = out.flush(socket);
            traffic.send_calls.add(flushed.calls as u64);
            traffic.sent_bytes.add(flushed.bytes as u64);
            if !batch.is_full() {
                break;
            }
        }
    }
}

/// The load thread.
pub(crate) fn limit_crew(args: &LimitLoadArgs) -> Result<Crew, Failure> {
    let target = address(&args.target)?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = Arc::new(eventfd(0, flags).map_err(Failure::io("cannot create an eventfd"))?);
    let shared = Arc::new(Shared::new(1));
    let ended = Arc::new(AtomicBool::new(false));
    let (ticks, ticking) = (Arc::clone(&wake), Arc::clone(&ended));
    std::thread::spawn(move || {
        while !ticking.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(STALL_MS));
            // A full counter means that a wake-up is already on its way.
            let _ = rustix::io::write(&*ticks, &1u64.to_ne_bytes());
        }
    });
    let (run_shared, run_wake, run_ended, args) =
        (Arc::clone(&shared), Arc::clone(&wake), Arc::clone(&ended), args.clone());
    let connections = args.connections;
    let thread = std::thread::spawn(move || {
        let result = run(&args, target, &run_shared, &run_wake);
        if let Err(failure) = &result {
            run_shared.fault(|| failure.to_string());
        }
        run_ended.store(true, Ordering::Release);
        result
    });
    Ok(Crew {
        shared,
        connections,
        driver: "limit".into(),
        wake: Box::new(move || {
            // As above.
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }),
        calls: Box::new(|| (0, 0)),
        ended: Box::new(move || ended.load(Ordering::Acquire)),
        join: Box::new(move || {
            thread.join().map_err(|_| Failure::Library("the load thread panicked".into()))?
        }),
    })
}

struct Client {
    socket: Socket,
    in_flight: usize,
    has_moved: bool,
    sent_at: Instant,
}

fn run(
    args: &LimitLoadArgs,
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
        socket.connect(&target.into()).map_err(Failure::io("cannot connect"))?;
        poll.add(&socket, slot as u64, EventFlags::IN)?;
        clients.push(Client { socket, in_flight: 0, has_moved: true, sent_at: Instant::now() });
        shared.connected();
    }
    let mut load = Load {
        window: if args.kind == LimitLoadKind::UdpSend { 0 } else { args.window },
        payload: vec![b'u'; args.size],
        batch: RecvBatch::new(),
        out: SendBatch::new(!args.no_offload),
        latency: latency(),
        measurement: 0,
        shared,
    };
    while load.window == 0 || shared.phase() < Phase::Abort {
        if load.window == 0 && shared.phase() == Phase::Run {
            clients.iter_mut().for_each(|client| load.fill(client));
            continue;
        }
        let events = poll.wait()?;
        for at in 0..events {
            match poll.event(at).0 {
                WAKE => {
                    let mut count = [0; 8];
                    // Non-blocking: it is zero now either way.
                    let _ = rustix::io::read(wake, &mut count);
                    clients.iter_mut().for_each(|client| load.look_for_losses(client));
                }
                slot => load.receive(&mut clients[slot as usize]),
            }
        }
        let phase = shared.phase();
        if phase >= Phase::Drain && clients.iter().all(|client| client.in_flight == 0) {
            break;
        }
    }
    Ok(load.latency)
}

struct Load<'a> {
    window: usize,
    payload: Vec<u8>,
    batch: RecvBatch,
    out: SendBatch,
    latency: Latency,
    measurement: u32,
    shared: &'a Shared,
}

impl Load<'_> {
    fn fill(&mut self, client: &mut Client) {
        if self.shared.phase() != Phase::Run {
            return;
        }
        let count = if self.window == 0 { ONE_WAY_RUN } else { self.window - client.in_flight };
        if self.window == 1 && count == 1 {
            client.sent_at = Instant::now();
        }
        for _ in 0..count {
            // The batch is empty at the start: all fit.
            let _ = self.out.push(None, &[&self.payload], SendMeta::default());
        }
        let flushed = self.out.flush(&client.socket);
        self.out.clear();
        let traffic = self.shared.traffic(0);
        traffic.sent_bytes.add(flushed.bytes as u64);
        traffic.send_calls.add(flushed.calls as u64);
        match self.window {
            0 => traffic.messages.add(flushed.datagrams as u64),
            _ => client.in_flight += flushed.datagrams,
        }
    }

    fn receive(&mut self, client: &mut Client) {
        if self.batch.recv(&client.socket).is_err() {
            return;
        }
        let traffic = self.shared.traffic(0);
        let (mut count, mut bytes) = (0, 0);
        for datagram in self.batch.datagrams() {
            count += 1;
            bytes += datagram.payload().len();
        }
        traffic.recv_calls.add(1);
        traffic.recv_bytes.add(bytes as u64);
        traffic.messages.add(count as u64);
        client.in_flight = client.in_flight.saturating_sub(count);
        client.has_moved = true;
        if self.window == 1 && self.shared.phase() == Phase::Run {
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
        }
        self.fill(client);
    }
}
