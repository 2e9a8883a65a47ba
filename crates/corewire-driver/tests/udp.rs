//! Datagrams on every backend.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::net::{SocketAddr, UdpSocket};

use common::{on_each_backend, wait_for};
use corewire_driver::udp::{
    Ecn, RecvBatch, SendBatch, SendMeta, UdpError, UdpOptions, buffer_sizes, open, payload_max,
};
use corewire_driver::{Driver, Event, Socket, Token};

const HERE: &str = "127.0.0.1:0";

fn socket(options: &UdpOptions) -> (Socket, SocketAddr) {
    let socket = open(HERE.parse().unwrap(), options).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

fn watched(driver: &mut Driver) -> (Token, SocketAddr) {
    let (socket, address) = socket(&UdpOptions::default());
    (driver.add_datagram(socket).unwrap(), address)
}

fn readable(driver: &mut Driver, token: Token) {
    wait_for(driver, |event| match event {
        Event::DatagramReadable { token: told } => (told == token).then_some(()),
        _ => None,
    });
}

/// Receives from a blocking-free socket until this many datagrams have come.
fn receive(socket: &Socket, count: usize) -> Vec<(Vec<u8>, Option<SocketAddr>)> {
    let mut batch = RecvBatch::new();
    let mut got = Vec::new();
    let until = std::time::Instant::now() + common::PATIENCE;
    while got.len() < count && std::time::Instant::now() < until {
        if batch.recv(socket).is_ok() {
            got.extend(batch.datagrams().map(|datagram| (datagram.payload().to_vec(), datagram.from())));
        }
    }
    got
}

#[test]
fn datagrams_are_told_and_received_with_their_senders() {
    on_each_backend(|driver| {
        let (token, address) = watched(driver);
        let peers: Vec<_> = (0..3).map(|_| UdpSocket::bind(HERE).unwrap()).collect();
        for round in 0..3_u8 {
            for peer in &peers {
                peer.send_to(&[round; 9], address).unwrap();
            }
            readable(driver, token);
            let got = receive(driver.socket(token).unwrap(), peers.len());
            let mut from: Vec<_> = got.iter().map(|(_, from)| from.unwrap()).collect();
            let mut expected: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
            from.sort();
            expected.sort();
            assert_eq!(from, expected);
            assert!(got.iter().all(|(payload, _)| payload == &[round; 9]));
        }
    });
}

#[test]
fn what_came_before_the_socket_was_watched_is_told() {
    on_each_backend(|driver| {
        let (socket, address) = socket(&UdpOptions::default());
        UdpSocket::bind(HERE).unwrap().send_to(b"early", address).unwrap();
        let token = driver.add_datagram(socket).unwrap();
        readable(driver, token);
        assert_eq!(receive(driver.socket(token).unwrap(), 1)[0].0, b"early");
    });
}

#[test]
fn what_was_not_received_is_told_again_when_asked_for() {
    on_each_backend(|driver| {
        let (token, address) = watched(driver);
        let peer = UdpSocket::bind(HERE).unwrap();
        (0..4_u8).for_each(|n| assert_eq!(peer.send_to(&[n], address).unwrap(), 1));
        let mut batch = RecvBatch::with_size(1, 100);
        for n in 0..4_u8 {
            readable(driver, token);
            assert_eq!(batch.recv(driver.socket(token).unwrap()).unwrap(), 1);
            assert_eq!(batch.datagrams().next().unwrap().payload(), [n]);
            assert!(batch.is_full());
            driver.read_again(token);
        }
    });
}

#[test]
fn a_paused_socket_is_silent_until_it_is_resumed() {
    on_each_backend(|driver| {
        let (token, address) = watched(driver);
        // Whatever is told because it was just added.
        driver.turn(Some(std::time::Duration::ZERO)).unwrap();
        while driver.next_event().is_some() {}
        driver.pause_receive(token);
        UdpSocket::bind(HERE).unwrap().send_to(b"later", address).unwrap();
        driver.turn(Some(std::time::Duration::from_millis(20))).unwrap();
        while let Some(event) = driver.next_event() {
            assert!(!matches!(event, Event::DatagramReadable { .. }));
        }
        driver.resume_receive(token);
        readable(driver, token);
    });
}

#[test]
fn a_socket_that_can_send_is_told_writable_when_asked_for() {
    on_each_backend(|driver| {
        let (token, _) = watched(driver);
        driver.set_write_interest(token).unwrap();
        wait_for(driver, |event| matches!(event, Event::DatagramWritable { .. }).then_some(()));
        assert!(driver.close(token).is_some());
        assert!(driver.set_write_interest(token).is_err());
    });
}

#[test]
#[cfg_attr(corewire_portable, ignore = "datagrams are joined on Linux only")]
fn runs_of_one_size_are_joined_and_come_apart_again() {
    let (here, _) = socket(&UdpOptions::default());
    let (peer, to) = socket(&UdpOptions::default());
    let mut out = SendBatch::new(true);
    // Long runs, runs that end short, changes of size, and empty datagrams.
    let sizes: Vec<usize> =
        [vec![100; 150], vec![7; 3], vec![3], vec![9; 2], vec![0; 2], vec![5; 4], vec![1400; 60]].concat();
    let sent: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| vec![n as u8; *size]).collect();
    for payload in &sent {
        let (head, tail) = payload.split_at(payload.len() / 2);
        out.push(Some(to), &[head, tail], SendMeta::default()).unwrap();
    }
    let flushed = out.flush(&here);
    assert!(flushed.error.is_none() && out.is_empty());
    assert_eq!(flushed.datagrams, sent.len());
    assert!(flushed.calls < sent.len() / 8, "{} calls", flushed.calls);
    let got: Vec<_> = receive(&peer, sent.len()).into_iter().map(|(payload, _)| payload).collect();
    assert_eq!(got, sent);
}

#[test]
fn without_offload_the_same_datagrams_arrive() {
    let mut options = UdpOptions::default();
    (options.coalesce, options.segment) = (false, false);
    let (here, _) = socket(&options);
    let (peer, to) = socket(&options);
    let mut out = SendBatch::new(options.segment);
    let sent: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; 64]).collect();
    sent.iter().for_each(|payload| out.push(Some(to), &[payload], SendMeta::default()).unwrap());
    assert_eq!(out.flush(&here).datagrams, sent.len());
    let got: Vec<_> = receive(&peer, sent.len()).into_iter().map(|(payload, _)| payload).collect();
    assert_eq!(got, sent);
}

#[test]
fn a_datagram_longer_than_its_room_is_told_as_truncated() {
    let (peer, to) = socket(&UdpOptions::default());
    let sender = UdpSocket::bind(HERE).unwrap();
    sender.send_to(&[7; 1000], to).unwrap();
    sender.send_to(&[8; 10], to).unwrap();
    let mut batch = RecvBatch::with_size(2, 100);
    batch.recv(&peer).unwrap();
    // Other systems say only that it was longer.
    let full_len = if cfg!(corewire_portable) { 101 } else { 1000 };
    let got: Vec<_> = batch.datagrams().collect();
    assert_eq!((got[0].payload(), got[0].is_truncated(), got[0].full_len()), (&[7; 100][..], true, full_len));
    assert_eq!((got[1].payload(), got[1].is_truncated(), got[1].full_len()), (&[8; 10][..], false, 10));
}

#[test]
fn the_longest_datagram_passes_and_one_byte_more_is_an_error() {
    let (here, _) = socket(&UdpOptions::default());
    let (peer, to) = socket(&UdpOptions::default());
    let max = payload_max(to);
    assert_eq!(max, 65_507);
    let mut out = SendBatch::new(true);
    out.push(Some(to), &[&vec![1; max]], SendMeta::default()).unwrap();
    let error = out.push(Some(to), &[&vec![1; max + 1]], SendMeta::default()).unwrap_err();
    assert!(matches!(error, UdpError::TooLong { len: 65_508, max: 65_507 }), "{error}");
    assert_eq!(out.flush(&here).datagrams, 1);
    assert_eq!(receive(&peer, 1)[0].0.len(), max);
}

#[test]
fn a_closed_port_is_told_and_the_socket_goes_on() {
    let (here, _) = socket(&UdpOptions::default());
    let gone = socket(&UdpOptions::default()).1;
    here.connect(gone).unwrap();
    let mut out = SendBatch::new(true);
    let mut told = false;
    for _ in 0..100 {
        out.push(None, &[b"anybody?"], SendMeta::default()).unwrap();
        let flushed = out.flush(&here);
        assert_eq!(flushed.datagrams, 1, "a datagram is not lost for an earlier one");
        if let Some(error) = flushed.error {
            assert!(matches!(error, UdpError::Refused), "{error}");
            told = true;
        }
    }
    assert!(told);
    let mut batch = RecvBatch::new();
    let error = UdpError::from(batch.recv(&here).unwrap_err());
    assert!(matches!(error, UdpError::Refused), "{error}");
}

#[test]
fn another_family_is_a_typed_error_and_costs_only_its_own_datagram() {
    let (here, _) = socket(&UdpOptions::default());
    let (peer, to) = socket(&UdpOptions::default());
    let mut out = SendBatch::new(true);
    out.push(Some("[::1]:9".parse().unwrap()), &[b"?"], SendMeta::default()).unwrap();
    out.push(Some(to), &[b"!"], SendMeta::default()).unwrap();
    let flushed = out.flush(&here);
    assert!(matches!(flushed.error, Some(UdpError::Family { .. })), "{:?}", flushed.error);
    assert_eq!((flushed.datagrams, flushed.refused), (1, 1));
    assert_eq!(receive(&peer, 1)[0].0, b"!");
}

#[test]
fn a_full_queue_is_an_error_and_keeps_what_it_has() {
    let (_, to) = socket(&UdpOptions::default());
    let mut out = SendBatch::new(true);
    out.set_limit(100);
    out.push(Some(to), &[&[1; 60]], SendMeta::default()).unwrap();
    let error = out.push(Some(to), &[&[1; 60]], SendMeta::default()).unwrap_err();
    assert!(matches!(error, UdpError::QueueFull { queued: 60, limit: 100 }), "{error}");
    assert_eq!(out.clear(), 1);
}

#[test]
fn shared_bytes_leave_as_datagrams_of_one_size_and_a_shorter_last() {
    let (peer, to) = socket(&UdpOptions::default());
    let (sender, _) = socket(&UdpOptions::default());
    let bytes: bytes::Bytes = (0..100_000_u32).map(|at| at as u8).collect();
    for joined in [true, false] {
        let mut out = SendBatch::new(joined);
        out.push(Some(to), &[b"before"], SendMeta::default()).unwrap();
        out.push_shared(Some(to), bytes.clone(), 999, SendMeta::default()).unwrap();
        out.push(Some(to), &[b"after"], SendMeta::default()).unwrap();
        assert_eq!(out.queued(), 100_011);
        let flushed = out.flush(&sender);
        assert_eq!((flushed.datagrams, flushed.bytes, out.queued()), (103, 100_011, 0));
        let mut expected: Vec<&[u8]> = bytes.chunks(999).collect();
        expected.insert(0, b"before");
        expected.push(b"after");
        let got = receive(&peer, 103);
        assert!(got.iter().map(|(payload, _)| &payload[..]).eq(expected), "joined: {joined}");
    }
    let mut out = SendBatch::new(true);
    let error = out.push_shared(Some(to), vec![0; 70_000].into(), 66_000, SendMeta::default()).unwrap_err();
    assert!(matches!(error, UdpError::TooLong { len: 66_000, max: 65_507 }), "{error}");
    out.set_limit(1000);
    let error = out.push_shared(Some(to), bytes, 500, SendMeta::default()).unwrap_err();
    assert!(matches!(error, UdpError::QueueFull { queued: 0, limit: 1000 }), "{error}");
    assert!(out.is_empty());
}

#[test]
fn more_segments_than_an_old_kernel_takes_arrive_all_the_same() {
    let (peer, to) = socket(&UdpOptions::default());
    let (sender, _) = socket(&UdpOptions::default());
    let mut out = SendBatch::new(true);
    for n in 0..300_u32 {
        out.push(Some(to), &[&n.to_le_bytes()], SendMeta::default()).unwrap();
    }
    assert_eq!(out.flush(&sender).datagrams, 300);
    let got = receive(&peer, 300);
    assert!(got.iter().map(|(payload, _)| &payload[..]).eq((0..300_u32).map(u32::to_le_bytes)));
}

#[test]
#[cfg_attr(corewire_portable, ignore = "one receive takes them all on Linux only")]
fn a_reply_from_lent_memory_is_not_copied_and_what_is_left_of_it_is() {
    let (server, to) = socket(&UdpOptions::default());
    let (client, _) = socket(&UdpOptions::default());
    let mut batch = RecvBatch::new();
    for round in 0..20_u8 {
        let mut ask = SendBatch::new(true);
        (0..40_u8).for_each(|n| ask.push(Some(to), &[&[round, n]], SendMeta::default()).unwrap());
        ask.flush(&client);
        while batch.recv(&server).is_err() {}
        let mut out = SendBatch::new(true);
        out.lend(batch.memory().clone());
        assert!(!out.uses_lent());
        for (at, datagram) in batch.datagrams().enumerate() {
            // One of another place and one of several parts between them.
            let own = [datagram.payload()[0], datagram.payload()[1]];
            let parts: [&[u8]; 2] = [&own[..1], &own[1..]];
            match at {
                7 => out.push(datagram.from(), &[&own], SendMeta::default()).unwrap(),
                9 => out.push(datagram.from(), &parts, SendMeta::default()).unwrap(),
                _ => out.push(datagram.from(), &[&[], datagram.payload(), &[]], SendMeta::default()).unwrap(),
            }
        }
        assert!(out.uses_lent() && out.queued() == 80);
        if round % 2 == 0 {
            // The memory is received into again before they leave.
            out.unlend();
            assert!(!out.uses_lent());
            client.send_to(&[99; 90], to).unwrap();
            let first = batch.memory().as_ptr();
            while batch.recv(&server).is_err() {}
            assert_eq!(batch.memory().as_ptr(), first, "nobody holds the memory");
        }
        assert_eq!(out.flush(&server).datagrams, 40);
        let got = receive(&client, 40);
        assert!(got.iter().map(|(payload, _)| &payload[..]).eq((0..40_u8).map(|n| [round, n])), "{round}");
    }
}

#[test]
fn runs_say_what_their_datagrams_are() {
    let (peer, to) = socket(&UdpOptions::default());
    let (sender, from) = socket(&UdpOptions::default());
    let mut out = SendBatch::new(true);
    out.push_segments(Some(to), &[7; 1000], 300, SendMeta::default()).unwrap();
    out.push(Some(to), &[], SendMeta::default()).unwrap();
    assert_eq!(out.flush(&sender).datagrams, 5);
    let mut batch = RecvBatch::new();
    let mut lens = Vec::new();
    while lens.len() < 5 {
        if batch.recv(&peer).is_ok() {
            for run in batch.runs() {
                assert_eq!((run.from(), run.is_truncated()), (Some(from), false));
                assert_eq!(run.to_bytes(), run.payload());
                let each: Vec<_> = run.datagrams().map(|datagram| datagram.payload().len()).collect();
                assert!(each[..each.len() - 1].iter().all(|len| *len == run.segment_size()));
                lens.extend(each);
            }
        }
    }
    assert_eq!(lens, [300, 300, 300, 100, 0]);
}

#[test]
#[cfg_attr(corewire_portable, ignore = "told on Linux only")]
fn destination_interface_and_mark_come_with_a_datagram() {
    for here in [HERE, "[::1]:0"] {
        let mut options = UdpOptions::default();
        (options.packet_info, options.ecn) = (true, true);
        let peer = open(here.parse().unwrap(), &options).unwrap();
        let sender = open(here.parse().unwrap(), &options).unwrap();
        let to = peer.local_addr().unwrap().as_socket().unwrap();
        let mut out = SendBatch::new(true);
        let meta = SendMeta { ecn: Ecn::Capable0, source: Some(to.ip()) };
        out.push(Some(to), &[b"marked"], meta).unwrap();
        assert_eq!(out.flush(&sender).datagrams, 1);
        let mut batch = RecvBatch::new();
        while batch.recv(&peer).is_err() {}
        let datagram = batch.datagrams().next().unwrap();
        assert_eq!(datagram.ecn(), Ecn::Capable0, "{here}");
        assert_eq!(datagram.destination(), Some(to.ip()));
        assert!(datagram.interface().is_some_and(|index| index > 0));
    }
}

#[test]
#[cfg_attr(corewire_portable, ignore = "told on Linux only")]
fn drops_for_want_of_room_are_counted() {
    let mut options = UdpOptions::default();
    options.receive_buffer_size = Some(4096);
    options.coalesce = false;
    let (peer, to) = socket(&options);
    let sender = UdpSocket::bind(HERE).unwrap();
    let sent = 100;
    (0..sent).for_each(|_| assert_eq!(sender.send_to(&[0; 1000], to).unwrap(), 1000));
    let mut batch = RecvBatch::with_size(200, 2000);
    let got = batch.recv(&peer).unwrap();
    assert!(got < sent);
    sender.send_to(&[0; 10], to).unwrap();
    while batch.recv(&peer).is_err() {}
    assert_eq!(batch.drops(), Some((sent - got) as u32));

    // A batch may serve several sockets: what one has dropped is not told of another.
    let (other, to) = socket(&UdpOptions::default());
    sender.send_to(&[0; 10], to).unwrap();
    while batch.recv(&other).is_err() {}
    assert_eq!(batch.drops(), None);
}

#[test]
fn kept_datagrams_are_not_overwritten() {
    let (peer, to) = socket(&UdpOptions::default());
    let sender = UdpSocket::bind(HERE).unwrap();
    let mut batch = RecvBatch::with_size(4, 100);
    let mut kept = Vec::new();
    for n in 0..20_u8 {
        sender.send_to(&[n; 50], to).unwrap();
        while batch.recv(&peer).is_err() {}
        kept.extend(batch.datagrams().map(|datagram| datagram.to_bytes()));
    }
    assert!(kept.iter().zip(0..).all(|(bytes, n)| bytes[..] == [n; 50]) && kept.len() == 20);
}

#[test]
#[cfg_attr(corewire_portable, ignore = "Linux doubles what it gives")]
fn the_kernel_says_how_much_room_it_gives() {
    let (socket, _) = socket(&UdpOptions::default());
    let sizes = buffer_sizes(&socket).unwrap();
    assert!(sizes.receive > 0 && sizes.receive <= 8 << 20 && sizes.send > 0 && sizes.send <= 2 << 20);
}
