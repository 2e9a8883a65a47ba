//! The call itself: what is sent, what is written.

use std::future::{Future, poll_fn};
use std::io::{BufRead, Read, Write};
use std::pin::pin;
use std::task::Poll;

use corewire_rpc::client::{BidiStreaming, ClientStreaming, Shape};
use corewire_rpc::{Bytes, CallFuture, Channel, Metadata, Sink, Status, Streaming, Version};

use super::MESSAGE_MAX;
use crate::args::{CallArgs, CallStyle};

/// Why a call came to nothing.
pub(super) enum Ended {
    Call(Status),
    Input(std::io::Error),
    Output(std::io::Error),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

/// The messages of a call.
pub(super) enum Messages {
    Given(std::vec::IntoIter<Bytes>),
    /// The lines of standard input, each sent as it comes.
    Lines,
}

impl Messages {
    fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        match self {
            Self::Given(messages) => Ok(messages.next()),
            Self::Lines => line(),
        }
    }

    /// Sends the rest, and ends the requests.
    async fn send(self, mut sink: Sink<Bytes>) -> Result<(), Status> {
        match self {
            Self::Given(messages) => {
                for message in messages {
                    sink.send(message).await?;
                }
                sink.finish().await
            }
            Self::Lines => {
                // A line may never come: the process does not wait for this thread.
                let send = move || {
                    while let Ok(Some(line)) = line() {
                        corewire::block_on(sink.send(line))?;
                    }
                    corewire::block_on(sink.finish())
                };
                drop(std::thread::spawn(send));
                Ok(())
            }
        }
    }
}

/// The next line of standard input, without its end.
fn line() -> std::io::Result<Option<Bytes>> {
    let mut line = Vec::new();
    std::io::stdin().lock().take(MESSAGE_MAX + 1).read_until(b'\n', &mut line)?;
    if line.len() as u64 > MESSAGE_MAX {
        let why =
            format!("a line of standard input has more than {MESSAGE_MAX} bytes, which do not fit a message");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line.into()))
}

pub(super) async fn make(
    args: &CallArgs,
    path: &str,
    channel: &Channel,
    mut messages: Messages,
) -> Result<(), Ended> {
    if args.mode == CallStyle::Stream {
        let (sink, replies) = with(channel.stream(path), args).await?;
        return beside(messages.send(sink), args.write_all(replies)).await;
    }
    let first = messages.next().map_err(Ended::Input)?;
    // Version 1 begins with a message.
    let first = if matches!(messages, Messages::Lines) && version(args) == Version::V2 {
        first
    } else {
        Some(first.unwrap_or_default())
    };
    match args.mode {
        CallStyle::Unary => {
            let call = with(channel.unary(path, first.unwrap_or_default()), args);
            if !args.show_metadata {
                return args.write(&call.await?);
            }
            let (reply, metadata) = call.with_metadata().await?;
            show(&metadata);
            args.write(&reply)
        }
        CallStyle::ServerStream => {
            let call = channel.server_stream::<Bytes, Bytes>(path, first.unwrap_or_default());
            args.write_all(with(call, args).await?).await
        }
        CallStyle::ClientStream => {
            let call: CallFuture<ClientStreaming<Bytes, Bytes>> = channel.client_stream(path);
            let call = if let Some(first) = first { call.first(first) } else { call };
            let (sink, reply) = with(call, args).await?;
            let (reply, metadata) = beside(messages.send(sink), reply.with_metadata()).await?;
            if args.show_metadata {
                show(&metadata);
            }
            args.write(&reply)
        }
        CallStyle::Bidi | CallStyle::Stream => {
            let call: CallFuture<BidiStreaming<Bytes, Bytes>> = channel.bidi(path);
            let call = if let Some(first) = first { call.first(first) } else { call };
            let (sink, replies) = with(call, args).await?;
            beside(messages.send(sink), args.write_all(replies)).await
        }
    }
}

pub(super) fn version(args: &CallArgs) -> Version {
    if args.wire == 1 { Version::V1 } else { Version::V2 }
}

fn with<S: Shape>(mut call: CallFuture<S>, args: &CallArgs) -> CallFuture<S> {
    for (name, value) in &args.metadata {
        call = call.metadata(name, value.clone());
    }
    match args.deadline {
        Some(deadline) => call.timeout(deadline),
        None => call,
    }
}

/// Sends beside receiving, so that a server that answers while it is asked never waits for a caller that does not read.
/// The responses tell how the call ended, also where nothing more could be sent.
async fn beside<T>(
    sending: impl Future<Output = Result<(), Status>>,
    receiving: impl Future<Output = T>,
) -> T {
    let (mut sending, mut receiving) = (pin!(sending), pin!(receiving));
    let mut is_sending = true;
    poll_fn(|context| {
        if let Poll::Ready(received) = receiving.as_mut().poll(context) {
            return Poll::Ready(received);
        }
        if is_sending && sending.as_mut().poll(context).is_ready() {
            is_sending = false;
        }
        Poll::Pending
    })
    .await
}

/// Writes metadata to standard error, so that standard output has the responses only.
fn show(metadata: &Metadata) {
    for (name, value) in metadata.iter() {
        match std::str::from_utf8(value) {
            Ok(text) => eprintln!("{name}: {}", text.escape_debug()),
            Err(_) => eprintln!("{name}: {value:02x?}"),
        }
    }
}

/// A status and its details, as text where they are text.
pub(super) fn in_words(status: &Status) -> String {
    match std::str::from_utf8(status.details()) {
        Ok("") => status.to_string(),
        Ok(text) => format!("{status}; details: {text:?}"),
        Err(_) => format!("{status}; details: {:02x?}", &status.details()[..]),
    }
}

/// What came with a failure.
pub(super) fn show_failure(args: &CallArgs, status: &Status) {
    if args.show_metadata {
        show(status.metadata());
    }
}

impl CallArgs {
    async fn write_all(&self, mut replies: Streaming<Bytes>) -> Result<(), Ended> {
        let header = if self.show_metadata { replies.header().await.ok() } else { None };
        if let Some(header) = &header {
            show(header);
        }
        while let Some(reply) = replies.next().await {
            self.write(&reply?)?;
        }
        // One frame that is the whole answer has them as one.
        if let Some(header) = header {
            let trailer = replies.trailer().await;
            if trailer != header {
                show(&trailer);
            }
        }
        Ok(())
    }

    fn write(&self, reply: &[u8]) -> Result<(), Ended> {
        let mut out = std::io::stdout().lock();
        let end: &[u8] = if self.raw { b"" } else { b"\n" };
        out.write_all(reply)
            .and_then(|()| out.write_all(end))
            .and_then(|()| out.flush())
            .map_err(Ended::Output)
    }
}
