//! What a busy plain connection waits while its worker does handshakes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corewire::runtime::Runtime;
use corewire::{Frame, NetServer, Session};

use super::Row;
use super::client::Client;
use crate::args::Driver;
use crate::bench::Cores;
use crate::failure::Failure;
use crate::percentiles::{Percentiles, latency};
use crate::serve::{driver_kind, driver_name};
use crate::system;

/// Handshakes a second.
const RATE: u32 = 1000;

/// A plain connection and a thousand handshakes a second, on one worker.
pub(super) fn polite(
    driver: Driver,
    cores: Cores,
    duration: Duration,
    certificates: &Path,
) -> Result<Row, Failure> {
    let library = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
    let runtime = Runtime::builder().workers(1).cpus(vec![cores.server]).driver(driver_kind(driver)).build();
    let runtime = runtime.map_err(|error| library(&error))?;
    let shown = |name: &str| certificates.join(name).display().to_string();
    let secured = format!("tls://127.0.0.1:0?cert={}&key={}", shown("cert.pem"), shown("key.pem"));
    let start = |uri: String| {
        NetServer::bind(uri)
            .handler(|| {
                |session: &Session, frame: Frame<'_>| {
                    // One that cannot be answered has gone.
                    let _ = session.send(frame.payload());
                }
            })
            .start_on(runtime.handle())
            .map_err(|error| library(&error))
    };
    let (plain, secured) = (start("tcp://127.0.0.1:0".to_owned())?, start(secured)?);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, address, ca) = (stop.clone(), secured.local_addrs()[0].to_string(), shown("ca.pem"));
    let load = std::thread::spawn(move || -> Result<u32, Failure> {
        let client = Client::new(&address, &ca, cores.load)?;
        let (begun, mut done) = (Instant::now(), 0);
        while !stopped.load(Ordering::Relaxed) {
            if begun.elapsed() < Duration::from_secs(1) * done / RATE {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            drop(client.connect()?);
            done += 1;
        }
        Ok((f64::from(done) / begun.elapsed().as_secs_f64()) as u32)
    });
    let waits = busy(&plain.local_addrs()[0].to_string(), duration, cores.load);
    stop.store(true, Ordering::Relaxed);
    let rate = load.join().map_err(|_| Failure::Library("the load panicked".into()))??;
    Ok(Row {
        workload: format!("p99 of a busy plain connection during {rate} handshakes/s"),
        driver: driver_name(driver),
        figure: waits?.p99_us,
        unit: "us",
        baseline: None,
        share: None,
        share_by_cpu: None,
        target: "<= 5,000",
    })
}

/// Round trips of 32 bytes, one after the other.
fn busy(address: &str, duration: Duration, core: usize) -> Result<Percentiles, Failure> {
    system::pin_to(core)?;
    let failed = || Failure::io("an echo");
    let mut socket = TcpStream::connect(address).map_err(failed())?;
    socket.set_nodelay(true).map_err(failed())?;
    let (mut waits, begun, mut message) = (latency(), Instant::now(), [0; 32]);
    while begun.elapsed() < duration {
        let sent = Instant::now();
        socket.write_all(&message).map_err(failed())?;
        socket.read_exact(&mut message).map_err(failed())?;
        waits.saturating_record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(Percentiles::of(&waits))
}
