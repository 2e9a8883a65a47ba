//! Everything is delivered once and in order, whatever the path does, also when the peer is the `kcp` crate.

use std::cell::RefCell;
use std::io::{self, Write};
use std::ops::Range;
use std::rc::Rc;

use corewire_proto::kcp::{Config, Kcp, Mode};
use corewire_testkit::kcp_sim::{Endpoint, Simulation, numbered_message};
use corewire_testkit::link::LinkConfig;
use corewire_testkit::rng::Rng;

/// The third-party implementation. It works in a tick, which is 10 ms here.
struct Other {
    kcp: kcp::Kcp<Outbox>,
    outbox: Outbox,
}

#[derive(Clone, Default)]
struct Outbox(Rc<RefCell<Vec<Vec<u8>>>>);

impl Write for Outbox {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().push(datagram.to_vec());
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Other {
    fn new(turbo: bool) -> Self {
        let outbox = Outbox::default();
        Self::from(kcp::Kcp::new(1, outbox.clone()), outbox, turbo)
    }

    fn stream() -> Self {
        let outbox = Outbox::default();
        Self::from(kcp::Kcp::new_stream(1, outbox.clone()), outbox, true)
    }

    fn from(mut kcp: kcp::Kcp<Outbox>, outbox: Outbox, turbo: bool) -> Self {
        if turbo {
            kcp.set_nodelay(true, 10, 2, true);
        } else {
            kcp.set_nodelay(false, 40, 0, false);
        }
        kcp.set_wndsize(128, 128);
        Self { kcp, outbox }
    }
}

impl Endpoint for Other {
    fn input(&mut self, now_ms: u64, datagram: &[u8]) {
        self.kcp.update(now_ms as u32).expect("the outbox never fails");
        let _ = self.kcp.input(datagram);
    }

    fn output(&mut self, now_ms: u64, emit: &mut dyn FnMut(&[u8])) {
        self.kcp.update(now_ms as u32).expect("the outbox never fails");
        self.outbox.0.borrow_mut().drain(..).for_each(|datagram| emit(&datagram));
    }

    fn wake_in(&self, now_ms: u64) -> Option<u64> {
        Some(self.kcp.check(now_ms as u32).into())
    }

    fn send(&mut self, message: &[u8]) -> bool {
        self.kcp.wait_snd() < 256 && self.kcp.send(message).is_ok()
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        let mut message = vec![0; self.kcp.peeksize().ok()?];
        let len = self.kcp.recv(&mut message).ok()?;
        message.truncate(len);
        Some(message)
    }

    fn waiting(&self) -> usize {
        self.kcp.wait_snd()
    }
}

fn ours(turbo: bool) -> Kcp {
    let config = if turbo { Config::turbo() } else { Config::default() };
    Kcp::new(1, config).expect("the settings are valid")
}

/// Loss, duplication, reordering, delay and jitter that differ with the seed; the worst has 30 % loss.
fn path(seed: u64) -> LinkConfig {
    let mut rng = Rng::new(seed ^ 0x5eed);
    LinkConfig {
        loss: [0.0, 0.01, 0.1, 0.2, 0.3][seed as usize % 5],
        duplicate: rng.below(20) as f64 / 100.0,
        reorder: rng.below(20) as f64 / 100.0,
        reorder_by_us: rng.below(100_000),
        delay_us: rng.below(50_000),
        jitter_us: rng.below(20_000),
        ..LinkConfig::default()
    }
}

/// Sends `count` messages each way and checks that each arrives once, whole and in order.
fn exchange(mut simulation: Simulation<impl Endpoint, impl Endpoint>, count: u32, seed: u64) {
    let len = |index: u32| {
        [4, 100, 1024, 1376, 1377, 5000, 40_000][Rng::new(seed ^ u64::from(index)).below(7) as usize]
    };
    let deadline_us = simulation.clock.now_us() + 3_600_000_000;
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    while received != [count; 2] || simulation.a.waiting() + simulation.b.waiting() > 0 {
        while sent[0] < count && simulation.a.send(&numbered_message(sent[0], len(sent[0]))) {
            sent[0] += 1;
        }
        while sent[1] < count && simulation.b.send(&numbered_message(sent[1], len(sent[1]))) {
            sent[1] += 1;
        }
        let is_alive = simulation.step(deadline_us);
        assert!(is_alive, "seed {seed}: stuck after {sent:?} sent and {received:?} received");
        while let Some(message) = simulation.b.recv() {
            assert_eq!(message, numbered_message(received[0], len(received[0])), "seed {seed}: a to b");
            received[0] += 1;
        }
        while let Some(message) = simulation.a.recv() {
            assert_eq!(message, numbered_message(received[1], len(received[1])), "seed {seed}: b to a");
            received[1] += 1;
        }
    }
}

#[test]
fn two_of_ours_deliver_everything_once_and_in_order() {
    for seed in 0..40 {
        let turbo = seed % 2 == 0;
        exchange(Simulation::new(ours(turbo), ours(!turbo), path(seed), seed), 60, seed);
    }
}

#[test]
fn ours_and_the_kcp_crate_deliver_everything_to_each_other() {
    for seed in 0..40 {
        let turbo = seed % 2 == 0;
        exchange(Simulation::new(ours(turbo), Other::new(turbo), path(seed), seed), 40, seed);
    }
}

#[test]
fn a_byte_stream_crosses_between_ours_and_the_kcp_crate() {
    for seed in 0..10 {
        let config = Config::turbo().mode(Mode::Stream);
        let ours = Kcp::new(1, config).expect("the settings are valid");
        let mut simulation = Simulation::new(ours, Other::stream(), path(seed), seed);
        let bytes: Vec<u8> = (0..60_000u32).map(|at| (at * at / 7) as u8).collect();
        let mut rng = Rng::new(seed);
        let (mut sent, mut seen) = ([0; 2], [Vec::new(), Vec::new()]);
        while seen.iter().any(|seen| seen.len() < bytes.len()) {
            for (end, sent) in sent.iter_mut().enumerate() {
                let piece = &bytes[*sent..bytes.len().min(*sent + 1 + rng.below(3000) as usize)];
                let taken = match end {
                    _ if piece.is_empty() => true,
                    0 => Endpoint::send(&mut simulation.a, piece),
                    _ => simulation.b.send(piece),
                };
                *sent += if taken { piece.len() } else { 0 };
            }
            assert!(simulation.step(3_600_000_000), "seed {seed}: stuck");
            while let Some(piece) = simulation.b.recv() {
                seen[0].extend(piece);
            }
            while let Some(piece) = simulation.a.recv() {
                seen[1].extend(piece);
            }
        }
        assert!(seen.iter().all(|seen| *seen == bytes), "seed {seed}");
    }
}

#[test]
fn the_harness_itself_lets_two_of_the_kcp_crate_deliver() {
    for seed in 0..5 {
        exchange(Simulation::new(Other::new(true), Other::new(true), path(seed), seed), 30, seed);
    }
}

#[test]
fn numbers_and_time_stamps_wrap_around_in_flight() {
    for seed in 0..20 {
        let from = u32::MAX - 20 - seed as u32;
        let make = || Kcp::starting_at(1, Config::turbo(), from, from).unwrap();
        let now_ms = u64::from(u32::MAX) - 100;
        exchange(Simulation::starting_at(make(), make(), path(seed), seed, now_ms), 60, seed);
    }
}

#[test]
fn an_outage_is_survived() {
    let outage = Range { start: 20_000, end: 3_000_000 };
    let link = LinkConfig { delay_us: 15_000, outages: vec![outage], ..LinkConfig::default() };
    exchange(Simulation::new(ours(true), ours(true), link.clone(), 1), 500, 1);
    exchange(Simulation::new(ours(true), Other::new(true), link, 1), 500, 1);
}

#[test]
fn a_narrow_line_with_a_short_queue_is_survived() {
    let link = LinkConfig {
        delay_us: 20_000,
        bandwidth_bps: Some(4_000_000),
        queue_bytes: 16_000,
        ..LinkConfig::default()
    };
    exchange(Simulation::new(ours(false), ours(false), link.clone(), 1), 100, 1);
    exchange(Simulation::new(ours(true), ours(true), link, 2), 100, 2);
}
