//! KCP over real sockets: keys, and peers that mean no good, on the driver that `COREWIRE_DRIVER` names.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use corewire::kcp::{Config, Key, Mode};
use corewire::proto::kcp::{Command, Header, Kcp, conversation};
use corewire::{
    CallError, CloseReason, ConnectError, Frame, Handler, NetClient, NetServer, NetUri, RawCodec,
    ServerError, ServerHandle, Session, StandardCodec, block_on,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn turbo() -> Config {
    Config::turbo().windows(256, 256).mode(Mode::Stream)
}

struct SendsBack;

impl Handler for SendsBack {
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        session.reply(&frame, frame.payload()).unwrap();
    }
}

fn raw_echo(change: impl FnOnce(NetServer) -> NetServer) -> ServerHandle {
    let server = NetServer::bind("kcp://127.0.0.1:0").kcp_config(turbo()).workers(1);
    change(server).codec(|| RawCodec).handler(|| SendsBack).start().unwrap()
}

fn echo(change: impl FnOnce(NetServer) -> NetServer) -> ServerHandle {
    let server = NetServer::bind("kcp://127.0.0.1:0").workers(2);
    change(server).codec(StandardCodec::default).handler(|| SendsBack).start().unwrap()
}

fn dropped(server: &ServerHandle) -> u64 {
    server.stats().workers.datagrams_dropped
}

fn call(client: &NetClient, payload: &[u8]) {
    assert_eq!(&block_on(client.request(payload)).unwrap()[..], payload);
}

/// A conversation whose datagrams the test carries itself.
struct Peer {
    socket: UdpSocket,
    kcp: Kcp,
    began: Instant,
    /// What its clock shows at the beginning.
    clock: u64,
    back: Vec<u8>,
}

impl Peer {
    fn new(server: &ServerHandle, conversation: u32, clock: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.local_addrs()[0]).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let kcp = Kcp::new(conversation, turbo()).unwrap();
        Self { socket, kcp, began: Instant::now(), clock, back: Vec::new() }
    }

    fn now(&self) -> u64 {
        self.clock + self.began.elapsed().as_millis() as u64
    }

    /// The datagrams that are due now.
    fn due(&mut self) -> Vec<Vec<u8>> {
        let (now, mut out, mut datagrams) = (self.now(), Vec::new(), Vec::new());
        while let Some(transmit) = self.kcp.poll_transmit(now, &mut out, 64) {
            datagrams.extend(out.chunks(transmit.segment_size).map(<[u8]>::to_vec));
            out.clear();
        }
        datagrams
    }

    /// Sends what is due and takes what comes, until so many bytes are back.
    fn carry_until(&mut self, len: usize) {
        let begun = Instant::now();
        let mut buffer = [0; 2000];
        while self.back.len() < len {
            assert!(begun.elapsed() < PATIENCE, "{} of {len} bytes are back", self.back.len());
            for datagram in self.due() {
                self.socket.send(&datagram).unwrap();
            }
            // The server resets what it does not know of others.
            if let Ok(len) = self.socket.recv(&mut buffer)
                && conversation(&buffer[..len]) == Some(self.kcp.conversation())
            {
                let now = self.now();
                self.kcp.receive(now, &buffer[..len]).unwrap();
            }
            self.kcp.recv_into(&mut self.back);
        }
    }
}

fn segment(conversation: u32, command: Command, number: u32, una: u32, data: &[u8]) -> Vec<u8> {
    let header = Header {
        conversation,
        command,
        fragment: 0,
        window: 128,
        timestamp: 1,
        number,
        unacknowledged: una,
        len: data.len() as u32,
    };
    [&header.to_bytes()[..], data].concat()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn with_a_key_requests_get_their_replies() {
    let key = Key::generate().unwrap();
    let server = echo(|server| server.kcp_key(key.clone()));
    let uri = NetUri::parse(server.uri()).unwrap();
    let client = uri.client().kcp_key(key).codec(StandardCodec::default).connect_blocking().unwrap();
    for len in [0, 1, 1400, 70_000] {
        call(&client, &bytes(len));
    }
    assert_eq!(dropped(&server), 0);
}

#[test]
fn who_has_no_key_or_another_is_not_heard_and_is_told_why() {
    let server = echo(|server| server.kcp_key(Key::new([1; 32])));
    let uri = NetUri::parse(server.uri()).unwrap();
    for key in [None, Some(Key::new([2; 32]))] {
        let before = dropped(&server);
        let mut client = uri.client().connect_timeout(Duration::from_millis(200)).no_reconnect();
        if let Some(key) = key {
            client = client.kcp_key(key);
        }
        let client = client.codec(StandardCodec::default).connect_blocking().unwrap();
        let error = block_on(client.request(b"?")).unwrap_err();
        let CallError::ConnectionLost(why) = &error else { panic!("{error}") };
        assert!(why.contains("another key"), "{error}");
        until("what it does not open is counted", || dropped(&server) > before);
    }
    assert_eq!(server.stats().opened, 0);
}

#[test]
fn a_server_without_a_key_does_not_hear_a_client_with_one() {
    let server = echo(|server| server);
    let client = NetUri::parse(server.uri()).unwrap().client().connect_timeout(Duration::from_millis(200));
    let client = client.no_reconnect().kcp_key(Key::new([1; 32])).codec(StandardCodec::default);
    let error = block_on(client.connect_blocking().unwrap().request(b"?")).unwrap_err();
    assert!(matches!(error, CallError::ConnectionLost(_)), "{error}");
    assert_eq!(server.stats().opened, 0);
}

#[test]
fn a_key_that_cannot_be_read_is_an_error_at_the_start() {
    let uri = "kcp://127.0.0.1:0?key-env=COREWIRE_TEST_NO_SUCH_KEY";
    let error = NetServer::bind(uri).workers(1).start().unwrap_err();
    assert!(matches!(error, ServerError::Key(_)), "{error}");
    let error = NetUri::parse(uri).unwrap().client().connect_blocking().unwrap_err();
    assert!(matches!(error, ConnectError::Key(_)), "{error}");
}

/// All that crosses between a client and a server until its request is answered: to the server and from it.
fn captured(server: &ServerHandle, key: &Key) -> [Vec<Vec<u8>>; 2] {
    let (path, onward) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    onward.connect(server.local_addrs()[0]).unwrap();
    for socket in [&path, &onward] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    }
    let client = NetUri::parse(&format!("kcp://{}", path.local_addr().unwrap())).unwrap().client();
    let client = client.kcp_key(key.clone()).codec(StandardCodec::default).connect_blocking().unwrap();
    let calling = std::thread::spawn(move || block_on(client.request(b"pay").timeout(PATIENCE)).unwrap());
    let (mut buffer, mut seen) = ([0; 2000], [const { Vec::new() }; 2]);
    let mut from = None;
    while !calling.is_finished() {
        if let Ok((len, address)) = path.recv_from(&mut buffer) {
            from = Some(address);
            onward.send(&buffer[..len]).unwrap();
            seen[0].push(buffer[..len].to_vec());
        }
        if let (Ok(len), Some(address)) = (onward.recv(&mut buffer), from) {
            path.send_to(&buffer[..len], address).unwrap();
            seen[1].push(buffer[..len].to_vec());
        }
    }
    assert_eq!(&calling.join().unwrap()[..], b"pay");
    seen
}

#[test]
fn played_back_sealed_datagrams_open_nothing_on_any_worker_or_server() {
    let key = Key::new([3; 32]);
    let [server, another] = [(); 2].map(|()| echo(|server| server.kcp_key(key.clone())));
    let seen = captured(&server, &key);
    assert_eq!(server.stats().opened, 1);
    let strangers: Vec<_> = (0..32).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut sent = 0;
    for (stranger, datagram) in
        strangers.iter().flat_map(|it| seen.iter().flatten().map(move |data| (it, data)))
    {
        sent += datagram.len();
        for server in [&server, &another] {
            stranger.send_to(datagram, server.local_addrs()[0]).unwrap();
        }
    }
    // A client that is served now was served after all of these.
    for server in [&server, &another] {
        let before = server.stats().opened;
        let client = NetUri::parse(server.uri()).unwrap().client().kcp_key(key.clone());
        call(&client.codec(StandardCodec::default).connect_blocking().unwrap(), b"hello");
        assert_eq!(server.stats().opened, before + 1);
    }
    assert_eq!((server.stats().opened, another.stats().opened), (2, 1));
    let (mut told, mut buffer) = (0, [0; 2000]);
    for stranger in &strangers {
        stranger.set_nonblocking(true).unwrap();
        while let Ok(len) = stranger.recv(&mut buffer) {
            assert_eq!((len, buffer[0]), (64, 2), "nothing but challenges");
            told += len;
        }
    }
    assert!(told <= 2 * sent, "{told} bytes for {sent} to each of two");
}

#[test]
fn keys_are_changed_while_clients_of_both_are_served() {
    let (old, new) = (Key::new([3; 32]), Key::new([4; 32]));
    let server = echo(|server| server.kcp_key(old.clone()).kcp_second_key(new.clone()));
    for key in [old, new] {
        let client = NetUri::parse(server.uri()).unwrap().client().kcp_key(key);
        call(&client.codec(StandardCodec::default).connect_blocking().unwrap(), b"hello");
    }
    assert_eq!(dropped(&server), 0);
}

#[test]
fn the_uri_can_name_the_files_of_both_keys() {
    let path = |name: &str| std::env::temp_dir().join(format!("corewire-{name}-{}", std::process::id()));
    let (old, new) = (path("old-key"), path("new-key"));
    std::fs::write(&old, "0a".repeat(32)).unwrap();
    std::fs::write(&new, "0b".repeat(32)).unwrap();
    let keys = format!("key-file={}&second-key-file={}", new.display(), old.display());
    let server = NetServer::bind(format!("kcp://127.0.0.1:0?{keys}"));
    let server = server.codec(StandardCodec::default).handler(|| SendsBack).workers(1).start().unwrap();
    for key in [[0x0a; 32], [0x0b; 32]].map(Key::new) {
        let client = NetUri::parse(server.uri()).unwrap().client().kcp_key(key);
        call(&client.codec(StandardCodec::default).connect_blocking().unwrap(), b"hello");
    }
    assert_eq!(dropped(&server), 0);
    // Otherwise everything would go in plain text.
    let alone = format!("kcp://127.0.0.1:0?second-key-file={}", old.display());
    let error = NetServer::bind(alone).workers(1).start().unwrap_err();
    assert!(error.to_string().contains("no first one"), "{error}");
    [old, new].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn the_uri_can_change_settings() {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let uri = format!("kcp://{}?fec=1,1&congestion=bbr&windows-max=2048", listener.local_addr().unwrap());
    let client =
        NetUri::parse(&uri).unwrap().client().codec(StandardCodec::default).connect_blocking().unwrap();
    block_on(client.one_way(b"hello")).unwrap();
    let mut datagram = [0; 2000];
    listener.recv(&mut datagram).unwrap();
    assert_eq!(datagram[..6], [0, 0, 0, 0, 0xf1, 0], "forward error correction marks its datagrams");
    let error = NetServer::bind("kcp://127.0.0.1:0?fec=0,1").workers(1).start().unwrap_err();
    assert!(error.to_string().contains("fec's data is 0"), "{error}");
    let both = |server: NetServer| server.kcp_config(turbo().fec(2, 1));
    let server = echo(both);
    let uri = NetUri::parse(&format!("{}?fec=2,1&congestion=bbr", server.uri())).unwrap();
    let client = uri.client().codec(StandardCodec::default).connect_blocking().unwrap();
    for len in [1, 100_000] {
        call(&client, &bytes(len));
    }
}

#[test]
fn a_client_learns_soon_that_its_server_was_started_anew() {
    for key in [None, Some(Key::new([3; 32]))] {
        let keyed = |server: NetServer| match &key {
            Some(key) => server.kcp_key(key.clone()),
            None => server,
        };
        let path = UdpSocket::bind("127.0.0.1:0").unwrap();
        path.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut client = NetUri::parse(&format!("kcp://{}", path.local_addr().unwrap())).unwrap().client();
        if let Some(key) = &key {
            client = client.kcp_key(key.clone());
        }
        let client = client.no_reconnect().codec(StandardCodec::default).connect_blocking().unwrap();
        for is_known in [true, false] {
            let server = echo(keyed);
            let onward = UdpSocket::bind("127.0.0.1:0").unwrap();
            onward.connect(server.local_addrs()[0]).unwrap();
            onward.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let (asking, began) = (client.clone(), Instant::now());
            let calling = std::thread::spawn(move || block_on(asking.request(b"?").timeout(PATIENCE)));
            let (mut buffer, mut from) = ([0; 2000], None);
            while !calling.is_finished() {
                if let Ok((len, address)) = path.recv_from(&mut buffer) {
                    from = Some(address);
                    onward.send(&buffer[..len]).unwrap();
                }
                if let (Ok(len), Some(address)) = (onward.recv(&mut buffer), from) {
                    path.send_to(&buffer[..len], address).unwrap();
                }
            }
            let outcome = calling.join().unwrap();
            assert_eq!(outcome.is_ok(), is_known, "{outcome:?}");
            assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
            if let Err(error) = outcome {
                let CallError::ConnectionLost(why) = &error else { panic!("{error}") };
                assert!(why.to_string().contains("reset"), "{why}");
            }
        }
    }
}

#[test]
fn segments_that_come_in_any_order_and_again_are_read_once_and_in_order() {
    let server = raw_echo(|server| server);
    let mut peer = Peer::new(&server, 77, 0);
    let sent = bytes(100_000);
    peer.kcp.send(&sent).unwrap();
    let mut first = peer.due();
    first.reverse();
    for _ in 0..3 {
        for datagram in &first {
            peer.socket.send(datagram).unwrap();
        }
    }
    peer.carry_until(sent.len());
    // And again when all is over.
    for datagram in &first {
        peer.socket.send(datagram).unwrap();
    }
    peer.kcp.send(b"more").unwrap();
    peer.carry_until(sent.len() + 4);
    assert!(peer.back == [&sent[..], b"more"].concat());
    assert_eq!(server.stats().opened, 1);
}

#[test]
fn the_wire_s_clock_wraps_around_in_the_middle() {
    let server = raw_echo(|server| server);
    let mut peer = Peer::new(&server, 78, u64::from(u32::MAX) - 30);
    let mut expected = 0;
    while peer.began.elapsed() < Duration::from_millis(100) {
        peer.kcp.send(&bytes(3000)).unwrap();
        expected += 3000;
        peer.carry_until(expected);
    }
    assert!(peer.now() > u64::from(u32::MAX));
    // One that took the wrap for a time of its own would be at the most that there is, 60 s.
    assert!(peer.kcp.rto_ms() < 30_000, "{}", peer.kcp.rto_ms());
}

#[test]
fn wrong_conversations_and_impossible_numbers_change_nothing() {
    let server = raw_echo(|server| server);
    let mut peer = Peer::new(&server, 79, 0);
    peer.kcp.send(b"hello").unwrap();
    peer.carry_until(5);
    let before = dropped(&server);
    for number in [1, 128, 1 << 16, 1 << 31, u32::MAX] {
        for una in [0, 1, 1 << 20, 1 << 31, u32::MAX] {
            for command in [Command::Push, Command::Ack, Command::WindowAsk, Command::WindowTell] {
                // Of another conversation: the first number alone would open one.
                peer.socket.send(&segment(80, command, number, una, b"x")).unwrap();
                // Of this one, far outside of what was sent or can be taken.
                if number >= 1 << 16 {
                    peer.socket.send(&segment(79, command, number, una, b"x")).unwrap();
                }
            }
        }
    }
    until("those of no conversation are counted", || dropped(&server) >= before + 100);
    peer.kcp.send(b" again").unwrap();
    peer.carry_until(11);
    assert_eq!(peer.back, b"hello again");
    assert_eq!((server.stats().opened, server.stats().sessions), (1, 1));
}

struct Tells(mpsc::Sender<String>);

impl Handler for Tells {
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        session.send(frame.payload()).unwrap();
    }

    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        self.0.send(reason.to_string()).unwrap();
    }
}

#[test]
fn a_peer_that_vanishes_is_found_dead_when_something_is_sent_and_idle_otherwise() {
    for (config, idle, expected) in [
        (turbo().dead_link(4), None, "was sent 4 times"),
        (turbo(), Some(Duration::from_millis(100)), "idle"),
    ] {
        let (sender, reasons) = mpsc::channel();
        let server = NetServer::bind("kcp://127.0.0.1:0")
            .kcp_config(config)
            .idle_timeout(idle)
            .workers(1)
            .codec(|| RawCodec)
            .handler(move || Tells(sender.clone()))
            .start()
            .unwrap();
        let mut peer = Peer::new(&server, 81, 0);
        peer.kcp.send(b"hello").unwrap();
        peer.carry_until(5);
        peer.kcp.send(b"bye").unwrap();
        for datagram in peer.due() {
            peer.socket.send(&datagram).unwrap();
        }
        drop(peer);
        let reason = reasons.recv_timeout(PATIENCE).unwrap();
        assert!(reason.contains(expected), "{reason}");
        until("no session is left", || server.stats().sessions == 0);
    }
}

#[test]
fn a_hundred_thousand_forged_conversations_take_little_and_disturb_nobody() {
    let server = raw_echo(|server| server);
    let mut talker = Peer::new(&server, 1, 0);
    // Twice, so that its address is validated.
    for len in [2, 4] {
        talker.kcp.send(b"hi").unwrap();
        talker.carry_until(len);
    }
    let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
    for conversation in 100..100_100_u32 {
        let datagram = segment(conversation, Command::Push, 0, 0, &[7; 1000]);
        flood.send_to(&datagram, server.local_addrs()[0]).unwrap();
        if conversation % 10_000 == 0 {
            let len = talker.back.len();
            talker.kcp.send(b"hi").unwrap();
            talker.carry_until(len + 2);
        }
        // 2,048 whose peer has not answered, and those that were to make room in this tick, of some thousand datagrams.
        assert!(server.stats().sessions <= 12_000, "{}", server.stats().sessions);
    }
    until("the limit holds", || server.stats().sessions <= 2049);
    until("the forged ones are gone", || server.stats().sessions <= 1);
    let mut new = Peer::new(&server, 2, 0);
    new.kcp.send(b"new").unwrap();
    new.carry_until(3);
}

impl Peer {
    /// Has the server keep nearly a window of segments: what comes before them never arrives.
    fn leave_a_gap(&mut self) {
        while self.kcp.send_capacity() > 0 {
            self.kcp.send(&[7; 1300]).unwrap();
        }
        for datagram in self.due().iter().skip(1) {
            self.socket.send(datagram).unwrap();
        }
    }
}

#[test]
fn what_conversations_hold_is_counted_and_over_the_limit_the_worst_are_closed() {
    const LIMIT: usize = 8 << 20;
    const HELD: u64 = 250 * 1300;
    let server = raw_echo(|server| server.memory_limit(LIMIT));
    let mut peers: Vec<_> = (0..41).map(|conversation| Peer::new(&server, conversation, 0)).collect();
    for peer in &mut peers {
        // Twice, so that its address is validated.
        for len in [5, 10] {
            peer.kcp.send(b"hello").unwrap();
            peer.carry_until(len);
        }
    }
    let held = || server.stats().workers.transport_bytes;
    peers[1..17].iter_mut().for_each(Peer::leave_a_gap);
    until("it is counted", || held() > 16 * HELD);
    assert_eq!(server.stats().sessions, 41, "below the limit nobody is closed");
    peers[17..].iter_mut().for_each(Peer::leave_a_gap);
    until("those over the limit are closed", || server.stats().sessions < 41 && held() <= LIMIT as u64);
    assert!(held() > LIMIT as u64 / 2, "no more than needed: {}", held());
    peers[0].kcp.send(b"hello").unwrap();
    peers[0].carry_until(15);
}
