//! Clients that close their sending side while calls are in flight.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewire_rpc::{Bytes, Context, Service, Sink, Streaming};
use support::{Raw, Running, dump, eventually, gauged, settles, stuck};

const SETTINGS: &str = "47525043 02210000 00000000 00000000";
const SERVER_SETTINGS_LEN: usize = 46;
const PING: &str = "47525043 02030000 00000000 00000008 0000000000000000";

/// `Late/answer`, id 7, in a version.
fn request(version: u8, flags: u8, method: &str, payload: &str) -> String {
    // In version 2 with number 0: for this call alone.
    let (number, flags) = if version == 1 { ("", flags) } else { ("0000", flags | 0x40) };
    let names = format!("{number}0004{} {:04x}{}", dump(b"Late"), method.len(), dump(method.as_bytes()));
    let len = (names.replace(' ', "").len() + payload.len()) / 2;
    format!("47525043 {version:02x}01{flags:02x}00 00000007 {len:08x} {names} {payload}")
}

/// Answers when the gate opens.
fn late(gate: &Arc<Mutex<Vec<futures_channel::oneshot::Sender<()>>>>) -> Service {
    let [unary, both] = [gate.clone(), gate.clone()];
    let wait = |gate: &Arc<Mutex<Vec<_>>>| {
        let (sender, receiver) = futures_channel::oneshot::channel::<()>();
        gate.lock().unwrap().push(sender);
        receiver
    };
    Service::new("Late")
        .unary("answer", move |request: Bytes, _: Context| {
            let opened = wait(&unary);
            async move {
                let _ = opened.await;
                Ok(request)
            }
        })
        .bidi("both", move |mut requests: Streaming, mut replies: Sink, _: Context| {
            let opened = wait(&both);
            async move {
                let _ = opened.await;
                let mut count = 0;
                while let Some(Ok(_)) = requests.next().await {
                    count += 1;
                }
                replies.send(Bytes::from(format!("{count}"))).await
            }
        })
}

#[test]
fn calls_in_flight_are_answered_before_the_connection_is_closed() {
    let gate = Arc::default();
    let (server, gauges) = gauged(|server| server.service(late(&gate)));
    for version in [1, 2] {
        for (method, flags, answer) in [
            ("answer", 4, "00000003 0000 61"),
            // The requests were not ended: the handler gets an error for the rest.
            ("both", 3, "00000003 0000 31"),
        ] {
            let mut raw = Raw::connect(&server);
            if version == 2 {
                raw.send(SETTINGS);
            }
            raw.send(&request(version, flags, method, "61"));
            eventually("the handler waits", || !gate.lock().unwrap().is_empty());
            if version == 2 {
                raw.0.read_exact(&mut [0; SERVER_SETTINGS_LEN]).unwrap();
            }
            raw.0.shutdown(Shutdown::Write).unwrap();
            // It goes on for as long as it likes, up to the limit.
            std::thread::sleep(Duration::from_millis(20));
            gate.lock().unwrap().pop().unwrap().send(()).unwrap();
            let mut all = raw.read_to_end();
            if version == 2 {
                let ping = support::hex(PING);
                assert_eq!(all[..ping.len()], ping, "the client is looked for");
                all.drain(..ping.len());
            }
            let expected = format!("47525043 {version:02x}02{:02x}00 00000007 {answer}", flags | 4);
            assert_eq!(dump(&all), expected.replace(' ', ""), "{method}, version {version}");
            settles(&gauges, 0);
        }
    }
}

#[test]
fn requests_that_came_with_the_end_are_all_answered_though_their_client_reads_late() {
    let (server, gauges) = gauged(|server| server.water_marks(4 * 1024, 16 * 1024));
    let mut raw = Raw::connect(&server);
    let names = "000b4563686f53657276696365 00046563686f";
    let payload = "00".repeat(4_000);
    let calls: String = (0..500)
        .map(|id| format!("47525043 01010400 {id:08x} {:08x} {names} {payload}", 19 + 4_000))
        .collect();
    let mut writing = raw.0.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        writing.write_all(&support::hex(&calls)).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    // The server is over its mark, and stops reading, before the first byte is read here.
    std::thread::sleep(Duration::from_millis(50));
    let answers = raw.read_to_end();
    assert_eq!(answers.len(), 500 * (18 + 4_000));
    writer.join().unwrap();
    settles(&gauges, 0);
}

#[test]
fn a_call_that_takes_too_long_after_it_is_cut() {
    let running = Running::default();
    let (server, gauges) =
        gauged(|server| server.service(stuck(&running)).half_close_timeout(Duration::from_millis(50)));
    let mut raw = Raw::connect(&server);
    raw.send("47525043 01010400 00000001 0000000f 0005 537475636b 0005 756e617279 61");
    eventually("the handler runs", || running.now() == 1);
    let began = Instant::now();
    raw.0.shutdown(Shutdown::Write).unwrap();
    raw.expect_end();
    assert!(began.elapsed() >= Duration::from_millis(50));
    eventually("the handler is dropped", || running.now() == 0);
    settles(&gauges, 0);
}

#[test]
fn the_handlers_of_a_client_of_version_2_that_died_are_dropped_long_before_the_limit() {
    let running = Running::default();
    let (server, gauges) =
        gauged(|server| server.service(stuck(&running)).half_close_timeout(Duration::from_secs(600)));
    let mut raw = Raw::connect(&server);
    raw.send(SETTINGS);
    raw.send("47525043 02014400 00000001 00000011 0000 0005 537475636b 0005 756e617279 61");
    eventually("the handler runs", || running.now() == 1);
    // All that was sent is read, so that the socket goes without a reset, as that of a process that ends does.
    raw.0.read_exact(&mut [0; SERVER_SETTINGS_LEN]).unwrap();
    drop(raw);
    eventually("it is dropped", || running.now() == 0);
    settles(&gauges, 0);
}
