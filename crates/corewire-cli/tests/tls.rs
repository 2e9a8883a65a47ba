//! TLS by the command, as a user runs it: mutual TLS by options and by the URI, new certificates on SIGHUP, and the rows of
//! the benchmark.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use corewire_testkit::certificates::Files;

const COREWIRE: &str = env!("CARGO_BIN_EXE_corewire");

struct Server {
    child: Child,
    port: String,
    errors: BufReader<ChildStderr>,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(COREWIRE)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("listening on tls://127.0.0.1:").unwrap().to_owned();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, port, errors }
    }

    /// Waits until it says so on standard error.
    fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "it ends without {text:?}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn corewire(arguments: &[&str]) -> Output {
    Command::new(COREWIRE).args(arguments).output().unwrap()
}

fn call(uri: &str, more: &[&str]) -> Result<String, String> {
    let output = corewire(&[&["call", uri, "EchoService/echo", "--data", "Hello"], more].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn certificates_are_given_by_options_or_by_the_uri_and_read_anew_on_sighup() {
    let files = Files::new("cli");
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| files.shown(name));
    let mut server = Server::start(&[
        "serve",
        "rpc",
        "--threads",
        "1",
        "--listen",
        "tls://127.0.0.1:0",
        "--cert",
        &cert,
        "--key",
        &key,
        "--client-ca",
        &ca,
    ]);
    let [client_cert, client_key] = ["client.pem", "client.key"].map(|name| files.shown(name));
    let uri = format!("tls://localhost:{}", server.port);
    let options = ["--ca", &ca, "--cert", &client_cert, "--key", &client_key];
    assert_eq!(call(&uri, &options).unwrap(), "Hello");
    let address = format!("tls://127.0.0.1:{}", server.port);
    assert_eq!(call(&address, &[&options[..], &["--server-name", "localhost"]].concat()).unwrap(), "Hello");
    let in_uri = format!("{uri}?{}&{}", files.ca(), files.of_client());
    assert_eq!(call(&in_uri, &[]).unwrap(), "Hello");
    assert!(call(&uri, &["--ca", &ca]).is_err(), "it asks for a certificate");
    assert!(call("tcp://127.0.0.1:1", &["--ca", &ca]).unwrap_err().contains("--ca is for tls://"));

    files.issue("cli-new");
    let process = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
    server.wait_for("the certificates were read anew");
    assert_eq!(call(&in_uri, &[]).unwrap(), "Hello");
}

#[test]
fn a_registry_is_served_over_tls() {
    let files = Files::new("cli-registry");
    let listen = format!("tls://127.0.0.1:0?{}", files.of_server());
    let server = Server::start(&["registry", "serve", "--listen", &listen]);
    let ca = files.shown("ca.pem");
    let uri = format!("tls://localhost:{}", server.port);
    let listed = corewire(&["registry", "list", "--registry", &uri, "--ca", &ca]);
    assert!(listed.status.success(), "{listed:?}");
    let refused = corewire(&["registry", "list", "--registry", &uri]);
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn the_benchmark_prints_its_rows_with_their_targets() {
    let output = corewire(&["bench", "tls", "--quick", "--duration", "0.1"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    for row in [
        "echo 32 B, depth 64",
        "echo 32 B, depth 64, heap",
        "echo 65536 B, depth 1",
        "handshakes, full",
        "handshakes, resumed",
        "an idle connection, heap",
        "p99 of a busy plain connection",
        "<= 12,288",
        ">= 0.9",
    ] {
        assert!(printed.contains(row), "no {row:?} in:\n{printed}");
    }
}
