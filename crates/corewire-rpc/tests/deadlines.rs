//! Clients that take too long: the deadlines of connections hold for RPC too.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

mod support;

use std::io::Write;
use std::time::Duration;

use corewire_rpc::Version;
use support::{Raw, gauged, settles};

const TIMEOUT: Duration = Duration::from_millis(300);

fn frame(version: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'G', b'R', b'P', b'C', version, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, body.len() as u8];
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_client_that_sends_nothing_is_closed_after_the_first_frame_timeout() {
    let (server, gauges) = gauged(|server| server.net(|net| net.first_frame_timeout(Some(TIMEOUT))));
    let mut silent = Raw::connect(&server);
    assert_eq!(silent.read_to_end(), b"", "it is closed");
    settles(&gauges, 0);
}

#[test]
fn a_frame_whose_rest_never_comes_closes_the_connection() {
    let (server, gauges) = gauged(|server| server.net(|net| net.frame_timeout(Some(TIMEOUT))));
    let polite = support::channel(&server, Version::V2);
    let call = || corewire::block_on(polite.unary("EchoService/echo", "x")).unwrap();
    call();
    for version in [1, 2] {
        // A heartbeat or SETTINGS that is whole, and half of the next frame.
        let mut bytes = frame(version, if version == 1 { 0x03 } else { 0x21 }, b"");
        bytes.extend(&frame(version, 0x12, b"half of it")[..20]);
        let mut slow = Raw::connect(&server);
        slow.0.write_all(&bytes).unwrap();
        slow.read_to_end();
    }
    // One that has begun no frame may be silent for longer than that.
    call();
    settles(&gauges, 1);
}
