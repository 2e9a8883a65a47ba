//! `corewire registry`, `call discover:///…` and `bench discovery`, as a user runs them.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const COREWIRE: &str = env!("CARGO_BIN_EXE_corewire");

/// A command that goes on until it is told to stop.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(COREWIRE).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(COREWIRE).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn output(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code));
    String::from_utf8(output.stderr).unwrap()
}

/// A served registry, and its address.
fn served() -> (Running, String) {
    let mut served = Running::start(&["registry", "serve", "--listen", "tcp://127.0.0.1:0"]);
    let line = served.line();
    let address = line.strip_prefix("listening on tcp:").unwrap();
    let address = format!("rpc:{address}");
    (served, address)
}

#[test]
fn processes_share_a_registry() {
    let (registry, at) = served();
    let mut watch = Running::start(&["registry", "watch", "Echo", "--registry", &at, "--count", "4"]);
    assert_eq!(watch.line(), "= 0 endpoints");
    let address = "10.0.0.1:7000";
    let mut register = Running::start(&[
        "registry",
        "register",
        "Echo",
        address,
        "--registry",
        &at,
        "--weight",
        "7",
        "--zone",
        "eu",
        "--tag",
        "x",
    ]);
    assert_eq!(register.line(), "registered Echo/10.0.0.1:7000 10.0.0.1:7000 weight 7 zone eu tags x");
    assert_eq!(watch.line(), "+ Echo/10.0.0.1:7000 10.0.0.1:7000 weight 7 zone eu tags x");
    let listed = output(&["registry", "list", "--registry", &at]);
    assert_eq!(listed, "Echo/10.0.0.1:7000 10.0.0.1:7000 weight 7 zone eu tags x\n");
    let json: Value =
        serde_json::from_str(&output(&["registry", "list", "Echo", "--json", "--registry", &at])).unwrap();
    assert_eq!((&json[0]["instance"], &json[0]["weight"]), (&address.into(), &7.into()));
    register.stop();
    assert_eq!(watch.line(), "- Echo/10.0.0.1:7000 10.0.0.1:7000 weight 7 zone eu tags x");
    let _left =
        Running::start(&["registry", "register", "Echo", "h:1", "--instance", "i", "--registry", &at]);
    assert_eq!(watch.line(), "+ Echo/i h:1 weight 100");
    output(&["registry", "deregister", "Echo", "i", "--registry", &at]);
    assert_eq!(output(&["registry", "list", "--registry", &at]), "");
    assert!(refusal(1, &["registry", "deregister", "Echo", "i", "--registry", &at]).contains("no Echo/i"));
    registry.stop();
    assert!(refusal(1, &["registry", "list", "--registry", &at]).contains("cannot be reached"));
}

#[test]
fn a_call_finds_its_server_in_a_file() {
    let mut server = Running::start(&["serve", "rpc", "--listen", "tcp://127.0.0.1:0", "--threads", "1"]);
    let address = server.line().strip_prefix("listening on tcp://").unwrap().to_owned();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("endpoints.json");
    let text = format!(r#"{{"endpoints": [{{"service": "EchoService", "address": "{address}"}}]}}"#);
    std::fs::write(&file, text).unwrap();
    let registry = format!("file:{}", file.display());
    let call = |path: &str| run(&["call", path, "--registry", &registry, "--data", "hello"]);
    assert_eq!(call("discover:///EchoService/echo").stdout, b"hello\n");
    let missing = String::from_utf8(call("discover:///Other/echo").stderr).unwrap();
    assert!(missing.contains("knows no endpoint of Other"), "{missing}");
    assert!(refusal(2, &["call", "discover:///A/b"]).contains("--registry"));
    assert!(refusal(2, &["call", "tcp://127.0.0.1:1"]).contains("Add Service/method"));
    assert!(output(&["registry", "list", "--registry", &registry]).starts_with("EchoService/"));
    assert!(
        refusal(1, &["registry", "register", "A", "h:1", "--registry", &registry])
            .contains("cannot be written to")
    );
    let _ = std::fs::remove_file(file);
}

#[test]
fn discovery_is_measured_here_and_elsewhere() {
    let (_registry, at) = served();
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("discovery.json");
    let path = json.to_str().unwrap();
    for (more, rows) in [(&["--shared", "--quick"][..], 6), (&["--registry", &at, "--quick"], 3)] {
        let line = ["bench", "discovery", "--workers", "4", "--duration", "50ms", "--json", path];
        output(&[&line[..], more].concat());
        let measured: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let measured = measured.as_array().unwrap();
        assert_eq!(measured.len(), rows);
        for row in measured {
            assert!(row["ops_per_s"].as_f64().unwrap() > 0.0 && row["errors"] == 0, "{row}");
            if row["deregistered"] == 0 {
                continue;
            }
            assert_eq!((&row["registered"], &row["registered"]), (&row["discovered"], &row["deregistered"]));
        }
        if more[0] == "--shared" {
            assert_eq!(measured[3]["heap_bytes_per_op"], 0.0, "{:?}", measured[3]);
        }
    }
    let _ = std::fs::remove_file(json);
}
