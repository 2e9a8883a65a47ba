//! A path for IP packets: what the kernel sends into a TUN device comes back out of it, late or not at all.
//!
//! The device has one address, [`HERE`]; a client connects to [`THERE`], which is routed into the device. The packet comes
//! back with source and destination exchanged, so that the kernel hands it to the server at [`HERE`], and the answer takes
//! the same way back. Sums of the two addresses are what checksums hold, so these stay right.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corewire_link::link::{Link, LinkConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::{DeviceBuilder, SyncDevice};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const MTU: u16 = 1500;
/// Packets that the kernel keeps for the device while its thread does something else.
const QUEUE_LEN: u32 = 20_000;
/// Packets read before those that are due go on.
const RUN: usize = 64;

/// The device and the thread behind it; both end when it is dropped.
pub(super) struct TunPath {
    name: String,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

struct Control {
    is_over: AtomicBool,
    is_changed: AtomicBool,
    /// Packets to this port go up, all others down.
    server_port: AtomicU16,
    config: Mutex<LinkConfig>,
}

impl TunPath {
    pub(super) fn start(seed: u64) -> io::Result<Self> {
        let device = DeviceBuilder::new()
            .ipv4(HERE, 24, None)
            .mtu(MTU)
            .with(|device| {
                device.tx_queue_len(QUEUE_LEN);
            })
            .build_sync()?;
        device.set_nonblocking(true)?;
        let control = Arc::new(Control {
            is_over: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            server_port: AtomicU16::new(0),
            config: Mutex::default(),
        });
        let (name, told) = (device.name()?, control.clone());
        let thread =
            std::thread::Builder::new().name("path".to_owned()).spawn(move || carry(&device, &told, seed))?;
        Ok(Self { name, control, thread: Some(thread) })
    }

    /// The congestion control belongs to the route.
    pub(super) fn set_tcp_congestion(&self, name: &str) -> io::Result<()> {
        let route = format!("route replace 10.99.0.0/24 dev {} src {HERE} congctl lock {name}", self.name);
        let output = Command::new("ip").args(route.split(' ')).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    pub(super) fn entrance(server: SocketAddr) -> SocketAddr {
        (THERE, server.port()).into()
    }

    pub(super) fn serve(&self, port: u16) {
        self.control.server_port.store(port, Ordering::Relaxed);
    }

    pub(super) fn set_config(&self, config: LinkConfig) {
        *self.control.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        self.control.is_changed.store(true, Ordering::Release);
    }
}

impl Drop for TunPath {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(device: &SyncDevice, control: &Control, seed: u64) {
    let begun = Instant::now();
    let now_us = || begun.elapsed().as_micros() as u64;
    let mut up = Link::new(LinkConfig::default(), seed);
    let mut down = Link::new(LinkConfig::default(), seed.wrapping_add(1));
    let mut packet = [0; 2048];
    while !control.is_over.load(Ordering::Relaxed) {
        if control.is_changed.swap(false, Ordering::Acquire) {
            let config = control.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
            up.set_config(config.clone());
            down.set_config(config);
        }
        let server_port = control.server_port.load(Ordering::Relaxed);
        for _ in 0..RUN {
            let Ok(len) = device.recv(&mut packet) else { break };
            let Some(port) = turn_around(&mut packet[..len]) else { continue };
            let link = if port == server_port { &mut up } else { &mut down };
            link.send(now_us(), &packet[..len]);
        }
        for link in [&mut up, &mut down] {
            while let Some(packet) = link.receive(now_us()) {
                // A device that takes no more loses packets, as a path does.
                let _ = device.send(&packet);
            }
        }
        let next = [up.next_arrival_us(), down.next_arrival_us()].into_iter().flatten().min();
        let wait = next.map_or(5_000, |at| at.saturating_sub(now_us()).min(5_000));
        let wait = Timespec::try_from(Duration::from_micros(wait)).ok();
        let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], wait.as_ref());
    }
}

/// Exchanges source and destination of a TCP or UDP packet over IPv4, and gives the port that it goes to.
fn turn_around(packet: &mut [u8]) -> Option<u16> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let first = *packet.first()?;
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 || packet.len() < header + 4 || ![TCP, UDP].contains(&packet[9]) {
        return None;
    }
    let (source, destination) = packet[12..20].split_at_mut(4);
    source.swap_with_slice(destination);
    Some(u16::from_be_bytes([packet[header + 2], packet[header + 3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_addresses_of_a_packet_change() {
        let mut packet: Vec<u8> = (0..40).collect();
        (packet[0], packet[9]) = (0x45, 17);
        let before = packet.clone();
        assert_eq!(turn_around(&mut packet), Some(22 << 8 | 23));
        assert_eq!((&packet[12..16], &packet[16..20]), (&before[16..20], &before[12..16]));
        assert_eq!((&packet[..12], &packet[20..]), (&before[..12], &before[20..]));
    }

    #[test]
    fn what_is_neither_tcp_nor_udp_over_ipv4_goes_nowhere() {
        let good: Vec<u8> = [0x45, 0, 0, 0, 0, 0, 0, 0, 0, 6].into_iter().chain([0; 14]).collect();
        assert_eq!(turn_around(&mut good.clone()), Some(0));
        for len in 0..good.len() {
            assert_eq!(turn_around(&mut good.clone()[..len]), None, "{len}");
        }
        for (at, bad) in [(0, 0x65), (0, 0x44), (0, 0x4f), (9, 1)] {
            let mut packet = good.clone();
            packet[at] = bad;
            assert_eq!(turn_around(&mut packet), None);
        }
    }
}
