//! What only the io_uring backend can be asked.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::Uring;
use crate::config::DriverConfig;
use crate::event::{Event, Token};
use crate::probe::probe;

fn driver() -> Option<Uring> {
    probe().uring.is_ok().then(|| Uring::new(&DriverConfig::default()).expect("the probe says that it works"))
}

fn pair(driver: &mut Uring) -> (Token, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = socket2::Socket::from(listener.accept().unwrap().0);
    socket.set_nonblocking(true).unwrap();
    (driver.add_stream(socket).unwrap(), peer)
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
