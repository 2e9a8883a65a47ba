//! What only the io_uring backend can be asked.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::Uring;
use crate::config::DriverConfig;
use crate::event::{Event, Token};
use crate::probe::probe;
use crate::ready::Ready;
use crate::role::Role;
use crate::socket::Socket;

fn driver() -> Option<Uring> {
    probe().uring.is_ok().then(|| Uring::new(&DriverConfig::default()).expect("the probe says that it works"))
}

fn pair(driver: &mut Uring) -> (Token, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = Socket::from_fd(listener.accept().unwrap().0.into()).unwrap();
    (driver.add(socket, Role::Stream).unwrap(), peer)
}

/// One turn, at most 50 ms, and what it tells.
fn turn(driver: &mut Uring) -> Vec<Event> {
    driver.turn(Some(Duration::from_millis(50)), &()).unwrap();
    std::iter::from_fn(|| driver.next_event()).collect()
}

#[test]
fn pausing_on_the_direct_path_asks_nothing_of_the_kernel() {
    let Some(mut driver) = driver() else { return };
    let (token, mut peer) = pair(&mut driver);
    driver.set_receive_max(token, 100);
    peer.write_all(&[1; 150]).unwrap();
    while turn(&mut driver).is_empty() {}
    for _ in 0..3 {
        driver.pause_receive(token);
        peer.write_all(&[2; 150]).unwrap();
        assert!(turn(&mut driver).is_empty(), "paused");
        let in_flight = driver.in_flight;
        driver.resume_receive(token);
        driver.pause_receive(token);
        driver.resume_receive(token);
        assert_eq!(driver.in_flight, in_flight, "the poll stays as it is");
        assert!(driver.has_pending(), "it is listed as readable");
        let mut got = 0;
        while got < 150 {
            for event in turn(&mut driver) {
                match event {
                    Event::Received { data, .. } => got += data.len(),
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
    }
}

/// Nothing is under way that was asked for before.
fn at_rest(driver: &mut Uring) {
    for _ in 0..3 {
        driver.turn(Some(Duration::ZERO), &()).unwrap();
        while driver.next_event().is_some() {}
    }
}

#[test]
fn many_completions_do_not_hold_up_the_direct_path() {
    let Some(mut driver) = driver() else { return };
    let mut others: Vec<_> = (0..60).map(|_| pair(&mut driver)).collect();
    let (token, mut peer) = pair(&mut driver);
    driver.set_receive_max(token, 100);
    at_rest(&mut driver);
    peer.write_all(&[1; 10]).unwrap();
    others.iter_mut().for_each(|(_, peer)| peer.write_all(&[2; 10]).unwrap());
    let events = turn(&mut driver);
    assert!(events.len() > 21, "{} events", events.len());
    let place =
        events.iter().position(|event| matches!(event, Event::Received { token: of, .. } if *of == token));
    assert!(place.is_some_and(|place| place <= 20), "served at place {place:?} of {}", events.len());
}

#[test]
fn what_the_ring_has_taken_comes_before_what_is_received_directly() {
    let Some(mut driver) = driver() else { return };
    let (token, mut peer) = pair(&mut driver);
    at_rest(&mut driver);
    let sent: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    peer.write_all(&sent[..60_000]).unwrap();
    // The ring takes these bytes; the next ones are in the socket when it is to be received from directly.
    driver.turn(Some(Duration::from_millis(50)), &()).unwrap();
    peer.write_all(&sent[60_000..]).unwrap();
    driver.set_receive_max(token, 70_000);
    let io = driver.table.get_mut(token).unwrap();
    driver.ready.add(token, &mut io.pending, Ready::READABLE);
    driver.in_a_row = super::COMPLETIONS_IN_A_ROW;
    let mut got = Vec::new();
    while got.len() < sent.len() {
        while let Some(event) = driver.next_event() {
            match event {
                Event::Received { data, .. } => got.extend_from_slice(&data),
                other => panic!("unexpected {other:?}"),
            }
        }
        driver.turn(Some(Duration::from_millis(50)), &()).unwrap();
    }
    assert!(got == sent, "the bytes are out of order");
}

#[test]
fn a_buffer_that_is_kept_until_the_end_of_a_turn_is_not_replaced() {
    let Some(mut driver) = driver() else { return };
    let (_token, mut peer) = pair(&mut driver);
    let (_other, mut other_peer) = pair(&mut driver);
    at_rest(&mut driver);
    let before = driver.buffers.places();
    let mut received = 0;
    while received < 100 {
        peer.write_all(&[1; 100]).unwrap();
        other_peer.write_all(&[2; 100]).unwrap();
        // Kept behind the events of others, as what is deferred is.
        received += turn(&mut driver).len();
    }
    at_rest(&mut driver);
    assert_eq!(driver.buffers.places(), before);
}

#[test]
fn buffers_that_the_kernel_may_still_write_to_are_not_freed() {
    let Some(mut driver) = driver() else { return };
    let place = driver.buffers.address();
    // One more than there is: the drop waits in vain.
    driver.in_flight += 1;
    drop(driver);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_mapped = maps.lines().any(|line| {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        (usize::from_str_radix(from, 16).unwrap()..usize::from_str_radix(to, 16).unwrap()).contains(&place)
    });
    assert!(is_mapped);
}
