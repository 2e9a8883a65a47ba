//! hyper on Corewire's workers beside hyper on tokio, with the same client and the same service.
//!
//! `http-hyper [SECONDS [ROUNDS]]`: servers on one core (the one that is not asked costs nothing), the client on another.
//! Each row gives requests per second and the processor time of the server for each, in turn and in random order; the
//! last column is what Corewire's server does for each request of tokio's, the median of the rounds.

mod client;
mod servers;

use std::error::Error;
use std::time::Duration;

use client::{Load, Sample};
use servers::Server;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Row {
    name: &'static str,
    load: Load,
}

const fn row(name: &'static str, http2: bool, connections: usize, depth: usize, body: usize) -> Row {
    Row { name, load: Load { http2, connections, depth, body } }
}

const ROWS: [Row; 7] = [
    row("HTTP/1 1 connection", false, 1, 1, 13),
    row("HTTP/1 64 connections", false, 64, 1, 13),
    row("HTTP/1 64 connections, 16 in flight", false, 64, 16, 13),
    row("HTTP/1 64 connections, 64 KiB", false, 64, 1, 64 * 1024),
    row("HTTP/2 1 connection, 1 stream", true, 1, 1, 13),
    row("HTTP/2 1 connection, 64 streams", true, 1, 64, 13),
    row("HTTP/2 64 connections, 16 streams", true, 64, 16, 13),
];

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let seconds: f64 = words.next().map_or(Ok(0.5), |word| word.parse())?;
    let rounds: usize = words.next().map_or(Ok(5), |word| word.parse())?;
    let length = Duration::try_from_secs_f64(seconds)?;
    let servers =
        [[Server::tokio(false)?, Server::tokio(true)?], [Server::corewire(false)?, Server::corewire(true)?]];
    let client = client::Client::start()?;
    println!("{:36} {:>28} {:>28} {:>8} {:>8}", "", "tokio", "corewire", "rate", "CPU");
    for Row { name, load } in &ROWS {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..rounds.max(1) {
            // Which comes first alternates from a random beginning, so that neither has the better place.
            let first = (round + usize::from(coin(name))) % 2;
            for at in [first, 1 - first] {
                samples[at].push(client.measure(*load, &servers[at][usize::from(load.http2)], length)?);
            }
        }
        print(name, &samples);
    }
    Ok(())
}

fn print(name: &str, [tokio, corewire]: &[Vec<Sample>; 2]) {
    let of = |samples: &[Sample], value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
    let ratio = |value: fn(&Sample) -> f64| {
        median(tokio.iter().zip(corewire).map(|(tokio, corewire)| value(corewire) / value(tokio)).collect())
    };
    let cell = |samples: &[Sample]| {
        format!("{:.0}/s {:.0} ns", of(samples, |sample| sample.rate), of(samples, |sample| sample.cpu_ns))
    };
    println!(
        "{name:36} {:>28} {:>28} {:>8.2} {:>8.2}",
        cell(tokio),
        cell(corewire),
        ratio(|sample| sample.rate),
        1.0 / ratio(|sample| sample.cpu_ns)
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A coin for each row, by the standard library's random hasher.
fn coin(name: &str) -> bool {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(name) % 2 == 0
}
