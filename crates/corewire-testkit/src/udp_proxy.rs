//! A path that loses, repeats, delays and reorders real datagrams, between a client and a server on this machine.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire_link::link::{Link, LinkConfig, LinkStats};

/// Passes datagrams on from a thread of its own until it is dropped. Clients send to [`address`](Self::address).
#[derive(Debug)]
pub struct UdpProxy {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<[LinkStats; 2]>>,
}

struct Flow {
    back: UdpSocket,
    up: Link,
    down: Link,
}

impl UdpProxy {
    /// A proxy on a port of the system's choice, with the same path for each direction of each client.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn start(target: SocketAddr, config: LinkConfig, seed: u64) -> io::Result<Self> {
        let front = UdpSocket::bind("127.0.0.1:0")?;
        // The thread sleeps here; an arrival from the target waits for so long at most.
        front.set_read_timeout(Some(Duration::from_millis(1)))?;
        let address = front.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || run(&front, target, &config, seed, &ends));
        Ok(Self { address, is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it and says what became of the datagrams to the target, and from it.
    pub fn stop(mut self) -> [LinkStats; 2] {
        self.end()
    }

    fn end(&mut self) -> [LinkStats; 2] {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for UdpProxy {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(
    front: &UdpSocket,
    target: SocketAddr,
    config: &LinkConfig,
    seed: u64,
    is_over: &AtomicBool,
) -> [LinkStats; 2] {
    let begun = Instant::now();
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut buffer = vec![0; 65_535];
    while !is_over.load(Ordering::Relaxed) {
        // As many as are there, but others have their turn.
        for _ in 0..64 {
            let Ok((len, from)) = front.recv_from(&mut buffer) else { break };
            let count = flows.len() as u64;
            let flow = flows.entry(from).or_insert_with(|| Flow {
                back: connected(target),
                up: Link::new(config.clone(), seed + 2 * count),
                down: Link::new(config.clone(), seed + 2 * count + 1),
            });
            flow.up.send(now_us(begun), &buffer[..len]);
            pump(&mut flows, front, begun, &mut buffer);
        }
        pump(&mut flows, front, begun, &mut buffer);
    }
    let mut all = [LinkStats::default(); 2];
    for flow in flows.values() {
        for (sum, link) in all.iter_mut().zip([&flow.up, &flow.down]) {
            sum.sent += link.stats().sent;
            sum.lost += link.stats().lost;
            sum.delivered += link.stats().delivered;
        }
    }
    all
}

fn now_us(begun: Instant) -> u64 {
    begun.elapsed().as_micros() as u64
}

#[allow(clippy::unwrap_used)] // a test without sockets has failed
fn connected(target: SocketAddr) -> UdpSocket {
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(target).unwrap();
    back.set_nonblocking(true).unwrap();
    back
}

fn pump(flows: &mut HashMap<SocketAddr, Flow>, front: &UdpSocket, begun: Instant, buffer: &mut [u8]) {
    for (client, flow) in flows {
        let now = now_us(begun);
        while let Ok(len) = flow.back.recv(buffer) {
            flow.down.send(now, &buffer[..len]);
        }
        // What a socket refuses is lost, as on any path.
        while let Some(datagram) = flow.up.receive(now) {
            let _ = flow.back.send(&datagram);
        }
        while let Some(datagram) = flow.down.receive(now) {
            let _ = front.send_to(&datagram, client);
        }
    }
}
