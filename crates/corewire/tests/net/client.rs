//! Clients: connecting, sending, receiving, closing; from workers, threads and other executors.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use corewire::client::{Call, ClientSendError, Sending};
use corewire::runtime::{ConnectionOptions, Runtime};
use corewire::{
    CallError, CloseReason, ConnectError, Frame, Handler, LineCodec, NetClient, NetUri, Session,
    StandardCodec, run,
};

use crate::common::*;

fn uri(text: &str) -> NetUri {
    NetUri::parse(text).unwrap()
}

#[test]
fn futures_and_clients_can_move_between_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    fn send_value<T: Send>(_: &T) {}
    send::<NetClient>();
    sync::<NetClient>();
    send::<Call<'_>>();
    send::<Sending<'_>>();
    send::<ConnectError>();
    send::<CallError>();
    send_value(&client_of("tcp://127.0.0.1:1").connect());
    let assert_recv = |client: &NetClient| send_value(&client.recv());
    let assert_object = |client: &NetClient| {
        let codec = corewire::proto::codec::JsonCodec::<u8>::new();
        send_value(&client.request_object(codec, &1));
    };
    let _ = (assert_recv, assert_object);
}

#[test]
fn a_refused_connection_says_where() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = client_of(&format!("tcp://{address}")).connect_blocking().unwrap_err();
    assert!(
        matches!(&error, ConnectError::Refused { source, .. }
        if source.kind() == std::io::ErrorKind::ConnectionRefused),
        "{error:?}"
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_server_that_does_not_answer_is_a_time_out() {
    // A full backlog: the kernel drops further connects.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        filling.push(stream);
        assert!(filling.len() < 100);
    }
    let timeout = Duration::from_millis(50);
    let client = client_of(&format!("tcp://{address}")).connect_timeout(timeout);
    let error = client.connect_blocking().unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { timeout: got, .. } if got == timeout), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn what_is_wrong_with_a_uri_is_said() {
    for (text, word) in [
        ("tcp://no-such-host.invalid:1", "no-such-host.invalid"),
        ("ws://127.0.0.1:1", "ws"),
        ("tcp://127.0.0.1", "port"),
        ("unix:///no/such/socket", "/no/such/socket"),
    ] {
        let error = uri(text).client().connect_blocking().unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn all_addresses_of_a_name_are_tried() {
    // "localhost" may be ::1 first, where nobody listens.
    let server = standard_echo();
    let port = server.local_addrs()[0].port();
    let client = client_of(&format!("tcp://localhost:{port}")).connect_blocking().unwrap();
    assert_eq!(wait(client.request(b"x")).unwrap(), &b"x"[..]);
}

#[test]
fn a_client_works_on_a_tokio_runtime() {
    let server = standard_echo();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let uri = server.uri().to_owned();
    tokio.block_on(async move {
        let client = client_of(&uri).connect().await.unwrap();
        let tasks: Vec<_> = (0..50_u32)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    for round in 0..20 {
                        let payload = [task.to_le_bytes(), u32::to_le_bytes(round)].concat();
                        assert_eq!(client.request(&payload).await.unwrap(), payload);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn eight_threads_share_one_client() {
    let server = standard_echo();
    let client = connect(&server);
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..200_u32 {
                    let payload = [thread.to_le_bytes(), round.to_le_bytes()].concat();
                    assert_eq!(wait(client.request(&payload)).unwrap(), payload);
                }
            });
        }
    });
}

#[test]
fn a_client_works_on_any_executor_and_on_a_worker() {
    let server = standard_echo();
    let uri = server.uri().to_owned();
    let use_it = |uri: String| async move {
        let client = client_of(&uri).connect().await.unwrap();
        for _ in 0..10 {
            assert_eq!(client.request(b"hello").await.unwrap(), &b"hello"[..]);
            client.send(b"one way").await.unwrap();
        }
    };
    futures_lite::future::block_on(use_it(uri.clone()));
    run(use_it(uri.clone())).unwrap();
    // On another worker than the client's own.
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let home = runtime.handle().worker(0).unwrap();
    let client = client_of(&uri).worker(home).connect_blocking().unwrap();
    for worker in 0..2 {
        let client = client.clone();
        let task = runtime.handle().spawn_on(worker, move || async move { client.request(b"hi").await });
        assert_eq!(task.unwrap().join().unwrap().unwrap(), &b"hi"[..]);
    }
}

/// A client that may queue little, and a peer that does not read yet.
fn narrow() -> (NetClient, std::net::TcpStream) {
    let server = RawServer::new();
    let client = client_of(&server.uri).water_marks(20_000, 50_000).connect_blocking().unwrap();
    (client, server.accept())
}

#[test]
fn sends_from_a_thread_keep_their_order_when_the_server_does_not_keep_up() {
    const COUNT: u32 = 3000;
    let (client, mut peer) = narrow();
    let sender = std::thread::spawn(move || {
        for at in 0..COUNT {
            let mut payload = vec![at as u8; 5000];
            payload[..4].copy_from_slice(&at.to_le_bytes());
            wait(client.send(&payload)).unwrap();
        }
        client
    });
    for at in 0..COUNT {
        let (flag, _, payload) = read_srmp(&mut peer);
        assert_eq!((flag, &payload[..4], payload.len()), (0x41, &at.to_le_bytes()[..], 5000));
        assert!(payload[4..].iter().all(|byte| *byte == at as u8));
    }
    sender.join().unwrap();
}

#[test]
fn a_send_waits_over_the_high_water_mark() {
    let (client, mut peer) = narrow();
    let payload = vec![5; 40_000];
    let mut sent = 0;
    let mut waiting = loop {
        let mut sending = client.send(&payload);
        match poll_once(&mut sending) {
            Poll::Ready(result) => result.unwrap(),
            // It may only not have got there yet; a moment later it is still waiting, once the way is full.
            Poll::Pending => {
                let until = Instant::now() + Duration::from_millis(200);
                let mut done = false;
                while !done && Instant::now() < until {
                    std::thread::yield_now();
                    done = poll_once(&mut sending).is_ready();
                }
                if !done {
                    break sending;
                }
            }
        }
        sent += 1;
        assert!(sent < 10_000, "nothing holds it back");
    };
    let reading = std::thread::spawn(move || {
        for _ in 0..=sent {
            assert_eq!(read_srmp(&mut peer).2, vec![5; 40_000]);
        }
    });
    wait(&mut waiting).unwrap();
    reading.join().unwrap();
}

#[test]
fn close_ends_calls_waiters_and_the_inbox_after_what_was_sent() {
    let server = RawServer::new();
    let client = client_of(&server.uri).inbox(10).connect_blocking().unwrap();
    let mut peer = server.accept();
    peer.write_all(&srmp(0x41, 0, b"kept")).unwrap();
    let mut call = client.request(b"pending");
    assert!(poll_once(&mut call).is_pending());
    assert_eq!(read_srmp(&mut peer).2, b"pending");
    let last = wait(client.recv()).unwrap();
    assert_eq!(&last.payload[..], b"kept");
    wait(client.send(b"last words")).unwrap();
    client.close();
    assert_eq!(wait(&mut call), Err(CallError::Closed));
    assert_eq!(wait(client.recv()), None);
    assert_eq!(read_srmp(&mut peer).2, b"last words");
    assert_eq!(read_to_end(&mut peer), b"");
    assert_eq!(wait(client.request(b"after")), Err(CallError::Closed));
    assert_eq!(wait(client.send(b"after")), Err(ClientSendError::Closed));
    client.close();
}

#[test]
fn a_send_after_close_is_an_error_on_the_worker_too() {
    let server = standard_echo();
    let uri = server.uri().to_owned();
    run(async move {
        let client = client_of(&uri).connect().await.unwrap();
        client.close();
        corewire::runtime::yield_now().await;
        assert_eq!(client.send(b"x").await, Err(ClientSendError::Closed));
        assert_eq!(client.request(b"x").await, Err(CallError::Closed));
    })
    .unwrap();
}

#[test]
fn dropping_the_last_clone_closes_the_connection_after_what_was_sent() {
    let server = RawServer::new();
    let client = client_of(&server.uri).connect_blocking().unwrap();
    let mut peer = server.accept();
    let clone = client.clone();
    drop(client);
    let payload = vec![1; 60_000];
    for _ in 0..20 {
        wait(clone.send(&payload)).unwrap();
    }
    drop(clone);
    for _ in 0..20 {
        assert_eq!(read_srmp(&mut peer).2, payload);
    }
    assert_eq!(read_to_end(&mut peer), b"");
}

#[test]
fn an_inbox_that_is_not_emptied_holds_the_server_back_and_loses_nothing() {
    let server = RawServer::new();
    let client = client_of(&server.uri).inbox(10).connect_blocking().unwrap();
    let mut peer = server.accept();
    let frame = srmp(0x41, 0, &[6; 50_000]);
    peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut written = 0;
    let error = loop {
        match peer.write(&frame[written % frame.len()..]) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
        assert!(written < 256 << 20, "nothing holds the server back");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    for _ in 0..written / frame.len() {
        assert_eq!(wait(client.recv()).unwrap().payload, vec![6; 50_000]);
    }
}

/// Tells what a client's handler is told.
struct Telling(Sender<String>);

impl Handler for Telling {
    fn on_open(&mut self, session: &Session) {
        self.0.send(format!("open {}", session.id())).unwrap();
    }
    fn on_frame(&mut self, _: &Session, frame: Frame<'_>) {
        self.0.send(format!("frame {}", String::from_utf8_lossy(frame.payload()))).unwrap();
    }
    fn on_error(&mut self, _: &Session, error: &corewire::proto::codec::DecodeError) {
        self.0.send(format!("error recoverable={}", error.is_recoverable())).unwrap();
    }
    fn on_read_closed(&mut self, session: &Session) {
        self.0.send("read closed".to_owned()).unwrap();
        session.close_with(CloseReason::PeerClosed);
    }
    fn on_connect_failed(&mut self, _: &CloseReason) {
        let _ = self.0.send("connect failed".to_owned());
    }
    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        let _ = self.0.send(format!("close {reason}"));
    }
}

#[test]
fn a_handler_gets_what_belongs_to_no_call_and_hears_of_every_connection() {
    let server = RawServer::new();
    let (sender, told) = events();
    let sender = Mutex::new(sender);
    let mut reconnect = corewire::client::Reconnect::default();
    reconnect.initial = Duration::from_millis(1);
    reconnect.max = Duration::from_millis(2);
    let client = client_of(&server.uri)
        .reconnect(reconnect)
        .handler(move || Telling(sender.lock().unwrap().clone()))
        .connect_blocking()
        .unwrap();
    let mut peer = server.accept();
    let mut call = client.request(b"x");
    assert!(poll_once(&mut call).is_pending());
    read_srmp(&mut peer);
    peer.write_all(&[srmp(0x41, 0, b"push"), srmp(0x81, 1, b"reply"), srmp(0x01, 9, b"request")].concat())
        .unwrap();
    wait(call).unwrap();
    assert_eq!(told.take(3), ["open 1", "frame push", "frame request"]);
    let address = server.listener.local_addr().unwrap();
    drop(server);
    drop(peer);
    assert_eq!(told.take(3), ["read closed", "close closed by the peer", "connect failed"]);
    let again = TcpListener::bind(address).unwrap();
    let mut peer = patient(again.accept().unwrap().0);
    // Over the frame limit, and therefore the end.
    peer.write_all(&[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).unwrap();
    let rest: Vec<String> = std::iter::repeat_with(|| told.next())
        .skip_while(|event| event == "connect failed")
        .take(3)
        .collect();
    assert!(rest[0].starts_with("open ") && rest[1] == "error recoverable=false", "{rest:?}");
    assert!(rest[2].starts_with("close the peer broke the protocol"), "{rest:?}");
}

#[test]
fn the_timer_of_a_clients_session_is_its_handlers_and_calls_time_out_even_so() {
    struct Timed(Sender<u32>, u32);
    impl Handler for Timed {
        fn on_frame(&mut self, session: &Session, _: Frame<'_>) {
            session.set_timer(Some(Duration::from_millis(5)));
        }
        fn on_timer(&mut self, session: &Session) {
            self.1 += 1;
            self.0.send(self.1).unwrap();
            session.set_timer((self.1 < 3).then_some(Duration::from_millis(5)));
        }
    }
    let server = RawServer::new();
    let (sender, ticks) = events();
    let sender = Mutex::new(sender);
    let client = client_of(&server.uri)
        .handler(move || Timed(sender.lock().unwrap().clone(), 0))
        .connect_blocking()
        .unwrap();
    let mut peer = server.accept();
    let (soon, later) = (Duration::from_millis(60), Duration::from_millis(120));
    let (mut first, mut second) = (client.request(b"x").timeout(later), client.request(b"y").timeout(soon));
    let began = Instant::now();
    assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending());
    peer.write_all(&srmp(0x41, 0, b"set it, and at last call it off")).unwrap();
    assert_eq!(ticks.take(3), [1, 2, 3]);
    assert_eq!(wait(second), Err(CallError::TimedOut(soon)));
    assert!(began.elapsed() >= soon);
    assert_eq!(wait(first), Err(CallError::TimedOut(later)));
    assert!(began.elapsed() >= later);
    // The next ones as well.
    assert_eq!(wait(client.request(b"z").timeout(soon)), Err(CallError::TimedOut(soon)));
}

#[test]
fn a_client_handler_that_panics_loses_its_connection_and_the_client_comes_back() {
    struct Panics(bool);
    impl Handler for Panics {
        fn on_open(&mut self, _: &Session) {
            assert!(!self.0, "on purpose");
        }
        fn on_frame(&mut self, _: &Session, _: Frame<'_>) {
            panic!("on purpose");
        }
    }
    let server = RawServer::new();
    let first = std::sync::atomic::AtomicBool::new(true);
    let client = client_of(&server.uri)
        .handler(move || Panics(first.swap(false, std::sync::atomic::Ordering::SeqCst)))
        .connect_blocking();
    assert_eq!(read_to_end(&mut server.accept()), b"", "its on_open panicked");
    let client = client.unwrap();
    let mut peer = server.accept();
    peer.write_all(&srmp(0x41, 0, b"panic in on_frame")).unwrap();
    assert_eq!(read_to_end(&mut peer), b"");
    let mut peer = server.accept();
    let mut call = client.request(b"x");
    assert!(poll_once(&mut call).is_pending());
    let (_, sequence, _) = read_srmp(&mut peer);
    peer.write_all(&srmp(0x81, sequence, b"y")).unwrap();
    assert_eq!(wait(call).unwrap(), &b"y"[..]);
}

#[test]
fn a_codec_without_requests_says_so() {
    let server = local().handler(echo).start().unwrap();
    let client = uri(server.uri()).client().inbox(1).connect_blocking().unwrap();
    assert_eq!(wait(client.request(b"x")), Err(CallError::NoRequests));
    wait(client.send(b"raw")).unwrap();
    assert_eq!(&wait(client.recv()).unwrap().payload[..], b"raw");
}

#[test]
fn raw_bytes_go_past_the_codec() {
    let server = RawServer::new();
    let client = client_of(&server.uri).connect_blocking().unwrap();
    let mut peer = server.accept();
    wait(client.send_raw(b"no frame")).unwrap();
    expect(&mut peer, b"no frame");
}

#[test]
fn a_client_whose_runtime_is_gone_says_so_and_hangs_nowhere() {
    let server = RawServer::new();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let worker = runtime.handle().worker(0).unwrap();
    let builder = || client_of(&server.uri).inbox(5).worker(worker.clone());
    let client = builder().connect_blocking().unwrap();
    let mut peer = server.accept();
    let (mut pending, unpolled) = (client.request(b"pending"), client.request(b"never polled"));
    assert!(poll_once(&mut pending).is_pending());
    read_srmp(&mut peer);
    let mut receiving = Box::pin(client.recv());
    assert!(poll_once(&mut receiving).is_pending());
    drop(runtime);
    assert!(matches!(wait(pending), Err(CallError::Closed | CallError::ConnectionLost(_))));
    assert_eq!(wait(unpolled), Err(CallError::Closed));
    assert_eq!(wait(receiving), None);
    assert_eq!(wait(client.request(b"x")), Err(CallError::Closed));
    assert_eq!(wait(client.send(b"x")), Err(ClientSendError::Closed));
    assert_eq!(wait(client.recv()), None);
    client.close();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    assert!(matches!(builder().connect_blocking(), Err(ConnectError::Stopped)));
}

#[test]
fn calls_under_way_in_tasks_of_a_runtime_end_with_it() {
    let server = RawServer::new();
    let (sender, told) = events();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let uri = server.uri.clone();
    runtime
        .handle()
        .run_on(0, move || {
            drop(corewire::spawn_local(async move {
                struct Told(Sender<()>);
                impl Drop for Told {
                    fn drop(&mut self) {
                        self.0.send(()).unwrap();
                    }
                }
                let _told = Told(sender);
                let client = client_of(&uri).codec(StandardCodec::default).connect().await.unwrap();
                let _ = client.request(b"for ever").await;
                std::future::pending::<()>().await;
            }));
        })
        .unwrap();
    let mut peer = server.accept();
    assert_eq!(read_srmp(&mut peer).2, b"for ever");
    drop(runtime);
    told.next();
    assert_eq!(read_to_end(&mut peer), b"");
}

/// Counts the bytes of one peer; tells how many there were at its end.
fn counts(server: RawServer, go: std::sync::mpsc::Receiver<()>) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut peer = server.accept();
        go.recv().unwrap();
        read_to_end(&mut peer).len()
    })
}

#[test]
fn what_was_accepted_before_a_flush_has_left_after_it() {
    const LINES: usize = 1_000;
    for on_its_worker in [false, true] {
        let server = RawServer::new();
        let uri = NetUri::parse(&server.uri).unwrap();
        let (go, may_go) = channel();
        let peer = counts(server, may_go);
        go.send(()).unwrap();
        let send_all = move |uri: NetUri| async move {
            let client = uri.client().codec(LineCodec::new).connect().await.unwrap();
            for _ in 0..LINES {
                client.send(&[b'x'; 999]).await.unwrap();
            }
            client.flush().await.unwrap();
            // Ends at once, as a process does: what has left arrives.
            client
        };
        let client = match on_its_worker {
            true => {
                // The worker goes away with it.
                drop(run(send_all(uri)).unwrap());
                None
            }
            false => Some(wait(send_all(uri))),
        };
        if let Some(client) = client {
            let ended = client.close();
            wait(ended).unwrap();
        }
        assert_eq!(peer.join().unwrap(), LINES * 1_000);
    }
}

#[test]
fn a_close_that_is_awaited_says_that_all_was_sent() {
    let server = RawServer::new();
    let (go, may_go) = channel();
    let client = client_of(&server.uri).connect_blocking().unwrap();
    let peer = counts(server, may_go);
    for _ in 0..100 {
        wait(client.send(&[7; 10_000])).unwrap();
    }
    let closing = client.close();
    go.send(()).unwrap();
    assert_eq!(wait(closing), Ok(()));
    assert_eq!(wait(client.close()), Ok(()), "once more, it says the same");
    assert_eq!(peer.join().unwrap(), 100 * 10_004);
    assert_eq!(wait(client.flush()), Err(ClientSendError::Closed));
}

#[test]
fn a_close_says_what_a_peer_that_does_not_read_did_not_get() {
    let server = RawServer::new();
    let mut options = ConnectionOptions::default();
    options.close_timeout = Duration::from_millis(50);
    options.high_water = 64 << 20;
    let client = client_of(&server.uri).connection_options(options).connect_blocking().unwrap();
    let mut peer = server.accept();
    const BYTES: usize = 16 << 20;
    wait(client.send(&vec![1; BYTES])).unwrap();
    let unsent = wait(client.close()).unwrap_err();
    assert!((1 << 20..=BYTES + 8).contains(&unsent.bytes) && unsent.messages == 0, "{unsent}");
    assert!(unsent.reason.contains("did not take"), "{unsent}");
    drop(client);
    assert!(read_to_end(&mut peer).len() + unsent.bytes <= BYTES + 8);
}

#[test]
fn a_close_while_there_is_no_connection_counts_the_messages_that_none_took() {
    let server = RawServer::new();
    let client = client_of(&server.uri).inbox(1).connect_blocking().unwrap();
    let peer = server.accept();
    drop(server);
    drop(peer);
    let short = Duration::from_millis(30);
    while wait(client.request(b"x").timeout(short)) != Err(CallError::TimedOut(short)) {}
    for _ in 0..10 {
        wait(client.send(b"waits")).unwrap();
    }
    let unsent = wait(client.close()).unwrap_err();
    assert_eq!((unsent.messages, unsent.bytes), (10, 50));
}

#[test]
fn a_flush_says_that_a_connection_was_lost_with_bytes_unsent() {
    let server = RawServer::new();
    let mut options = ConnectionOptions::default();
    options.high_water = 64 << 20;
    let client = client_of(&server.uri).connection_options(options).connect_blocking().unwrap();
    let mut peer = server.accept();
    wait(client.send(&vec![1; 16 << 20])).unwrap();
    // It is on its way on this connection.
    peer.read_exact(&mut [0]).unwrap();
    reset(peer);
    let Err(ClientSendError::ConnectionLost { unsent }) = wait(client.flush()) else { panic!("it was lost") };
    assert!(unsent >= 1 << 20, "{unsent}");
    assert_eq!(wait(client.flush()), Ok(()), "told once");
}

/// Waits until the worker counts as much as this for inboxes.
#[track_caller]
fn await_inbox(runtime: &Runtime, what: &str, is_met: impl Fn(u64) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let held = runtime.handle().stats().inbox_bytes;
        if is_met(held) {
            return;
        }
        assert!(Instant::now() < until, "{held} bytes, {what}");
        thread::yield_now();
    }
}

#[test]
fn what_waits_in_an_inbox_is_counted_as_held_until_it_is_taken() {
    const COUNT: usize = 100;
    let server = RawServer::new();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let builder = client_of(&server.uri).inbox(2 * COUNT).worker(runtime.handle().worker(0).unwrap());
    let client = builder.connect_blocking().unwrap();
    let mut peer = server.accept();
    for _ in 0..2 {
        peer.write_all(&srmp(0x41, 0, &[7; 10_000]).repeat(COUNT)).unwrap();
        await_inbox(&runtime, "all of it waits", |held| held >= 10_000 * COUNT as u64);
        for _ in 0..COUNT {
            assert_eq!(wait(client.recv()).unwrap().payload.len(), 10_000);
        }
        await_inbox(&runtime, "nothing waits", |held| held == 0);
    }
    peer.write_all(&srmp(0x41, 0, &[7; 10_000])).unwrap();
    await_inbox(&runtime, "one waits", |held| held >= 10_000);
    drop(client);
    await_inbox(&runtime, "the client is gone", |held| held == 0);
}
