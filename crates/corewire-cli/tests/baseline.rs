//! The baseline's two programs talk over loopback: counts are checked, speed is not.
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

fn server(kind: &str, more: &[&str]) -> (Program, String) {
    let mut server = Program::start(&[&["baseline-serve", kind, "--control"], more].concat());
    let uri = server.line().strip_prefix("listening on ").unwrap().to_owned();
    (server, uri)
}

/// Runs until `messages` are back, then drains; the load's report and the server's last snapshot.
fn echo(connections: u64, depth: u64, size: u64, messages: u64) -> (Value, Value) {
    exchange(connections, depth, messages, &[], &["--size", &size.to_string()])
}

fn moves(connections: u64, depth: u64, messages: u64, moves: &str) -> (Value, Value) {
    exchange(connections, depth, messages, &["--exchange", moves], &["--exchange", moves])
}

fn exchange(connections: u64, depth: u64, messages: u64, serve: &[&str], more: &[&str]) -> (Value, Value) {
    let (mut server, uri) = server("echo", serve);
    let (c, w) = (connections.to_string(), depth.to_string());
    let load = ["baseline-load", "echo", "--target", &uri, "--connections", &c, "--depth", &w];
    let mut load = Program::start(&[&load, more].concat());
    assert_eq!(load.line(), "ready");
    server.snapshot_when(|s| s["sessions"] == connections);
    load.tell("start");
    load.snapshot_when(|s| s["messages"].as_u64().unwrap() >= messages);
    load.tell("stop");
    let report: Value = serde_json::from_str(&load.line()).unwrap();
    (report, server.snapshot_when(|s| s["sessions"] == 0))
}

fn assert_all_came_back(connections: u64, depth: u64, size: u64, messages: u64) {
    let (report, server) = echo(connections, depth, size, messages);
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
fn small_messages_in_a_depth_all_come_back() {
    assert_all_came_back(5, 64, 32, 20_000);
}

#[test]
fn messages_larger_than_every_buffer_all_come_back() {
    assert_all_came_back(3, 2, 5_000_001, 12);
}

fn assert_both_sides_agree(report: &Value, server: &Value) {
    assert_eq!(report["totals"]["errors"], 0, "{report}");
    for (ours, theirs) in [("sent_bytes", "recv_bytes"), ("recv_bytes", "sent_bytes")] {
        assert_eq!(report["totals"][ours], server[theirs], "{ours} of {report} against {server}");
    }
}

#[test]
fn replies_have_the_length_that_is_asked_for() {
    for (there, back, depth) in [(87, 65, 4), (20, 1_000_000, 3), (2_000_000, 7, 2)] {
        let (report, server) = moves(3, depth, 50, &format!("{there}:{back}"));
        assert_both_sides_agree(&report, &server);
        let totals = &report["totals"];
        let messages = totals["messages"].as_u64().unwrap();
        assert_eq!(
            (&totals["sent_bytes"], &totals["recv_bytes"]),
            (&(messages * there).into(), &(messages * back).into())
        );
    }
}

#[test]
fn rounds_are_ended_before_the_load_ends() {
    for depth in [1, 3, 16, 40] {
        let (report, server) = moves(3, depth, 2_000, "42:16,16x144:144,16:16");
        assert_both_sides_agree(&report, &server);
        let messages = report["totals"]["messages"].as_u64().unwrap();
        assert_eq!(messages % 16, 0, "{report}");
        assert_eq!(report["totals"]["sent_bytes"].as_u64().unwrap(), messages / 16 * 2362);
        assert_eq!(report["totals"]["recv_bytes"].as_u64().unwrap(), messages / 16 * 2336);
    }
}

#[test]
fn one_way_bytes_all_arrive() {
    let (mut server, uri) = server("sink", &[]);
    let mut load = Program::start(&["baseline-load", "sink", "--target", &uri, "--connections", "3"]);
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
    let (mut server, _) = server("echo", &[]);
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
fn a_server_that_goes_away_is_an_error_and_not_a_hang() {
    let (mut server, uri) = server("echo", &[]);
    let mut load = Program::start(&["baseline-load", "echo", "--target", &uri, "--connections", "2"]);
    assert_eq!(load.line(), "ready");
    load.tell("start");
    load.snapshot_when(|s| s["messages"].as_u64().unwrap() > 10);
    server.tell("stop");
    load.snapshot_when(|s| s["errors"] != 0);
    load.tell("stop");
    let report: Value = serde_json::from_str(&load.line()).unwrap();
    assert!(report["first_error"].as_str().unwrap().contains("closed by the server"), "{report}");
}
