//! No descriptor is left behind, and running out of them does not end a server. One test: it counts the descriptors
//! of the whole process.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use common::{PATIENCE, accepted, listening, on_each_backend, pair, pattern, receive_exactly, wait_for};
use corewire_driver::net::{ListenOptions, StreamOptions, connect_tcp, listen_tcp};
use corewire_driver::{Driver, Event, Socket, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set in the child process that may open only few files.
const FEW_FILES: &str = "COREWIRE_TEST_FEW_FILES";

fn main() {
    if !cfg!(target_os = "linux") {
        println!("not run: open descriptors are counted by way of /proc");
        return;
    }
    if std::env::var_os(FEW_FILES).is_some() {
        on_each_backend(a_server_survives_the_want_of_descriptors);
        on_each_backend(who_waits_is_refused_when_descriptors_are_short);
        return;
    }
    // Whatever a first driver opens once for the process is there before the count.
    on_each_backend(|_| {});
    type Path = fn(&mut Driver);
    let paths: [(&str, Path); 8] = [
        ("a listener", listener_with_waiting_connections),
        ("a connect that is refused", refused_connect),
        ("a connect under way", connect_under_way),
        ("receive armed", receive_armed),
        ("paused", paused),
        ("the direct path", direct_path),
        ("blocked send", blocked_send),
        ("accepted while going", accepted_while_going),
    ];
    for (name, path) in paths {
        let before = open_descriptors();
        on_each_backend(path);
        assert_eq!(open_descriptors(), before, "descriptors are left after: {name} (driver dropped)");
        println!("test {name} leaves no descriptor ... ok");
    }
    let before = open_descriptors();
    on_each_backend(closing_gives_all_back);
    assert_eq!(open_descriptors(), before);
    println!("test closing gives all back ... ok");

    let child = Command::new(std::env::current_exe().unwrap()).env(FEW_FILES, "1").status().unwrap();
    assert!(child.success(), "the server with few descriptors: {child}");
    println!("test a server survives the want of descriptors ... ok");
}

fn open_descriptors() -> usize {
    // One of them is the directory that is being read.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn turn(driver: &mut Driver) {
    driver.turn(Some(Duration::ZERO)).unwrap();
}

fn listener_with_waiting_connections(driver: &mut Driver) {
    let (_, address) = listening(driver);
    let _peers: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    drop(accepted(driver));
}

fn refused_connect(driver: &mut Driver) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Ok(socket) = connect_tcp(address, &StreamOptions::default()) else { return };
    let token = driver.connect(socket).unwrap();
    wait_for(driver, |event| matches!(event, Event::Failed { .. }).then_some(()));
    drop(driver.close(token).unwrap());
}

/// A backlog that is full leaves a connect without an answer.
fn connect_under_way(driver: &mut Driver) {
    let mut options = ListenOptions::default();
    options.backlog = 0;
    let listener = listen_tcp("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    for _ in 0..4 {
        driver.connect(connect_tcp(address, &StreamOptions::default()).unwrap()).unwrap();
    }
    turn(driver);
}

fn receive_armed(driver: &mut Driver) {
    let (token, mut peer) = pair(driver);
    peer.write_all(&pattern(1000)).unwrap();
    let _kept = receive_exactly(driver, token, 1000);
    peer.write_all(&pattern(1000)).unwrap();
    // What is received now is never asked for.
    turn(driver);
}

fn paused(driver: &mut Driver) {
    let (token, mut peer) = pair(driver);
    turn(driver);
    driver.pause_receive(token);
    peer.write_all(&pattern(1000)).unwrap();
    turn(driver);
    let (other, _peer) = pair(driver);
    driver.pause_receive(other);
}

fn direct_path(driver: &mut Driver) {
    let (token, mut peer) = pair(driver);
    let len = 4 << 20;
    let writer = std::thread::spawn(move || peer.write_all(&pattern(len + 1000)).map(|()| peer));
    receive_exactly(driver, token, len);
    writer.join().unwrap().unwrap();
}

fn blocked_send(driver: &mut Driver) {
    let (token, _peer) = pair(driver);
    let block = pattern(1 << 20);
    while driver.send(token, &[std::io::IoSlice::new(&block)]).unwrap() == block.len() {}
    turn(driver);
}

/// Connections whose accept is done but was not asked for.
fn accepted_while_going(driver: &mut Driver) {
    let (listener, address) = listening(driver);
    turn(driver);
    let _peers: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    turn(driver);
    let (_, other) = listening(driver);
    turn(driver);
    let _more: Vec<_> = (0..20).map(|_| TcpStream::connect(other).unwrap()).collect();
    // One listener closes before its connections are taken, the other with the driver.
    drop(driver.close(listener));
    turn(driver);
    let _one = driver.next_event();
}

fn closing_gives_all_back(driver: &mut Driver) {
    let before = open_descriptors();
    let (listener, address) = listening(driver);
    let mut tokens: Vec<Token> = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..30 {
        peers.push(TcpStream::connect(address).unwrap());
        let socket = accepted(driver);
        tokens.push(driver.add_stream(socket).unwrap());
    }
    peers.iter_mut().for_each(|peer| peer.write_all(b"something").unwrap());
    turn(driver);
    for (at, token) in tokens.into_iter().enumerate() {
        if at % 2 == 0 {
            driver.pause_receive(token);
        }
        drop(driver.close(token).unwrap());
    }
    drop(driver.close(listener).unwrap());
    assert_eq!(driver.sockets(), 0);
    drop(peers);
    // An operation under way holds its file until its cancellation has run.
    for _ in 0..3 {
        turn(driver);
        while driver.next_event().is_some() {}
    }
    assert_eq!(open_descriptors(), before);
}

/// With no descriptor left those who connect see an end at once, and the next ones are served when there are some again.
fn who_waits_is_refused_when_descriptors_are_short(driver: &mut Driver) {
    let (listener, address) = listening(driver);
    let mut peers: Vec<_> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
    let limit = getrlimit(Resource::Nofile);
    let highest = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u64>().ok());
    let none_left = highest.max().map(|highest| highest + 1);
    setrlimit(Resource::Nofile, Rlimit { current: none_left, maximum: limit.maximum }).unwrap();
    let fill: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    wait_for(driver, |event| matches!(event, Event::AcceptFailed { .. }).then_some(()));
    assert_eq!(driver.refuse_waiting(listener, 2), 2);
    assert_eq!(driver.refuse_waiting(listener, 100), 4);
    assert_eq!(driver.refuse_waiting(listener, 100), 0, "nobody waits any more");
    assert_eq!(driver.counters().refused, 6);
    for peer in &mut peers {
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
    setrlimit(Resource::Nofile, limit).unwrap();
    drop(fill);
    driver.resume_accept(listener);
    let _served = TcpStream::connect(address).unwrap();
    drop(accepted(driver));
    drop(driver.close(listener));
    assert_eq!(driver.refuse_waiting(listener, 1), 0, "it is closed");
}

fn a_server_survives_the_want_of_descriptors(driver: &mut Driver) {
    let (listener, address) = listening(driver);
    let (token, mut existing) = pair(driver);
    // The clients are made first: they need descriptors of their own.
    let peers: Vec<_> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
    let limit = getrlimit(Resource::Nofile);
    let room_for_two = open_descriptors() as u64 + 2;
    setrlimit(Resource::Nofile, Rlimit { current: Some(room_for_two), maximum: limit.maximum }).unwrap();

    let mut sockets: Vec<Socket> = Vec::new();
    let error = wait_for(driver, |event| match event {
        Event::Accepted { socket, .. } => {
            sockets.push(socket);
            None
        }
        Event::AcceptFailed { listener: which, error } => (which == listener).then_some(error),
        other => panic!("unexpected {other:?}"),
    });
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    assert!(sockets.len() < peers.len(), "{} accepted", sockets.len());

    // An established connection goes on, and the listener backs off, whatever arrives.
    existing.write_all(b"still here").unwrap();
    assert_eq!(receive_exactly(driver, token, 10), b"still here");
    assert_eq!(driver.send(token, &[std::io::IoSlice::new(b"we too")]).unwrap(), 6);
    let mut reply = [0; 6];
    existing.read_exact(&mut reply).unwrap();

    // Resumed too early, it fails again; resumed with room, it accepts all that have waited.
    driver.resume_accept(listener);
    wait_for(driver, |event| matches!(event, Event::AcceptFailed { .. }).then_some(()));
    setrlimit(Resource::Nofile, limit).unwrap();
    driver.turn(Some(Duration::from_millis(5))).unwrap();
    assert!(driver.next_event().is_none(), "it backs off until it is resumed");
    let late = TcpStream::connect(address).unwrap();
    driver.turn(Some(Duration::from_millis(5))).unwrap();
    assert!(driver.next_event().is_none(), "a new connection does not end the backoff");
    driver.resume_accept(listener);
    while sockets.len() < peers.len() + 1 {
        sockets.push(accepted(driver));
    }
    drop(late);
    existing.shutdown(Shutdown::Both).unwrap();
    existing.set_read_timeout(Some(PATIENCE)).unwrap();
}
