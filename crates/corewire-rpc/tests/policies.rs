//! What a channel and a server do around calls: interceptors, fairness, keep-alive, reconnecting, limits.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewire::block_on;
use corewire::client::Reconnect;
use corewire_rpc::{
    Bytes, CallOptions, Channel, ClientInterceptor, Code, Context, MethodPath, RpcServer, ServerInterceptor,
    Service, Status, Version,
};
use rustix::net;
use support::{channel, eventually, server};

type Log = Arc<Mutex<Vec<String>>>;

struct Logging(Log);

impl ServerInterceptor for Logging {
    fn on_call(&self, call: &Context) -> Result<(), Status> {
        self.0.lock().unwrap().push(format!("{}/{}", call.service(), call.method()));
        Ok(())
    }

    fn on_end(&self, _: &Context, code: Code, _: Duration) {
        self.0.lock().unwrap().push(format!("ended {}", code.0));
    }
}

struct Password;

impl ServerInterceptor for Password {
    fn on_call(&self, call: &Context) -> Result<(), Status> {
        match call.metadata().get_str("password") {
            Some("mellon") => Ok(()),
            _ => Err(Status::new(Code::UNAUTHENTICATED, "speak, friend")),
        }
    }
}

struct Speak(Log);

impl ClientInterceptor for Speak {
    fn on_call(&self, _: &MethodPath, options: &mut CallOptions) -> Result<(), Status> {
        options.add_metadata("password", "mellon");
        Ok(())
    }

    fn on_end(&self, path: &MethodPath, code: Code, _: Duration) {
        let method = String::from_utf8_lossy(path.method()).into_owned();
        self.0.lock().unwrap().push(format!("{method} ended {}", code.0));
    }
}

#[test]
fn interceptors_see_each_call_and_its_end_and_can_refuse_it() {
    let log = Log::default();
    let server = server(|server| server.interceptor(Logging(log.clone())).interceptor(Password));
    let stranger = channel(&server, Version::V2);
    assert_eq!(block_on(stranger.unary("EchoService/echo", "x")).unwrap_err().code(), Code::UNAUTHENTICATED);
    let told = Log::default();
    let friend = Channel::to(server.uri()).interceptor(Speak(told.clone())).build().unwrap();
    assert_eq!(block_on(friend.unary("EchoService/echo", "x")).unwrap(), "x");
    assert_eq!(*log.lock().unwrap(), ["EchoService/echo", "ended 13", "EchoService/echo", "ended 0"]);
    assert_eq!(*told.lock().unwrap(), ["echo ended 0"]);
}

#[test]
fn a_thousand_streams_of_one_connection_get_their_turns() {
    let server = server(|server| server);
    let uri = server.uri().to_owned();
    corewire::run(async move {
        let channel = Channel::to(uri).build().unwrap();
        // Cut by progress and not by time, which depends on the machine.
        let left = std::rc::Rc::new(std::cell::Cell::new(1_000 * 20));
        let streams: Vec<_> = (0..1_000)
            .map(|_| {
                let (channel, left) = (channel.clone(), left.clone());
                corewire::spawn_local(async move {
                    let (mut sink, mut replies) = channel.stream("StreamBenchService/echo").await.unwrap();
                    let mut count = 0_u32;
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        sink.send(Bytes::from_static(&[7; 128])).await.unwrap();
                        replies.next().await.unwrap().unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut counts = Vec::new();
        for stream in streams {
            counts.push(stream.await.unwrap());
        }
        let mean = counts.iter().sum::<u32>() / 1_000;
        assert_eq!(mean, 20);
        let slowest = *counts.iter().min().unwrap();
        assert!(slowest * 2 >= mean, "the slowest had {slowest}, the mean is {mean}");
    })
    .unwrap();
}

#[test]
fn a_server_that_does_not_answer_pings_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Reads and says nothing, as a machine that has lost its mind does.
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    });
    let alive = Duration::from_millis(60);
    let channel = Channel::to(uri).keep_alive(alive, alive).build().unwrap();
    let began = Instant::now();
    let status = block_on(channel.unary("A/b", "")).unwrap_err();
    assert_eq!(status.code(), Code::CONNECTION_CLOSED, "{status}");
    assert!(status.message().contains("ping"), "{status}");
    assert!(began.elapsed() >= 2 * alive);
    let received = peer.join().unwrap();
    assert!(received.windows(6).any(|frame| frame == b"GRPC\x02\x03"), "a ping was sent");
}

#[test]
fn a_channel_spreads_its_connections_over_its_servers() {
    let servers = [server(|server| server), server(|server| server)];
    let channel = Channel::to(servers[0].uri()).and(servers[1].uri()).connections(2).build().unwrap();
    eventually("both are used", || {
        block_on(channel.unary("EchoService/echo", "x")).unwrap();
        servers.iter().all(|server| server.stats().sessions == 1)
    });
}

#[test]
fn services_and_channels_work_over_unix_domain_sockets() {
    let path = std::env::temp_dir().join(format!("corewire-rpc-{}.sock", std::process::id()));
    let uri = format!("unix://{}", path.display());
    let server =
        RpcServer::bind(&uri).service(support::echo_service("EchoService")).workers(1).start().unwrap();
    let channel = Channel::to(server.uri()).build().unwrap();
    assert_eq!(block_on(channel.unary("EchoService/echo", "local")).unwrap(), "local");
    drop(server);
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_path_without_a_slash_and_a_bad_metadata_name_are_errors_of_the_call() {
    let server = server(|server| server);
    let channel = channel(&server, Version::V2);
    let status = block_on(channel.unary("echo", "x")).unwrap_err();
    assert!(status.message().contains("Service/method"), "{status}");
    let status = block_on(channel.unary("EchoService/echo", "x").metadata("Not Allowed", "x")).unwrap_err();
    assert!(status.message().contains("metadata name"), "{status}");
    assert_eq!(block_on(channel.unary("EchoService/echo", "x")).unwrap(), "x");
}

#[test]
fn a_closed_channel_fails_its_calls() {
    let server = server(|server| server);
    let channel = channel(&server, Version::V2);
    block_on(channel.unary("EchoService/echo", "x")).unwrap();
    channel.close();
    assert_eq!(block_on(channel.unary("EchoService/echo", "x")).unwrap_err().code(), Code::CONNECTION_CLOSED);
    eventually("the connection is closed", || server.stats().sessions == 0);
}

#[test]
fn a_version_that_the_server_is_told_not_to_speak_is_refused_with_a_reason() {
    for (spoken, other) in [(Version::V1, Version::V2), (Version::V2, Version::V1)] {
        let server = server(|server| server.versions([spoken]));
        assert_eq!(block_on(channel(&server, spoken).unary("EchoService/echo", "x")).unwrap(), "x");
        let refused = channel(&server, other);
        let status = block_on(refused.unary("EchoService/echo", "x")).unwrap_err();
        if other == Version::V2 {
            assert_eq!(status.code(), Code::PROTOCOL_ERROR, "{status}");
            assert!(status.message().contains("does not speak V2"), "{status}");
        } else {
            assert_eq!(status.code(), Code::INVALID_REQUEST, "{status}");
        }
    }
}

#[test]
fn a_call_of_version_1_without_its_first_message_says_what_is_missing() {
    let server = server(|server| server);
    let channel = channel(&server, Version::V1);
    let status = block_on(async { channel.bidi::<Bytes, Bytes>("EchoService/echo").await }).unwrap_err();
    assert!(status.message().contains("`.first(message)`"), "{status}");
    assert!(block_on(channel.gauges()).is_idle());
}

#[test]
fn what_an_interceptor_adds_goes_once_with_a_call_that_is_begun_again() {
    // Refuses the call without having begun it, so that it is begun again elsewhere.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let first = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let mut raw = support::Raw(listener.accept().unwrap().0);
        raw.0.read_exact(&mut [0; 16 + 30 + 16]).unwrap();
        raw.send("47525043 02210000 00000000 00000000 47525043 02220100 00000000 00000006 00000000 0000");
        raw.read_to_end();
    });
    let count = Service::new("Count").unary("passwords", |_: Bytes, call: Context| async move {
        let passwords = call.metadata().iter().filter(|(name, _)| *name == "password").count();
        Ok(Bytes::from(passwords.to_string()))
    });
    let second = server(|server| server.service(count));
    let channel = Channel::to(first).and(second.uri()).connections(2).interceptor(Speak(Log::default()));
    let channel = channel.build().unwrap();
    assert_eq!(block_on(channel.unary("Count/passwords", "")).unwrap(), "1");
    drop(channel);
    peer.join().unwrap();
}

struct Hurry(Duration);

impl ClientInterceptor for Hurry {
    fn on_call(&self, _: &MethodPath, options: &mut CallOptions) -> Result<(), Status> {
        assert_eq!(options.timeout(), Some(Duration::from_secs(60)), "it sees what the caller set");
        options.set_timeout(self.0);
        Ok(())
    }
}

#[test]
fn a_time_that_an_interceptor_sets_is_that_of_the_call_on_both_sides() {
    let left = Service::new("Left").unary("ms", |_: Bytes, call: Context| async move {
        let left = call.time_left().map_or(0, |left| left.as_millis());
        Ok(Bytes::from(left.to_string()))
    });
    let server = server(|server| server.service(left).service(support::stuck(&Default::default())));
    let hurried = |time| Channel::to(server.uri()).interceptor(Hurry(time)).build().unwrap();
    let minute = Duration::from_secs(60);
    let left = block_on(hurried(Duration::from_secs(2)).unary("Left/ms", "").timeout(minute)).unwrap();
    let left: u64 = std::str::from_utf8(&left).unwrap().parse().unwrap();
    assert!((1..=2_000).contains(&left), "{left}");
    let late = block_on(hurried(Duration::from_millis(30)).unary("Stuck/unary", "").timeout(minute));
    assert_eq!(late.unwrap_err().code(), Code::DEADLINE_EXCEEDED);
}

struct Bomb;

impl ServerInterceptor for Bomb {
    fn on_end(&self, _: &Context, _: Code, _: Duration) {
        panic!("at the end");
    }
}

#[test]
fn an_interceptor_that_panics_at_the_end_of_a_call_harms_nothing() {
    let server = server(|server| server.interceptor(Bomb));
    let channel = channel(&server, Version::V2);
    for _ in 0..3 {
        assert_eq!(block_on(channel.unary("EchoService/echo", "x")).unwrap(), "x");
    }
    assert_eq!(server.stats().opened, 1, "the connection is the same");
}

/// A port where nobody listens, nor can begin to while the socket is held: neither a server of another test, nor the client
/// itself, which could be given this port to connect from.
fn closed_port() -> (SocketAddr, OwnedFd) {
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    (net::getsockname(&socket).unwrap().try_into().unwrap(), socket)
}

#[test]
fn a_call_without_a_server_says_why() {
    let (address, _held) = closed_port();
    let uri = format!("tcp://{address}");
    let waits = Channel::to(&uri).timeout(Duration::from_secs(3)).build().unwrap();
    let status = block_on(waits.unary("Echo/echo", "x")).unwrap_err();
    assert_eq!(status.code(), Code::DEADLINE_EXCEEDED);
    assert!(status.message().contains("refused"), "{}", status.message());
    let fails = Channel::to(&uri).fail_fast().build().unwrap();
    let status = block_on(fails.unary("Echo/echo", "x")).unwrap_err();
    assert_eq!(status.code(), Code::UNAVAILABLE);
    assert!(status.message().contains("refused"), "{}", status.message());
}

#[test]
fn a_channel_that_may_not_connect_again_says_so() {
    let mut reconnect = Reconnect::between(Duration::from_millis(1), Duration::from_millis(1));
    reconnect.attempts_max = Some(2);
    let (address, _held) = closed_port();
    let channel = Channel::to(format!("tcp://{address}")).net(|net| net.reconnect(reconnect));
    let channel = channel.timeout(Duration::from_secs(60)).build().unwrap();
    for _ in 0..2 {
        let status = block_on(channel.unary("Echo/echo", "x")).unwrap_err();
        assert_eq!(status.code(), Code::UNAVAILABLE, "{status}");
        assert!(status.message().contains("attempts_max"), "{status}");
    }
}

#[test]
fn a_server_that_comes_back_is_used_at_once() {
    let (address, held) = closed_port();
    let channel = Channel::to(format!("tcp://{address}"))
        .net(|net| net.reconnect(Reconnect::between(Duration::from_millis(1), Duration::from_secs(3_600))))
        .build()
        .unwrap();
    // The bound of the back-off grows to minutes meanwhile.
    let options = channel.unary("Echo/echo", "x").timeout(Duration::from_secs(2));
    assert_eq!(block_on(options).unwrap_err().code(), Code::DEADLINE_EXCEEDED);
    let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
    drop(held);
    let _server = RpcServer::bind(format!("tcp://{address}")).service(echo).workers(1).start().unwrap();
    assert_eq!(block_on(channel.unary("Echo/echo", "x").timeout(Duration::from_secs(10))).unwrap(), "x");
}

/// A server that takes one call and, after this time, says that it was not begun.
fn refusing_after(time: Duration) -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let mut raw = support::Raw(listener.accept().unwrap().0);
        // SETTINGS and the beginning of the call.
        raw.0.read_exact(&mut [0; 16 + 30 + 16]).unwrap();
        std::thread::sleep(time);
        raw.send("47525043 02210000 00000000 00000000 47525043 02220100 00000000 00000006 00000000 0000");
        raw.read_to_end();
    });
    (uri, peer)
}

#[test]
fn a_call_that_is_begun_again_has_the_time_that_is_left_of_its_own() {
    let left = Service::new("Left").unary("ms", |_: Bytes, call: Context| async move {
        let left = call.time_left().map_or(0, |left| left.as_millis());
        Ok(Bytes::from(left.to_string()))
    });
    let refused = Duration::from_millis(200);
    let (first, peer) = refusing_after(refused);
    let second = server(|server| server.service(left));
    let channel = Channel::to(first).and(second.uri()).connections(2).build().unwrap();
    let whole = Duration::from_secs(30);
    let left = block_on(channel.unary("Left/ms", "").timeout(whole)).unwrap();
    let left: u128 = std::str::from_utf8(&left).unwrap().parse().unwrap();
    assert!(left > 0 && left <= (whole - refused).as_millis() + 2, "{left} ms");
    drop(channel);
    peer.join().unwrap();
}
