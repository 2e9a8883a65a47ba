//! Handlers that wait are tasks, and a task serves one call after another.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use corewire::block_on;
use corewire_rpc::{Bytes, Code, Context, Service, Sink, Status, Streaming};
use support::{VERSIONS, channel, eventually, gauged, settles};

/// Handlers that run.
#[derive(Clone, Default)]
struct Running(Arc<AtomicUsize>);

struct Guard(Running);

impl Running {
    fn enter(&self) -> Guard {
        self.0.fetch_add(1, Ordering::SeqCst);
        Guard(self.clone())
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Echoes until it is told how to end.
fn echo(running: &Running) -> Service {
    let running = running.clone();
    Service::new("Turns").bidi("echo", move |mut said: Streaming, mut answers: Sink, _: Context| {
        let guard = running.enter();
        async move {
            let _guard = guard;
            while let Some(line) = said.next().await {
                match &*line? {
                    b"fail" => return Err(Status::new(Code::INVALID_REQUEST, "as asked")),
                    b"panic" => panic!("as asked"),
                    line => answers.send(Bytes::copy_from_slice(line)).await?,
                }
            }
            Ok(())
        }
    })
}

#[test]
fn a_handler_that_waits_leaves_its_task_to_the_next_however_it_ends() {
    let running = Running::default();
    let (server, gauges) = gauged(|server| server.service(echo(&running)));
    for version in VERSIONS {
        let channel = channel(&server, version);
        for end in ["end", "fail", "panic", "cancel", "end", "cancel", "panic", "fail", "end", "end"] {
            block_on(async {
                let call = channel.bidi::<Bytes, Bytes>("Turns/echo").first("1".into());
                let (mut sink, mut replies) = call.await?;
                assert_eq!(replies.next().await.transpose()?.as_deref(), Some(&b"1"[..]));
                sink.send("2".into()).await?;
                assert_eq!(replies.next().await.transpose()?.as_deref(), Some(&b"2"[..]));
                match end {
                    "end" => {
                        sink.finish().await?;
                        assert!(replies.next().await.is_none());
                    }
                    "cancel" => drop((sink, replies)),
                    how => {
                        sink.send(how.into()).await?;
                        let status = replies.next().await.unwrap().unwrap_err();
                        let code = if how == "fail" { Code::INVALID_REQUEST } else { Code::INTERNAL };
                        assert_eq!(status.code(), code, "{status}");
                    }
                }
                Ok::<(), Status>(())
            })
            .unwrap();
            eventually("the handler is gone", || running.now() == 0);
        }
    }
    settles(&gauges, 0);
}

#[test]
fn what_a_handler_had_waited_for_wakes_the_next_one_in_vain() {
    let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let kept = wakers.clone();
    let service = Service::new("Turns").bidi("echo", move |mut said: Streaming, mut answers: Sink, _| {
        let kept = kept.clone();
        async move {
            while let Some(line) = said.next().await {
                let waker = std::future::poll_fn(|context| Poll::Ready(context.waker().clone())).await;
                kept.lock().unwrap().push(waker);
                answers.send(line?).await?;
            }
            Ok(())
        }
    });
    let (server, gauges) = gauged(|server| server.service(service));
    let channel = channel(&server, VERSIONS[1]);
    for _ in 0..20 {
        block_on(async {
            let (mut sink, mut replies) = channel.bidi::<Bytes, Bytes>("Turns/echo").await?;
            for _ in 0..3 {
                sink.send("x".into()).await?;
                assert_eq!(replies.next().await.transpose()?.as_deref(), Some(&b"x"[..]));
                // From this thread, while it waits and after it has ended.
                wakers.lock().unwrap().iter().for_each(Waker::wake_by_ref);
            }
            sink.finish().await?;
            assert!(replies.next().await.is_none());
            wakers.lock().unwrap().iter().for_each(Waker::wake_by_ref);
            Ok::<(), Status>(())
        })
        .unwrap();
    }
    wakers.lock().unwrap().clear();
    settles(&gauges, 1);
}
