//! `corewire call` as a user runs it: what it writes where, and how it ends.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const COREWIRE: &str = env!("CARGO_BIN_EXE_corewire");

struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(driver: &str) -> Self {
        let mut child = Command::new(COREWIRE)
            .args(["serve", "rpc", "--listen", "tcp://127.0.0.1:0", "--threads", "1", "--driver", driver])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let uri = line.strip_prefix("listening on ").unwrap().trim().to_owned();
        Self { child, uri }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a call ended: the exit code, and what it wrote to standard output and standard error.
#[derive(Debug)]
struct Ended {
    code: i32,
    output: Vec<u8>,
    errors: String,
}

fn call(uri: &str, arguments: &[&str], input: &[u8]) -> Ended {
    let mut child = Command::new(COREWIRE)
        .args(["call", uri])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A call that reads none of it closes it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    Ended { code: output.status.code().unwrap(), output: output.stdout, errors }
}

#[test]
fn every_mode_of_both_versions_answers_on_both_drivers() {
    for driver in ["auto", "epoll"] {
        let server = Server::start(driver);
        for wire in ["1", "2"] {
            for (mode, data, told) in [
                ("unary", &["a"][..], "a\n"),
                ("unary", &[], "\n"),
                ("server-stream", &["a"], "a\n"),
                ("client-stream", &["a", "b", "c"], "c\n"),
                ("bidi", &["a", "b", "c"], "a\nb\nc\n"),
                ("stream", &["a", "b", "c"], "a\nb\nc\n"),
                ("stream", &[], ""),
            ] {
                let path = if mode == "stream" { "StreamBenchService/echo" } else { "EchoService/echo" };
                let mut arguments = vec![path, "--mode", mode, "--wire", wire];
                arguments.extend(data.iter().flat_map(|data| ["--data", data]));
                let ended = call(&server.uri, &arguments, b"");
                assert_eq!(
                    (ended.code, ended.output.as_slice()),
                    (0, told.as_bytes()),
                    "{arguments:?}: {ended:?}"
                );
                assert_eq!(ended.errors, "");
            }
        }
    }
}

#[test]
fn a_message_comes_from_a_file_or_from_standard_input_as_it_is() {
    let server = Server::start("auto");
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("message.bin");
    let content = b"bytes\0\xff\n\n".repeat(50_000);
    std::fs::write(&file, &content).unwrap();
    for (file, input) in [(file.to_str().unwrap(), &b""[..]), ("-", &content)] {
        let ended = call(&server.uri, &["EchoService/echo", "--data-file", file, "--raw"], input);
        assert!(ended.code == 0 && ended.output == content, "{file}: {} bytes", ended.output.len());
    }
}

#[test]
fn a_bidi_call_of_more_than_both_windows_reads_while_it_sends() {
    let server = Server::start("auto");
    let data = "x".repeat(100_000);
    let mut arguments = vec!["EchoService/echo", "--mode", "bidi", "--deadline", "10"];
    arguments.extend(std::iter::repeat_n(["--data", data.as_str()], 15).flatten());
    let ended = call(&server.uri, &arguments, b"");
    assert_eq!((ended.code, ended.output.len()), (0, 15 * 100_001), "{}", ended.errors);
}

#[test]
fn metadata_and_a_deadline_go_with_the_call_in_version_2_alone() {
    let server = Server::start("auto");
    let more = [
        "EchoService/echo",
        "--data",
        "a",
        "--metadata",
        "user=ann",
        "--metadata",
        "x=1=2",
        "--deadline",
        "5",
    ];
    assert_eq!(call(&server.uri, &more, b"").code, 0);
    let ended = call(&server.uri, &[&more[..], &["--wire", "1"]].concat(), b"");
    assert!(ended.code == 1 && ended.errors.contains("carries no metadata"), "{ended:?}");
}

#[test]
fn what_the_server_refuses_is_exit_code_1_with_its_code() {
    let server = Server::start("auto");
    for (method, told) in [
        ("Nope/echo", "corewire: Nope/echo: service not found (2)"),
        ("EchoService/nope", "corewire: EchoService/nope: method not found (3)"),
    ] {
        for mode in ["unary", "client-stream", "server-stream", "bidi"] {
            let ended = call(&server.uri, &[method, "--data", "a", "--mode", mode], b"");
            assert!(ended.code == 1 && ended.output.is_empty(), "{mode}: {ended:?}");
            assert!(ended.errors.starts_with(told), "{mode}: {ended:?}");
        }
    }
}

#[test]
fn a_server_that_never_answers_ends_with_the_deadline() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    for mode in ["unary", "client-stream", "server-stream", "bidi"] {
        let begun = Instant::now();
        let arguments = ["A/b", "--data", "a", "--mode", mode, "--deadline", "100ms"];
        let ended = call(&uri, &arguments, b"");
        assert!(ended.code == 1 && ended.errors.contains("deadline exceeded (6)"), "{mode}: {ended:?}");
        assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&begun.elapsed()), "{mode}");
    }
}

#[test]
fn what_cannot_be_asked_is_exit_code_2() {
    for arguments in [
        &[][..],
        &["EchoService"],
        &["/echo"],
        &["A/b", "--metadata", "nothing"],
        &["A/b", "--metadata", "Upper=1"],
        &["A/b", "--data", "1", "--data", "2"],
        &["A/b", "--data", "1", "--data-file", "x"],
        &["A/b", "--wire", "3"],
        &["A/b", "--registry", "rpc://127.0.0.1:1"],
        &["A/b", "--mode", "streams"],
    ] {
        let ended = call("tcp://127.0.0.1:1", arguments, b"");
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let server = Server::start("auto");
    let missing = call(&server.uri, &["A/b", "--data-file", "/no/such/file"], b"");
    assert!(missing.code == 1 && missing.errors.contains("cannot read /no/such/file"), "{missing:?}");
    let long = call(&server.uri, &["A/b", "--data-file", "-"], &vec![0; (16 << 20) + 1]);
    assert!(long.code == 1 && long.errors.contains("does not fit a message"), "{long:?}");
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let arguments = ["call", &server.uri, "EchoService/echo", "--data", "a"];
        let output = Command::new(COREWIRE).args(arguments).stdout(full).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(errors.starts_with("corewire: cannot write to standard output"), "{errors}");
    }
}

#[test]
fn lines_of_standard_input_are_messages() {
    let server = Server::start("auto");
    for (mode, path, told) in [
        ("bidi", "EchoService/echo", &b"one\n\nthree\n"[..]),
        ("client-stream", "EchoService/echo", b"three\n"),
        ("stream", "StreamBenchService/echo", b"one\n\nthree\n"),
    ] {
        for wire in ["1", "2"] {
            let arguments = [path, "--mode", mode, "--wire", wire, "--stdin"];
            let ended = call(&server.uri, &arguments, b"one\n\nthree");
            assert_eq!((ended.code, ended.output.as_slice()), (0, told), "{mode} {wire}: {}", ended.errors);
        }
    }
    let ended = call(&server.uri, &["EchoService/echo", "--mode", "bidi", "--stdin"], b"");
    assert_eq!((ended.code, ended.output.as_slice()), (0, &b""[..]), "{}", ended.errors);
    let ended = call(&server.uri, &["EchoService/echo", "--stdin"], b"one");
    assert!(ended.code == 2 && ended.errors.contains("--data-file -"), "{}", ended.errors);
}

#[test]
fn a_server_tells_its_services_and_their_methods() {
    let server = Server::start("auto");
    for wire in ["1", "2"] {
        let ended = call(&server.uri, &["--list", "--wire", wire], b"");
        let listed = String::from_utf8(ended.output).unwrap();
        let expected =
            "BenchEchoService\nEchoService\nStreamBenchService\ncorewire.Listing\ngrpc.health.v1.Health\n";
        assert_eq!((ended.code, &*listed), (0, expected), "{}", ended.errors);
        let ended = call(&server.uri, &["--describe", "EchoService", "--wire", wire], b"");
        let described = String::from_utf8(ended.output).unwrap();
        for mode in ["unary", "client-stream", "server-stream", "bidi"] {
            assert!(described.contains(&format!("EchoService/echo {mode}\n")), "{described}");
        }
    }
    let ended = call(&server.uri, &["--describe", "StreamBenchService"], b"");
    assert_eq!(ended.output, b"StreamBenchService/echo stream\n");
    let ended = call(&server.uri, &["--describe", "Nobody"], b"");
    assert!(ended.code == 1 && ended.errors.contains("there is no service \"Nobody\""), "{}", ended.errors);
    let ended = call(&server.uri, &["A/b", "--list"], b"");
    assert_eq!(ended.code, 2, "{}", ended.errors);
}

#[test]
fn metadata_of_responses_is_shown_apart_from_them() {
    use corewire_rpc::{Bytes, Code, Context, RpcServer, Service, Sink, Status};
    let told = Service::new("Told")
        .unary("now", |request: Bytes, call: Context| async move {
            call.add_header("age", "12")?;
            Ok(request)
        })
        .server_stream("now", |request: Bytes, mut replies: Sink, call: Context| async move {
            call.add_header("age", "12")?;
            call.add_trailer("cost", vec![0xff, 1])?;
            replies.send(request.clone()).await?;
            replies.send(request).await
        })
        .unary("no", |_: Bytes, call: Context| async move {
            call.add_trailer("why", "closed")?;
            Err::<Bytes, _>(Status::new(Code::NOT_FOUND, "no"))
        });
    let server = RpcServer::bind("tcp://127.0.0.1:0").service(told).workers(1).start().unwrap();
    let told = |arguments: &[&str]| {
        let ended = call(server.uri(), arguments, b"");
        (ended.code, String::from_utf8(ended.output).unwrap(), ended.errors)
    };
    let shown = |code, output: &str, errors: &str| (code, output.to_owned(), errors.to_owned());
    assert_eq!(told(&["Told/now", "--data", "a", "--show-metadata"]), shown(0, "a\n", "age: 12\n"));
    assert_eq!(told(&["Told/now", "--data", "a"]), shown(0, "a\n", ""));
    let stream = ["Told/now", "--mode", "server-stream", "--data", "a", "--show-metadata"];
    assert_eq!(told(&stream), shown(0, "a\na\n", "age: 12\ncost: [ff, 01]\n"));
    let (code, output, errors) = told(&["Told/no", "--show-metadata"]);
    assert!(code == 1 && output.is_empty(), "{output}");
    assert!(errors.starts_with("why: closed\n") && errors.contains("not found"), "{errors}");
}
