//! Panics of handlers and tasks: each ends what it belongs to, is counted, and the worker goes on.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{PATIENCE, Record, Recorder, off_worker, options, pattern, recorded, run, sockets, some_ticks};
use corewire_runtime::{Connection, JoinError, Listener, Runtime, TcpStream, sleep, spawn_local, timeout};

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

#[test]
fn a_panic_in_any_callback_closes_its_connection_only_and_is_counted() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let task = runtime
        .handle()
        .spawn_on(0, || async {
            let (other, other_record, mut other_peer) = recorded(options(|_| {}));
            for callback in ["open", "received", "read closed", "timer", "drained", "closed"] {
                let record = Record::default();
                let (socket, mut peer) = sockets();
                let action = move |what: &str, connection: &Connection| {
                    if what == "open" && callback == "drained" {
                        connection.send(&pattern(10_000)).unwrap();
                    }
                    if what == "open" && callback == "timer" {
                        connection.set_timer(Some(Duration::ZERO));
                    }
                    if what == callback {
                        if callback == "received" {
                            connection.send(b"half a reply").unwrap();
                        }
                        panic!("on purpose in {callback}");
                    }
                };
                let low = options(|options| (options.high_water, options.low_water) = (1000, 0));
                let connection =
                    Connection::open(socket, low, Recorder::with_action(&record, action)).unwrap();
                match callback {
                    "received" => peer.write_all(b"x").unwrap(),
                    "read closed" | "closed" => peer.shutdown(Shutdown::Write).unwrap(),
                    _ => {}
                }
                let reason = record.wait_for("closed").await;
                let expected = match callback {
                    "closed" => "closed: closed by the peer".to_owned(),
                    _ => format!("closed: a handler panicked: on purpose in {callback}"),
                };
                assert_eq!(reason, expected);
                let got = off_worker(move || {
                    let mut got = Vec::new();
                    drop(peer.read_to_end(&mut got));
                    got
                })
                .await;
                assert!(callback != "received" || got.is_empty(), "half a reply was sent");
                some_ticks(2).await;
                assert_eq!(record.count("closed"), 1, "in {callback}: {:?}", record.log());
                assert!(!connection.is_open());
            }
            other_peer.write_all(b"hello").unwrap();
            other_record.wait_received(5).await;
            assert!(other.is_open());
            assert_eq!(other_record.count("closed"), 0);
            other.close();
            other_record.wait_for("closed").await;
        })
        .unwrap();
    task.join().unwrap();
    // Published once a tick: after another one.
    runtime.handle().spawn_on(0, || sleep(Duration::from_millis(2))).unwrap().join().unwrap();
    let stats = runtime.handle().stats();
    assert_eq!((stats.panics, stats.closed), (6, 7));
}

#[test]
fn a_panic_while_a_connection_is_dropped_is_caught() {
    run(async {
        let record = Record::default();
        let (socket, peer) = sockets();
        let bomb = Bomb("the protocol's own drop");
        let handler = Recorder::with_action(&record, move |_, _| {
            let _ = &bomb;
        });
        let _connection = Connection::open(socket, options(|_| {}), handler).unwrap();
        drop(peer);
        record.wait_for("closed").await;
        some_ticks(2).await;
    });
}

#[test]
fn a_panic_in_an_accept_closure_leaves_the_listener_running() {
    run(async {
        let socket =
            corewire_runtime::driver::net::listen_tcp("127.0.0.1:0".parse().unwrap(), &Default::default())
                .unwrap();
        let (accepted, mut count) = (Record::default(), 0);
        let record = accepted.clone();
        let listener = Listener::start(socket, move |_| {
            count += 1;
            record.note(format!("accepted {count}"));
            assert!(count != 1, "on purpose");
            corewire_runtime::AfterAccept::Continue
        })
        .unwrap();
        let address = listener.with_socket(|socket| socket.local_addr()).unwrap().unwrap();
        for _ in 0..3 {
            drop(TcpStream::connect(address.as_socket().unwrap()).await);
        }
        accepted.wait_for("accepted 3").await;
    });
}

#[test]
fn a_listener_may_be_owned_by_the_accept_closure_of_another() {
    run(async {
        let listen = || {
            corewire_runtime::driver::net::listen_tcp("127.0.0.1:0".parse().unwrap(), &Default::default())
                .unwrap()
        };
        for dropped_by_hand in [true, false] {
            let inner = Listener::start(listen(), |_| corewire_runtime::AfterAccept::Continue).unwrap();
            let outer = Listener::start(listen(), move |_| {
                let _ = &inner;
                corewire_runtime::AfterAccept::Continue
            })
            .unwrap();
            if dropped_by_hand {
                drop(outer);
            } else {
                // Ends with the worker.
                std::mem::forget(outer);
            }
        }
    });
}

#[test]
fn a_panicking_task_fails_alone() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let at_once = runtime.handle().spawn_on(0, || async { panic!("at once") }).unwrap();
    let later = runtime
        .handle()
        .spawn_on(0, || async {
            sleep(Duration::from_millis(1)).await;
            panic!("{} later", 1);
        })
        .unwrap();
    let in_the_closure =
        runtime.handle().spawn_on(0, || -> std::future::Ready<()> { panic!("in the closure") }).unwrap();
    runtime.handle().run_on(0, || panic!("in a job")).unwrap();
    assert_eq!(at_once.join(), Err::<(), _>(JoinError::Panicked("at once".to_owned())));
    assert_eq!(later.join(), Err::<(), _>(JoinError::Panicked("1 later".to_owned())));
    assert_eq!(in_the_closure.join(), Err(JoinError::Panicked("in the closure".to_owned())));
    runtime.handle().spawn_on(0, || sleep(Duration::from_millis(2))).unwrap().join().unwrap();
    assert_eq!(runtime.handle().stats().panics, 4);
}

#[test]
fn a_panic_while_a_cancelled_task_is_dropped_ends_neither_worker_nor_process() {
    run(async {
        let task = spawn_local(async {
            let _bomb = Bomb("an aborted task");
            std::future::pending::<()>().await;
        });
        sleep(Duration::from_millis(1)).await;
        task.abort();
        sleep(Duration::from_millis(1)).await;
        let done = spawn_local(async {
            let _bomb = Bomb("at the end of a task");
        });
        assert_eq!(done.await, Err(JoinError::Panicked("at the end of a task".to_owned())));
        assert!(timeout(PATIENCE, async {}).await.is_ok());
    });
}

#[test]
fn a_panic_while_the_tasks_of_a_stopped_runtime_are_dropped_keeps_none_alive() {
    let (sender, receiver) = mpsc::channel::<()>();
    corewire_runtime::run(async move {
        for _ in 0..3 {
            let kept = sender.clone();
            drop(spawn_local(async move {
                let _kept = kept;
                let _bomb = Bomb("at shutdown");
                std::future::pending::<()>().await;
            }));
        }
        sleep(Duration::from_millis(1)).await;
    })
    .unwrap();
    assert!(receiver.recv().is_err(), "every task's state was dropped");
    corewire_runtime::run(async {}).expect("the thread is no worker any more");
}

#[test]
fn run_passes_a_panic_on_and_leaves_the_thread_usable() {
    let payload =
        std::panic::catch_unwind(|| corewire_runtime::run(async { panic!("out of run") })).unwrap_err();
    assert_eq!(payload.downcast_ref::<String>().unwrap(), "out of run");
    assert_eq!(corewire_runtime::run(async { 7 }).unwrap(), 7);
}

#[test]
fn run_on_a_worker_says_what_to_do_instead() {
    run(async {
        let error = spawn_local(async { corewire_runtime::run(async {}) }).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("run on a worker") && text.contains("spawn_local"), "{text}");
    });
}

#[test]
fn what_needs_a_worker_says_so_outside_of_one() {
    let payload = std::panic::catch_unwind(|| drop(spawn_local(async {}))).unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("spawn_local needs a worker"), "{text}");
}

/// Keeps what is logged, also by other tests of this file.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_panic_because_tokios_context_is_missing_is_logged_with_what_to_do() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    run(async {
        let task = spawn_local(async { tokio::time::sleep(Duration::ZERO).await });
        let error = task.await.unwrap_err();
        assert!(error.to_string().contains("there is no reactor running"), "{error}");
    });
    let lines = log.0.lock().unwrap();
    let line = lines.iter().find(|line| line.contains("there is no reactor running")).unwrap();
    assert!(line.contains("call `.tokio("), "{line}");
}
