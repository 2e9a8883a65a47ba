//! `corewire call`: one call, for people.

mod calling;
mod listing;

use std::io::Read;
use std::path::Path;

use corewire_rpc::{Bytes, Channel, Version};

use self::calling::{Ended, Messages, in_words, make, show_failure, version};
use crate::args::{CallArgs, CallStyle};
use crate::failure::Failure;

/// The longest message that is read from a file: what a server takes unless it is told otherwise.
const MESSAGE_MAX: u64 = 16 << 20;

/// Makes the call and writes what comes back.
pub(crate) fn call(args: &CallArgs) -> Result<(), Failure> {
    if args.list || args.describe.is_some() {
        let what = args.describe.as_deref().unwrap_or("--list");
        let channel = direct(args, version(args))?;
        return corewire::block_on(listing::write(&channel, args.describe.as_deref()))
            .map_err(|ended| failure(args, what, ended));
    }
    let count = args.data.len();
    let mode = args.mode.name();
    let has_one = matches!(args.mode, CallStyle::Unary | CallStyle::ServerStream);
    if count > 1 && has_one {
        return Err(Failure::Usage(format!(
            "a {mode} call has one request, but --data is given {count} times; see --mode"
        )));
    }
    if args.stdin && has_one {
        return Err(Failure::Usage(format!(
            "a {mode} call has one request: give standard input whole by --data-file -, or see --mode"
        )));
    }
    let messages = messages(args)?;
    let (channel, method) = target(args, version(args))?;
    corewire::block_on(make(args, method, &channel, messages)).map_err(|ended| failure(args, method, ended))
}

fn failure(args: &CallArgs, what: &str, ended: Ended) -> Failure {
    match ended {
        Ended::Call(status) => {
            show_failure(args, &status);
            Failure::Library(format!("{what}: {}", in_words(&status)))
        }
        Ended::Input(error) => Failure::io("cannot read standard input")(error),
        Ended::Output(error) => Failure::io("cannot write to standard output")(error),
    }
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
    Ok((direct(args, version)?, method))
}

/// A channel to the server itself.
fn direct(args: &CallArgs, version: Version) -> Result<Channel, Failure> {
    let channel = Channel::to(args.tls.apply(&args.uri)?).protocol(version).fail_fast().build();
    channel.map_err(|error| Failure::Library(error.to_string()))
}

/// A channel to what the registry knows.
fn discovered(args: &CallArgs, method: &str, version: Version) -> Result<Channel, Failure> {
    if let Some(other) = &args.method {
        return Err(Failure::Usage(format!("{} says what to call already; leave out {other:?}", args.uri)));
    }
    let setting = |text: &str| Failure::Usage(format!("{}: {text}", args.uri));
    let (service, _) = method.split_once('/').ok_or_else(|| setting("write discover:///Service/method"))?;
    let registry = args.registry.as_deref().ok_or_else(|| setting("say which registry by --registry"))?;
    let tls = args.tls.client()?;
    let channel = Channel::discover(registry, service).fail_fast().channel(|channel| {
        let channel = channel.protocol(version);
        match tls {
            Some(tls) => channel.net(|net| net.tls(tls)),
            None => channel,
        }
    });
    corewire::block_on(channel.build()).map_err(|error| Failure::Library(error.to_string()))
}

fn messages(args: &CallArgs) -> Result<Messages, Failure> {
    if args.stdin {
        return Ok(Messages::Lines);
    }
    let given: Vec<_> = match &args.data_file {
        Some(file) => vec![content(file)?],
        None => args.data.iter().map(|text| Bytes::from(text.clone())).collect(),
    };
    Ok(Messages::Given(given.into_iter()))
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use corewire_rpc::Status;

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
