//! What a bulk transfer and spaced messages get out of a path, in virtual time.

use corewire_proto::kcp::{Config, CongestionControl, Kcp, Mode, SessionId, Sessions, SessionsConfig};
use corewire_testkit::kcp_sim::{Endpoint, Simulation, bulk_bytes, message_latencies_us};
use corewire_testkit::link::LinkConfig;

const RATE_BPS: u64 = 50_000_000;
const WARM_UP_US: u64 = 2_000_000;
const MEASURED_US: u64 = 3_000_000;

fn bbr() -> Config {
    Config::turbo().windows(1024, 1024).windows_max(8192).congestion(CongestionControl::Bbr)
}

fn path(round_trip_ms: u64, loss: f64, queue_round_trips: f64) -> LinkConfig {
    let product = RATE_BPS / 8 * round_trip_ms / 1000;
    LinkConfig {
        bandwidth_bps: Some(RATE_BPS),
        queue_bytes: (product as f64 * queue_round_trips) as usize,
        ..LinkConfig::lossy(loss, round_trip_ms * 1000)
    }
}

/// Payload bits per second, as a share of what the line carries.
fn share(config: &Config, path: LinkConfig, seed: u64) -> f64 {
    let make = || Kcp::new(1, config.clone()).expect("the settings are valid");
    let mut simulation = Simulation::new(make(), make(), path, seed);
    bulk_bytes(&mut simulation, 1376, WARM_UP_US);
    let before = (simulation.a.stats(), simulation.a_to_b.stats());
    let bytes = bulk_bytes(&mut simulation, 1376, MEASURED_US);
    let (stats, link) = (simulation.a.stats(), simulation.a_to_b.stats());
    let goodput = bytes as f64 * 8e6 / MEASURED_US as f64;
    eprintln!(
        "goodput {:.1} Mbit/s; sent {} fast {} timeouts {} dup {} lost {} queue drops {} rtt {:?}",
        goodput / 1e6,
        stats.segments_sent - before.0.segments_sent,
        stats.fast_resends - before.0.fast_resends,
        stats.timeout_resends - before.0.timeout_resends,
        simulation.b.stats().duplicates,
        link.lost - before.1.lost,
        link.dropped_queue - before.1.dropped_queue,
        simulation.a.round_trip_ms(),
    );
    goodput / RATE_BPS as f64
}

#[test]
fn with_bbr_a_bulk_transfer_fills_the_line_whatever_is_lost() {
    for round_trip_ms in [30, 100] {
        for loss in [0.0, 0.01, 0.1] {
            let share = share(&bbr(), path(round_trip_ms, loss, 1.0), 1);
            let possible = (1.0 - loss) * 1376.0 / 1400.0;
            eprintln!("{round_trip_ms} ms, loss {loss}: {share:.3} of {possible:.3}");
            assert!(share >= 0.9 * possible, "{round_trip_ms} ms, loss {loss}: {share:.3} of {possible:.3}");
        }
    }
}

#[test]
fn with_bbr_a_short_queue_before_the_line_is_not_kept_full() {
    let config = bbr();
    let make = || Kcp::new(1, config.clone()).expect("the settings are valid");
    let mut simulation = Simulation::new(make(), make(), path(30, 0.0, 0.3), 1);
    let bytes = bulk_bytes(&mut simulation, 1376, 10_000_000);
    let share = bytes as f64 * 8e6 / 10e6 / RATE_BPS as f64;
    let (sent, dropped) = (simulation.a_to_b.stats().sent, simulation.a_to_b.stats().dropped_queue);
    eprintln!("share {share:.3}, {dropped} of {sent} dropped");
    assert!(share >= 0.9, "{share:.3}");
    assert!(dropped * 20 < sent, "{dropped} of {sent}");
}

#[test]
fn with_bbr_the_pace_follows_a_line_that_becomes_slower_and_faster() {
    let config = bbr();
    let make = || Kcp::new(1, config.clone()).expect("the settings are valid");
    let mut simulation = Simulation::new(make(), make(), path(30, 0.01, 1.0), 1);
    bulk_bytes(&mut simulation, 1376, 3_000_000);
    for bps in [RATE_BPS / 10, RATE_BPS] {
        simulation.a_to_b.set_config(LinkConfig { bandwidth_bps: Some(bps), ..path(30, 0.01, 1.0) });
        bulk_bytes(&mut simulation, 1376, 3_000_000);
        let bytes = bulk_bytes(&mut simulation, 1376, 3_000_000);
        let share = bytes as f64 * 8e6 / 3e6 / bps as f64;
        eprintln!("{bps} bit/s: {share:.3}");
        assert!(share >= 0.85, "{bps} bit/s: {share:.3}");
    }
}

/// A port with one session, since forward error correction belongs to ports.
struct Port {
    sessions: Sessions<u8>,
    id: Option<SessionId>,
}

impl Port {
    fn new(config: &Config) -> Self {
        let config = SessionsConfig { conversation: config.clone(), ..SessionsConfig::default() };
        Self { sessions: Sessions::new(config).expect("the settings are valid"), id: None }
    }

    fn kcp(&mut self) -> Option<&mut Kcp> {
        self.sessions.session(self.id?)
    }
}

impl Endpoint for Port {
    fn input(&mut self, now_ms: u64, datagram: &[u8]) {
        if let Ok(id) = self.sessions.receive(now_ms, 1, datagram) {
            self.id = Some(id);
        }
        while self.sessions.poll_event().is_some() {}
    }

    fn output(&mut self, now_ms: u64, emit: &mut dyn FnMut(&[u8])) {
        let mut out = Vec::new();
        while let Some((_, transmit)) = self.sessions.poll_transmit(now_ms, &mut out, 64) {
            out.chunks(transmit.segment_size).for_each(&mut *emit);
            out.clear();
        }
    }

    fn wake_in(&self, now_ms: u64) -> Option<u64> {
        self.sessions.next_timeout(now_ms)
    }

    fn send(&mut self, message: &[u8]) -> bool {
        self.kcp().is_some_and(|kcp| kcp.send(message).is_ok())
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        self.kcp()?.recv().map(Vec::from)
    }

    fn waiting(&self) -> usize {
        self.id.and_then(|id| self.sessions.peek(id)).map_or(0, Kcp::waiting_send)
    }
}

/// Messages of 1 KiB over a round trip of 30 ms and a loss of 10 %: how long 99 % of them take at the most, in ms.
fn messages_p99_ms(config: &Config, every_us: u64) -> f64 {
    let mut all = Vec::new();
    for seed in 0..4 {
        let (mut a, b) = (Port::new(config), Port::new(config));
        a.id = Some(a.sessions.connect(0, 1, 7).expect("there is room"));
        let mut simulation = Simulation::new(a, b, LinkConfig::lossy(0.0, 30_000), seed);
        message_latencies_us(&mut simulation, 50, 1024, every_us);
        let bad = LinkConfig::lossy(0.1, 30_000);
        simulation.a_to_b.set_config(bad.clone());
        simulation.b_to_a.set_config(bad);
        all.extend(message_latencies_us(&mut simulation, 1000, 1024, every_us));
    }
    all.sort_unstable();
    let at = |share: f64| all[(all.len() as f64 * share) as usize] as f64 / 1000.0;
    eprintln!("every {every_us} us: p50 {} p90 {} p99 {} p99.9 {}", at(0.5), at(0.9), at(0.99), at(0.999));
    at(0.99)
}

#[test]
fn a_thin_stream_makes_up_for_loss_in_time() {
    for config in [Config::turbo(), bbr()] {
        let p99_ms = messages_p99_ms(&config, 20_000);
        assert!(p99_ms <= 100.0, "{p99_ms}");
    }
}

#[test]
fn with_forward_error_correction_loss_hardly_shows() {
    for (data, parity, every_us) in [(1, 1, 20_000), (2, 1, 20_000), (10, 3, 2_000)] {
        let p99_ms = messages_p99_ms(&Config::turbo().windows(256, 256).fec(data, parity), every_us);
        assert!(p99_ms <= 75.0, "{data} + {parity}: {p99_ms}");
    }
}

/// How long a bulk transfer of so many bytes takes from the first datagram on, in ms, over a line whose receiver has a
/// socket buffer of `queue_bytes`.
fn bulk_takes_ms(config: &Config, bytes: u64, queue_bytes: usize) -> u64 {
    let (mut a, b) = (Port::new(config), Port::new(config));
    a.id = Some(a.sessions.connect(0, 1, 7).expect("there is room"));
    let line = LinkConfig { bandwidth_bps: Some(8_000_000_000), queue_bytes, ..LinkConfig::lossy(0.0, 20) };
    let mut simulation = Simulation::new(a, b, line, 1);
    let (mut read, message) = (0, vec![7; 1376]);
    while read < bytes && simulation.clock.now_us() < 10_000_000 {
        while simulation.a.send(&message) {}
        let until_us = simulation.clock.now_us() + 1_000;
        simulation.step(until_us);
        while let Some(message) = simulation.b.recv() {
            read += message.len() as u64;
        }
    }
    eprintln!("{} dropped of {}", simulation.a_to_b.stats().dropped_queue, simulation.a_to_b.stats().sent);
    simulation.clock.now_us() / 1000
}

#[test]
fn a_first_flight_that_the_peer_s_socket_cannot_hold_delays_little() {
    let config = Config::turbo().windows(1024, 1024).mode(Mode::Stream);
    for (queue_bytes, most_ms) in [(64 << 10, 2_000), (208 << 10, 600), (416 << 10, 250), (1 << 20, 60)] {
        let took_ms = bulk_takes_ms(&config, 8 << 20, queue_bytes);
        assert!(took_ms <= most_ms, "{queue_bytes} bytes: {took_ms} ms");
    }
}

#[test]
fn without_congestion_control_a_line_that_cannot_hold_the_window_slows_a_transfer_and_does_not_end_it() {
    let config = Config::turbo().windows(1024, 1024);
    for (round_trip_ms, queue_round_trips, least) in
        [(30, 0.1, 0.1), (30, 0.3, 0.3), (5, 1.0, 0.2), (5, 3.0, 0.7)]
    {
        let share = share(&config, path(round_trip_ms, 0.0, queue_round_trips), 1);
        assert!(share >= least, "{round_trip_ms} ms, queue {queue_round_trips}: {share:.3}");
    }
}
