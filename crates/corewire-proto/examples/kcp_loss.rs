//! What KCP makes of a lossy path, under virtual time: latency of 1 KiB messages, and goodput of a bulk transfer.
//!
//! `cargo run --release -p corewire-proto --example kcp_loss [seed] [ms between messages]`

use std::error::Error;

use corewire_proto::kcp::{Config, ConfigError, Kcp};
use corewire_testkit::kcp_sim::{Simulation, bulk_bytes, message_latencies_us};
use corewire_testkit::link::LinkConfig;

const MESSAGES: u32 = 1000;
const MESSAGE: usize = 1024;
const BULK_US: u64 = 5_000_000;
const LINE_BPS: u64 = 100_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let seed: u64 = std::env::args().nth(1).map_or(Ok(1), |arg| arg.parse())?;
    let every_ms: u64 = std::env::args().nth(2).map_or(Ok(10), |arg| arg.parse())?;
    println!(
        "Messages of 1 KiB every {every_ms} ms, {MESSAGES} of them, loss in both directions, seed {seed}."
    );
    println!("Goodput: a full send queue for 5 s on a line of 100 Mbit/s with a queue of 256 KiB.\n");
    println!("| settings | RTT ms | loss % | p50 ms | p99 ms | max ms | sent / needed | goodput Mbit/s |");
    println!("|---|---|---|---|---|---|---|---|");
    let presets = [
        ("default 32/128", Config::default()),
        ("turbo 128/128", Config::turbo()),
        ("turbo 1024/1024", Config::turbo().windows(1024, 1024).send_queue(2048)),
    ];
    for (name, config) in presets {
        for rtt_ms in [1, 30, 100] {
            for loss_percent in [0, 1, 5, 10, 30] {
                row(name, &config, (rtt_ms, loss_percent), every_ms, seed)?;
            }
        }
    }
    Ok(())
}

fn row(name: &str, config: &Config, path: (u64, u32), every_ms: u64, seed: u64) -> Result<(), ConfigError> {
    let (rtt_ms, loss_percent) = path;
    let make = || Kcp::new(1, config.clone());
    let link = LinkConfig::lossy(f64::from(loss_percent) / 100.0, rtt_ms * 1000);
    let mut simulation = Simulation::new(make()?, make()?, link.clone(), seed);
    let latencies = message_latencies_us(&mut simulation, MESSAGES, MESSAGE, every_ms * 1000);
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 100] as f64 / 1000.0;
    let resent = simulation.a.stats().segments_sent as f64 / f64::from(MESSAGES);

    let line = LinkConfig { bandwidth_bps: Some(LINE_BPS), ..link };
    let mut simulation = Simulation::new(make()?, make()?, line, seed);
    let bytes = bulk_bytes(&mut simulation, MESSAGE, BULK_US);
    let goodput = bytes as f64 * 8.0 / BULK_US as f64;
    println!(
        "| {name} | {rtt_ms} | {loss_percent} | {:.1} | {:.1} | {:.1} | {resent:.2} | {goodput:.1} |",
        at(50),
        at(99),
        at(100)
    );
    Ok(())
}
