//! Datagram sockets of a worker, on the driver that `COREWIRE_DRIVER` names.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corewire_runtime::udp::{
    Datagram, SendBatch, SendMeta, UdpError, UdpOptions, UdpPort, UdpProtocol, UdpSocket, open,
};
use corewire_runtime::{sleep, spawn_local, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

fn here() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn run(test: impl Future<Output = ()> + 'static) {
    corewire_runtime::run(async { timeout(PATIENCE, test).await.unwrap() }).unwrap();
}

fn pair() -> (UdpSocket, UdpSocket) {
    let (a, b) = (UdpSocket::bind(here()).unwrap(), UdpSocket::bind(here()).unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

#[test]
fn datagrams_of_every_size_arrive_whole_and_apart() {
    run(async {
        let (a, b) = pair();
        let mut buffer = vec![0; 65_535];
        for len in [0, 1, 1472, 9000, 65_507] {
            let sent: Vec<u8> = (0..len).map(|at| at as u8).collect();
            a.send(&sent).await.unwrap();
            let received = b.recv(&mut buffer).await.unwrap();
            assert_eq!((received.len, received.full_len), (len, len));
            assert!(buffer[..len] == sent);
            assert_eq!(received.from, Some(a.local_addr().unwrap()));
        }
        let error = a.send_to(&[0; 65_508], b.local_addr().unwrap()).await.unwrap_err();
        assert!(matches!(error, UdpError::TooLong { len: 65_508, max: 65_507 }), "{error}");
        let error = a.send(&[0; 65_508]).await.unwrap_err();
        assert!(matches!(error, UdpError::TooLong { len: 65_508, .. }), "{error}");
    });
}

#[test]
fn a_short_buffer_is_told_and_the_next_datagram_is_whole() {
    run(async {
        let (a, b) = pair();
        a.send(&[1; 100]).await.unwrap();
        a.send(&[2; 5]).await.unwrap();
        let mut buffer = [0; 10];
        let cut = b.recv(&mut buffer).await.unwrap();
        assert_eq!((cut.len, cut.full_len, cut.is_truncated()), (10, 100, true));
        let whole = b.recv(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..whole.len], whole.is_truncated()), (&[2; 5][..], false));
    });
}

#[test]
fn a_receive_waits_for_the_datagram_and_one_that_is_dropped_takes_none() {
    run(async {
        let (a, b) = pair();
        for n in 0..20_u8 {
            let mut buffer = [0; 10];
            assert!(timeout(Duration::from_millis(2), b.recv(&mut buffer)).await.is_err());
            let sender = async {
                sleep(Duration::from_millis(1)).await;
                a.send(&[n]).await.unwrap();
            };
            let (received, ()) = futures_lite::future::zip(b.recv(&mut buffer), sender).await;
            assert_eq!((received.unwrap().len, buffer[0]), (1, n));
        }
    });
}

#[test]
fn a_closed_port_is_told_and_the_socket_goes_on() {
    run(async {
        let socket = UdpSocket::bind(here()).unwrap();
        let gone = UdpSocket::bind(here()).unwrap().local_addr().unwrap();
        // The socket of that port is closed at the end of the tick.
        sleep(Duration::from_millis(5)).await;
        socket.connect(gone).unwrap();
        socket.send(b"anybody?").await.unwrap();
        let mut buffer = [0; 10];
        let error = socket.recv(&mut buffer).await.unwrap_err();
        assert!(matches!(error, UdpError::Refused), "{error}");
        let peer = UdpSocket::bind(gone).unwrap();
        socket.send(b"now?").await.unwrap();
        let received = peer.recv_from(&mut buffer).await.unwrap();
        peer.send_to(b"yes", received.from.unwrap()).await.unwrap();
        assert_eq!(socket.recv(&mut buffer).await.unwrap().len, 3);
    });
}

#[test]
fn another_family_is_a_typed_error() {
    run(async {
        for (here, there) in [("127.0.0.1:0", "[::1]:9"), ("[::1]:0", "127.0.0.1:9")] {
            let socket = UdpSocket::bind(here.parse().unwrap()).unwrap();
            let to = there.parse().unwrap();
            let error = socket.send_to(b"?", to).await.unwrap_err();
            assert!(matches!(error, UdpError::Family { to: told } if told == to), "{here}: {error}");
            let mut batch = SendBatch::new(true);
            batch.push(Some(to), &[b"?"], SendMeta::default()).unwrap();
            let error = socket.send_batch(&mut batch).await.unwrap_err();
            assert!(matches!(error, UdpError::Family { to: told } if told == to), "{here}: {error}");
            let error = socket.connect(to).unwrap_err();
            assert!(matches!(error, UdpError::Family { to: told } if told == to), "{here}: {error}");
            assert!(matches!(socket.send(b"?").await.unwrap_err(), UdpError::NotConnected));
        }
    });
}

#[test]
fn batches_go_both_ways_and_segments_come_apart() {
    run(async {
        let (a, b) = pair();
        let mut batch = SendBatch::new(true);
        for n in 0..200_u8 {
            batch.push(None, &[&[n; 50]], SendMeta::default()).unwrap();
        }
        assert_eq!(a.send_batch(&mut batch).await.unwrap(), 200);
        assert_eq!(a.send_segments(&[201; 1000], 300, None).await.unwrap(), 4);
        let mut got = Vec::new();
        while got.len() < 204 {
            b.recv_many(|datagram| got.push(datagram.payload().to_vec())).await.unwrap();
        }
        let mut expected: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; 50]).collect();
        expected.extend([vec![201; 300], vec![201; 300], vec![201; 300], vec![201; 100]]);
        assert_eq!(got, expected);
    });
}

/// Sends back what it gets; panics at `boom`.
struct Echo(Rc<RefCell<Vec<&'static str>>>);

impl UdpProtocol for Echo {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        assert_ne!(datagram.payload(), b"boom");
        port.send_to(datagram.from().unwrap(), datagram.payload()).unwrap();
    }

    fn on_timer(&mut self, _: &UdpPort) {
        self.0.borrow_mut().push("timer");
    }

    fn on_closed(&mut self, _: &UdpPort) {
        self.0.borrow_mut().push("closed");
    }
}

fn echo() -> (UdpPort, SocketAddr, Rc<RefCell<Vec<&'static str>>>) {
    let (options, calls) = (UdpOptions::default(), Rc::default());
    let port = UdpPort::open(open(here(), &options).unwrap(), &options, Echo(Rc::clone(&calls))).unwrap();
    let address = port.local_addr().unwrap();
    (port, address, calls)
}

#[test]
fn a_push_socket_echoes_runs_of_datagrams_in_order() {
    run(async {
        let (_, address, _) = echo();
        let client = UdpSocket::bind(here()).unwrap();
        client.connect(address).unwrap();
        let mut batch = SendBatch::new(true);
        (0..250_u8).for_each(|n| batch.push(None, &[&[n; 20]], SendMeta::default()).unwrap());
        client.send_batch(&mut batch).await.unwrap();
        let mut got = Vec::new();
        while got.len() < 250 {
            client.recv_many(|datagram| got.push(datagram.payload()[0])).await.unwrap();
        }
        assert!(got.iter().copied().eq(0..250));
    });
}

#[test]
fn a_push_socket_has_a_timer_and_ends_once() {
    run(async {
        let (port, address, calls) = echo();
        port.set_timer(Some(Duration::from_millis(2)));
        sleep(Duration::from_millis(10)).await;
        port.close();
        port.close();
        sleep(Duration::from_millis(2)).await;
        assert_eq!(*calls.borrow(), ["timer", "closed"]);
        assert!(matches!(port.send_to(address, b"x"), Err(UdpError::Closed)));
        assert!(UdpSocket::bind(address).is_ok(), "the address is free again");
    });
}

/// Asks to be called again each time it is called.
struct Flushes(Rc<RefCell<u32>>);

impl UdpProtocol for Flushes {
    fn on_datagram(&mut self, _: &UdpPort, _: &Datagram<'_>) {}

    fn on_flush(&mut self, port: &UdpPort) {
        *self.0.borrow_mut() += 1;
        port.request_flush();
    }
}

#[test]
fn a_flush_that_is_asked_for_during_a_flush_comes_in_the_next_tick() {
    run(async {
        let (options, count) = (UdpOptions::default(), Rc::default());
        let port =
            UdpPort::open(open(here(), &options).unwrap(), &options, Flushes(Rc::clone(&count))).unwrap();
        port.request_flush();
        while *count.borrow() < 10 {
            sleep(Duration::from_millis(1)).await;
        }
        port.close();
    });
}

#[test]
fn a_panic_closes_its_socket_and_nothing_else() {
    run(async {
        let (_, address, calls) = echo();
        let (_other, alive, _) = echo();
        let client = UdpSocket::bind(here()).unwrap();
        client.send_to(b"boom", address).await.unwrap();
        client.send_to(b"fine", alive).await.unwrap();
        let mut buffer = [0; 10];
        assert_eq!(client.recv_from(&mut buffer).await.unwrap().from, Some(alive));
        while calls.borrow().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*calls.borrow(), ["closed"]);
    });
}

#[test]
fn a_receiver_without_end_leaves_others_their_turn() {
    run(async {
        let (a, b) = pair();
        let turns = Rc::new(RefCell::new(0_u32));
        let counted = turns.clone();
        let other = spawn_local(async move {
            loop {
                corewire_runtime::yield_now().await;
                *counted.borrow_mut() += 1;
            }
        });
        for _ in 0..3000 {
            a.send(b"x").await.unwrap();
            b.recv(&mut [0; 4]).await.unwrap();
        }
        assert!(*turns.borrow() >= 5, "{} turns", turns.borrow());
        other.abort();
    });
}
