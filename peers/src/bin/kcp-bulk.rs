//! Bulk over one KCP conversation without loss: tokio_kcp and Corewire in turn, with the same settings.
//!
//! `kcp-bulk [SECONDS [ROUNDS]]`; each end is a thread of its own on a core of its own, over sockets of the loopback.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corewire::kcp::{Config, Mode};
use corewire::runtime::Runtime;
use corewire::runtime::driver::{available_cpus, pin_current_thread};
use corewire::{Frame, NetServer, NetUri, RawCodec, Session, spawn_local};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WINDOW: u16 = 1024;
const MTU: usize = 1400;
const PIECE: usize = 16 * 1024;
const WARM_UP: Duration = Duration::from_millis(300);

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let seconds = words.next().map_or(Ok(1.0), |word| word.parse())?;
    let rounds: usize = words.next().map_or(Ok(3), |word| word.parse())?;
    let length = Duration::try_from_secs_f64(seconds)?;
    let mut factors = Vec::new();
    for _ in 0..rounds {
        let plain = on_tokio(length, false)?;
        let flushed = on_tokio(length, true)?;
        let ours = on_corewire(length)?;
        let best = plain.max(flushed);
        println!("tokio_kcp {plain:.0} MB/s, flushing at once {flushed:.0} MB/s; corewire {ours:.0} MB/s");
        factors.push(ours / best);
    }
    factors.sort_by(f64::total_cmp);
    println!("corewire moves {:.1} times what tokio_kcp does at its best (target: >= 7)", factors[factors.len() / 2]);
    Ok(())
}

/// MB per second that arrive.
fn rate(received: &AtomicU64, length: Duration) -> f64 {
    std::thread::sleep(WARM_UP);
    let (before, begun) = (received.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(length);
    (received.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn core(at: usize) -> usize {
    let cores = available_cpus();
    cores[at % cores.len()]
}

fn on_corewire(length: Duration) -> Outcome<f64> {
    let received = Arc::new(AtomicU64::new(0));
    let config = || Config::turbo().windows(WINDOW, WINDOW).mtu(MTU).mode(Mode::Stream);
    let counted = received.clone();
    let server = NetServer::bind("kcp://127.0.0.1:0")
        .kcp_config(config())
        .codec(|| RawCodec)
        .handler(move || {
            let counted = counted.clone();
            move |_: &Session, frame: Frame<'_>| {
                counted.fetch_add(frame.payload().len() as u64, Ordering::Relaxed);
            }
        })
        .workers(1)
        .cpus([core(0)])
        .start()?;
    let runtime = Runtime::builder().workers(1).cpus([core(1)]).build()?;
    let worker = runtime.handle().worker(0).ok_or("no worker")?;
    let client = NetUri::parse(server.uri())?.client().kcp_config(config()).codec(|| RawCodec).worker(worker);
    let client = client.connect_blocking()?;
    runtime.handle().run_on(0, move || {
        drop(spawn_local(async move {
            let piece = vec![7; PIECE];
            while client.send_raw(&piece).await.is_ok() {}
        }));
    })?;
    Ok(rate(&received, length))
}

fn on_tokio(length: Duration, flushes: bool) -> Outcome<f64> {
    let config = KcpConfig {
        mtu: MTU,
        nodelay: KcpNoDelayConfig::fastest(),
        wnd_size: (WINDOW, WINDOW),
        flush_write: flushes,
        flush_acks_input: flushes,
        stream: true,
        ..KcpConfig::default()
    };
    let received = Arc::new(AtomicU64::new(0));
    let (address, known) = std::sync::mpsc::channel();
    let counted = received.clone();
    let server = thread(0, move |runtime| {
        // When the other end is gone it ends by a failure.
        let _ = runtime.block_on(serve(config, &address, &counted));
    });
    let client = {
        let server: SocketAddr = known.recv()?;
        thread(1, move |runtime| runtime.block_on(send(config, server, length + WARM_UP)))
    };
    let rate = rate(&received, length);
    client.join().map_err(|_| "the client has panicked")??;
    server.join().map_err(|_| "the server has panicked")?;
    Ok(rate)
}

fn thread<T: Send + 'static>(
    at: usize,
    run: impl FnOnce(&tokio::runtime::Runtime) -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(move || {
        if let Err(error) = pin_current_thread(core(at)) {
            eprintln!("not bound to a core: {error}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        run(&runtime.unwrap_or_else(|error| panic!("no runtime: {error}")))
    })
}

async fn serve(
    config: KcpConfig,
    address: &std::sync::mpsc::Sender<SocketAddr>,
    counted: &AtomicU64,
) -> Outcome<()> {
    let mut listener = KcpListener::bind(config, "127.0.0.1:0").await?;
    address.send(listener.local_addr()?)?;
    let (mut stream, _) = listener.accept().await?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match tokio::time::timeout(Duration::from_secs(1), stream.read(&mut buffer)).await {
            Ok(Ok(len)) if len > 0 => counted.fetch_add(len as u64, Ordering::Relaxed),
            _ => return Ok(()),
        };
    }
}

async fn send(config: KcpConfig, server: SocketAddr, length: Duration) -> Outcome<()> {
    let mut stream = KcpStream::connect(&config, server).await?;
    let piece = vec![7; PIECE];
    let begun = Instant::now();
    while begun.elapsed() < length {
        stream.write_all(&piece).await?;
    }
    Ok(())
}
