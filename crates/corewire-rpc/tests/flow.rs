//! What stops and goes on: backlogs, consumers that do not take, silence.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use corewire::block_on;
use corewire_rpc::{Bytes, Channel, Code, Context, Service, Settings, Sink, Status, Version};
use support::server;

/// Runs it on a thread of its own, since what is stopped for good is waited for without end.
fn within<T: Send + 'static>(limit: Duration, work: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(block_on(work)));
    receiver.recv_timeout(limit).expect("done in time")
}

/// Sends as many messages of 10 kB as it is asked for.
fn flood() -> Service {
    Service::new("Flood").server_stream("run", |count: Bytes, mut sink: Sink, _: Context| async move {
        let count = std::str::from_utf8(&count).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
        for _ in 0..count {
            sink.send(Bytes::from_static(&[7; 10_000])).await?;
        }
        Ok(())
    })
}

#[test]
fn a_server_whose_marks_are_set_below_it_goes_on_after_a_backlog() {
    // The queue comes to the default mark of the server, never to the one that was set past it.
    let server = server(|server| server.service(flood()).net(|net| net.water_marks(1 << 20, 8 << 20)));
    let settings = Settings { window: 32 << 20, ..Settings::default() };
    let channel = Channel::to(server.uri()).settings(settings).build().unwrap();
    let received = within(Duration::from_secs(20), async move {
        let mut parts = channel.server_stream::<Bytes, Bytes>("Flood/run", "2000".into()).await?;
        let mut received = 0;
        while let Some(part) = parts.next().await {
            received += part?.len();
        }
        Ok::<_, Status>(received)
    });
    assert_eq!(received.unwrap(), 20_000_000);
}

#[test]
fn responses_that_are_dropped_untaken_hold_up_nobody_though_the_other_end_is_kept() {
    let server = server(|server| server);
    // Version 1 stops the whole connection for a consumer that does not take.
    let settings = Settings { window: 20_000, ..Settings::default() };
    let channel = Channel::to(server.uri()).protocol(Version::V1).settings(settings).build().unwrap();
    let reply = within(Duration::from_secs(10), async move {
        let (mut say, heard) = channel.stream("StreamBenchService/echo").await?;
        for _ in 0..20 {
            say.send(Bytes::from_static(&[7; 10_000])).await?;
        }
        while channel.gauges().await.buffered_bytes < 20_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(heard);
        let reply = channel.unary("EchoService/echo", "x").timeout(Duration::from_secs(3)).await;
        drop(say);
        reply
    });
    assert_eq!(reply.unwrap(), "x");
}

#[test]
fn a_call_whose_time_is_over_holds_up_nobody_though_its_end_is_kept() {
    let server = server(|server| server.service(flood()));
    let settings = Settings { window: 20_000, ..Settings::default() };
    let channel = Channel::to(server.uri()).protocol(Version::V1).settings(settings).build().unwrap();
    let reply = within(Duration::from_secs(10), async move {
        let call = channel.server_stream::<Bytes, Bytes>("Flood/run", "20".into());
        let kept = call.timeout(Duration::from_millis(100)).await?;
        while channel.gauges().await.buffered_bytes < 20_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let reply = channel.unary("EchoService/echo", "x").timeout(Duration::from_secs(3)).await;
        drop(kept);
        reply
    });
    assert_eq!(reply.unwrap(), "x");
}

#[test]
fn a_server_that_is_not_read_from_is_not_taken_for_a_dead_one() {
    let server = server(|server| server.service(flood()));
    let alive = Duration::from_millis(50);
    let settings = Settings { max_buffered: 20_000, ..Settings::default() };
    let channel = Channel::to(server.uri()).settings(settings).keep_alive(alive, alive).build().unwrap();
    let received = within(Duration::from_secs(10), async move {
        let mut parts = channel.server_stream::<Bytes, Bytes>("Flood/run", "20".into()).await?;
        parts.next().await.transpose()?;
        // Its consumer is busy for longer than a ping may take.
        std::thread::sleep(6 * alive);
        let mut received = 1;
        while let Some(part) = parts.next().await {
            part?;
            received += 1;
        }
        Ok::<_, Status>(received)
    });
    assert_eq!(received.unwrap(), 20);
}

#[test]
fn a_call_made_inside_a_handler_by_a_channel_of_another_worker_inherits_the_deadline() {
    let inner = server(|server| {
        server.service(Service::new("Inner").unary("left", |_: Bytes, call: Context| async move {
            let left = call.time_left().map_or(u64::MAX, |left| left.as_secs());
            Ok(Bytes::from(left.to_string()))
        }))
    });
    // Made here, it lives on the worker that all such channels share.
    let channel = Channel::to(inner.uri()).build().unwrap();
    let outer = server(move |server| {
        server.service(Service::new("Outer").unary("left", move |_: Bytes, _: Context| {
            let channel = channel.clone();
            async move { channel.unary("Inner/left", "").await }
        }))
    });
    let caller = Channel::to(outer.uri()).build().unwrap();
    let left = block_on(caller.unary("Outer/left", "").timeout(Duration::from_secs(5))).unwrap();
    let left: u64 = std::str::from_utf8(&left).unwrap().parse().unwrap();
    assert!(left <= 5, "{left} s of 5");
    assert_eq!(block_on(caller.unary("Outer/none", "")).unwrap_err().code(), Code::METHOD_NOT_FOUND);
}

#[test]
fn a_sink_that_waits_for_credit_is_told_that_an_early_response_has_ended_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = Vec::new();
        // SETTINGS, the call without a message, and the one message for which there is credit.
        while !read.ends_with(b"one") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            read.push(byte[0]);
        }
        // A window of 1 byte, and the response.
        stream.write_all(&support::hex("47525043 02210000 00000000 00000006 0001 00000001")).unwrap();
        stream.write_all(&support::hex("47525043 02020500 00000000 00000004 0000 6f6b")).unwrap();
        let _ = stream.read_to_end(&mut read);
    });
    let channel = Channel::to(uri).protocol(Version::V2).build().unwrap();
    within(Duration::from_secs(20), async move {
        let (mut sink, reply) = channel.client_stream::<Bytes, Bytes>("Some/method").await.unwrap();
        sink.send("one".into()).await.unwrap();
        let blocked = sink.send("two".into()).await.unwrap_err();
        assert_eq!(blocked.code(), Code::CANCELLED);
        assert_eq!(reply.await.unwrap(), "ok");
    });
    peer.join().unwrap();
}
