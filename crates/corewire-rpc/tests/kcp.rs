//! RPC over KCP, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod support;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use corewire::kcp::Key;
use corewire::{ServerHandle, block_on};
use corewire_rpc::{Bytes, Channel, ChannelBuilder, Code, RpcServer, Version};
use corewire_testkit::udp_proxy::UdpProxy;
use support::{VERSIONS, echo_all, echo_service, eventually, every_mode};

fn server(change: impl FnOnce(RpcServer) -> RpcServer) -> ServerHandle {
    let server = RpcServer::bind("kcp://127.0.0.1:0")
        .service(echo_service("EchoService"))
        .stream_route("StreamBenchService", "echo", echo_all)
        .workers(2);
    change(server).start().unwrap()
}

fn channel(uri: &str, version: Version) -> Channel {
    Channel::to(uri).protocol(version).build().unwrap()
}

#[test]
fn every_mode_works_in_both_versions() {
    let server = server(|server| server);
    assert!(server.uri().starts_with("kcp://127.0.0.1:"), "{}", server.uri());
    for version in VERSIONS {
        block_on(every_mode(&channel(server.uri(), version), 300_000)).unwrap();
    }
}

#[test]
fn every_mode_works_on_a_path_that_loses_repeats_and_reorders() {
    let server = server(|server| server);
    let config = corewire_testkit::link::LinkConfig {
        loss: 0.15,
        duplicate: 0.05,
        reorder: 0.05,
        reorder_by_us: 5_000,
        delay_us: 1_000,
        jitter_us: 1_000,
        ..Default::default()
    };
    let proxy = UdpProxy::start(server.local_addrs()[0], config, 5).unwrap();
    for version in VERSIONS {
        let channel = channel(&format!("kcp://{}", proxy.address()), version);
        block_on(every_mode(&channel, 100_000)).unwrap();
    }
    let [up, down] = proxy.stop();
    assert!(up.lost > 10 && down.lost > 10, "{up:?} {down:?}");
}

#[test]
fn many_channels_call_at_the_same_time() {
    let server = server(|server| server);
    let channels: Vec<_> = (0..100).map(|_| channel(server.uri(), Version::V2)).collect();
    let calls: Vec<_> = channels
        .iter()
        .enumerate()
        .map(|(at, channel)| channel.unary("EchoService/echo", Bytes::from(vec![at as u8; 3000])))
        .collect();
    for (at, call) in calls.into_iter().enumerate() {
        assert_eq!(block_on(call).unwrap(), vec![at as u8; 3000]);
    }
    assert_eq!(server.stats().sessions, 100);
    drop(channels);
    eventually("the sessions end", || server.stats().sessions == 0);
}

#[test]
fn nobody_at_the_port_is_told_at_once() {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let channel = Channel::to(format!("kcp://{gone}")).fail_fast().build().unwrap();
    let begun = Instant::now();
    let status = block_on(channel.unary("EchoService/echo", "?")).unwrap_err();
    assert_eq!(status.code(), Code::CONNECTION_CLOSED, "{status}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_peer_that_says_nothing_is_given_up_after_the_connect_timeout() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let channel = Channel::to(format!("kcp://{}", silent.local_addr().unwrap()))
        .net(|net| net.connect_timeout(Duration::from_millis(200)))
        .build()
        .unwrap();
    let status = block_on(channel.unary("EchoService/echo", "?")).unwrap_err();
    assert_eq!(status.code(), Code::CONNECTION_CLOSED, "{status}");
    assert!(status.message().contains("nothing was answered"), "{status}");
}

#[test]
fn a_server_that_goes_lets_its_calls_finish_and_tells_its_clients() {
    let server = server(|server| server);
    let channel = channel(server.uri(), Version::V2);
    assert_eq!(block_on(channel.unary("EchoService/echo", "x")).unwrap(), "x");
    let report = server.shutdown(Duration::from_secs(10));
    assert_eq!((report.sessions, report.finished), (1, 1), "{report}");
}

fn keyed(uri: &str, key: &Key) -> ChannelBuilder {
    Channel::to(uri).net(|net| net.kcp_key(key.clone()))
}

#[test]
fn a_key_encrypts_and_another_one_or_none_is_of_no_use() {
    let key = Key::new([7; 32]);
    let server = server(|server| server.net(|net| net.kcp_key(key.clone())));
    let uri = server.uri();
    for version in VERSIONS {
        let channel = keyed(uri, &key).protocol(version).build().unwrap();
        block_on(every_mode(&channel, 30_000)).unwrap();
    }
    assert_eq!(server.stats().workers.datagrams_dropped, 0);
    for channel in [keyed(uri, &Key::new([8; 32])), Channel::to(uri)] {
        let before = server.stats().workers.datagrams_dropped;
        let channel = channel.net(|net| net.connect_timeout(Duration::from_millis(300))).build().unwrap();
        let status = block_on(channel.unary("EchoService/echo", "?")).unwrap_err();
        assert_eq!(status.code(), Code::CONNECTION_CLOSED, "{status}");
        assert!(status.message().contains("another key"), "{status}");
        assert!(server.stats().workers.datagrams_dropped > before);
    }
}

#[test]
fn a_channel_with_a_key_may_have_several_connections() {
    let key = Key::new([7; 32]);
    let server = server(|server| server.net(|net| net.kcp_key(key.clone())));
    let channel = keyed(server.uri(), &key).connections(4).build().unwrap();
    let calls: Vec<_> = (0..16).map(|_| channel.unary("EchoService/echo", "x")).collect();
    calls.into_iter().for_each(|call| assert_eq!(block_on(call).unwrap(), "x"));
    assert_eq!((server.stats().sessions, server.stats().workers.datagrams_dropped), (4, 0));
}

#[test]
fn the_uri_can_name_the_file_of_the_key() {
    let path = std::env::temp_dir().join(format!("corewire-rpc-key-{}", std::process::id()));
    std::fs::write(&path, "5a".repeat(32)).unwrap();
    let parameter = format!("?key-file={}", path.display());
    let server = RpcServer::bind(format!("kcp://127.0.0.1:0{parameter}"))
        .service(echo_service("EchoService"))
        .workers(1)
        .start()
        .unwrap();
    let channel = channel(&format!("{}{parameter}", server.uri()), Version::V2);
    let by_bytes = keyed(server.uri(), &Key::new([0x5a; 32])).build().unwrap();
    std::fs::remove_file(&path).unwrap();
    for channel in [channel, by_bytes] {
        assert_eq!(block_on(channel.unary("EchoService/echo", "x")).unwrap(), "x");
    }
    let error = Channel::to(format!("{}{parameter}", server.uri())).build().unwrap_err();
    assert!(error.to_string().contains("cannot read the key file"), "{error}");
}
