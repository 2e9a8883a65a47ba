//! What the tests of the driver share.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test file uses a part of it

use std::io::IoSlice;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use corewire_driver::net::{ListenOptions, listen_tcp};
use corewire_driver::{Driver, DriverConfig, DriverKind, Event, Socket, Token, probe};
use socket2::SockRef;

/// Long enough for a loaded machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn on_each_backend(test: impl Fn(&mut Driver)) {
    with_settings(|_| {}, test);
}

/// [`on_each_backend`] with other settings than the default.
pub fn with_settings(change: impl Fn(&mut DriverConfig), test: impl Fn(&mut Driver)) {
    let forced = DriverConfig::default().with_env_override().unwrap().kind;
    for kind in [DriverKind::Epoll, DriverKind::Uring] {
        if forced != DriverKind::Auto && forced != kind {
            continue;
        }
        if kind == DriverKind::Uring && forced == DriverKind::Auto && probe().uring.is_err() {
            eprintln!("not run on io_uring: {}", probe());
            continue;
        }
        let mut config = DriverConfig::default();
        config.kind = kind;
        change(&mut config);
        test(&mut Driver::new(&config).unwrap());
    }
}

/// Turns until `pick` takes an event.
pub fn wait_for<T>(driver: &mut Driver, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        driver.turn(Some(Duration::from_millis(50))).unwrap();
        while let Some(event) = driver.next_event() {
            if let Some(found) = pick(event) {
                return found;
            }
        }
    }
    panic!("the event did not come");
}

pub fn listening(driver: &mut Driver) -> (Token, SocketAddr) {
    let socket = listen_tcp("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (driver.add_listener(socket).unwrap(), address)
}

pub fn accepted(driver: &mut Driver) -> Socket {
    wait_for(driver, |event| match event {
        Event::Accepted { socket, .. } => Some(socket),
        _ => None,
    })
}

/// A connection of which one end is the driver's and the other a blocking socket of the test's.
pub fn pair(driver: &mut Driver) -> (Token, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = Socket::from_fd(listener.accept().unwrap().0.into()).unwrap();
    (driver.add_stream(socket).unwrap(), peer)
}

pub fn receive_exactly(driver: &mut Driver, token: Token, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    wait_for(driver, |event| {
        if let Event::Received { token: from, data } = event {
            assert_eq!(from, token);
            got.extend_from_slice(&data);
        }
        (got.len() >= len).then_some(())
    });
    got
}

pub fn send_all(driver: &mut Driver, token: Token, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = driver.send(token, &[IoSlice::new(bytes)]).unwrap();
        bytes = &bytes[sent..];
        if !bytes.is_empty() {
            wait_for(driver, |event| matches!(event, Event::Writable { .. }).then_some(()));
        }
    }
}

/// Bytes that tell where they belong: they repeat after a prime number of them.
pub fn pattern(len: usize) -> Vec<u8> {
    const PERIOD: usize = 64_007;
    let once: Vec<u8> = (0..PERIOD.min(len)).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut bytes = once.repeat(len.div_ceil(PERIOD));
    bytes.truncate(len);
    bytes
}

/// Closes a connection so that its peer sees a reset.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}
