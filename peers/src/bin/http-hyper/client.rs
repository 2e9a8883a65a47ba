//! The client: as little work as counts responses and sends as many requests.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corewire::Bytes;
use corewire::runtime::driver::net::{StreamOptions, connect_tcp};
use corewire::runtime::{Connection, ConnectionOptions, Protocol, Runtime, sleep};

use crate::Outcome;
use crate::servers::{Server, core};

const WARM_UP: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) http2: bool,
    pub(crate) connections: usize,
    /// Requests in flight on each connection.
    pub(crate) depth: usize,
    /// Bytes of a response's body.
    pub(crate) body: usize,
}

/// What one server did under a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) rate: f64,
    /// Processor time of the server for each request.
    pub(crate) cpu_ns: f64,
}

#[derive(Debug)]
pub(crate) struct Client(Runtime);

impl Client {
    pub(crate) fn start() -> Outcome<Self> {
        Ok(Self(Runtime::builder().workers(1).cpus([core(1)]).build()?))
    }

    pub(crate) fn measure(&self, load: Load, server: &Server, length: Duration) -> Outcome<Sample> {
        let address = server.address;
        let (count, counted) = std::sync::mpsc::channel();
        let (go_on, may) = futures_channel::oneshot::channel::<()>();
        let task = self.0.handle().spawn_on(0, move || async move {
            let connections = Connections::open(address, load)?;
            sleep(WARM_UP).await;
            let before = connections.responses();
            count.send(())?;
            let begun = Instant::now();
            sleep(length).await;
            let rate = (connections.responses() - before) as f64 / begun.elapsed().as_secs_f64();
            count.send(())?;
            // The caller reads the clock of the server before it closes connections.
            let _ = may.await;
            Outcome::Ok((rate, connections.responses() - before))
        })?;
        counted.recv()?;
        let before = server.cpu_ns()?;
        counted.recv()?;
        let spent = server.cpu_ns()? - before;
        drop(go_on);
        let (rate, _) = task.join()??;
        if rate == 0.0 {
            return Err("the server does not answer".into());
        }
        Ok(Sample { rate, cpu_ns: spent as f64 / (rate * length.as_secs_f64()) })
    }
}

/// Closed when this is dropped.
struct Connections {
    open: Vec<Connection>,
    responses: Rc<Cell<u64>>,
}

impl Connections {
    fn open(server: SocketAddr, load: Load) -> Outcome<Self> {
        let responses = Rc::new(Cell::new(0));
        let options = Rc::new(ConnectionOptions::default());
        let mut open = Vec::new();
        for _ in 0..load.connections {
            let socket = connect_tcp(server, &StreamOptions::default())?;
            let counted = responses.clone();
            open.push(match load.http2 {
                false => Connection::open_connecting(socket, options.clone(), Http1::new(load, counted))?,
                true => Connection::open_connecting(socket, options.clone(), Http2::new(load, counted))?,
            });
        }
        Ok(Self { open, responses })
    }

    fn responses(&self) -> u64 {
        self.responses.get()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.open.iter().for_each(Connection::close);
    }
}

/// Responses have all the same length: they are counted by their bytes.
struct Http1 {
    request: Vec<u8>,
    depth: usize,
    responses: Rc<Cell<u64>>,
    head: Vec<u8>,
    body: usize,
    response_len: Option<usize>,
    bytes: usize,
}

impl Http1 {
    fn new(load: Load, responses: Rc<Cell<u64>>) -> Self {
        let request = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", load.body).into_bytes();
        let (depth, body) = (load.depth, load.body);
        Self { request, depth, responses, head: Vec::new(), body, response_len: None, bytes: 0 }
    }

    fn response_len(&mut self, data: &[u8]) -> Option<usize> {
        if self.response_len.is_none() {
            self.head.extend_from_slice(data);
            let end = self.head.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
            self.response_len = Some(end + 4 + self.body);
        }
        self.response_len
    }
}

impl Protocol for Http1 {
    fn on_open(&mut self, connection: &Connection) {
        drop(connection.send(&self.request.repeat(self.depth)));
    }

    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        self.bytes += data.len();
        let Some(len) = self.response_len(&data) else { return };
        while self.bytes >= len {
            self.bytes -= len;
            self.responses.set(self.responses.get() + 1);
            drop(connection.send(&self.request));
        }
    }
}

/// Counts the DATA frames that end a stream; the heads are not decoded.
struct Http2 {
    request: Vec<u8>,
    next_stream: u32,
    depth: usize,
    responses: Rc<Cell<u64>>,
    /// Of the frame that is cut off: its head so far, and what of its payload is still to come.
    head: Vec<u8>,
    payload: usize,
}

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;

impl Http2 {
    fn new(load: Load, responses: Rc<Cell<u64>>) -> Self {
        let path = format!("/{}", load.body);
        // HPACK: GET and http of the static table, path and authority as literals that are not kept.
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x01\x09localhost");
        let mut request = vec![0, 0, block.len() as u8, 1, 0x05, 0, 0, 0, 0];
        request.extend_from_slice(&block);
        Self { request, next_stream: 1, depth: load.depth, responses, head: Vec::new(), payload: 0 }
    }

    fn ask(&mut self, connection: &Connection) {
        self.request[5..9].copy_from_slice(&self.next_stream.to_be_bytes());
        self.next_stream += 2;
        drop(connection.send(&self.request));
    }
}

impl Protocol for Http2 {
    fn on_open(&mut self, connection: &Connection) {
        let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        begin.extend_from_slice(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]);
        // Room for more than a run receives.
        begin.extend_from_slice(&[0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, 0x70, 0, 0, 0]);
        drop(connection.send(&begin));
        for _ in 0..self.depth {
            self.ask(connection);
        }
    }

    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        let mut rest = &data[..];
        loop {
            let skipped = self.payload.min(rest.len());
            self.payload -= skipped;
            rest = &rest[skipped..];
            let taken = (9 - self.head.len()).min(rest.len());
            self.head.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if self.head.len() < 9 {
                return;
            }
            let (kind, flags) = (self.head[3], self.head[4]);
            self.payload = u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize;
            self.head.clear();
            match kind {
                SETTINGS if flags & ACK == 0 => drop(connection.send(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0])),
                DATA if flags & END_STREAM != 0 => {
                    self.responses.set(self.responses.get() + 1);
                    self.ask(connection);
                }
                _ => {}
            }
        }
    }
}
