//! One server, its clients, and what is measured between them. All of it is in one process, so that one clock tells when
//! a message was sent and when it arrived.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corewire::runtime::{Runtime, WorkerHandle};
use corewire::{
    Frame, Handler, LengthFieldCodec, NetClient, NetServer, NetUri, RawCodec, ServerHandle, Session, sleep,
    spawn_local,
};
use hdrhistogram::Histogram;

use super::protocol::Protocol;
use crate::args::Driver;
use crate::failure::Failure;
use crate::serve::driver_kind;
use crate::{heap, system};

/// What is given to `send` at once for goodput.
const PIECE: usize = 16 * 1024;
/// Bytes of a message before its filling: number and time of sending.
const STAMP: usize = 16;
/// Connections that are being made at a time.
const AT_A_TIME: usize = 64;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What arrived.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) delivered: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    /// From `send` to arrival, in ns.
    pub(super) latencies: Histogram<u64>,
}

/// Of the two workers and the heap, over the time measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) server_cpu_ns: u64,
    pub(super) client_cpu_ns: u64,
    pub(super) heap_bytes: u64,
}

/// A server of one worker, and a worker for clients.
pub(super) struct Endpoints {
    server: ServerHandle,
    server_runtime: Runtime,
    client_runtime: Runtime,
    tally: Arc<Mutex<Tally>>,
    protocol: Protocol,
}

/// What the server does with what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Counts bytes.
    Count,
    /// Checks that messages come once and in order, and notes how long they took.
    Check,
    /// Sends messages back; their sender checks them.
    Echo,
}

impl Endpoints {
    pub(super) fn new(protocol: Protocol, ip: &str, work: Work, driver: Driver) -> Result<Self, Failure> {
        let library = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
        let runtime = |name: &str, cpu: usize| {
            let cpus = corewire::runtime::driver::available_cpus();
            let mut builder = Runtime::builder().workers(1).name(name).driver(driver_kind(driver));
            if let Some(cpu) = cpus.get(cpu % cpus.len().max(1)) {
                builder = builder.cpus([*cpu]);
            }
            builder.build().map_err(|error| library(&error))
        };
        let (server_runtime, client_runtime) = (runtime("server", 0)?, runtime("client", 1)?);
        let tally = Arc::new(Mutex::new(Tally::new()));
        let mut server = NetServer::bind(format!("{}://{ip}:0", protocol.scheme())).session_table(false);
        if let Some(config) = protocol.config() {
            server = server.kcp_config(config);
        }
        let shared = tally.clone();
        let handle = server_runtime.handle();
        let server = match work {
            Work::Count => server.codec(|| RawCodec).handler(move || Counts(shared.clone())).start_on(handle),
            Work::Check => server
                .codec(LengthFieldCodec::default)
                .handler(move || Checks { tally: shared.clone(), next: 0 })
                .start_on(handle),
            Work::Echo => server.codec(LengthFieldCodec::default).handler(|| SendsBack).start_on(handle),
        };
        let server = server.map_err(|error| library(&error))?;
        Ok(Self { server, server_runtime, client_runtime, tally, protocol })
    }

    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        let none = || Failure::Library("the server has no address".into());
        self.server.local_addrs().first().copied().ok_or_else(none)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has been tallied so far.
    pub(super) fn take(&self) -> Tally {
        std::mem::replace(&mut *self.tally(), Tally::new())
    }

    pub(super) fn sessions(&self) -> usize {
        self.server.stats().sessions
    }

    /// Connections to an address.
    pub(super) fn connect(&self, uri: &str, count: usize, work: Work) -> Result<Vec<NetClient>, Failure> {
        let uri = NetUri::parse(uri).map_err(|error| Failure::Library(error.to_string()))?;
        let worker = self.client_worker()?;
        let threads = count.min(AT_A_TIME);
        // Each waits for a round trip at the least.
        std::thread::scope(|scope| {
            let connecting: Vec<_> = (0..threads)
                .map(|at| (count - at).div_ceil(threads))
                .map(|share| (share, &uri, worker.clone()))
                .map(|(share, uri, worker)| {
                    scope.spawn(move || {
                        (0..share)
                            .map(|_| self.connect_one(uri, &worker, work))
                            .collect::<Result<Vec<_>, _>>()
                    })
                })
                .collect();
            let mut clients = Vec::with_capacity(count);
            for connecting in connecting {
                let panicked = |_| Failure::Library("connecting has panicked".into());
                clients.extend(connecting.join().map_err(panicked)??);
            }
            Ok(clients)
        })
    }

    fn connect_one(&self, uri: &NetUri, worker: &WorkerHandle, work: Work) -> Result<NetClient, Failure> {
        let mut client = uri.client().connect_timeout(CONNECT_TIMEOUT).no_reconnect().worker(worker.clone());
        if let Some(config) = self.protocol.config() {
            client = client.kcp_config(config);
        }
        let made = match work {
            Work::Count => client.codec(|| RawCodec).connect_blocking(),
            Work::Check => client.codec(LengthFieldCodec::default).connect_blocking(),
            Work::Echo => {
                let tally = self.tally.clone();
                let handler = move || Checks { tally: tally.clone(), next: 0 };
                client.codec(LengthFieldCodec::default).handler(handler).connect_blocking()
            }
        };
        made.map_err(|error| Failure::Library(error.to_string()))
    }

    fn client_worker(&self) -> Result<WorkerHandle, Failure> {
        let none = || Failure::Library("the client's worker has stopped".into());
        self.client_runtime.handle().worker(0).ok_or_else(none)
    }

    /// Sends bytes as fast as the connection takes them, until it is closed.
    pub(super) fn send_bulk(&self, client: NetClient) -> Result<(), Failure> {
        let task = self.client_runtime.handle().run_on(0, move || {
            drop(spawn_local(async move {
                let piece = vec![7; PIECE];
                while client.send_raw(&piece).await.is_ok() {}
            }));
        });
        task.map_err(|error| Failure::Library(error.to_string()))
    }

    /// Sends messages of `size` bytes at a fixed pace for this long on each connection; gives how many that are.
    pub(super) fn send_messages(
        &self,
        clients: Vec<NetClient>,
        size: usize,
        every: Duration,
        length: Duration,
    ) -> Result<u64, Failure> {
        let each = (length.as_secs_f64() / every.as_secs_f64()).ceil() as u64;
        let count = clients.len() as u64;
        for (at, client) in clients.into_iter().enumerate() {
            // Spread over the time from one to the next.
            let offset = every.mul_f64(at as f64 / count as f64);
            let begun = self.client_runtime.handle().run_on(0, move || {
                drop(spawn_local(async move {
                    sleep(offset).await;
                    let mut next = Instant::now();
                    let mut message = vec![0; size.max(STAMP)];
                    for number in 0..each {
                        stamp(&mut message, number);
                        if client.one_way(&message).await.is_err() {
                            return;
                        }
                        next += every;
                        sleep(next.saturating_duration_since(Instant::now())).await;
                    }
                    // What is on its way gets there, or not: the connection lives until the endpoints is taken down.
                    std::mem::forget(client);
                }));
            });
            begun.map_err(|error| Failure::Library(error.to_string()))?;
        }
        Ok(each * count)
    }

    /// Waits until so many were delivered, or time is up.
    pub(super) fn await_delivered(&self, messages: u64, limit: Duration) {
        let begun = Instant::now();
        while self.tally().delivered < messages && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What passes while `wait` takes its time, and what it costs.
    pub(super) fn cost_of(&self, wait: impl FnOnce()) -> Result<Cost, Failure> {
        let cpu = |runtime: &Runtime| -> Result<u64, Failure> {
            let told = runtime.handle().spawn_on(0, || async { system::thread_cpu_ns() });
            let told = told.map_err(|error| Failure::Library(error.to_string()))?.join();
            told.map_err(|error| Failure::Library(error.to_string()))
        };
        let now = || Ok::<_, Failure>((cpu(&self.server_runtime)?, cpu(&self.client_runtime)?));
        let (before, heap, begun) = (now()?, heap::totals().bytes, Instant::now());
        wait();
        let (seconds, heap_after, after) = (begun.elapsed().as_secs_f64(), heap::totals().bytes, now()?);
        Ok(Cost {
            seconds,
            server_cpu_ns: after.0 - before.0,
            client_cpu_ns: after.1 - before.1,
            heap_bytes: heap_after - heap,
        })
    }
}

impl Tally {
    fn new() -> Self {
        let latencies = Histogram::new(3).unwrap_or_else(|_| unreachable!("3 digits are allowed"));
        Self { delivered: 0, bytes: 0, errors: 0, latencies }
    }
}

fn stamp(message: &mut [u8], number: u64) {
    message.fill(number as u8);
    message[..8].copy_from_slice(&number.to_le_bytes());
    message[8..STAMP].copy_from_slice(&system::monotonic_ns().to_le_bytes());
}

struct Counts(Arc<Mutex<Tally>>);

impl Handler for Counts {
    fn on_frame(&mut self, _: &Session, frame: Frame<'_>) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.bytes += frame.payload().len() as u64;
    }
}

struct SendsBack;

impl Handler for SendsBack {
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        // A session that cannot send is about to end, and its peer to notice.
        let _ = session.reply(&frame, frame.payload());
    }
}

struct Checks {
    tally: Arc<Mutex<Tally>>,
    next: u64,
}

impl Handler for Checks {
    fn on_frame(&mut self, _: &Session, frame: Frame<'_>) {
        let now = system::monotonic_ns();
        let payload = frame.payload();
        let word =
            |at: usize| payload.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(number), Some(sent)) = (word(0), word(8)) else {
            tally.errors += 1;
            return;
        };
        let is_right = number == self.next && payload[STAMP..].iter().all(|byte| *byte == number as u8);
        self.next = number + 1;
        tally.delivered += 1;
        tally.errors += u64::from(!is_right);
        tally.bytes += payload.len() as u64;
        let _ = tally.latencies.record(now.saturating_sub(sent));
    }
}
