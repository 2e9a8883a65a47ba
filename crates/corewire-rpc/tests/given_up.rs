//! Calls from other threads that are given up while something of them is under way on the channel's worker.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use corewire::block_on;
use corewire_rpc::{Bytes, Status, Version};
use futures_lite::future::poll_once;
use support::{channel, gauged, settles};

/// Runs it on a thread of its own, since what is lost is waited for without end.
fn within(limit: Duration, work: impl Future<Output = Result<(), Status>> + Send + 'static) {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(block_on(work)));
    receiver.recv_timeout(limit).expect("done in time").unwrap();
}

#[test]
fn a_stream_that_is_dropped_while_it_is_read_takes_nothing_of_the_stream_after_it() {
    let (server, gauges) = gauged(|server| server);
    let channel = channel(&server, Version::V2);
    let caller = channel.clone();
    // As many rounds as a busy machine comes to, but for a few.
    let enough = Instant::now() + Duration::from_secs(5);
    within(Duration::from_secs(120), async move {
        let channel = caller;
        for round in 0..2_000_u32 {
            if round > 100 && Instant::now() > enough {
                break;
            }
            let (first, mut heard) = channel.stream("StreamBenchService/echo").await?;
            assert!(poll_once(heard.next()).await.is_none(), "nothing was said");
            // Begins in the same turn of the worker as the first one ends, and can get its place.
            let mut opening = channel.stream("StreamBenchService/echo");
            let opened = poll_once(&mut opening).await;
            drop((heard, first));
            let (mut say, mut heard) = match opened {
                Some(opened) => opened?,
                None => opening.await?,
            };
            say.send(Bytes::from(round.to_string())).await?;
            let next = heard.next().await.transpose()?;
            assert_eq!(next, Some(Bytes::from(round.to_string())), "round {round}");
            say.finish().await?;
            assert!(heard.next().await.is_none());
        }
        Ok::<(), Status>(())
    });
    assert!(block_on(channel.gauges()).is_idle());
    settles(&gauges, 1);
}
