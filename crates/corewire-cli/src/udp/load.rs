//! The library's datagram clients.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corewire::Bytes;
use corewire::runtime::Runtime;
use corewire::runtime::udp::{Datagram, Run, SendMeta, UdpError, UdpOptions, UdpPort, UdpProtocol, open};

use super::credit::Credit;
use super::{QUIET_LOOKS, STALL_MS, address, any_for, options};
use crate::args::{LoadArgs, LoadKind};
use crate::failure::Failure;
use crate::run_control::{Latency, Phase, Shared, Workers, latency};
use crate::serve::{driver_kind, driver_name};

/// Datagrams that a one-way client sends before another has its turn.
const ONE_WAY_RUN: usize = 1024;

/// Bytes of payload that are handed over in one go.
const RUN_BYTES: usize = 64 * 1024;

thread_local! {
    static HERE: RefCell<Vec<UdpPort>> = const { RefCell::new(Vec::new()) };
    static LATENCY: Rc<RefCell<Latency>> = Rc::new(RefCell::new(latency()));
}

/// Opens the clients on their workers.
pub(crate) fn workers(args: &LoadArgs) -> Result<Workers, Failure> {
    let target = address(&args.target)?;
    let (cpus, workers) = (args.workers.cores(), args.workers.of_load(args.connections));
    let mut builder =
        Runtime::builder().workers(workers).driver(driver_kind(args.workers.driver)).name("load");
    if !cpus.is_empty() {
        builder = builder.cpus(cpus);
    }
    let runtime = builder.build().map_err(|error| Failure::Library(error.to_string()))?;
    let shared = Arc::new(Shared::new(workers));
    for worker in 0..workers {
        let (args, shared) = (args.clone(), Arc::clone(&shared));
        on(&runtime, worker, move || connect(&args, target, worker, workers, &shared))?;
    }
    let runtime = Arc::new(runtime);
    let (waker, counted, ended) = (Arc::clone(&runtime), Arc::clone(&runtime), Arc::clone(&shared));
    Ok(Workers {
        connections: args.connections,
        driver: driver_name(args.workers.driver),
        wake: Box::new(move || {
            for worker in 0..workers {
                // A worker that has stopped needs no waking.
                let _ = on(&waker, worker, || {
                    HERE.with_borrow(|ports| ports.iter().for_each(UdpPort::request_flush))
                });
            }
        }),
        calls: Box::new(move || {
            let stats = counted.handle().stats();
            (stats.receives, stats.sends)
        }),
        ended: Box::new(move || ended.phase() >= Phase::Drain && ended.in_flight() == 0),
        join: Box::new(move || gather(&runtime, workers)),
        shared,
    })
}

fn on(runtime: &Runtime, worker: usize, call: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    runtime.handle().run_on(worker, call).map_err(|error| Failure::Library(error.to_string()))
}

fn connect(args: &LoadArgs, target: SocketAddr, worker: usize, workers: usize, shared: &Arc<Shared>) {
    let options = options(args.no_offload);
    let each = args.packets_in_all().map(|packets| packets.div_ceil(args.connections) as u64);
    let run = Bytes::from(vec![b'u'; (RUN_BYTES / args.size.max(1)).max(1) * args.size]);
    for _ in (worker..args.connections).step_by(workers) {
        let client = Client {
            shared: Arc::clone(shared),
            thread: worker,
            size: args.size,
            run: run.clone(),
            depth: if args.kind == LoadKind::UdpSend { 0 } else { args.depth },
            in_flight: 0,
            given_up: 0,
            quiet_looks: 0,
            left: each.unwrap_or(u64::MAX),
            back: each.unwrap_or(u64::MAX),
            credit: Credit::new(args.no_offload, args.connections),
            has_moved: true,
            is_watching: false,
            sent_at: Instant::now(),
            measurement: 0,
            latency: LATENCY.with(Rc::clone),
        };
        match open_client(target, &options, client) {
            Ok(port) => HERE.with_borrow_mut(|ports| ports.push(port)),
            Err(error) => return shared.error(|| error.to_string()),
        }
        shared.connected();
    }
}

fn open_client(target: SocketAddr, options: &UdpOptions, client: Client) -> std::io::Result<UdpPort> {
    let socket = open(any_for(target), options)?;
    socket.connect(target)?;
    UdpPort::open(socket, options, client)
}

fn gather(runtime: &Runtime, workers: usize) -> Result<Latency, Failure> {
    let merged = Arc::new(Mutex::new(latency()));
    let left = Arc::new(AtomicUsize::new(workers));
    for worker in 0..workers {
        let (merged, left) = (Arc::clone(&merged), Arc::clone(&left));
        on(runtime, worker, move || {
            HERE.with_borrow_mut(|ports| ports.drain(..).for_each(|port| port.close()));
            let own = LATENCY.with(|own| own.borrow().clone());
            let added = merged.lock().unwrap_or_else(PoisonError::into_inner).add(own);
            debug_assert!(added.is_ok(), "all histograms have the same bounds");
            left.fetch_sub(1, Ordering::Release);
        })?;
    }
    let begun = Instant::now();
    while left.load(Ordering::Acquire) > 0 && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let merged = merged.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(merged)
}

/// One socket: keeps `depth` datagrams in flight, or (depth 0) sends what the receiver has credit for.
struct Client {
    shared: Arc<Shared>,
    thread: usize,
    size: usize,
    /// Datagrams one behind the other.
    run: Bytes,
    depth: usize,
    in_flight: usize,
    /// Given up as lost, and replaced by others; they may still come.
    given_up: usize,
    quiet_looks: u32,
    /// Datagrams to send, and to count.
    left: u64,
    back: u64,
    credit: Credit,
    /// Since the last look for losses.
    has_moved: bool,
    is_watching: bool,
    sent_at: Instant,
    measurement: u32,
    latency: Rc<RefCell<Latency>>,
}

impl Client {
    fn fill(&mut self, port: &UdpPort) {
        if self.shared.phase() != Phase::Run {
            return;
        }
        let room = match self.depth {
            0 if port.is_blocked() => 0,
            0 => (self.credit.room() as usize).min(ONE_WAY_RUN),
            depth => depth - self.in_flight,
        };
        let count = room.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if self.depth == 1 && count == 1 {
            self.sent_at = Instant::now();
        }
        let mut sent = 0;
        while sent < count {
            let run = (count - sent).min(self.run.len() / self.size.max(1)).max(1);
            let bytes = self.run.slice(..run * self.size);
            if port.send_shared(None, bytes, self.size, SendMeta::default()).is_err() {
                break;
            }
            sent += run;
        }
        self.note_sent(sent);
        if self.depth == 0 && sent > 0 && self.left > 0 {
            port.request_flush();
        }
    }

    fn note_sent(&mut self, sent: usize) {
        let traffic = self.shared.traffic(self.thread);
        traffic.sent_bytes.add((sent * self.size) as u64);
        self.left -= sent as u64;
        if self.depth > 0 {
            self.in_flight += sent;
            traffic.in_flight.add(sent as u64);
        } else {
            traffic.messages.add(sent as u64);
            self.credit.sent(sent as u64);
            self.count_back(sent as u64);
        }
    }

    fn came(&mut self, payload: &[u8], datagrams: usize) {
        self.has_moved = true;
        if self.depth == 0 {
            return self.credit.told(payload);
        }
        let traffic = self.shared.traffic(self.thread);
        traffic.recv_bytes.add(payload.len() as u64);
        traffic.messages.add(datagrams as u64);
        // One that was given up as lost may still come.
        let known = datagrams.min(self.in_flight);
        self.in_flight -= known;
        let late = (datagrams - known).min(self.given_up);
        self.given_up -= late;
        traffic.in_flight.subtract((known + late) as u64);
        if self.depth == 1 && self.shared.phase() == Phase::Run {
            let mut latency = self.latency.borrow_mut();
            if self.measurement != self.shared.measurement() {
                self.measurement = self.shared.measurement();
                latency.reset();
            }
            latency.saturating_record(self.sent_at.elapsed().as_nanos() as u64);
        }
        self.count_back(datagrams as u64);
    }

    fn count_back(&mut self, count: u64) {
        let before = self.back;
        self.back = self.back.saturating_sub(count);
        if before > 0 && self.back == 0 {
            self.shared.finished();
        }
    }
}

impl UdpProtocol for Client {
    fn on_datagram(&mut self, _: &UdpPort, datagram: &Datagram<'_>) {
        self.came(datagram.payload(), 1);
    }

    fn on_run(&mut self, _: &UdpPort, run: &Run<'_>) {
        self.came(run.payload(), run.count());
    }

    fn on_batch(&mut self, port: &UdpPort) {
        self.fill(port);
    }

    fn on_flush(&mut self, port: &UdpPort) {
        if !std::mem::replace(&mut self.is_watching, true) {
            port.set_timer(Some(Duration::from_millis(STALL_MS)));
        }
        self.fill(port);
    }

    fn on_drained(&mut self, port: &UdpPort) {
        self.fill(port);
    }

    fn on_timer(&mut self, port: &UdpPort) {
        let has_moved = std::mem::take(&mut self.has_moved);
        if has_moved {
            self.quiet_looks = 0;
        }
        if !has_moved && self.depth == 0 {
            self.credit.stalled();
        }
        if !has_moved {
            let lost = std::mem::take(&mut self.in_flight);
            self.given_up += lost;
            self.count_back(lost as u64);
            // The drain waits for late ones until nothing has moved for a while.
            self.quiet_looks = if self.shared.phase() > Phase::Run { self.quiet_looks + 1 } else { 0 };
            if self.quiet_looks >= QUIET_LOOKS {
                let given_up = std::mem::take(&mut self.given_up) as u64;
                self.shared.traffic(self.thread).in_flight.subtract(given_up);
            }
        }
        self.fill(port);
        port.set_timer(Some(Duration::from_millis(STALL_MS)));
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        self.shared.error(|| error.to_string());
    }
}
