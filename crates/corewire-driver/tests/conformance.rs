//! What every backend must do. Each test runs on all backends that this kernel has (or on the one that
//! `COREWIRE_DRIVER` names).

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use common::{
    PATIENCE, accepted, listening, on_each_backend, pair, pattern, receive_exactly, reset, send_all, wait_for,
};
use corewire_driver::net::{ListenOptions, StreamOptions, connect_tcp, connect_unix, listen_unix};
use corewire_driver::{Address, Driver, DriverConfig, DriverKind, Event, Interest, Socket, Token};

#[test]
fn a_listener_accepts_many_connections() {
    on_each_backend(|driver| {
        let (_, address) = listening(driver);
        let peers: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
        let sockets: Vec<_> = (0..50).map(|_| accepted(driver)).collect();
        let mut theirs: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
        let mut ours: Vec<_> =
            sockets.iter().map(|socket| socket.peer_addr().unwrap().as_socket().unwrap()).collect();
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs);
        assert!(sockets.iter().all(|socket| socket2::SockRef::from(socket).nonblocking().unwrap()));
    });
}

#[test]
fn a_socket_handed_in_is_made_non_blocking_and_anything_else_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = Socket::from_fd(stream.into()).unwrap();
    assert!(socket2::SockRef::from(&socket).nonblocking().unwrap());
    assert!(socket.try_clone().is_ok());
    assert_eq!(socket.peer_addr().unwrap(), Address::Internet(listener.local_addr().unwrap()));
    let error = Socket::from_fd(std::fs::File::open("/dev/null").unwrap().into()).unwrap_err();
    assert_eq!(rustix::io::Errno::from_io_error(&error), Some(rustix::io::Errno::NOTSOCK));
}

#[test]
fn unix_addresses_are_told_as_they_are_written() {
    let options = ListenOptions::default();
    let name = format!("@corewire-driver-address-{}", std::process::id());
    let listener = listen_unix(name.as_ref(), &options).unwrap();
    assert_eq!(listener.local_addr().unwrap().as_path(), Some(name.as_ref()));
    let client = connect_unix(name.as_ref(), &StreamOptions::default()).unwrap();
    assert_eq!(client.local_addr().unwrap(), Address::Unix(Default::default()));
    assert_eq!(client.peer_addr().unwrap().as_path(), Some(name.as_ref()));
    assert_eq!(client.peer_addr().unwrap().as_socket(), None);
}

#[test]
fn bytes_arrive_whole_and_in_order() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        let sent = pattern(8 << 20);
        let copy = sent.clone();
        let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
        assert!(receive_exactly(driver, token, sent.len()) == sent);
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn small_and_large_messages_in_turn_stay_in_order() {
    // Crosses the two receive paths of io_uring again and again.
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        let round: Vec<_> = std::iter::once(pattern(3 << 20)).chain((0..80).map(|at| vec![at; 20])).collect();
        for _ in 0..4 {
            for message in &round {
                let copy = message.clone();
                let mut half = peer.try_clone().unwrap();
                let writer = std::thread::spawn(move || half.write_all(&copy));
                assert!(receive_exactly(driver, token, message.len()) == *message);
                writer.join().unwrap().unwrap();
            }
        }
        peer.write_all(b"end").unwrap();
        assert_eq!(receive_exactly(driver, token, 3), b"end");
    });
}

#[test]
fn kept_blocks_are_not_overwritten() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        let mut kept = Vec::new();
        for round in 0..500_u32 {
            peer.write_all(&round.to_le_bytes().repeat(50)).unwrap();
            let mut got = 0;
            wait_for(driver, |event| {
                if let Event::Received { data, .. } = event {
                    got += data.len();
                    kept.push(data);
                }
                (got == 200).then_some(())
            });
        }
        let all: Vec<u8> = kept.iter().flat_map(|data| data.iter().copied()).collect();
        let expected: Vec<u8> = (0..500_u32).flat_map(|round| round.to_le_bytes().repeat(50)).collect();
        assert!(all == expected);
        let _ = token;
    });
}

#[test]
fn a_short_send_is_followed_by_writable() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        let sent = pattern(16 << 20);
        let expected = sent.clone();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            peer.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        send_all(driver, token, &sent);
        reader.join().unwrap();
    });
}

#[test]
fn vectored_sends_keep_their_order() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        let sent =
            driver.send(token, &[IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")]).unwrap();
        assert_eq!(sent, 7);
        let mut got = [0; 7];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"one two");
    });
}

#[test]
fn the_end_comes_after_the_last_byte() {
    on_each_backend(|driver| {
        for len in [0, 1, 5000, 300_000, 3_000_000] {
            let (token, mut peer) = pair(driver);
            let sent = pattern(len);
            let copy = sent.clone();
            let writer = std::thread::spawn(move || {
                peer.write_all(&copy).unwrap();
                peer.shutdown(Shutdown::Write).unwrap();
                peer
            });
            let mut got = Vec::new();
            wait_for(driver, |event| match event {
                Event::Received { data, .. } => {
                    got.extend_from_slice(&data);
                    None
                }
                Event::ReadClosed { token: from } => {
                    assert_eq!(from, token);
                    Some(())
                }
                other => panic!("unexpected {other:?}"),
            });
            assert!(got == sent, "{len} bytes");
            // The other direction still works.
            assert_eq!(driver.send(token, &[IoSlice::new(b"bye")]).unwrap(), 3);
            let mut bye = [0; 3];
            writer.join().unwrap().read_exact(&mut bye).unwrap();
            driver.close(token);
        }
    });
}

#[test]
fn a_reset_is_reported_as_failure() {
    on_each_backend(|driver| {
        let (token, peer) = pair(driver);
        reset(peer);
        let error = wait_for(driver, |event| match event {
            Event::Failed { token: from, error } => {
                assert_eq!(from, token);
                Some(error)
            }
            other => panic!("unexpected {other:?}"),
        });
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_socket_that_was_made_blocking_does_not_block_the_driver() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        let other_handle = driver.socket(token).unwrap().as_fd().try_clone_to_owned().unwrap();
        let other_handle = TcpStream::from(other_handle);
        other_handle.set_nonblocking(false).unwrap();
        other_handle.set_read_timeout(Some(PATIENCE)).unwrap();
        other_handle.set_write_timeout(Some(PATIENCE)).unwrap();
        let started = Instant::now();
        // As much as is asked for, so that the driver asks once more.
        driver.set_receive_max(token, 10);
        peer.write_all(&[7; 10]).unwrap();
        assert_eq!(receive_exactly(driver, token, 10), [7; 10]);
        turn_to_rest(driver);
        let block = pattern(1 << 20);
        while driver.send(token, &[IoSlice::new(&block)]).unwrap() == block.len() {}
        while driver.send(token, &[IoSlice::new(b"more "), IoSlice::new(b"parts")]).unwrap() == 10 {}
        assert!(started.elapsed() < PATIENCE, "it waited in a system call");
    });
}

#[test]
fn a_stream_that_resets_on_close_does_so_at_once() {
    on_each_backend(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut options = StreamOptions::default();
        options.reset_on_close = true;
        let token = driver.connect(connect_tcp(listener.local_addr().unwrap(), &options).unwrap()).unwrap();
        wait_for(driver, |event| matches!(event, Event::Connected { .. }).then_some(()));
        let (mut peer, _) = listener.accept().unwrap();
        let block = pattern(1 << 20);
        while driver.send(token, &[IoSlice::new(&block)]).unwrap() == block.len() {}
        let started = Instant::now();
        drop(driver.close(token).unwrap());
        driver.turn(Some(Duration::ZERO)).unwrap();
        assert!(started.elapsed() < PATIENCE);
        let error = peer.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_paused_connection_holds_its_peer_back_and_loses_nothing() {
    on_each_backend(|driver| {
        let (token, peer) = pair(driver);
        driver.pause_receive(token);
        let sent = pattern(32 << 20);
        peer.set_nonblocking(true).unwrap();
        let (mut written, mut got) = (0, Vec::new());
        // More than any socket buffer holds: the peer is stopped before it is through.
        let mut idle_turns = 0;
        while idle_turns < 5 {
            idle_turns += 1;
            while let Ok(more @ 1..) = (&peer).write(&sent[written..]) {
                written += more;
                idle_turns = 0;
            }
            driver.turn(Some(Duration::from_millis(5))).unwrap();
            while let Some(event) = driver.next_event() {
                match event {
                    Event::Received { data, .. } => got.extend_from_slice(&data),
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
        assert!(written < sent.len(), "the peer was not held back");
        assert!(got.len() <= 4 << 20, "{} bytes came while paused", got.len());
        driver.resume_receive(token);
        let rest = sent[written..].to_vec();
        let writer = std::thread::spawn(move || {
            peer.set_nonblocking(false).unwrap();
            (&peer).write_all(&rest).map(|()| peer)
        });
        let left = sent.len() - got.len();
        got.extend(receive_exactly(driver, token, left));
        assert!(got == sent);
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn a_connection_paused_before_the_end_sees_the_end_when_resumed() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        driver.pause_receive(token);
        driver.turn(Some(Duration::ZERO)).unwrap();
        while driver.next_event().is_some() {}
        peer.write_all(b"last words").unwrap();
        drop(peer);
        driver.turn(Some(Duration::from_millis(5))).unwrap();
        let mut got = Vec::new();
        while let Some(event) = driver.next_event() {
            if let Event::Received { data, .. } = event {
                got.extend_from_slice(&data);
            }
        }
        driver.resume_receive(token);
        wait_for(driver, |event| match event {
            Event::Received { data, .. } => {
                got.extend_from_slice(&data);
                None
            }
            Event::ReadClosed { .. } => Some(()),
            other => panic!("unexpected {other:?}"),
        });
        assert_eq!(got, b"last words");
    });
}

/// A paused connection, of which what it had received already is taken.
fn paused_pair(driver: &mut Driver, sends: &[u8], receive_max: usize) -> (Token, TcpStream) {
    let (token, mut peer) = pair(driver);
    driver.set_receive_max(token, receive_max);
    if !sends.is_empty() {
        peer.write_all(sends).unwrap();
        receive_exactly(driver, token, sends.len());
    }
    driver.pause_receive(token);
    turn_to_rest(driver);
    (token, peer)
}

#[test]
fn a_reset_is_reported_while_paused_whatever_was_not_received() {
    for unreceived in [&b""[..], b"bytes that nobody receives"] {
        for receive_max in [usize::MAX, 4096] {
            on_each_backend(|driver| {
                let (token, mut peer) = paused_pair(driver, b"before", receive_max);
                peer.write_all(unreceived).unwrap();
                turn_to_rest(driver);
                reset(peer);
                wait_for(driver, |event| match event {
                    Event::Failed { token: from, .. } if from == token => Some(()),
                    other => panic!("unexpected {other:?}"),
                });
                driver.resume_receive(token);
                turn_to_rest(driver);
            });
        }
    }
}

#[test]
fn the_end_is_told_while_paused_if_no_bytes_are_before_it() {
    for receive_max in [usize::MAX, 4096] {
        on_each_backend(|driver| {
            let (token, peer) = paused_pair(driver, b"all of it", receive_max);
            peer.shutdown(Shutdown::Write).unwrap();
            wait_for(driver, |event| match event {
                Event::ReadClosed { token: from } if from == token => Some(()),
                other => panic!("unexpected {other:?}"),
            });
            driver.resume_receive(token);
            turn_to_rest(driver);
            driver.send(token, &[IoSlice::new(b"an answer")]).unwrap();
            let mut answer = [0; 9];
            (&peer).read_exact(&mut answer).unwrap();
        });
    }
}

#[test]
fn a_reset_behind_an_end_with_bytes_before_it_is_reported_while_paused() {
    on_each_backend(|driver| {
        let (token, mut peer) = paused_pair(driver, b"", usize::MAX);
        peer.write_all(b"bytes that nobody receives").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        // The bytes are not lost by the end behind them.
        turn_to_rest(driver);
        driver.send(token, &[IoSlice::new(b"not read")]).unwrap();
        drop(peer);
        wait_for(driver, |event| match event {
            Event::Failed { token: from, .. } if from == token => Some(()),
            other => panic!("unexpected {other:?}"),
        });
    });
}

#[test]
fn pausing_and_resuming_at_once_goes_on_receiving() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        for _ in 0..20 {
            driver.pause_receive(token);
            driver.resume_receive(token);
            peer.write_all(b"x").unwrap();
            assert_eq!(receive_exactly(driver, token, 1), b"x");
        }
    });
}

/// Takes bytes until the end; how long the longest piece was. `after_each` is called after each of them.
fn longest_piece(
    driver: &mut Driver,
    token: Token,
    expected: &[u8],
    after_each: impl Fn(&mut Driver),
) -> usize {
    let (mut got, mut longest) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        driver.resume_receive(token);
        driver.turn(Some(Duration::from_millis(50))).unwrap();
        while let Some(event) = driver.next_event() {
            match event {
                Event::Received { data, .. } => {
                    assert!(expected[got..].starts_with(&data), "after {got} bytes");
                    (got, longest) = (got + data.len(), longest.max(data.len()));
                    after_each(driver);
                }
                Event::ReadClosed { .. } => {
                    assert_eq!(got, expected.len());
                    return longest;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    panic!("the end did not come after {got} of {} bytes", expected.len());
}

fn turn_to_rest(driver: &mut Driver) {
    for _ in 0..3 {
        driver.turn(Some(Duration::ZERO)).unwrap();
        while driver.next_event().is_some() {}
    }
}

#[test]
fn a_receive_limit_is_kept_to_the_end() {
    on_each_backend(|driver| {
        for (limit, len) in [(1, 500), (1000, 300_000), (100_000, 4 << 20)] {
            let (token, mut peer) = pair(driver);
            driver.set_receive_max(token, limit);
            turn_to_rest(driver);
            let sent = pattern(len);
            let copy = sent.clone();
            let writer = std::thread::spawn(move || peer.write_all(&copy));
            assert!(longest_piece(driver, token, &sent, |_| {}) <= limit);
            writer.join().unwrap().unwrap();
            driver.close(token);
        }
    });
}

#[test]
fn pausing_after_each_piece_under_a_limit_loses_nothing() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        // It leaves the ring while bytes are under way on it.
        peer.write_all(&pattern(100_000)).unwrap();
        driver.turn(Some(Duration::ZERO)).unwrap();
        driver.set_receive_max(token, 5000);
        let sent = pattern(1 << 20);
        let rest = sent[100_000..].to_vec();
        let writer = std::thread::spawn(move || peer.write_all(&rest));
        assert!(longest_piece(driver, token, &sent, |driver| driver.pause_receive(token)) <= 32 * 1024);
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn a_receive_limit_that_is_lifted_no_longer_cuts() {
    on_each_backend(|driver| {
        let (token, mut peer) = pair(driver);
        driver.set_receive_max(token, 100);
        turn_to_rest(driver);
        driver.set_receive_max(token, usize::MAX);
        let sent = pattern(20_000);
        // In one piece in the socket before the driver looks.
        peer.write_all(&sent).unwrap();
        drop(peer);
        assert!(longest_piece(driver, token, &sent, |_| {}) > 100);
    });
}

#[test]
fn a_connect_ends_in_connected_or_failed() {
    on_each_backend(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let token = driver.connect(connect_tcp(address, &StreamOptions::default()).unwrap()).unwrap();
        wait_for(driver, |event| match event {
            Event::Connected { token: which } if which == token => Some(()),
            other => panic!("unexpected {other:?}"),
        });
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"hello").unwrap();
        assert_eq!(receive_exactly(driver, token, 5), b"hello");

        drop(listener);
        // Loopback may refuse at once.
        let Ok(socket) = connect_tcp(address, &StreamOptions::default()) else { return };
        let refused = driver.connect(socket).unwrap();
        let error = wait_for(driver, |event| match event {
            Event::Failed { token, error } if token == refused => Some(error),
            _ => None,
        });
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_wake_from_another_thread_ends_the_wait() {
    on_each_backend(|driver| {
        for _ in 0..3 {
            let waker = driver.waker();
            let started = Instant::now();
            let thread = std::thread::spawn(move || waker.wake().unwrap());
            driver.turn(Some(PATIENCE)).unwrap();
            while driver.next_event().is_some() {}
            thread.join().unwrap();
            assert!(started.elapsed() < PATIENCE);
            driver.turn(Some(Duration::ZERO)).unwrap();
            while driver.next_event().is_some() {}
        }
    });
}

#[test]
fn nothing_comes_from_a_closed_token_even_if_its_slot_is_used_again() {
    on_each_backend(|driver| {
        let (first, mut first_peer) = pair(driver);
        first_peer.write_all(b"for the first").unwrap();
        drop(driver.close(first).unwrap());
        assert!(driver.close(first).is_none());
        let (second, mut second_peer) = pair(driver);
        assert_eq!(first.index(), second.index());
        assert_eq!(
            driver.send(first, &[IoSlice::new(b"x")]).unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
        second_peer.write_all(b"for the second").unwrap();
        assert_eq!(receive_exactly(driver, second, 14), b"for the second");
        // The first peer learns that its connection is gone.
        let mut buffer = [0; 16];
        assert!(matches!(first_peer.read(&mut buffer), Ok(0) | Err(_)));
    });
}

#[test]
fn a_descriptor_that_is_used_again_is_not_watched_for_the_one_before() {
    on_each_backend(|driver| {
        // Whether it was just added, resumed or asked to write: the next turn must not touch its successor.
        let prepare: [fn(&mut Driver, Token); 4] = [
            |_, _| {},
            |driver, token| {
                driver.pause_receive(token);
                turn_to_rest(driver);
                driver.resume_receive(token);
            },
            |driver, token| {
                turn_to_rest(driver);
                driver.set_receive_max(token, 10);
            },
            |driver, token| driver.set_write_interest(token).unwrap(),
        ];
        for prepare in prepare {
            let (token, _peer) = pair(driver);
            prepare(driver, token);
            // As if the number had been given to another connection at once, by an accept of another thread.
            let mut number = OwnedFd::from(driver.close(token).unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            rustix::io::dup2(listener.accept().unwrap().0, &mut number).unwrap();
            let mut successor = TcpStream::from(number);
            peer.write_all(b"for the successor").unwrap();
            turn_to_rest(driver);
            drop(peer);
            let mut got = String::new();
            successor.read_to_string(&mut got).unwrap();
            assert_eq!(got, "for the successor");
        }
    });
}

#[test]
fn a_driver_dropped_with_operations_under_way_leaks_no_descriptor() {
    // Other tests of this process open sockets too: ask by inode, not by count.
    on_each_backend(|_| {
        let kinds = [DriverKind::Epoll, DriverKind::Uring];
        for kind in kinds {
            let mut config = DriverConfig::default();
            config.kind = kind;
            let Ok(mut driver) = Driver::new(&config) else { continue };
            let (_, address) = listening(&mut driver);
            let _waiting = TcpStream::connect(address).unwrap();
            let (token, mut peer) = pair(&mut driver);
            peer.write_all(&pattern(100_000)).unwrap();
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            driver.turn(Some(Duration::from_millis(10))).unwrap();
            let _kept = driver.next_event();
            let _ = token;
            drop(driver);
            // Only the last descriptor's end closes a connection: the peer must see it.
            let mut buffer = [0; 16];
            assert!(matches!(peer.read(&mut buffer), Ok(0) | Err(_)));
            assert!(TcpStream::connect(address).is_err(), "the listener is still open");
        }
    });
}

#[test]
fn ten_thousand_connections_come_and_go() {
    on_each_backend(|driver| {
        let (_, address) = listening(driver);
        let before = driver.sockets();
        for round in 0..10_000_u32 {
            let mut peer = TcpStream::connect(address).unwrap();
            peer.write_all(&round.to_le_bytes()).unwrap();
            reset(peer);
            let socket = accepted(driver);
            let token = driver.add_stream(socket).unwrap();
            if round % 3 == 0 {
                driver.turn(Some(Duration::ZERO)).unwrap();
                while driver.next_event().is_some() {}
            }
            driver.close(token);
        }
        assert_eq!(driver.sockets(), before);
    });
}

/// The next [`Event::Ready`] of a descriptor, or none within a few turns.
fn ready(driver: &mut Driver, token: Token, wait: Duration) -> Option<(bool, bool)> {
    let until = Instant::now() + wait;
    loop {
        driver.turn(Some(Duration::from_millis(1))).unwrap();
        match driver.next_event() {
            None => {}
            Some(Event::Ready { token: of, readable, writable }) if of == token => {
                return Some((readable, writable));
            }
            Some(other) => panic!("{other:?}"),
        }
        if Instant::now() >= until {
            return None;
        }
    }
}

#[test]
fn a_watched_descriptor_is_told_once_for_each_time_that_it_is_asked_for() {
    const NONE: Duration = Duration::from_millis(10);
    on_each_backend(|driver| {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let read = driver.add_watched(reader.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let write = driver.add_watched(writer.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(ready(driver, read, NONE), None, "nothing was asked for");
        driver.watch(write, Interest::Writable).unwrap();
        assert_eq!(ready(driver, write, PATIENCE), Some((false, true)));
        driver.watch(read, Interest::Readable).unwrap();
        assert_eq!(ready(driver, read, NONE), None);
        writer.write_all(b"x").unwrap();
        assert_eq!(ready(driver, read, PATIENCE), Some((true, false)));
        assert_eq!(ready(driver, read, NONE), None, "told once");
        driver.watch(read, Interest::Readable).unwrap();
        assert_eq!(ready(driver, read, PATIENCE), Some((true, false)), "and again while it is so");
        reader.read_exact(&mut [0]).unwrap();
        driver.watch(read, Interest::Readable).unwrap();
        driver.watch(write, Interest::Readable).unwrap();
        assert!(driver.close(read).is_some());
        assert!(driver.close(write).is_some());
        writer.write_all(b"x").unwrap();
        assert_eq!(ready(driver, read, NONE), None, "nothing is told of what is closed");
        assert!(driver.watch(read, Interest::Readable).is_err());
        let file = std::fs::File::open("Cargo.toml").unwrap();
        assert_eq!(driver.add_watched(file.into()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(driver.sockets(), 0);
    });
}
