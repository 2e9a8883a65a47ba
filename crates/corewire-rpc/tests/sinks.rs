//! How the halves of a call end: by its sink, by its responses, from the channel's worker and from elsewhere.
#![allow(clippy::unwrap_used)]

mod support;

use std::pin::Pin;
use std::time::Duration;

use corewire::block_on;
use corewire_rpc::{Bytes, Channel, Code, RpcServer, Service, Sink, Status, Streaming, Version};
use futures_lite::future::{poll_fn, poll_once};
use futures_sink::Sink as _;
use support::{Running, VERSIONS, channel, eventually, gauged, server, settles, stuck};

/// Runs it on a thread of its own: from outside of the channel's worker, and on it.
fn from_both_sides<F, Fut>(server: &str, version: Version, work: F)
where
    F: Fn(Channel) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), Status>> + 'static,
{
    for is_on_its_worker in [false, true] {
        let (work, uri) = (work.clone(), server.to_owned());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let channel = || Channel::to(uri).protocol(version).build().unwrap();
            let worked = if is_on_its_worker {
                corewire::run(async { work(channel()).await }).unwrap()
            } else {
                block_on(work(channel()))
            };
            sender.send(worked).unwrap();
        });
        let worked = receiver.recv_timeout(Duration::from_secs(20)).expect("done in time");
        worked.unwrap_or_else(|status| panic!("{version:?}, on its worker: {is_on_its_worker}: {status}"));
    }
}

async fn all(mut replies: Streaming) -> Result<Vec<Bytes>, Status> {
    let mut all = Vec::new();
    while let Some(reply) = replies.next().await {
        all.push(reply?);
    }
    Ok(all)
}

#[test]
fn dropping_a_callers_sink_ends_the_requests_and_the_responses_go_on() {
    let (server, gauges) = gauged(|server| server);
    for version in VERSIONS {
        from_both_sides(server.uri(), version, |channel| async move {
            let (mut sink, replies) =
                channel.bidi::<Bytes, Bytes>("EchoService/echo").first("1".into()).await?;
            sink.send("2".into()).await?;
            drop(sink);
            assert_eq!(all(replies).await?, ["1", "2"]);

            let (mut sink, reply) =
                channel.client_stream::<Bytes, Bytes>("EchoService/echo").first("1".into()).await?;
            sink.send("2".into()).await?;
            drop(sink);
            assert_eq!(reply.await?, "12");

            let (mut sink, replies) = channel.stream("StreamBenchService/echo").await?;
            sink.send("1".into()).await?;
            drop(sink);
            assert_eq!(all(replies).await?, ["1"]);
            Ok(())
        });
    }
    settles(&gauges, 0);
}

#[test]
fn dropping_the_responses_cancels_the_call_whatever_its_sink_does() {
    let running = Running::default();
    let (server, gauges) = gauged(|server| server.service(stuck(&running)));
    let handlers = running.clone();
    from_both_sides(server.uri(), Version::V2, move |channel| {
        let running = handlers.clone();
        async move {
            let (mut sink, replies) = channel.bidi::<Bytes, Bytes>("Stuck/bidi").await?;
            let begun = running.begun();
            sink.send("x".into()).await?;
            while running.begun() == begun && running.now() == 0 {
                corewire_later().await;
            }
            drop(replies);
            while running.now() > 0 {
                corewire_later().await;
            }
            let status = sink.send("y".into()).await.unwrap_err();
            assert_eq!(status.code(), Code::CANCELLED);
            Ok(())
        }
    });
    settles(&gauges, 0);
}

/// Lets others run.
async fn corewire_later() {
    match corewire::runtime::current_worker() {
        Some(_) => corewire::sleep(Duration::from_millis(1)).await,
        None => std::thread::sleep(Duration::from_millis(1)),
    }
}

async fn feed(sink: &mut Sink, message: &'static str) -> Result<(), Status> {
    poll_fn(|context| Pin::new(&mut *sink).poll_ready(context)).await?;
    Pin::new(sink).start_send(message.into())
}

#[test]
fn what_a_sink_took_before_it_is_dropped_is_sent_before_the_end() {
    let server = server(|server| server);
    for version in VERSIONS {
        from_both_sides(server.uri(), version, |channel| async move {
            let (mut sink, replies) =
                channel.bidi::<Bytes, Bytes>("EchoService/echo").first("1".into()).await?;
            feed(&mut sink, "2").await?;
            feed(&mut sink, "3").await?;
            drop(sink);
            assert_eq!(all(replies).await?, ["1", "2", "3"]);
            Ok(())
        });
    }
}

#[test]
fn closing_a_sink_by_its_trait_ends_the_requests() {
    let server = server(|server| server);
    from_both_sides(server.uri(), Version::V2, |channel| async move {
        let (mut sink, replies) = channel.bidi::<Bytes, Bytes>("EchoService/echo").await?;
        feed(&mut sink, "1").await?;
        poll_fn(|context| Pin::new(&mut sink).poll_flush(context)).await?;
        feed(&mut sink, "2").await?;
        poll_fn(|context| Pin::new(&mut sink).poll_close(context)).await?;
        poll_fn(|context| Pin::new(&mut sink).poll_close(context)).await?;
        assert_eq!(all(replies).await?, ["1", "2"]);
        assert_eq!(feed(&mut sink, "3").await.and(sink.finish().await).unwrap_err().code(), Code::CANCELLED);
        Ok(())
    });
}

#[test]
fn an_end_that_is_dropped_before_it_is_told_still_ends_the_requests() {
    let server = server(|server| server);
    from_both_sides(server.uri(), Version::V2, |channel| async move {
        let (sink, replies) = channel.bidi::<Bytes, Bytes>("EchoService/echo").await?;
        drop(poll_once(sink.finish()).await);
        assert_eq!(all(replies).await?, [""; 0]);
        Ok(())
    });
}

#[test]
fn a_stream_is_forwarded_whole_by_a_handler_and_by_a_caller() {
    let middle = server(|server| server);
    let back = middle.uri().to_owned();
    // A proxy: the handler forwards to another server, and what that says back.
    let proxy = Service::new("Proxy").bidi("echo", move |said: Streaming, answers: Sink, _| {
        let back = back.clone();
        async move {
            let channel = Channel::to(back).build().map_err(|error| Status::internal(error.to_string()))?;
            let (sink, replies) = channel.bidi::<Bytes, Bytes>("EchoService/echo").await?;
            let (there, back) = futures_lite::future::zip(said.forward(sink), replies.forward(answers)).await;
            there.and(back)
        }
    });
    let front = RpcServer::bind("tcp://127.0.0.1:0").service(proxy).workers(1).start().unwrap();
    from_both_sides(front.uri(), Version::V2, |channel| async move {
        let (mut sink, replies) = channel.bidi::<Bytes, Bytes>("Proxy/echo").await?;
        let long = Bytes::from(vec![7; 100_000]);
        let sent = async {
            for _ in 0..50 {
                sink.send(long.clone()).await?;
            }
            sink.finish().await
        };
        let (sent, replies) = futures_lite::future::zip(sent, all(replies)).await;
        sent?;
        let replies = replies?;
        assert!(replies.len() == 50 && replies.iter().all(|reply| *reply == long));
        Ok(())
    });
}

#[test]
fn forwarding_a_stream_that_fails_tells_how_it_failed() {
    let bad = Service::new("Bad").bidi("half", |_: Streaming, mut replies: Sink, _| async move {
        replies.send("x".into()).await?;
        Err(Status::new(Code::DATA_LOSS, "no more"))
    });
    let server = server(|server| server.service(bad));
    let caller = channel(&server, Version::V2);
    block_on(async {
        let (_sink, broken) = caller.bidi::<Bytes, Bytes>("Bad/half").await?;
        let (onward, replies) = caller.bidi::<Bytes, Bytes>("EchoService/echo").await?;
        assert_eq!(broken.forward(onward).await.unwrap_err().code(), Code::DATA_LOSS);
        assert_eq!(all(replies).await?, ["x"]);
        Ok::<(), Status>(())
    })
    .unwrap();
    eventually("nothing is left", || block_on(caller.gauges()).is_idle());
}
