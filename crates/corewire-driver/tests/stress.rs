//! Settings at their limits and traffic of every kind: nothing is lost, on any backend.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::collections::HashMap;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{
    PATIENCE, accepted, listening, on_each_backend, pair, pattern, reset, send_all, wait_for, with_settings,
};
use corewire_driver::net::{ListenOptions, StreamOptions, connect_unix, listen_unix};
use corewire_driver::{Driver, Event, Token};
use corewire_testkit::rng::Rng;

/// Turns until every connection has received `expected` bytes; what came, by connection.
fn receive_from_all(driver: &mut Driver, tokens: &[Token], expected: usize) -> HashMap<Token, Vec<u8>> {
    let mut got: HashMap<Token, Vec<u8>> = tokens.iter().map(|token| (*token, Vec::new())).collect();
    let mut missing = tokens.len() * expected;
    wait_for(driver, |event| {
        match event {
            Event::Received { token, data } => {
                missing -= data.len();
                got.get_mut(&token).unwrap().extend_from_slice(&data);
            }
            other => panic!("unexpected {other:?}"),
        }
        (missing == 0).then_some(())
    });
    got
}

fn pairs(driver: &mut Driver, count: usize) -> (Vec<Token>, Vec<TcpStream>) {
    (0..count).map(|_| pair(driver)).unzip()
}

fn every_connection_gets_its_own_bytes(driver: &mut Driver) {
    let (tokens, mut peers) = pairs(driver, 40);
    for round in 0..20_u8 {
        let message = |at: usize| vec![round ^ at as u8; 300 + at];
        for (at, peer) in peers.iter_mut().enumerate() {
            peer.write_all(&message(at)[..300]).unwrap();
        }
        let got = receive_from_all(driver, &tokens, 300);
        for (at, token) in tokens.iter().enumerate() {
            assert!(got[token] == message(at)[..300], "connection {at}, round {round}");
        }
    }
}

#[test]
fn two_ring_buffers_serve_many_connections() {
    with_settings(|config| config.ring_buffers = 2, every_connection_gets_its_own_bytes);
}

#[test]
fn tiny_ring_buffers_cut_messages_and_lose_nothing() {
    with_settings(
        |config| {
            config.ring_buffers = 2;
            config.ring_buffer_size = 16;
        },
        every_connection_gets_its_own_bytes,
    );
}

#[test]
fn one_event_a_turn_delivers_all_of_them() {
    with_settings(|config| config.events_per_turn = 1, every_connection_gets_its_own_bytes);
}

#[test]
fn an_event_limit_is_kept() {
    with_settings(
        |config| config.events_per_turn = 3,
        |driver| {
            let (tokens, mut peers) = pairs(driver, 10);
            peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
            let mut got = 0;
            let until = Instant::now() + PATIENCE;
            while got < tokens.len() && Instant::now() < until {
                driver.turn(Some(Duration::from_millis(50))).unwrap();
                let in_turn = std::iter::from_fn(|| driver.next_event()).count();
                assert!(in_turn <= 3, "{in_turn} events in one turn");
                got += in_turn;
            }
            assert_eq!(got, tokens.len());
        },
    );
}

#[test]
fn a_completion_queue_that_overflows_loses_nothing() {
    // The smallest queue has 2,048 places. Turns without taking events pile up more completions than that.
    with_settings(
        |config| config.completion_entries = 1,
        |driver| {
            let (tokens, mut peers) = pairs(driver, 64);
            let rounds = 50;
            for round in 0..rounds {
                peers.iter_mut().for_each(|peer| peer.write_all(&[round]).unwrap());
                driver.turn(Some(Duration::ZERO)).unwrap();
            }
            let got = receive_from_all(driver, &tokens, usize::from(rounds));
            let expected: Vec<u8> = (0..rounds).collect();
            assert!(got.values().all(|bytes| *bytes == expected));
            // And all are armed again.
            peers.iter_mut().for_each(|peer| peer.write_all(b"again").unwrap());
            let got = receive_from_all(driver, &tokens, 5);
            assert!(got.values().all(|bytes| bytes == b"again"));
        },
    );
}

#[test]
fn random_sizes_and_pauses_lose_nothing() {
    on_each_backend(|driver| {
        for seed in 0..6 {
            let mut rng = Rng::new(seed);
            let (token, peer) = pair(driver);
            let sizes: Vec<usize> = (0..150)
                .map(|_| match rng.index(8) {
                    0 => 1 + rng.index(600_000),
                    1 => 32 * 1024,
                    2 => 1 + rng.index(40_000),
                    _ => 1 + rng.index(200),
                })
                .collect();
            let sent = pattern(sizes.iter().sum());
            let copy = sent.clone();
            let writer = std::thread::spawn(move || {
                let mut rest = &copy[..];
                for size in sizes {
                    (&peer).write_all(&rest[..size]).unwrap();
                    rest = &rest[size..];
                }
                peer.shutdown(Shutdown::Write).unwrap();
                peer
            });
            let mut got: Vec<u8> = Vec::new();
            let (mut kept, mut ended) = (Vec::new(), false);
            let until = Instant::now() + PATIENCE;
            while !ended && Instant::now() < until {
                match rng.index(6) {
                    0 => driver.pause_receive(token),
                    1 => {
                        driver.pause_receive(token);
                        driver.resume_receive(token);
                    }
                    _ => driver.resume_receive(token),
                }
                driver.turn(Some(Duration::from_millis(1))).unwrap();
                while let Some(event) = driver.next_event() {
                    match event {
                        Event::Received { data, .. } => {
                            got.extend_from_slice(&data);
                            if rng.index(10) == 0 {
                                kept.push((got.len() - data.len(), data));
                            }
                        }
                        Event::ReadClosed { .. } => ended = true,
                        other => panic!("seed {seed}: unexpected {other:?}"),
                    }
                }
            }
            assert!(ended, "seed {seed}: the end did not come after {} of {} bytes", got.len(), sent.len());
            assert!(got == sent, "seed {seed}");
            assert!(kept.iter().all(|(at, data)| sent[*at..].starts_with(data)), "seed {seed}: a kept block");
            driver.close(token);
            writer.join().unwrap();
        }
    });
}

#[test]
fn both_halves_close_in_either_order() {
    on_each_backend(|driver| {
        for ours_first in [false, true] {
            let (token, mut peer) = pair(driver);
            let (mut reply, mut rest) = ([0; 4], Vec::new());
            let wait_for_end = |driver: &mut Driver| {
                wait_for(driver, |event| matches!(event, Event::ReadClosed { .. }).then_some(()));
            };
            if ours_first {
                send_all(driver, token, b"ours");
                driver.socket(token).unwrap().shutdown(Shutdown::Write).unwrap();
                peer.read_to_end(&mut rest).unwrap();
                assert_eq!(rest, b"ours");
                peer.write_all(b"theirs").unwrap();
                assert_eq!(common::receive_exactly(driver, token, 6), b"theirs");
                drop(peer);
                wait_for_end(driver);
            } else {
                peer.shutdown(Shutdown::Write).unwrap();
                wait_for_end(driver);
                send_all(driver, token, b"ours");
                peer.read_exact(&mut reply).unwrap();
                assert_eq!(&reply, b"ours");
                drop(driver.close(token));
                assert_eq!(peer.read(&mut reply).unwrap(), 0);
            }
        }
    });
}

#[test]
fn the_end_is_told_once() {
    // What happens on the sending side afterwards must not tell it again.
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        peer.shutdown(Shutdown::Write).unwrap();
        let sent = pattern(8 << 20);
        let expected = sent.len();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; expected];
            peer.read_exact(&mut got).unwrap();
            peer
        });
        let (mut ends, mut rest) = (0, &sent[..]);
        let until = Instant::now() + PATIENCE;
        while (!rest.is_empty() || ends == 0) && Instant::now() < until {
            rest = &rest[driver.send(token, &[IoSlice::new(rest)]).unwrap()..];
            driver.turn(Some(Duration::from_millis(50))).unwrap();
            while let Some(event) = driver.next_event() {
                match event {
                    Event::ReadClosed { .. } => ends += 1,
                    Event::Writable { .. } => {}
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
        let peer = reader.join().unwrap();
        driver.socket(token).unwrap().shutdown(Shutdown::Write).unwrap();
        drop(peer);
        for _ in 0..5 {
            driver.turn(Some(Duration::from_millis(2))).unwrap();
            ends += std::iter::from_fn(|| driver.next_event())
                .filter(|event| matches!(event, Event::ReadClosed { .. }))
                .count();
        }
        assert_eq!(ends, 1);
    });
}

#[test]
fn a_reset_while_a_send_is_blocked_is_reported() {
    on_each_backend(|driver| {
        let (token, peer) = pair(driver);
        let block = pattern(1 << 20);
        while driver.send(token, &[IoSlice::new(&block)]).unwrap() == block.len() {}
        reset(peer);
        // The receiving side says so, or the next send does.
        wait_for(driver, |event| match event {
            Event::Failed { token: from, .. } => (from == token).then_some(()),
            Event::Writable { .. } => None,
            other => panic!("unexpected {other:?}"),
        });
        assert!(driver.send(token, &[IoSlice::new(b"x")]).is_err());
    });
}

#[test]
fn unix_sockets_connect_by_path_and_by_abstract_name() {
    on_each_backend(|driver| {
        let id = std::process::id();
        let file = std::env::temp_dir().join(format!("corewire-driver-test-{id}.socket"));
        let _ = std::fs::remove_file(&file);
        for path in [file.clone(), format!("@corewire-driver-test-{id}").into()] {
            let listener = listen_unix(&path, &ListenOptions::default()).unwrap();
            let in_use = listen_unix(&path, &ListenOptions::default()).unwrap_err();
            assert_eq!(in_use.kind(), std::io::ErrorKind::AddrInUse);
            let listener = driver.add_listener(listener).unwrap();
            let ours = driver.connect(connect_unix(&path, &StreamOptions::default()).unwrap()).unwrap();
            let mut peer = None;
            let mut connected = false;
            wait_for(driver, |event| {
                match event {
                    Event::Connected { token } if token == ours => connected = true,
                    Event::Accepted { socket, .. } => peer = Some(socket),
                    other => panic!("unexpected {other:?}"),
                }
                (connected && peer.is_some()).then_some(())
            });
            let mut peer = UnixStream::from(OwnedFd::from(peer.unwrap()));
            peer.set_nonblocking(false).unwrap();
            peer.write_all(b"from the peer").unwrap();
            assert_eq!(common::receive_exactly(driver, ours, 13), b"from the peer");
            let sent = pattern(3 << 20);
            let expected = sent.clone();
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; expected.len()];
                peer.read_exact(&mut got).unwrap();
                assert!(got == expected);
            });
            send_all(driver, ours, &sent);
            reader.join().unwrap();
            driver.close(ours);
            driver.close(listener);
            // An accept under way keeps the socket open until the kernel has been told.
            driver.turn(Some(Duration::ZERO)).unwrap();
            let refused = connect_unix(&path, &StreamOptions::default()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        std::fs::remove_file(&file).unwrap();
        let missing = connect_unix(&file, &StreamOptions::default()).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    });
}

#[test]
fn a_paused_listener_accepts_when_it_is_resumed() {
    on_each_backend(|driver| {
        let (listener, address) = listening(driver);
        for _ in 0..3 {
            driver.pause_receive(listener);
            driver.turn(Some(Duration::ZERO)).unwrap();
            while driver.next_event().is_some() {}
            let _peer = TcpStream::connect(address).unwrap();
            driver.turn(Some(Duration::from_millis(5))).unwrap();
            assert!(driver.next_event().is_none(), "it accepted while paused");
            driver.resume_receive(listener);
            drop(accepted(driver));
        }
    });
}
