//! The limit's two programs talk over loopback: counts are checked, speed is not.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_corewire"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the program ended early");
        line.trim().into()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn snapshot(&mut self) -> Value {
        self.tell("snapshot");
        serde_json::from_str(&self.line()).unwrap()
    }

    fn snapshot_when(&mut self, ready: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let snapshot = self.snapshot();
            if ready(&snapshot) {
                return snapshot;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "in vain: {snapshot}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server(kind: &str) -> (Program, String) {
    let mut server = Program::start(&["limit-serve", kind, "--control"]);
    let uri = server.line().strip_prefix("listening on ").unwrap().to_owned();
    (server, uri)
}

/// Runs until `messages` are back, then drains; the load's report and the server's last snapshot.
fn echo(connections: u64, window: u64, size: u64, messages: u64) -> (Value, Value) {
    let (mut server, uri) = server("echo");
    let (c, w, s) = (connections.to_string(), window.to_string(), size.to_string());
    let mut load = Program::start(&[
        "limit-load",
        "echo",
        "--target",
        &uri,
        "--connections",
        &c,
        "--window",
        &w,
        "--size",
        &s,
    ]);
    assert_eq!(load.line(), "ready");
    server.snapshot_when(|s| s["sessions"] == connections);
    load.tell("start");
    load.snapshot_when(|s| s["messages"].as_u64().unwrap() >= messages);
    load.tell("stop");
    let report: Value = serde_json::from_str(&load.line()).unwrap();
    (report, server.snapshot_when(|s| s["sessions"] == 0))
}

fn assert_all_came_back(connections: u64, window: u64, size: u64, messages: u64) {
    let (report, server) = echo(connections, window, size, messages);
    let totals = &report["totals"];
    assert_eq!(totals["errors"], 0, "{report}");
    assert!(totals["messages"].as_u64().unwrap() >= messages);
    assert_eq!(totals["messages"].as_u64().unwrap() * size, totals["recv_bytes"].as_u64().unwrap());
    for (ours, theirs) in [("sent_bytes", "recv_bytes"), ("recv_bytes", "sent_bytes")] {
        assert_eq!(totals[ours], server[theirs], "{ours} of {report} against {server}");
    }
    assert!(report["samples"].as_u64().unwrap() > 0);
}

#[test]
fn small_messages_one_at_a_time_all_come_back() {
    assert_all_came_back(5, 1, 32, 2_000);
}

#[test]
fn small_messages_in_a_window_all_come_back() {
    assert_all_came_back(5, 64, 32, 20_000);
}

#[test]
fn messages_larger_than_every_buffer_all_come_back() {
    assert_all_came_back(3, 2, 5_000_001, 12);
}

#[test]
fn one_way_bytes_all_arrive() {
    let (mut server, uri) = server("sink");
    let mut load = Program::start(&["limit-load", "sink", "--target", &uri, "--connections", "3"]);
    assert_eq!(load.line(), "ready");
    load.tell("start");
    load.snapshot_when(|s| s["sent_bytes"].as_u64().unwrap() > 10_000_000);
    load.tell("stop");
    let report: Value = serde_json::from_str(&load.line()).unwrap();
    assert_eq!(report["totals"]["errors"], 0, "{report}");
    let last = server.snapshot_when(|s| s["sessions"] == 0);
    assert_eq!(last["recv_bytes"], report["totals"]["sent_bytes"]);
}

#[test]
fn a_snapshot_allocates_nothing() {
    let (mut server, _) = server("echo");
    // The threads of the server may still be setting themselves up: what they allocate ends, what a snapshot
    // allocates would not.
    let (last, alike) = (RefCell::new(Value::Null), Cell::new(0));
    server.snapshot_when(|snapshot| {
        let same = last.replace(snapshot["heap_bytes"].clone()) == snapshot["heap_bytes"];
        alike.set(if same { alike.get() + 1 } else { 0 });
        alike.get() == 10
    });
}

#[test]
fn a_server_that_goes_away_is_a_fault_and_not_a_hang() {
    let (mut server, uri) = server("echo");
    let mut load = Program::start(&["limit-load", "echo", "--target", &uri, "--connections", "2"]);
    assert_eq!(load.line(), "ready");
    load.tell("start");
    load.snapshot_when(|s| s["messages"].as_u64().unwrap() > 10);
    server.tell("stop");
    load.snapshot_when(|s| s["errors"] != 0);
    load.tell("stop");
    let report: Value = serde_json::from_str(&load.line()).unwrap();
    assert!(report["first_error"].as_str().unwrap().contains("closed by the server"), "{report}");
}
