//! Options of datagram sockets, on the driver that `COREWIRE_DRIVER` names.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use corewire_runtime::timeout;
use corewire_runtime::udp::{Ecn, MulticastInterface, SendBatch, SendMeta, UdpError, UdpOptions, UdpSocket};

const PATIENCE: Duration = Duration::from_secs(20);
const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn run(test: impl Future<Output = ()> + 'static) {
    corewire_runtime::run(async { timeout(PATIENCE, test).await.unwrap() }).unwrap();
}

fn bind(address: &str, change: impl FnOnce(&mut UdpOptions)) -> UdpSocket {
    let mut options = UdpOptions::default();
    change(&mut options);
    UdpSocket::bind_with(address.parse().unwrap(), &options).unwrap()
}

#[test]
fn options_are_read_as_they_were_set() {
    run(async {
        for address in LOOPBACKS {
            let socket = bind(address, |_| ());
            socket.set_ttl(17).unwrap();
            socket.set_dscp(46).unwrap();
            assert_eq!((socket.ttl().unwrap(), socket.dscp().unwrap()), (17, 46), "{address}");
            assert!(socket.set_dscp(64).is_err());
            assert!(socket.multicast_loop().unwrap());
            socket.set_multicast_loop(false).unwrap();
            assert!(!socket.multicast_loop().unwrap(), "{address}");
            assert_eq!(socket.multicast_ttl().unwrap(), 1, "{address}");
            socket.set_multicast_ttl(3).unwrap();
            assert_eq!(socket.multicast_ttl().unwrap(), 3, "{address}");
        }
    });
}

#[test]
fn the_kernel_says_what_it_gives_the_buffers() {
    run(async {
        let given = bind(LOOPBACKS[0], |_| ()).buffer_sizes().unwrap();
        assert!((4096..=8 << 20).contains(&given.receive), "{given:?}");
        assert!((4096..=2 << 20).contains(&given.send), "{given:?}");
        let small = bind(LOOPBACKS[0], |options| {
            (options.receive_buffer_size, options.send_buffer_size) = (Some(100_000), Some(50_000));
        });
        let given = small.buffer_sizes().unwrap();
        assert_eq!((given.receive, given.send), (100_000, 50_000));
        // More than anybody gets.
        let large = bind(LOOPBACKS[0], |options| options.receive_buffer_size = Some(usize::MAX));
        assert!(large.buffer_sizes().unwrap().receive <= 1 << 30);
    });
}

#[test]
fn destination_interface_and_mark_come_with_a_datagram() {
    run(async {
        for (any, here) in [("0.0.0.0:0", "127.0.0.1:0"), ("[::]:0", "[::1]:0")] {
            let socket = bind(any, |options| (options.packet_info, options.ecn) = (true, true));
            let port = socket.local_addr().unwrap().port();
            let sender = bind(here, |_| ());
            let to = SocketAddr::new(here.parse::<SocketAddr>().unwrap().ip(), port);
            for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested] {
                let mut batch = SendBatch::new(true);
                let meta = SendMeta { ecn, ..SendMeta::default() };
                batch.push(Some(to), &[b"x"], meta).unwrap();
                sender.send_batch(&mut batch).await.unwrap();
                let received = socket.recv_from(&mut [0; 10]).await.unwrap();
                assert_eq!((received.destination, received.ecn), (Some(to.ip()), ecn));
                assert!(received.interface.is_some_and(|index| index > 0));
            }
        }
    });
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    run(async {
        let server = bind("0.0.0.0:0", |options| options.packet_info = true);
        let to = SocketAddr::new(IpAddr::from([127, 0, 0, 77]), server.local_addr().unwrap().port());
        let client = bind(LOOPBACKS[0], |_| ());
        client.send_to(b"?", to).await.unwrap();
        let mut buffer = [0; 10];
        let asked = server.recv_from(&mut buffer).await.unwrap();
        let mut batch = SendBatch::new(true);
        let meta = SendMeta { source: asked.destination, ..SendMeta::default() };
        batch.push(asked.from, &[b"!"], meta).unwrap();
        server.send_batch(&mut batch).await.unwrap();
        assert_eq!(client.recv_from(&mut buffer).await.unwrap().from, Some(to));
    });
}

#[test]
fn broadcast_is_refused_until_it_is_allowed() {
    run(async {
        let listener = bind("0.0.0.0:0", |_| ());
        let to = SocketAddr::new(IpAddr::from([127, 255, 255, 255]), listener.local_addr().unwrap().port());
        let sender = bind(LOOPBACKS[0], |_| ());
        let error = sender.send_to(b"all", to).await.unwrap_err();
        let refused = matches!(&error, UdpError::Io(source) if source.kind() == ErrorKind::PermissionDenied);
        assert!(refused, "{error}");
        sender.set_broadcast(true).unwrap();
        let also = bind(LOOPBACKS[0], |options| options.broadcast = true);
        for socket in [sender, also] {
            socket.send_to(b"all", to).await.unwrap();
            assert_eq!(listener.recv_from(&mut [0; 10]).await.unwrap().len, 3);
        }
    });
}

/// What is sent to the group is heard between join and leave, and (but on the loopback device, which loops by itself) only
/// with the loop.
async fn hears(group: IpAddr, any: &str, interface: MulticastInterface) {
    let listener = bind(any, |_| ());
    listener.join_multicast(group, interface).unwrap();
    let announcer = bind(any, |_| ());
    announcer.set_multicast_interface(interface).unwrap();
    // Nothing leaves this machine.
    announcer.set_multicast_ttl(0).unwrap();
    let to = SocketAddr::new(group, listener.local_addr().unwrap().port());
    announcer.send_to(b"news", to).await.unwrap();
    let mut buffer = [0; 10];
    assert_eq!(listener.recv_from(&mut buffer).await.unwrap().len, 4);
    if interface == MulticastInterface::default() {
        announcer.set_multicast_loop(false).unwrap();
        announcer.send_to(b"not here", to).await.unwrap();
        announcer.set_multicast_loop(true).unwrap();
        announcer.send_to(b"again", to).await.unwrap();
        assert_eq!(listener.recv_from(&mut buffer).await.unwrap().len, 5);
    }
    listener.leave_multicast(group, interface).unwrap();
    announcer.send_to(b"late", to).await.unwrap();
    assert!(timeout(Duration::from_millis(20), listener.recv_from(&mut buffer)).await.is_err());
}

#[test]
fn a_multicast_group_is_heard_between_join_and_leave() {
    run(hears("239.255.77.1".parse().unwrap(), "0.0.0.0:0", Ipv4Addr::LOCALHOST.into()));
}

#[test]
fn a_multicast_group_is_heard_on_the_network_of_either_family() {
    run(async {
        let groups = [IpAddr::from([239, 255, 77, 2]), IpAddr::from([0xff15, 0, 0, 0, 0, 0, 0, 0x4201])];
        for (group, any) in groups.into_iter().zip(["0.0.0.0:0", "[::]:0"]) {
            // Machines without a network have no way for it, not even to themselves.
            let probe = bind(any, |_| ());
            probe.set_multicast_ttl(0).unwrap();
            match probe.send_to(b"?", SocketAddr::new(group, 9)).await {
                Err(UdpError::Unreachable(error)) => eprintln!("{group} is not tried: {error}"),
                _ => hears(group, any, MulticastInterface::default()).await,
            }
        }
    });
}

#[test]
fn sockets_that_share_a_port_share_the_peers() {
    run(async {
        const PEERS: usize = 64;
        let first = bind(LOOPBACKS[0], |options| options.reuse_port = true);
        let address = first.local_addr().unwrap();
        let second = bind(&address.to_string(), |options| options.reuse_port = true);
        assert!(UdpSocket::bind(address).is_err(), "who does not share cannot take part");
        for _ in 0..PEERS {
            let peer = bind(LOOPBACKS[0], |_| ());
            peer.send_to(b"1", address).await.unwrap();
            peer.send_to(b"2", address).await.unwrap();
        }
        let mut from = [Vec::new(), Vec::new()];
        let mut buffer = [0; 10];
        while from[0].len() + from[1].len() < 2 * PEERS {
            for (socket, from) in [&first, &second].into_iter().zip(&mut from) {
                while let Ok(received) =
                    timeout(Duration::from_millis(1), socket.recv_from(&mut buffer)).await
                {
                    from.push(received.unwrap().from.unwrap());
                }
            }
        }
        assert!(from.iter().all(|from| !from.is_empty()), "all peers went to one socket");
        assert!(from[0].iter().all(|peer| !from[1].contains(peer)), "a peer stays with its socket");
    });
}

#[test]
fn what_the_receive_buffer_does_not_hold_is_counted() {
    run(async {
        let socket = bind(LOOPBACKS[0], |options| {
            (options.receive_buffer_size, options.coalesce) = (Some(4096), false);
        });
        let to = socket.local_addr().unwrap();
        let sender = bind(LOOPBACKS[0], |_| ());
        for _ in 0..100 {
            sender.send_to(&[0; 1000], to).await.unwrap();
        }
        let mut buffer = [0; 1000];
        let mut got = 0;
        // The count comes with a datagram that there was room for after those that were dropped.
        loop {
            let received = timeout(Duration::from_millis(20), socket.recv_from(&mut buffer)).await;
            match received {
                Ok(Ok(received)) if received.len == 1 => break,
                Ok(received) => got += u32::from(received.is_ok()),
                Err(_) => sender.send_to(b"x", to).await.unwrap(),
            }
        }
        assert!(got < 100);
        assert_eq!(socket.drops(), 100 - got);
    });
}
