//! Futures of calls own what they need: they can be spawned, and move between threads, also in flight.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewire::runtime::Runtime;
use corewire::{block_on, spawn_local};
use corewire_rpc::{Bytes, Channel, Code, Context, Service, Status, Version};
use futures_channel::oneshot;
use futures_lite::future::poll_once;
use support::{channel, eventually, gauged, server, settles};

/// Counts its calls, and answers each when it is told to.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    waiting: Arc<Mutex<Vec<oneshot::Sender<()>>>>,
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Gate {
    fn service(&self) -> Service {
        let gate = self.clone();
        Service::new("Gate").unary("pass", move |request: Bytes, _: Context| {
            let (sender, opened) = oneshot::channel();
            gate.begun.fetch_add(1, Ordering::SeqCst);
            gate.waiting.lock().unwrap().push(sender);
            let dropped = Dropped(gate.dropped.clone());
            async move {
                let _dropped = dropped;
                let _ = opened.await;
                Ok(request)
            }
        })
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.waiting.lock().unwrap().drain(..).for_each(|sender| sender.send(()).unwrap());
    }
}

#[test]
fn calls_of_every_mode_can_be_spawned() {
    fn is_owned<T: Future + Send + Unpin + 'static>(call: T) -> T {
        call
    }
    let server = server(|server| server);
    let channel = channel(&server, Version::V2);
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio.block_on(async {
        let path = "EchoService/echo".to_owned();
        let unary = tokio::spawn(channel.unary(&*path, "one"));
        let typed = tokio::spawn(channel.call::<Bytes, Bytes>(&*path, "two".into()));
        let metadata = tokio::spawn(channel.unary(&*path, "three").with_metadata());
        let up = tokio::spawn(is_owned(channel.client_stream::<Bytes, Bytes>(&*path)));
        let down = tokio::spawn(is_owned(channel.server_stream::<Bytes, Bytes>(&*path, "4".into())));
        let both = tokio::spawn(is_owned(channel.bidi::<Bytes, Bytes>(&*path)));
        let stream = tokio::spawn(channel.stream("StreamBenchService/echo"));
        drop((path, channel));
        assert_eq!(unary.await.unwrap().unwrap(), "one");
        assert_eq!(typed.await.unwrap().unwrap(), "two");
        assert_eq!(metadata.await.unwrap().unwrap().0, "three");
        let (sink, response) = up.await.unwrap().unwrap();
        drop(sink);
        assert_eq!(tokio::spawn(response).await.unwrap().unwrap(), "");
        assert_eq!(down.await.unwrap().unwrap().next().await.unwrap().unwrap(), "4");
        for ends in [both, stream] {
            let (mut sink, mut replies) = ends.await.unwrap().unwrap();
            sink.send("5".into()).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap(), "5");
        }
    });
    corewire::run(async {
        let channel = Channel::to(server.uri()).build().unwrap();
        let call = spawn_local(channel.unary("EchoService/echo", "five"));
        drop(channel);
        assert_eq!(call.await.unwrap().unwrap(), "five");
    })
    .unwrap();
}

#[test]
fn a_call_in_flight_that_another_thread_polls_goes_on_and_is_not_made_again() {
    let gate = Gate::default();
    let (server, gauges) = gauged(|server| server.service(gate.service()));
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let worker = runtime.handle().worker(0).unwrap();
    let channel = Channel::to(server.uri()).worker(worker.clone()).build().unwrap();
    block_on(channel.unary("EchoService/echo", "ready?")).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let caller = channel.clone();
    worker
        .run(move || {
            drop(spawn_local(async move {
                let mut call = caller.unary("Gate/pass", "x").with_metadata();
                assert!(poll_once(&mut call).await.is_none());
                sender.send(call).unwrap();
            }));
        })
        .unwrap();
    let call = receiver.recv().unwrap();
    let task = std::thread::spawn(move || block_on(call));
    eventually("the call has begun", || gate.begun() == 1);
    gate.open();
    assert_eq!(task.join().unwrap().unwrap().0, "x");
    assert_eq!((gate.begun(), gate.dropped.load(Ordering::SeqCst)), (1, 1), "it was made once");
    assert!(block_on(channel.gauges()).is_idle());
    settles(&gauges, 1);
}

#[test]
fn a_call_that_moved_to_another_thread_and_is_dropped_there_is_cancelled() {
    let gate = Gate::default();
    let (server, gauges) = gauged(|server| server.service(gate.service()));
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let worker = runtime.handle().worker(0).unwrap();
    let channel = Channel::to(server.uri()).worker(worker.clone()).build().unwrap();
    block_on(channel.unary("EchoService/echo", "ready?")).unwrap();
    for is_polled in [false, true] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let caller = channel.clone();
        worker
            .run(move || {
                drop(spawn_local(async move {
                    let mut call = caller.unary("Gate/pass", "x");
                    assert!(poll_once(&mut call).await.is_none());
                    sender.send(call).unwrap();
                }));
            })
            .unwrap();
        let mut call = receiver.recv().unwrap();
        let begun = usize::from(is_polled) + 1;
        eventually("the call has begun", || gate.begun() == begun);
        if is_polled {
            assert!(block_on(poll_once(&mut call)).is_none());
        }
        drop(call);
        eventually("its handler is dropped", || gate.dropped.load(Ordering::SeqCst) == begun);
        eventually("nothing is held", || block_on(channel.gauges()).is_idle());
    }
    settles(&gauges, 1);
}

#[test]
fn the_ends_of_a_stream_work_on_their_worker_elsewhere_and_back_at_home() {
    let (server, gauges) = gauged(|server| server);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let worker = runtime.handle().worker(0).unwrap();
    let channel = Channel::to(server.uri()).worker(worker.clone()).build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let caller = channel.clone();
    worker
        .run(move || {
            drop(spawn_local(async move {
                let call = caller.bidi::<Bytes, Bytes>("EchoService/echo");
                let (mut sink, mut replies) = call.await.unwrap();
                sink.send("1".into()).await.unwrap();
                assert_eq!(replies.next().await.unwrap().unwrap(), "1");
                sender.send((sink, replies)).unwrap();
            }));
        })
        .unwrap();
    let (mut sink, mut replies) = receiver.recv().unwrap();
    block_on(async {
        sink.send("2".into()).await.unwrap();
        assert_eq!(replies.next().await.unwrap().unwrap(), "2");
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    worker
        .run(move || {
            drop(spawn_local(async move {
                sink.send("3".into()).await.unwrap();
                assert_eq!(replies.next().await.unwrap().unwrap(), "3");
                sender.send((sink, replies)).unwrap();
            }));
        })
        .unwrap();
    drop(receiver.recv().unwrap());
    eventually("the call is over", || block_on(channel.gauges()).is_idle());
    settles(&gauges, 1);
}

#[test]
fn the_ends_of_a_stream_that_outlive_their_worker_say_that_the_call_is_over() {
    let server = server(|server| server);
    for is_on_its_thread in [true, false] {
        let begin = move |channel: Channel| async move {
            let (mut sink, mut replies) = channel.bidi::<Bytes, Bytes>("EchoService/echo").await.unwrap();
            sink.send("1".into()).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap(), "1");
            (sink, replies)
        };
        let uri = server.uri().to_owned();
        let run = move || corewire::run(async { begin(Channel::to(uri).build().unwrap()).await }).unwrap();
        let (mut sink, mut replies) =
            if is_on_its_thread { run() } else { std::thread::spawn(run).join().unwrap() };
        block_on(async {
            assert_eq!(replies.next().await.unwrap().unwrap_err().code(), Code::CONNECTION_CLOSED);
            assert_eq!(sink.send("2".into()).await.unwrap_err().code(), Code::CONNECTION_CLOSED);
        });
    }
}

#[test]
fn a_call_whose_worker_stops_in_the_middle_may_have_been_processed() {
    let gate = Gate::default();
    let server = server(|server| server.service(gate.service()));
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let channel = Channel::to(server.uri()).worker(runtime.handle().worker(0).unwrap()).build().unwrap();
    let call = std::thread::spawn({
        let call = channel.unary("Gate/pass", "x");
        move || block_on(call)
    });
    eventually("the call has begun", || gate.begun() == 1);
    drop(runtime);
    let status = call.join().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::CONNECTION_CLOSED, "{status}");
    assert!(!status.is_unprocessed(), "the server has begun it: {status}");
    // One that is made after that was certainly not.
    let status = block_on(channel.unary("Gate/pass", "y")).unwrap_err();
    assert!(status.is_unprocessed(), "{status}");
    assert_eq!(gate.begun(), 1);
}

#[test]
fn a_call_that_is_closed_in_the_middle_may_have_been_processed_and_is_not_made_again() {
    let gate = Gate::default();
    let server = server(|server| server.service(gate.service()));
    let channel = channel(&server, Version::V2);
    let call = std::thread::spawn({
        let call = channel.unary("Gate/pass", "x");
        move || block_on(call)
    });
    eventually("the call has begun", || gate.begun() == 1);
    channel.close();
    let status = call.join().unwrap().unwrap_err();
    assert!(status.code() == Code::CONNECTION_CLOSED && !status.is_unprocessed(), "{status}");
    assert!(block_on(channel.unary("Gate/pass", "y")).unwrap_err().is_unprocessed());
    assert_eq!(gate.begun(), 1);
}

#[test]
fn a_future_that_is_polled_after_its_end_says_so() {
    let server = server(|server| server);
    let channel = channel(&server, Version::V2);
    let mut call = channel.unary("EchoService/echo", "x");
    assert_eq!(block_on(&mut call).unwrap(), "x");
    let status: Status = block_on(&mut call).unwrap_err();
    assert!(status.code() == Code::CANCELLED && !status.is_unprocessed(), "{status}");
}

#[test]
fn both_ways_to_block_take_futures_that_borrow() {
    let server = server(|server| server);
    let channel = channel(&server, Version::V2);
    let (name, mut replies) = ("EchoService/echo".to_owned(), Vec::new());
    block_on(async { replies.push(channel.unary(&*name, "one").await.unwrap()) });
    corewire::run(async {
        corewire::sleep(Duration::from_millis(1)).await;
        replies.push(channel.unary(&*name, "two").await.unwrap());
    })
    .unwrap();
    assert_eq!(replies, ["one", "two"]);
}
