//! A path that loses, repeats, delays and reorders real datagrams, between a client and a server on this machine.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::link::{Link, LinkConfig, LinkStats};

/// Passes datagrams on from a thread of its own until it is dropped. Clients send to [`address`](Self::address).
#[derive(Debug)]
pub struct UdpProxy {
    address: SocketAddr,
    control: Arc<Control>,
    thread: Option<JoinHandle<[LinkStats; 2]>>,
}

#[derive(Debug)]
struct Control {
    is_over: AtomicBool,
    is_changed: AtomicBool,
    config: Mutex<LinkConfig>,
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
        let control = Arc::new(Control {
            is_over: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            config: Mutex::new(config),
        });
        let told = control.clone();
        let thread = std::thread::spawn(move || run(&front, target, seed, &told));
        Ok(Self { address, control, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the path from now on.
    pub fn set_config(&self, config: LinkConfig) {
        *self.control.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        self.control.is_changed.store(true, Ordering::Release);
    }

    /// Ends it and says what became of the datagrams to the target, and from it.
    pub fn stop(mut self) -> [LinkStats; 2] {
        self.end()
    }

    fn end(&mut self) -> [LinkStats; 2] {
        self.control.is_over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for UdpProxy {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(front: &UdpSocket, target: SocketAddr, seed: u64, control: &Control) -> [LinkStats; 2] {
    let begun = Instant::now();
    let config = || control.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
    let mut buffer = vec![0; 65_535];
    while !control.is_over.load(Ordering::Relaxed) {
        if control.is_changed.swap(false, Ordering::Acquire) {
            for flow in flows.values_mut() {
                flow.up.set_config(config());
                flow.down.set_config(config());
            }
        }
        // As many as are there, but others have their turn.
        for _ in 0..64 {
            let Ok((len, from)) = front.recv_from(&mut buffer) else { break };
            let count = flows.len() as u64;
            let flow = match flows.entry(from) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    // Without a socket for it the client has lost its datagram.
                    let Ok(back) = connected(target) else { continue };
                    entry.insert(Flow {
                        back,
                        up: Link::new(config(), seed + 2 * count),
                        down: Link::new(config(), seed + 2 * count + 1),
                    })
                }
            };
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

fn connected(target: SocketAddr) -> io::Result<UdpSocket> {
    let back = UdpSocket::bind("127.0.0.1:0")?;
    back.connect(target)?;
    back.set_nonblocking(true)?;
    Ok(back)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_path_treats_what_is_sent_from_then_on() {
        let target = UdpSocket::bind("127.0.0.1:0").unwrap();
        target.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let proxy = UdpProxy::start(target.local_addr().unwrap(), LinkConfig::default(), 1).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"a", proxy.address()).unwrap();
        let mut buffer = [0; 10];
        let (_, from) = target.recv_from(&mut buffer).unwrap();
        target.send_to(b"b", from).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (1, proxy.address()));
        proxy.set_config(LinkConfig { loss: 1.0, ..LinkConfig::default() });
        while proxy.control.is_changed.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        client.send_to(b"c", proxy.address()).unwrap();
        target.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(target.recv_from(&mut buffer).is_err());
        let [up, down] = proxy.stop();
        assert_eq!((up.sent, up.lost, down.sent, down.delivered), (2, 1, 1, 1));
    }
}
