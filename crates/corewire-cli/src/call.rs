//! `corewire call`: one call, for people.

use std::io::{Read, Write};

use corewire_rpc::client::{BothStreaming, ClientStreaming, Shape};
use corewire_rpc::{Bytes, Channel, Opening, Status, Streaming, Version};

use crate::args::{CallArgs, CallMode};
use crate::failure::Failure;

/// Makes the call and writes what comes back.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    let messages = messages(args)?;
    if args.mode == CallMode::Unary || args.mode == CallMode::ServerStream {
        let count = messages.len();
        if count > 1 {
            let mode = args.mode.name();
            return Err(Failure::Setting(format!(
                "a {mode} call has one request, but --data is given {count} times"
            )));
        }
    }
    let metadata = metadata(args)?;
    let version = if args.wire == 1 { Version::V1 } else { Version::V2 };
    let (channel, method) = match args.uri.strip_prefix("discover:///") {
        Some(method) => (discovered(args, method, version)?, method),
        None => {
            let method = args.method.as_deref();
            let missing = || Failure::Setting(format!("what to call at {}? Add Service/method", args.uri));
            let channel = Channel::to(args.uri.as_str()).protocol(version).fail_fast().build();
            (channel.map_err(|error| Failure::Library(error.to_string()))?, method.ok_or_else(missing)?)
        }
    };
    let ended = corewire::wait(make(args, method, &channel, messages, &metadata));
    ended.map_err(|status| Failure::Library(format!("{method}: {status}")))
}

/// A channel to what the registry knows.
fn discovered(args: &CallArgs, method: &str, version: Version) -> Result<Channel, Failure> {
    if let Some(other) = &args.method {
        return Err(Failure::Setting(format!("{} says what to call already; leave out {other:?}", args.uri)));
    }
    let setting = |text: &str| Failure::Setting(format!("{}: {text}", args.uri));
    let (service, _) = method.split_once('/').ok_or_else(|| setting("write discover:///Service/method"))?;
    let registry = args.registry.as_deref().ok_or_else(|| setting("say which registry by --registry"))?;
    let channel =
        Channel::discover(registry, service).fail_fast().channel(|channel| channel.protocol(version));
    corewire::wait(channel.build()).map_err(|error| Failure::Library(error.to_string()))
}

fn messages(args: &CallArgs) -> Result<Vec<Bytes>, Failure> {
    let Some(file) = &args.data_file else {
        return Ok(args.data.iter().map(|text| Bytes::from(text.clone())).collect());
    };
    let mut content = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut content)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut content))
    };
    read.map_err(Failure::io(format!("cannot read {}", file.display())))?;
    Ok(vec![content.into()])
}

fn metadata(args: &CallArgs) -> Result<Vec<(&str, &str)>, Failure> {
    let split = |entry: &'_ String| -> Result<(usize, usize), Failure> {
        let at = entry.find('=');
        at.map(|at| (at, at + 1))
            .ok_or_else(|| Failure::Setting(format!("--metadata {entry:?} is not of the form name=value")))
    };
    args.metadata
        .iter()
        .map(|entry| split(entry).map(|(end, start)| (&entry[..end], &entry[start..])))
        .collect()
}

async fn make(
    args: &CallArgs,
    path: &str,
    channel: &Channel,
    messages: Vec<Bytes>,
    metadata: &[(&str, &str)],
) -> Result<(), Status> {
    let mut messages = messages.into_iter();
    match args.mode {
        CallMode::Unary => {
            let mut call = channel.unary(path, messages.next().unwrap_or_default());
            for (name, value) in metadata {
                call = call.metadata(*name, value.to_string());
            }
            if let Some(deadline) = args.deadline {
                call = call.timeout(deadline);
            }
            write(&call.await?)
        }
        CallMode::ServerStream => {
            let request = messages.next().unwrap_or_default();
            let opening = channel.server_stream::<Bytes, Bytes>(path, request);
            write_all(with(opening, args, metadata).await?).await
        }
        CallMode::ClientStream => {
            let opening: Opening<'_, ClientStreaming<Bytes, Bytes>> = channel.client_stream(path);
            // Version 1 begins with a message.
            let opening = opening.first(messages.next().unwrap_or_default());
            let (mut sink, reply) = with(opening, args, metadata).await?;
            for message in messages {
                sink.send(message).await?;
            }
            sink.finish().await?;
            write(&reply.await?)
        }
        CallMode::Bidi => {
            let opening: Opening<'_, BothStreaming<Bytes, Bytes>> = channel.bidi(path);
            let opening = opening.first(messages.next().unwrap_or_default());
            let (mut sink, replies) = with(opening, args, metadata).await?;
            for message in messages {
                sink.send(message).await?;
            }
            sink.finish().await?;
            write_all(replies).await
        }
    }
}

fn with<'a, S: Shape>(
    mut opening: Opening<'a, S>,
    args: &CallArgs,
    metadata: &[(&str, &str)],
) -> Opening<'a, S> {
    for (name, value) in metadata {
        opening = opening.metadata(*name, value.to_string());
    }
    match args.deadline {
        Some(deadline) => opening.timeout(deadline),
        None => opening,
    }
}

async fn write_all(mut replies: Streaming<Bytes>) -> Result<(), Status> {
    while let Some(reply) = replies.next().await {
        write(&reply?)?;
    }
    Ok(())
}

fn write(reply: &[u8]) -> Result<(), Status> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(reply).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| Status::internal(format!("cannot write to standard output: {error}")))
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
        assert_eq!(metadata(&args).unwrap(), [("a", "1=2"), ("b", "")]);
        assert!(metadata(&parse(&["--metadata", "nothing"])).is_err());
    }

    #[test]
    fn a_mode_with_one_request_takes_one() {
        let failure = call(&parse(&["--data", "1", "--data", "2"])).unwrap_err();
        assert!(failure.to_string().contains("2 times"), "{failure}");
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
        let server = corewire_rpc::RpcServer::bind("tcp://127.0.0.1:0")
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
