//! Raw peers against a real server: the bytes of version 1 as galay-rpc has them.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use corewire_rpc::{Bytes, Channel, Code, Settings, Version};
use support::{Raw, hex, server};

const HELLO: &str =
    "47525043 01010400 00000000 00000018 000b 4563686f53657276696365 0004 6563686f 48656c6c6f";
const HELLO_REPLY: &str = "47525043 01020400 00000000 00000007 0000 48656c6c6f";

/// `EchoService/echo` with a payload: a request of version 1.
fn request(flags: u8, id: u32, payload: &str) -> String {
    let len = 19 + payload.len() / 2;
    format!("47525043 0101{flags:02x}00 {id:08x} {len:08x} 000b4563686f53657276696365 00046563686f {payload}")
}

fn response(flags: u8, id: u32, payload: &str) -> String {
    format!("47525043 0102{flags:02x}00 {id:08x} {:08x} 0000 {payload}", 2 + payload.len() / 2)
}

#[test]
fn a_unary_call_of_version_1_has_the_bytes_of_galay() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    raw.send(HELLO);
    raw.expect(HELLO_REPLY);
    raw.send("47525043 01010400 00000bb9 0000000c 0002 4e6f 0004 6563686f 7878");
    raw.expect("47525043 01020400 00000bb9 00000002 0002");
    raw.send("47525043 01010400 00000bba 00000015 000b 4563686f53657276696365 0004 6e6f7065 7878");
    raw.expect("47525043 01020400 00000bba 00000002 0003");
}

#[test]
fn calls_in_flight_on_one_connection_are_answered_in_order() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    let (mut all, mut replies) = (String::new(), String::new());
    for id in 0..100 {
        all += &request(4, id, "6162");
        replies += &response(4, id, "6162");
    }
    raw.send(&all);
    raw.expect(&replies);
}

#[test]
fn a_request_cut_at_every_byte_is_answered_as_the_whole_is() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    raw.0.set_nodelay(true).unwrap();
    for byte in hex(HELLO) {
        raw.0.write_all(&[byte]).unwrap();
    }
    raw.expect(HELLO_REPLY);
}

#[test]
fn the_streaming_modes_answer_one_request_with_one_response_flagged_as_the_last() {
    // A client of galay sends one frame and awaits one, whatever the mode.
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    for (mode, payload) in [(1, "6162"), (2, "61"), (3, "6162")] {
        raw.send(&request(4 | mode, u32::from(mode), payload));
        raw.expect(&response(4 | mode, u32::from(mode), payload));
    }
}

#[test]
fn a_client_stream_of_version_1_gathers_until_its_end() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    raw.send(&request(1, 7, "61"));
    raw.send(&request(1, 7, "62"));
    raw.send(&request(5, 7, "63"));
    raw.expect(&response(5, 7, "616263"));
}

#[test]
fn bidi_of_version_1_answers_before_the_client_has_ended() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    for letter in ["61", "62", "63"] {
        raw.send(&request(3, 9, letter));
        raw.expect(&response(3, 9, letter));
    }
    raw.send(&request(7, 9, ""));
    raw.expect(&response(7, 9, ""));
}

#[test]
fn streams_of_galay_open_echo_and_end_interleaved_with_calls() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    let init = |id: u8| {
        format!(
            "47525043 01100000 000000{id:02x} 0000001a 001253747265616d42656e636853657276696365 00046563686f"
        )
    };
    let frame = |kind: &str, id: u8, payload: &str| {
        format!("47525043 01{kind}0000 000000{id:02x} {:08x} {payload}", payload.len() / 2)
    };
    for id in [1, 2] {
        raw.send(&init(id));
        raw.expect(&frame("11", id, ""));
    }
    raw.send(&frame("12", 2, "32"));
    raw.expect(&frame("12", 2, "32"));
    raw.send(HELLO);
    raw.expect(HELLO_REPLY);
    raw.send(&frame("12", 1, "68656c6c6f"));
    raw.expect(&frame("12", 1, "68656c6c6f"));
    raw.send(&frame("13", 1, ""));
    raw.expect(&frame("13", 1, ""));
    raw.send(&frame("14", 2, ""));
    raw.send(&init(3).replace("53747265616d", "4e6f6e65616d"));
    raw.expect(&frame("14", 3, ""));
    raw.send(HELLO);
    raw.expect(HELLO_REPLY);
}

#[test]
fn more_calls_than_the_limit_are_refused_one_by_one() {
    let settings = Settings { max_calls: 2, ..Settings::default() };
    let server = server(|server| server.settings(settings));
    let mut raw = Raw::connect(&server);
    for id in 0..3 {
        raw.send(&request(1, id, "61"));
    }
    raw.expect("47525043 01020500 00000002 00000002 000a");
    raw.send(&request(5, 0, "62"));
    raw.expect(&response(5, 0, "6162"));
}

#[test]
fn a_channel_of_version_1_sends_the_bytes_of_galay_and_takes_answers_in_any_order() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut raw = Raw(stream);
        raw.expect(HELLO);
        raw.expect(&request(4, 1, "32"));
        raw.send(&response(4, 1, "3232"));
        raw.send(HELLO_REPLY);
        raw.expect_end();
    });
    corewire::run(async move {
        let channel = Channel::to(uri).protocol(Version::V1).build().unwrap();
        let (first, second) = (channel.clone(), channel.clone());
        let first = corewire::spawn_local(async move { first.unary("EchoService/echo", "Hello").await });
        let second = corewire::spawn_local(async move { second.unary("EchoService/echo", "2").await });
        assert_eq!(second.await.unwrap().unwrap(), "22");
        assert_eq!(first.await.unwrap().unwrap(), "Hello");
    })
    .unwrap();
    peer.join().unwrap();
}

#[test]
fn a_server_of_version_1_that_knows_streams_only_fails_calls_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let mut raw = Raw(listener.accept().unwrap().0);
        raw.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for _ in 0..2 {
            let mut header = [0; 16];
            raw.0.read_exact(&mut header).unwrap();
            let len = u32::from_be_bytes(header[12..].try_into().unwrap());
            raw.0.read_exact(&mut vec![0; len as usize]).unwrap();
            // STREAM_CANCEL under the id of the REQUEST.
            (header[5], header[6]) = (0x14, 0);
            header[12..].fill(0);
            raw.0.write_all(&header).unwrap();
        }
        raw.read_to_end();
    });
    let channel = Channel::to(uri).protocol(Version::V1).build().unwrap();
    corewire::block_on(async {
        let limit = Duration::from_secs(60);
        let failed = channel.unary("Some/call", "x").timeout(limit).await.unwrap_err();
        assert_eq!(failed.code(), Code::METHOD_NOT_FOUND, "{failed}");
        let call = channel.bidi::<Bytes, Bytes>("Some/bidi").first("x".into());
        let (_sink, mut replies) = call.await.unwrap();
        let failed = replies.next().await.unwrap().unwrap_err();
        assert_eq!(failed.code(), Code::METHOD_NOT_FOUND, "{failed}");
        assert!(failed.message().contains("streams only"), "{failed}");
    });
    drop(channel);
    peer.join().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_looks_whether_a_silent_client_is_still_there() {
    let server = server(|server| server);
    let mut raw = Raw::connect(&server);
    raw.send(HELLO);
    raw.expect(HELLO_REPLY);
    let port = |address: std::net::SocketAddr| format!("{:04X}", address.port());
    let (from, to) = (port(server.local_addrs()[0]), port(raw.0.local_addr().unwrap()));
    // Columns of the table: number, local address, remote address, state, queues, timer. Timer 2 is SO_KEEPALIVE.
    support::eventually("the timer runs", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|row| {
            row.len() > 5 && row[1].ends_with(&from) && row[2].ends_with(&to) && row[5].starts_with("02:")
        })
    });
}
