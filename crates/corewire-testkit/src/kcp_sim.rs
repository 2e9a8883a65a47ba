//! Two KCP endpoints, a lossy path in each direction, and virtual time.

use corewire_proto::kcp::{Kcp, SendError};

use crate::clock::VirtualClock;
use crate::link::{Link, LinkConfig};

/// A KCP implementation under simulation. Times are in milliseconds.
pub trait Endpoint {
    /// Takes a datagram.
    fn input(&mut self, now_ms: u64, datagram: &[u8]);
    /// Gives each datagram that is due to `emit`.
    fn output(&mut self, now_ms: u64, emit: &mut dyn FnMut(&[u8]));
    /// Milliseconds until [`output`](Self::output) has to be called if nothing arrives; `None` for never.
    fn wake_in(&self, now_ms: u64) -> Option<u64>;
    /// Queues a message; false when there is no room now.
    fn send(&mut self, message: &[u8]) -> bool;
    /// The next whole message.
    fn recv(&mut self) -> Option<Vec<u8>>;
    /// Segments queued or in flight.
    fn waiting(&self) -> usize;
}

impl Endpoint for Kcp {
    fn input(&mut self, now_ms: u64, datagram: &[u8]) {
        // Garbage on the path is part of what is simulated; what it does to the machine is what the test sees.
        let _ = self.receive(now_ms, datagram);
    }

    fn output(&mut self, now_ms: u64, emit: &mut dyn FnMut(&[u8])) {
        let mut out = Vec::new();
        while let Some(transmit) = self.poll_transmit(now_ms, &mut out, 64) {
            assert_eq!(out.len(), transmit.len);
            assert_eq!(out.len().div_ceil(transmit.segment_size), transmit.datagrams);
            out.chunks(transmit.segment_size).for_each(&mut *emit);
            out.clear();
        }
    }

    fn wake_in(&self, now_ms: u64) -> Option<u64> {
        self.next_timeout(now_ms)
    }

    fn send(&mut self, message: &[u8]) -> bool {
        match Kcp::send(self, message) {
            Ok(()) => true,
            Err(SendError::WouldBlock { .. }) => false,
            Err(error) => panic!("a message of {} bytes was refused: {error}", message.len()),
        }
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        Kcp::recv(self).map(Vec::from)
    }

    fn waiting(&self) -> usize {
        self.waiting_send()
    }
}

/// Two endpoints, `a` and `b`, and the path between them.
#[derive(Debug)]
pub struct Simulation<A, B> {
    /// One endpoint.
    pub a: A,
    /// The other.
    pub b: B,
    /// The path from `a` to `b`.
    pub a_to_b: Link,
    /// The path from `b` to `a`.
    pub b_to_a: Link,
    /// Virtual time.
    pub clock: VirtualClock,
}

impl<A: Endpoint, B: Endpoint> Simulation<A, B> {
    /// Both directions have the same properties; their chances are drawn from `seed`.
    pub fn new(a: A, b: B, link: LinkConfig, seed: u64) -> Self {
        Self::starting_at(a, b, link, seed, 0)
    }

    /// As [`new`](Self::new), at a time of `now_ms` milliseconds.
    pub fn starting_at(a: A, b: B, link: LinkConfig, seed: u64, now_ms: u64) -> Self {
        Self {
            a,
            b,
            a_to_b: Link::new(link.clone(), seed.wrapping_mul(2)),
            b_to_a: Link::new(link, seed.wrapping_mul(2).wrapping_add(1)),
            clock: VirtualClock::starting_at(now_ms * 1000),
        }
    }

    /// Lets both endpoints send what is due, and deliver what has arrived, until nothing more happens now.
    pub fn settle(&mut self) {
        let now_us = self.clock.now_us();
        let now_ms = self.clock.now_ms();
        loop {
            self.a.output(now_ms, &mut |datagram| self.a_to_b.send(now_us, datagram));
            self.b.output(now_ms, &mut |datagram| self.b_to_a.send(now_us, datagram));
            let mut is_quiet = true;
            while let Some(datagram) = self.a_to_b.receive(now_us) {
                is_quiet = false;
                self.b.input(now_ms, &datagram);
            }
            while let Some(datagram) = self.b_to_a.receive(now_us) {
                is_quiet = false;
                self.a.input(now_ms, &datagram);
            }
            if is_quiet {
                return;
            }
        }
    }

    /// When something happens next, in microseconds; `None` when nothing ever will.
    pub fn next_event_us(&self) -> Option<u64> {
        let now_ms = self.clock.now_ms();
        let wakes = [self.a.wake_in(now_ms), self.b.wake_in(now_ms)];
        // At least a millisecond ahead: what is due now has been done by `settle`.
        let wakes = wakes.into_iter().flatten().map(|wait_ms| (now_ms + wait_ms.max(1)) * 1000);
        let arrivals = [self.a_to_b.next_arrival_us(), self.b_to_a.next_arrival_us()];
        wakes.chain(arrivals.into_iter().flatten()).min()
    }

    /// Settles, moves the time to the next event or to `until_us`, whichever is first, and settles again. False
    /// when nothing will happen before `until_us`.
    pub fn step(&mut self, until_us: u64) -> bool {
        self.settle();
        let next_us = self.next_event_us().unwrap_or(u64::MAX);
        self.clock.advance_to_us(next_us.min(until_us));
        self.settle();
        next_us < until_us
    }

    /// Runs until `until_us`.
    pub fn run_until(&mut self, until_us: u64) {
        while self.step(until_us) {}
    }
}

/// The message `index` of a test: `len` bytes that no other index gives, so that a lost, repeated or swapped one is
/// noticed. At least 4 bytes.
pub fn numbered_message(index: u32, len: usize) -> Vec<u8> {
    let mut message: Vec<u8> = (0..len.max(4)).map(|at| (at as u32 ^ index.wrapping_mul(31)) as u8).collect();
    message[..4].copy_from_slice(&index.to_le_bytes());
    message
}

/// Sends `count` numbered messages of `len` bytes from `a` to `b`, one every `every_us`, whatever has become of the
/// ones before, and gives how long each took, in microseconds and in ascending order.
///
/// # Panics
/// When a message is lost, repeated or swapped, or does not arrive within an hour.
pub fn message_latencies_us<A: Endpoint, B: Endpoint>(
    simulation: &mut Simulation<A, B>,
    count: u32,
    len: usize,
    every_us: u64,
) -> Vec<u64> {
    let begin_us = simulation.clock.now_us();
    let sent_at = |index: u32| begin_us + u64::from(index) * every_us;
    let deadline_us = sent_at(count) + 3_600_000_000;
    let mut latencies = Vec::with_capacity(count as usize);
    let mut sent = 0;
    while latencies.len() < count as usize {
        while sent < count && sent_at(sent) <= simulation.clock.now_us() {
            if !simulation.a.send(&numbered_message(sent, len)) {
                break;
            }
            sent += 1;
        }
        let next_send_us = if sent < count { sent_at(sent) } else { deadline_us };
        let is_alive = simulation.step(next_send_us.max(simulation.clock.now_us() + 1));
        while let Some(message) = simulation.b.recv() {
            let index = latencies.len() as u32;
            assert_eq!(message, numbered_message(index, len), "message {index}");
            latencies.push(simulation.clock.now_us() - sent_at(index));
        }
        assert!(is_alive || simulation.clock.now_us() < deadline_us, "only {} arrived", latencies.len());
    }
    latencies.sort_unstable();
    latencies
}

/// Keeps `a`'s send queue full of messages of `len` bytes for `for_us` and gives the payload bytes that `b` read.
pub fn bulk_bytes<A: Endpoint, B: Endpoint>(
    simulation: &mut Simulation<A, B>,
    len: usize,
    for_us: u64,
) -> u64 {
    let message = vec![0x5a; len];
    let until_us = simulation.clock.now_us() + for_us;
    let mut bytes = 0;
    loop {
        while simulation.a.send(&message) {}
        let goes_on = simulation.step(until_us);
        while let Some(message) = simulation.b.recv() {
            bytes += message.len() as u64;
        }
        if !goes_on {
            return bytes;
        }
    }
}
