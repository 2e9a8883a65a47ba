//! Metadata of responses: what handlers and interceptors add, and what callers see of it.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewire::{ServerHandle, block_on};
use corewire_rpc::{
    Bytes, Channel, ClientInterceptor, Code, Context, Metadata, MetadataError, MethodPath, ServerGauges,
    ServerInterceptor, Service, Settings, Sink, Status, Streaming, Version,
};
use support::{channel, gauged, settles};

type Log = Arc<Mutex<Vec<String>>>;

fn text(metadata: &Metadata) -> String {
    let entry = |(name, value): (&str, &[u8])| format!("{name}={}", String::from_utf8_lossy(value));
    metadata.iter().map(entry).collect::<Vec<_>>().join(" ")
}

/// Adds a header and a trailer in every mode, at once or after others have run.
fn told() -> Service {
    Service::new("Told")
        .unary("now", |request: Bytes, call: Context| async move {
            call.add_header("at", "first")?;
            call.add_trailer("at", "last")?;
            Ok(request)
        })
        .unary("later", |request: Bytes, call: Context| async move {
            corewire::runtime::yield_now().await;
            call.add_trailer("at", "last")?;
            Ok(request)
        })
        .unary("fails", |_: Bytes, call: Context| async move {
            call.add_trailer("retry-after-s", "5")?;
            Err::<Bytes, _>(Status::new(Code::UNAVAILABLE, "not now"))
        })
        .client_stream("count", |mut parts: Streaming, call: Context| async move {
            let mut count = 0;
            while let Some(part) = parts.next().await {
                part?;
                count += 1;
            }
            call.add_trailer("counted", count.to_string())?;
            Ok(Bytes::from(count.to_string()))
        })
        .server_stream("thrice", |request: Bytes, mut sink: Sink, call: Context| async move {
            call.add_header("at", "first")?;
            for _ in 0..3 {
                sink.send(request.clone()).await?;
            }
            call.add_trailer("at", "last")?;
            Ok(())
        })
        .server_stream("empty", |_: Bytes, _: Sink, call: Context| async move {
            call.add_trailer("why", "nothing there")?;
            Ok(())
        })
        .bidi("talk", |mut said: Streaming, mut answers: Sink, call: Context| async move {
            call.add_header("at", "first")?;
            while let Some(line) = said.next().await {
                answers.send(line?).await?;
            }
            call.add_trailer("at", "last")?;
            Ok(())
        })
}

fn served() -> (ServerHandle, ServerGauges) {
    gauged(|server| server.service(told()))
}

async fn every_mode(channel: &Channel) -> Result<(), Status> {
    let (reply, metadata) = channel.unary("Told/now", "x").with_metadata().await?;
    assert_eq!((&reply[..], &text(&metadata)[..]), (&b"x"[..], "at=first at=last"));
    let (_, metadata) = channel.unary("Told/later", "x").with_metadata().await?;
    assert_eq!(text(&metadata), "at=last");
    let (_, metadata) = channel.unary("EchoService/echo", "x").with_metadata().await?;
    assert!(metadata.is_empty());
    let status = channel.unary("Told/fails", "x").await.unwrap_err();
    assert_eq!((status.message(), &text(status.metadata())[..]), ("not now", "retry-after-s=5"));

    let (sink, reply) = channel.client_stream::<Bytes, Bytes>("Told/count").first("x".into()).await?;
    sink.finish().await?;
    let (count, metadata) = reply.with_metadata().await?;
    assert_eq!((&count[..], &text(&metadata)[..]), (&b"1"[..], "counted=1"));

    let mut parts = channel.server_stream::<Bytes, Bytes>("Told/thrice", "x".into()).await?;
    assert_eq!(text(&parts.header().await?), "at=first");
    for _ in 0..3 {
        assert_eq!(parts.next().await.transpose()?.as_deref(), Some(&b"x"[..]));
    }
    assert!(parts.next().await.is_none());
    assert_eq!(
        (text(&parts.header().await?), text(&parts.trailer().await)),
        ("at=first".into(), "at=last".into())
    );

    let mut none = channel.server_stream::<Bytes, Bytes>("Told/empty", "x".into()).await?;
    assert!(none.next().await.is_none());
    assert_eq!(text(&none.trailer().await), "why=nothing there");

    let (mut say, mut heard) = channel.bidi::<Bytes, Bytes>("Told/talk").await?;
    say.send("one".into()).await?;
    assert_eq!(text(&heard.header().await?), "at=first");
    assert_eq!(heard.next().await.transpose()?.as_deref(), Some(&b"one"[..]));
    say.finish().await?;
    assert!(heard.next().await.is_none());
    assert_eq!(text(&heard.trailer().await), "at=last");
    Ok(())
}

#[test]
fn headers_and_trailers_arrive_in_every_mode_at_a_plain_thread_and_on_a_worker() {
    let (server, gauges) = served();
    let there = channel(&server, Version::V2);
    block_on(every_mode(&there)).unwrap();
    assert!(block_on(there.gauges()).is_idle());
    let uri = server.uri().to_owned();
    corewire::run(async move {
        let here = Channel::to(uri).build().unwrap();
        every_mode(&here).await.unwrap();
    })
    .unwrap();
    settles(&gauges, 1);
}

#[test]
fn what_cannot_be_sent_is_an_error_where_it_is_added() {
    let errors: Arc<Mutex<Vec<MetadataError>>> = Arc::default();
    let [unary, both, stream] = [errors.clone(), errors.clone(), errors.clone()];
    let (server, _) = gauged(|server| {
        let service = Service::new("Wrong")
            .unary("unary", move |request: Bytes, call: Context| {
                let note = |added: Result<(), MetadataError>| unary.lock().unwrap().extend(added.err());
                note(call.add_header("Capital", "x"));
                note(call.add_trailer("", "x"));
                note(call.add_header("long", vec![0; 70_000]));
                note(call.add_trailer("fine", "x"));
                async move { Ok(request) }
            })
            .server_stream("late", move |request: Bytes, mut sink: Sink, call: Context| {
                let errors = both.clone();
                async move {
                    sink.send(request.clone()).await?;
                    sink.send(request).await?;
                    errors.lock().unwrap().extend(call.add_header("late", "x").err());
                    let after = call.clone();
                    let _left_alone = corewire::spawn_local(async move {
                        corewire::sleep(Duration::from_millis(20)).await;
                        errors.lock().unwrap().extend(after.add_trailer("later", "x").err());
                    });
                    Ok(())
                }
            });
        server.service(service).stream_route("Wrong", "stream", move |_, _, call| {
            stream.lock().unwrap().extend(call.add_header("a", "x").err());
            async { Ok(()) }
        })
    });
    let take = || std::mem::take(&mut *errors.lock().unwrap());
    let settings = Settings { max_extension: 1_000, ..Settings::default() };
    let second = Channel::to(server.uri()).settings(settings).build().unwrap();
    let (_, metadata) = block_on(second.unary("Wrong/unary", "x").with_metadata()).unwrap();
    assert_eq!(text(&metadata), "fine=x");
    assert!(
        matches!(&take()[..], [MetadataError::Name(one), MetadataError::Name(two),
            MetadataError::TooLong { len: 70_010, limit: 1_000 }] if one == "Capital" && two.is_empty()),
        "{errors:?}"
    );
    block_on(async {
        let mut parts = second.server_stream::<Bytes, Bytes>("Wrong/late", "x".into()).await.unwrap();
        while parts.next().await.is_some() {}
        assert!(parts.trailer().await.is_empty());
        let (_say, mut heard) = second.stream("Wrong/stream").await.unwrap();
        assert!(heard.next().await.is_none());
    });
    support::eventually("the last one is told", || errors.lock().unwrap().len() == 3);
    let told = take();
    for expected in [MetadataError::HeaderSent, MetadataError::NotOnStreams, MetadataError::CallOver] {
        assert!(told.contains(&expected), "{told:?}");
    }
    let first = channel(&server, Version::V1);
    assert_eq!(block_on(first.unary("Wrong/unary", "x")).unwrap(), "x");
    assert_eq!(take(), vec![MetadataError::NotInVersion1; 4]);
}

struct Stamps(Log);

impl ServerInterceptor for Stamps {
    fn on_call(&self, call: &Context) -> Result<(), Status> {
        call.add_header("served-by", "a")?;
        if call.metadata().get("refuse").is_some() {
            return Err(Status::new(Code::PERMISSION_DENIED, "no"));
        }
        Ok(())
    }

    fn on_end(&self, call: &Context, code: Code, _: Duration) {
        self.0.lock().unwrap().push(format!(
            "{} {}: {}",
            call.method(),
            code.0,
            text(&call.response_metadata())
        ));
    }
}

struct Sees(Log);

impl ClientInterceptor for Sees {
    fn on_metadata(&self, path: &MethodPath, metadata: &Metadata) {
        let method = String::from_utf8_lossy(path.method()).into_owned();
        self.0.lock().unwrap().push(format!("{method}: {}", text(metadata)));
    }

    fn on_end(&self, path: &MethodPath, code: Code, _: Duration) {
        self.0.lock().unwrap().push(format!("{} {}", String::from_utf8_lossy(path.method()), code.0));
    }
}

#[test]
fn interceptors_of_both_sides_add_and_see_it_and_see_the_end_of_streams() {
    let (at_server, at_client) = (Log::default(), Log::default());
    let (server, gauges) = gauged(|server| server.service(told()).interceptor(Stamps(at_server.clone())));
    let channel = Channel::to(server.uri()).interceptor(Sees(at_client.clone())).build().unwrap();
    block_on(async {
        channel.unary("Told/now", "x").await.unwrap();
        let refused = channel.unary("Told/now", "x").metadata("refuse", "").await.unwrap_err();
        assert_eq!(text(refused.metadata()), "served-by=a");
        let mut parts = channel.server_stream::<Bytes, Bytes>("Told/thrice", "x".into()).await.unwrap();
        while parts.next().await.is_some() {}
        drop(parts);
        let dropped = channel.bidi::<Bytes, Bytes>("Told/talk").await.unwrap();
        drop(dropped);
        let mut fails = channel.server_stream::<Bytes, Bytes>("Told/none", "x".into()).await.unwrap();
        assert!(fails.next().await.unwrap().is_err());
        drop(fails);
    });
    settles(&gauges, 1);
    support::eventually("all is told", || at_client.lock().unwrap().len() == 8);
    assert_eq!(
        *at_client.lock().unwrap(),
        [
            "now: served-by=a at=first at=last",
            "now 0",
            "now: served-by=a",
            "now 14",
            "thrice: served-by=a at=first at=last",
            "thrice 0",
            "talk 11",
            "none 3",
        ]
    );
    let told = at_server.lock().unwrap();
    assert_eq!(told[0], "now 0: served-by=a at=first at=last");
    assert_eq!(told[1], "thrice 0: served-by=a at=first at=last");
    assert!(told[2].starts_with("talk 11"), "{told:?}");
}
