//! Calls of every mode, in both versions, from everywhere.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewire::block_on;
use corewire::runtime::Runtime;
use corewire_rpc::{
    Bytes, Channel, Code, Context, Message, Retry, Service, Sink, Status, Streaming, TraceContext, Version,
};
use support::{Running, VERSIONS, channel, echo_service, eventually, every_mode, gauged, server, stuck};

async fn all_calls(channel: &Channel, is_v2: bool) -> Result<(), Status> {
    every_mode(channel, 300_000).await?;
    let (_, reply) = channel.client_stream::<Bytes, Bytes>("EchoService/echo").only("one".into()).await?;
    assert_eq!(reply.await?, "one");
    if is_v2 {
        let (sink, reply) = channel.client_stream::<Bytes, Bytes>("EchoService/echo").await?;
        sink.finish().await?;
        assert_eq!(reply.await?, "");
    }
    Ok(())
}

#[test]
fn every_mode_works_from_a_plain_thread_in_both_versions() {
    let server = server(|server| server);
    for version in VERSIONS {
        let channel = channel(&server, version);
        block_on(all_calls(&channel, version == Version::V2)).unwrap();
    }
}

#[test]
fn every_mode_works_on_a_worker_in_both_versions() {
    let server = server(|server| server);
    let uri = server.uri().to_owned();
    corewire::run(async move {
        for version in VERSIONS {
            let channel = Channel::to(uri.clone()).protocol(version).build().unwrap();
            all_calls(&channel, version == Version::V2).await.unwrap();
        }
    })
    .unwrap();
}

#[test]
fn every_mode_works_from_tokio() {
    let server = server(|server| server);
    let channel = channel(&server, Version::V2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let task = tokio::spawn(async move { all_calls(&channel, true).await });
        task.await.unwrap().unwrap();
    });
}

#[test]
fn unknown_services_methods_modes_and_routes_have_their_codes_and_keep_the_connection() {
    let server = server(|server| {
        server.service(Service::new("One").unary("only", |r: Bytes, _: Context| async { Ok(r) }))
    });
    for version in VERSIONS {
        let channel = channel(&server, version);
        block_on(async {
            let code = |result: Result<Bytes, Status>| result.unwrap_err().code();
            assert_eq!(code(channel.unary("Nobody/echo", "x").await), Code::SERVICE_NOT_FOUND);
            assert_eq!(code(channel.unary("One/nothing", "x").await), Code::METHOD_NOT_FOUND);
            let mut stream = channel.server_stream::<Bytes, Bytes>("One/only", Bytes::new()).await.unwrap();
            assert_eq!(stream.next().await.unwrap().unwrap_err().code(), Code::METHOD_NOT_FOUND);
            let (_sink, mut replies) = channel.stream("Nobody/echo").await.unwrap();
            let refused = replies.next().await.unwrap().unwrap_err().code();
            let expected = if version == Version::V1 { Code::CANCELLED } else { Code::SERVICE_NOT_FOUND };
            assert_eq!(refused, expected);
            assert_eq!(channel.unary("One/only", "x").await.unwrap(), "x");
        });
    }
    assert_eq!(server.stats().opened, 2, "each channel has used one connection");
}

#[test]
fn a_panic_fails_its_call_as_internal_and_nothing_else() {
    let server = server(|server| {
        let service = Service::new("Bad")
            .unary("now", |_: Bytes, _: Context| async {
                if true { panic!("at once") } else { Ok(Bytes::new()) }
            })
            .unary("later", |_: Bytes, _: Context| async {
                corewire::runtime::yield_now().await;
                if true { panic!("later") } else { Ok(Bytes::new()) }
            })
            .bidi("both", |_: Streaming, _: Sink, _: Context| async {
                if true { panic!("both") } else { Ok(()) }
            });
        server.service(service)
    });
    for version in VERSIONS {
        let channel = channel(&server, version);
        block_on(async {
            for path in ["Bad/now", "Bad/later", "Bad/now"] {
                assert_eq!(channel.unary(path, "").await.unwrap_err().code(), Code::INTERNAL, "{path}");
            }
            let (_sink, mut replies) =
                channel.bidi::<Bytes, Bytes>("Bad/both").first("".into()).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap_err().code(), Code::INTERNAL);
            assert_eq!(channel.unary("EchoService/echo", "x").await.unwrap(), "x");
        });
    }
}

#[test]
fn what_a_handler_fails_with_reaches_the_caller_whole_in_version_2() {
    let server = server(|server| {
        server.service(Service::new("No").unary("no", |_: Bytes, _: Context| async {
            Err::<Bytes, _>(Status::new(Code(1_234), "not today").with_details("come back"))
        }))
    });
    let status = block_on(channel(&server, Version::V2).unary("No/no", "")).unwrap_err();
    assert_eq!(
        (status.code(), status.message(), &status.details()[..]),
        (Code(1_234), "not today", &b"come back"[..])
    );
    let status = block_on(channel(&server, Version::V1).unary("No/no", "")).unwrap_err();
    assert_eq!(status.code(), Code::UNKNOWN, "version 1 ends at 10");
}

#[test]
fn a_dropped_call_is_cancelled_at_the_server() {
    let running = Running::default();
    let server = server(|server| server.service(stuck(&running)));
    let channel = channel(&server, Version::V2);
    block_on(async {
        let mut call = channel.unary("Stuck/unary", "");
        assert!(futures_lite::future::poll_once(&mut call).await.is_none());
        let both = channel.bidi::<Bytes, Bytes>("Stuck/bidi").await.unwrap();
        eventually("both run", || running.now() == 2);
        drop(call);
        eventually("the unary one is dropped", || running.now() == 1);
        drop(both);
        eventually("the other one too", || running.now() == 0);
    });
}

#[test]
fn a_deadline_ends_the_call_on_both_sides() {
    let running = Running::default();
    let server = server(|server| server.service(stuck(&running)));
    let channel = channel(&server, Version::V2);
    let began = Instant::now();
    let call = channel.unary("Stuck/unary", "").timeout(Duration::from_millis(50));
    assert_eq!(block_on(call).unwrap_err().code(), Code::DEADLINE_EXCEEDED);
    assert!(began.elapsed() >= Duration::from_millis(50));
    eventually("the handler is dropped", || running.now() == 0);
}

#[test]
fn a_deadline_is_kept_by_the_server_alone_too() {
    let running = Running::default();
    let server = server(|server| server.service(stuck(&running)).call_timeout(Duration::from_millis(30)));
    for version in VERSIONS {
        let channel = channel(&server, version);
        let status = block_on(channel.unary("Stuck/unary", "")).unwrap_err();
        assert_eq!(status.code(), Code::DEADLINE_EXCEEDED);
    }
    eventually("the handlers are dropped", || running.now() == 0);
}

#[test]
fn calls_made_inside_a_handler_inherit_its_deadline() {
    let running = Running::default();
    let inner = server(|server| server.service(stuck(&running)));
    let uri = inner.uri().to_owned();
    let left = Arc::new(Mutex::new(None));
    let seen = left.clone();
    let outer = server(move |server| {
        server.service(Service::new("Outer").unary("call", move |_: Bytes, context: Context| {
            *seen.lock().unwrap() = context.time_left();
            let channel = Channel::to(uri.clone()).build().unwrap();
            async move { channel.unary("Stuck/unary", "").await }
        }))
    });
    let channel = channel(&outer, Version::V2);
    let call = channel.unary("Outer/call", "").timeout(Duration::from_millis(100));
    assert_eq!(block_on(call).unwrap_err().code(), Code::DEADLINE_EXCEEDED);
    assert!(left.lock().unwrap().unwrap() <= Duration::from_millis(100));
    eventually("the inner handler is dropped", || running.now() == 0);
}

#[test]
fn a_handler_passes_on_what_is_left_of_its_deadline_and_the_trace_of_its_caller() {
    type Seen = Arc<Mutex<Option<(Option<Duration>, Option<TraceContext>, String)>>>;
    let seen = Seen::default();
    let note = seen.clone();
    let inner = server(move |server| {
        server.service(Service::new("Inner").unary("look", move |_: Bytes, call: Context| {
            *note.lock().unwrap() = Some((call.time_left(), call.trace(), call.trace_state().to_owned()));
            async { Ok(Bytes::new()) }
        }))
    });
    let uri = inner.uri().to_owned();
    let outer = server(move |server| {
        server.service(Service::new("Outer").unary("call", move |_: Bytes, call: Context| {
            let channel = Channel::to(uri.clone()).build().unwrap();
            async move {
                corewire::sleep(Duration::from_millis(30)).await;
                let trace = call.trace().unwrap().with_parent([7; 8]).unwrap();
                // More time than there is left.
                let inner = channel.unary("Inner/look", "").timeout(Duration::from_secs(3_600));
                inner.trace(trace).trace_state(call.trace_state()).await
            }
        }))
    });
    let trace: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let channel = channel(&outer, Version::V2);
    block_on(
        channel.unary("Outer/call", "").timeout(Duration::from_secs(60)).trace_state("vendor=1").trace(trace),
    )
    .unwrap();
    let (left, inner, state) = seen.lock().unwrap().take().unwrap();
    let left = left.unwrap();
    assert!(left <= Duration::from_millis(60_000 - 30) && left > Duration::from_secs(50), "{left:?}");
    assert_eq!(inner.unwrap().to_string(), "00-0af7651916cd43dd8448eb211c80319c-0707070707070707-01");
    assert_eq!(state, "vendor=1");
}

#[test]
fn calls_that_a_handler_makes_inherit_its_deadline_and_its_trace_unless_they_are_detached() {
    let inner = server(|server| {
        server.service(Service::new("Inner").unary("look", |_: Bytes, call: Context| async move {
            let trace = call.trace().map_or_else(String::new, |trace| trace.to_string());
            Ok(Bytes::from(format!("{}|{trace}|{}", call.time_left().is_some(), call.trace_state())))
        }))
    });
    let elsewhere = Runtime::builder().workers(1).build().unwrap();
    let (uri, worker) = (inner.uri().to_owned(), elsewhere.handle().worker(0).unwrap());
    let outer = server(move |server| {
        server.service(Service::new("Outer").unary("call", move |how: Bytes, _: Context| {
            let channel = Channel::to(uri.clone());
            let is_remote = how.starts_with(b"remote");
            let channel = if is_remote { channel.worker(worker.clone()) } else { channel }.build().unwrap();
            async move {
                corewire::sleep(Duration::from_millis(1)).await;
                let call = channel.unary("Inner/look", "");
                match &how[how.len() - 2..] {
                    b"by" => call.detached().await,
                    // Made again and again, by a task.
                    b"re" => call.idempotent().retry(Retry::default()).await,
                    _ => call.await,
                }
            }
        }))
    });
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let channel = channel(&outer, Version::V2);
    for (how, seen) in [
        ("local", format!("true|{trace}|vendor=1")),
        ("local re", format!("true|{trace}|vendor=1")),
        ("remote", format!("true|{trace}|vendor=1")),
        ("local by", "false||".to_owned()),
        ("remote by", "false||".to_owned()),
    ] {
        let call = channel.unary("Outer/call", how).timeout(Duration::from_secs(60));
        let call = call.trace(trace.parse().unwrap()).trace_state("vendor=1");
        assert_eq!(block_on(call).unwrap(), seen, "{how}");
    }
    assert_eq!(block_on(channel.unary("Outer/call", "local")).unwrap(), "false||");
}

#[test]
fn a_shutdown_cuts_at_its_deadline_what_is_left_and_says_how_much() {
    let running = Running::default();
    for version in VERSIONS {
        let (server, gauges) = gauged(|server| server.service(stuck(&running)));
        let channels = [channel(&server, version), channel(&server, version), channel(&server, version)];
        block_on(channels[0].unary("EchoService/echo", "x")).unwrap();
        let calls: Vec<_> = channels[1..]
            .iter()
            .map(|channel| {
                let channel = channel.clone();
                std::thread::spawn(move || block_on(channel.unary("Stuck/unary", "")))
            })
            .collect();
        eventually("both run", || running.now() == 2);
        let began = Instant::now();
        let report = server.shutdown(Duration::from_millis(100));
        assert!(began.elapsed() >= Duration::from_millis(100));
        assert_eq!((report.sessions, report.finished, report.cut), (3, 1, 2), "{version:?}");
        assert_eq!(report.to_string(), "3 sessions: 1 finished, 2 cut");
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap_err().code(), Code::CONNECTION_CLOSED);
        }
        assert_eq!(running.now(), 0, "the handlers were dropped");
        assert_eq!(block_on(gauges.read()), corewire_rpc::Gauges::default());
    }
}

#[test]
fn ten_thousand_pending_calls_fail_at_once_and_once_each_when_their_server_dies() {
    let running = Running::default();
    let server = server(|server| server.service(stuck(&running)));
    let uri = server.uri().to_owned();
    let (sender, receiver) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        corewire::run(async move {
            let channel = Channel::to(uri).timeout(Duration::from_secs(60)).build().unwrap();
            let calls: Vec<_> = (0..10_000)
                .map(|_| {
                    let channel = channel.clone();
                    corewire::spawn_local(async move { channel.unary("Stuck/unary", "").await })
                })
                .collect();
            let mut codes = Vec::new();
            for call in calls {
                codes.push(call.await.unwrap().unwrap_err().code());
            }
            let left = channel.gauges().await;
            assert!(left.is_idle() && left.connections == 0, "{left:?}");
            sender.send(codes).unwrap();
        })
        .unwrap();
    });
    eventually("all are pending", || running.now() == 10_000);
    let began = Instant::now();
    drop(server);
    let codes = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(codes.len(), 10_000);
    assert!(codes.iter().all(|code| *code == Code::CONNECTION_CLOSED), "{:?}", codes[0]);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    client.join().unwrap();
}

#[test]
fn a_channel_comes_back_when_its_server_does() {
    let first = server(|server| server);
    let port = first.local_addrs()[0].port();
    let channel = channel(&first, Version::V2);
    block_on(async { channel.unary("EchoService/echo", "1").await }).unwrap();
    first.shutdown(Duration::from_secs(5));
    let second = corewire_rpc::RpcServer::bind(format!("tcp://127.0.0.1:{port}"))
        .service(echo_service("EchoService"))
        .workers(1)
        .start()
        .unwrap();
    assert_eq!(block_on(channel.unary("EchoService/echo", "2")).unwrap(), "2");
    drop(second);
}

#[test]
fn without_a_server_a_call_waits_or_fails_fast_as_it_is_told() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let channel = Channel::to(format!("tcp://{closed}")).build().unwrap();
    let status = block_on(channel.unary("A/b", "").fail_fast()).unwrap_err();
    assert_eq!(status.code(), Code::UNAVAILABLE, "{status}");
    assert!(status.is_unprocessed());
    let status = block_on(channel.unary("A/b", "").timeout(Duration::from_millis(50))).unwrap_err();
    assert_eq!(status.code(), Code::DEADLINE_EXCEEDED, "{status}");
}

#[test]
fn shutdown_lets_calls_finish_and_sends_new_ones_elsewhere() {
    let gate = Arc::new(Mutex::new(None));
    let opened = gate.clone();
    let (sender, receiver) = futures_channel::oneshot::channel::<()>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let first = server(move |server| {
        server.service(Service::new("Slow").unary("wait", move |_: Bytes, _: Context| {
            let receiver = receiver.lock().unwrap().take();
            *opened.lock().unwrap() = Some(());
            async move {
                if let Some(receiver) = receiver {
                    let _ = receiver.await;
                }
                Ok(Bytes::from_static(b"done"))
            }
        }))
    });
    let second = server(|server| server);
    let channel = Channel::to(first.uri()).and(second.uri()).build().unwrap();
    let caller = channel.clone();
    let pending = std::thread::spawn(move || block_on(caller.unary("Slow/wait", "")));
    eventually("the call runs", || gate.lock().unwrap().is_some());
    let stopping = std::thread::spawn(move || first.shutdown(Duration::from_secs(10)));
    eventually("a new call reaches the second server", || {
        block_on(channel.unary("EchoService/echo", "x").timeout(Duration::from_secs(1))).is_ok()
            && second.stats().sessions == 1
    });
    sender.send(()).unwrap();
    assert_eq!(pending.join().unwrap().unwrap(), "done");
    let report = stopping.join().unwrap();
    assert_eq!((report.finished, report.cut), (1, 0));
}

#[test]
fn a_slow_consumer_stops_its_own_producer_and_nobody_else() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let server = server(move |server| {
        server.service(Service::new("Flood").server_stream(
            "run",
            move |_: Bytes, mut sink: Sink, _: Context| {
                let count = count.clone();
                async move {
                    let message = Bytes::from(vec![0; 10_000]);
                    for _ in 0..1_000 {
                        sink.send(message.clone()).await?;
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(())
                }
            },
        ))
    });
    let channel = channel(&server, Version::V2);
    block_on(async {
        let mut slow = channel.server_stream::<Bytes, Bytes>("Flood/run", Bytes::new()).await.unwrap();
        eventually("the window is full", || sent.load(Ordering::SeqCst) >= 26);
        for i in 0..100 {
            assert_eq!(channel.unary("EchoService/echo", i.to_string()).await.unwrap(), i.to_string());
        }
        let stopped_at = sent.load(Ordering::SeqCst);
        assert!(stopped_at <= 30, "a window is 256 KiB: {stopped_at} messages of 10 kB");
        let mut received = 0;
        while let Some(message) = slow.next().await {
            received += message.unwrap().len();
        }
        assert_eq!(received, 10_000_000);
    });
}

#[test]
fn typed_messages_and_metadata_arrive() {
    use corewire_rpc::{Compact, Json};
    let server = server(|server| {
        let service = Service::new("Typed")
            .unary("sum", |Json(numbers): Json<Vec<i64>>, _: Context| async move {
                Ok(Compact(numbers.iter().sum::<i64>()))
            })
            .unary("who", |_: Bytes, context: Context| async move {
                Ok(Bytes::from(context.metadata().get_str("user").unwrap_or("nobody").to_owned()))
            });
        server.service(service)
    });
    let channel = channel(&server, Version::V2);
    block_on(async {
        let Compact(sum): Compact<i64> = channel.call("Typed/sum", Json(vec![1_i64, 2, 39])).await.unwrap();
        assert_eq!(sum, 42);
        let wrong = channel.unary("Typed/sum", "no json").await.unwrap_err();
        assert_eq!(wrong.code(), Code::DESERIALIZATION);
        assert_eq!(channel.unary("Typed/who", "").metadata("user", "ann").await.unwrap(), "ann");
        assert_eq!(channel.unary("Typed/who", "").await.unwrap(), "nobody");
    });
    assert!(Bytes::from_static(b"x").encode().is_ok());
}
