//! `corewire call`: one call, for people.

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use corewire_rpc::client::{BidiStreaming, ClientStreaming, Shape};
use corewire_rpc::{Bytes, Channel, Sink, Status, Streaming, StreamingCall, Version};

use crate::args::{CallArgs, CallMode};
use crate::failure::Failure;

/// The longest message that is read from a file: what a server takes unless it is told otherwise.
const MESSAGE_MAX: u64 = 16 << 20;

/// Makes the call and writes what comes back.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    let count = args.data.len();
    if count > 1 && matches!(args.mode, CallMode::Unary | CallMode::ServerStream) {
        let mode = args.mode.name();
        return Err(Failure::Usage(format!(
            "a {mode} call has one request, but --data is given {count} times; see --mode"
        )));
    }
    let messages = messages(args)?;
    let version = if args.wire == 1 { Version::V1 } else { Version::V2 };
    let (channel, method) = target(args, version)?;
    corewire::wait(make(args, method, &channel, messages)).map_err(|ended| match ended {
        Ended::Call(status) => Failure::Library(format!("{method}: {}", in_words(&status))),
        Ended::Output(error) => Failure::io("cannot write to standard output")(error),
    })
}

/// Who is called, and what.
fn target(args: &CallArgs, version: Version) -> Result<(Channel, &str), Failure> {
    if let Some(method) = args.uri.strip_prefix("discover:///") {
        return Ok((discovered(args, method, version)?, method));
    }
    if args.registry.is_some() {
        return Err(Failure::Usage(format!("{} is called as it is; leave out --registry", args.uri)));
    }
    let missing = || Failure::Usage(format!("what to call at {}? Add Service/method", args.uri));
    let method = args.method.as_deref().ok_or_else(missing)?;
    let channel = Channel::to(args.uri.as_str()).protocol(version).fail_fast().build();
    Ok((channel.map_err(|error| Failure::Library(error.to_string()))?, method))
}

/// A channel to what the registry knows.
fn discovered(args: &CallArgs, method: &str, version: Version) -> Result<Channel, Failure> {
    if let Some(other) = &args.method {
        return Err(Failure::Usage(format!("{} says what to call already; leave out {other:?}", args.uri)));
    }
    let setting = |text: &str| Failure::Usage(format!("{}: {text}", args.uri));
    let (service, _) = method.split_once('/').ok_or_else(|| setting("write discover:///Service/method"))?;
    let registry = args.registry.as_deref().ok_or_else(|| setting("say which registry by --registry"))?;
    let channel =
        Channel::discover(registry, service).fail_fast().channel(|channel| channel.protocol(version));
    corewire::wait(channel.build()).map_err(|error| Failure::Library(error.to_string()))
}

/// Why a call came to nothing.
enum Ended {
    Call(Status),
    Output(std::io::Error),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

/// A status and its details, as text where they are text.
fn in_words(status: &Status) -> String {
    match std::str::from_utf8(status.details()) {
        Ok("") => status.to_string(),
        Ok(text) => format!("{status}; details: {text:?}"),
        Err(_) => format!("{status}; details: {:02x?}", &status.details()[..]),
    }
}

fn messages(args: &CallArgs) -> Result<Vec<Bytes>, Failure> {
    match &args.data_file {
        Some(file) => Ok(vec![content(file)?]),
        None => Ok(args.data.iter().map(|text| Bytes::from(text.clone())).collect()),
    }
}

fn content(file: &Path) -> Result<Bytes, Failure> {
    let mut content = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(MESSAGE_MAX + 1).read_to_end(&mut content)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(MESSAGE_MAX + 1).read_to_end(&mut content))
    };
    read.map_err(Failure::io(format!("cannot read {}", file.display())))?;
    if content.len() as u64 > MESSAGE_MAX {
        return Err(Failure::Setting(format!(
            "{} does not fit a message: it has more than {MESSAGE_MAX} bytes",
            file.display()
        )));
    }
    Ok(content.into())
}

/// For clap: a method, as Service/method.
pub(crate) fn method(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((service, method)) if !service.is_empty() && !method.is_empty() => Ok(text.to_owned()),
        _ => Err("write Service/method".into()),
    }
}

/// For clap: a name and a value.
pub(crate) fn metadata(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write name=value")?;
    let is_of_a_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    if !(1..=255).contains(&name.len()) || !name.bytes().all(is_of_a_name) {
        return Err(format!("{name:?} is no name: it has 1 to 255 characters of a-z, 0-9, '-', '_', '.'"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

async fn make(args: &CallArgs, path: &str, channel: &Channel, messages: Vec<Bytes>) -> Result<(), Ended> {
    let mut messages = messages.into_iter();
    // Version 1 begins with a message.
    let first = messages.next().unwrap_or_default();
    match args.mode {
        CallMode::Unary => {
            let mut call = channel.unary(path, first);
            for (name, value) in &args.metadata {
                call = call.metadata(name, value.clone());
            }
            if let Some(deadline) = args.deadline {
                call = call.timeout(deadline);
            }
            args.write(&call.await?)
        }
        CallMode::ServerStream => {
            let opening = channel.server_stream::<Bytes, Bytes>(path, first);
            args.write_all(with(opening, args).await?).await
        }
        CallMode::ClientStream => {
            let opening: StreamingCall<ClientStreaming<Bytes, Bytes>> = channel.client_stream(path);
            let (sink, reply) = with(opening.first(first), args).await?;
            args.write(&beside(send_all(sink, messages), reply).await?)
        }
        CallMode::Bidi => {
            let opening: StreamingCall<BidiStreaming<Bytes, Bytes>> = channel.bidi(path);
            let (sink, replies) = with(opening.first(first), args).await?;
            beside(send_all(sink, messages), args.write_all(replies)).await
        }
    }
}

fn with<S: Shape>(mut opening: StreamingCall<S>, args: &CallArgs) -> StreamingCall<S> {
    for (name, value) in &args.metadata {
        opening = opening.metadata(name, value.clone());
    }
    match args.deadline {
        Some(deadline) => opening.timeout(deadline),
        None => opening,
    }
}

async fn send_all(mut sink: Sink<Bytes>, messages: impl Iterator<Item = Bytes>) -> Result<(), Status> {
    for message in messages {
        sink.send(message).await?;
    }
    sink.finish().await
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

impl CallArgs {
    async fn write_all(&self, mut replies: Streaming<Bytes>) -> Result<(), Ended> {
        while let Some(reply) = replies.next().await {
            self.write(&reply?)?;
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(more: &[&str]) -> CallArgs {
        let line = ["corewire", "call", "tcp://127.0.0.1:1", "A/b"].iter().chain(more);
        match Cli::try_parse_from(line).unwrap().command {
            Some(Command::Call(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn metadata_is_split_at_the_first_equals_sign() {
        let args = parse(&["--metadata", "a=1=2", "--metadata", "b="]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(args.metadata, [pair("a", "1=2"), pair("b", "")]);
    }

    #[test]
    fn what_is_no_method_and_no_metadata_is_a_usage_error() {
        for (option, bad) in
            [("A", ""), ("/b", ""), ("A/", ""), ("A/b", "nothing"), ("A/b", "=1"), ("A/b", "X=1")]
        {
            let mut line = vec!["corewire", "call", "tcp://127.0.0.1:1", option];
            line.extend((!bad.is_empty()).then_some(["--metadata", bad]).into_iter().flatten());
            assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2, "{option} {bad}");
        }
    }

    #[test]
    fn a_mode_with_one_request_takes_one() {
        for mode in ["unary", "server-stream"] {
            let failure = call(&parse(&["--data", "1", "--data", "2", "--mode", mode])).unwrap_err();
            assert!(
                matches!(failure, Failure::Usage(_)) && failure.to_string().contains("2 times"),
                "{failure}"
            );
        }
    }

    #[test]
    fn details_of_a_status_are_told() {
        let status = Status::invalid("no");
        assert_eq!(in_words(&status), status.to_string());
        assert!(in_words(&status.clone().with_details("why")).ends_with("no; details: \"why\""));
        assert!(in_words(&status.with_details(vec![0xff, 0])).ends_with("no; details: [ff, 00]"));
    }

    #[test]
    fn nobody_there_is_told_at_once() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut args = parse(&["--data", "1"]);
        args.uri = format!("tcp://{closed}");
        let failure = call(&args).unwrap_err().to_string();
        assert!(failure.contains("cannot connect"), "{failure}");
    }

    #[test]
    fn every_mode_and_version_reaches_a_server() {
        for scheme in ["tcp", "kcp"] {
            let server = corewire_rpc::RpcServer::bind(format!("{scheme}://127.0.0.1:0"))
                .service(crate::serve::rpc_echo("EchoService"))
                .workers(1)
                .start()
                .unwrap();
            for mode in ["unary", "client-stream", "server-stream", "bidi"] {
                for wire in ["1", "2"] {
                    let mut args = parse(&["--data", "hello", "--mode", mode, "--wire", wire]);
                    args.uri = server.uri().to_owned();
                    args.method = Some("EchoService/echo".to_owned());
                    call(&args).unwrap();
                }
            }
        }
    }
}
