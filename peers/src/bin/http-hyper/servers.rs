//! The same service on both.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc;

use corewire::runtime::driver::{available_cpus, pin_current_thread};
use corewire::runtime::{HyperExecutor, Runtime, TcpListener, spawn_local};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::Outcome;

/// A server that runs until the process ends.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The number of its thread.
    thread: u32,
    /// Stops Corewire's when it is dropped.
    _runtime: Option<Runtime>,
}

impl Server {
    pub(crate) fn tokio(http2: bool) -> Outcome<Self> {
        let (sender, known) = mpsc::channel();
        std::thread::spawn(move || {
            if let Err(error) = pin_current_thread(core(0)) {
                eprintln!("not bound to a core: {error}");
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve_on_tokio(http2, &sender))
        });
        let (address, thread) = known.recv()?;
        Ok(Self { address, thread, _runtime: None })
    }

    pub(crate) fn corewire(http2: bool) -> Outcome<Self> {
        let runtime = Runtime::builder().workers(1).cpus([core(0)]).build()?;
        let (sender, known) = mpsc::channel();
        drop(runtime.handle().spawn_on(0, move || serve_on_corewire(http2, sender))?);
        let (address, thread) = known.recv()?;
        Ok(Self { address, thread, _runtime: Some(runtime) })
    }

    /// Nanoseconds that its thread has run.
    pub(crate) fn cpu_ns(&self) -> Outcome<u64> {
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread))?;
        Ok(text.split(' ').next().ok_or("schedstat is empty")?.parse()?)
    }
}

pub(crate) fn core(at: usize) -> usize {
    let cores = available_cpus();
    cores[at % cores.len()]
}

type Known = mpsc::Sender<(SocketAddr, u32)>;

/// Ends by an error only.
async fn serve_on_tokio(http2: bool, known: &Known) -> Outcome<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    known.send((listener.local_addr()?, this_thread()))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        if http2 {
            let builder = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(ignore(builder.serve_connection(io, service_fn(answer))));
        } else {
            tokio::spawn(ignore(http1::Builder::new().serve_connection(io, service_fn(answer))));
        }
    }
}

/// The same.
async fn serve_on_corewire(http2: bool, known: Known) -> Outcome<()> {
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    known.send((listener.local_addr()?, this_thread()))?;
    loop {
        let (stream, _) = listener.accept().await?;
        if http2 {
            let builder = http2::Builder::new(HyperExecutor);
            drop(spawn_local(ignore(builder.serve_connection(stream, service_fn(answer)))));
        } else {
            let connection = http1::Builder::new().serve_connection(stream, service_fn(answer));
            drop(spawn_local(ignore(connection)));
        }
    }
}

/// A connection that the client closes is no error here.
async fn ignore<E>(connection: impl Future<Output = Result<(), E>>) {
    drop(connection.await);
}

/// As many bytes as the path says.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    static BODY: [u8; 64 * 1024] = [b'x'; 64 * 1024];
    let len: usize = request.uri().path()[1..].parse().unwrap_or(0);
    Ok(Response::new(Full::new(Bytes::from_static(&BODY[..len.min(BODY.len())]))))
}

fn this_thread() -> u32 {
    // The name of the link ends with the number.
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()).unwrap_or(0)
}
