//! `corewire serve` and `corewire load` against each other, as a user runs them.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const COREWIRE: &str = env!("CARGO_BIN_EXE_corewire");

struct Server {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    uri: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let listen = if arguments[0].starts_with("udp") { "udp://127.0.0.1:0" } else { "tcp://127.0.0.1:0" };
        let mut all = vec!["serve"];
        all.extend(arguments);
        all.extend(["--listen", listen, "--threads", "1"]);
        Self::run(&all)
    }

    /// A command that says where it listens and goes on until a signal.
    fn run(arguments: &[&str]) -> Self {
        let mut child = Command::new(COREWIRE).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let uri = line.strip_prefix("listening on ").unwrap().trim().to_owned();
        Self { child, output, uri }
    }

    /// Sends the signal; the exit code and what was still written.
    fn signal(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(arguments: &[&str]) -> Output {
    Command::new(COREWIRE).arg("load").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Loads a fresh server with a number of messages; the one row of the JSON file.
fn row(name: &str, serve: &[&str], arguments: &[&str]) -> Value {
    let server = Server::start(serve);
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    let mut all = arguments.to_vec();
    all.extend(["--target", &server.uri, "--json", json.to_str().unwrap()]);
    let output = load(&all);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1);
    let row = rows[0].clone();
    assert_eq!(row["errors"], 0, "{row}");
    let messages = row["msgs_per_s"].as_f64().unwrap() * row["duration_s"].as_f64().unwrap();
    assert!((messages - 5_000.0).abs() < 0.5, "{messages} messages instead of 5000: {row}");
    row
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn echoed_packets_are_counted_to_the_last() {
    let load = ["echo", "--connections", "3", "--depth", "7", "--packets", "5000"];
    let row = row("echo", &["echo"], &load);
    assert_eq!(
        (&row["workload"], &row["connections"], &row["depth"]),
        (&"echo".into(), &3.into(), &7.into())
    );
    assert!(row["p50_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn packets_larger_than_any_buffer_come_back_whole() {
    row("large", &["echo"], &["echo", "--connections", "2", "--size", "70001", "--packets", "5000"]);
}

#[test]
fn calls_are_matched_one_at_a_time_and_pipelined() {
    for codec in ["srmp", "length-field"] {
        for depth in ["1", "100"] {
            let load = [codec, "--connections", "3", "--depth", depth, "--packets", "5000"];
            let row = row(&format!("{codec}-{depth}"), &["echo", "--codec", codec], &load);
            let kind = if depth == "1" { "single" } else { "pipelined" };
            assert_eq!(row["workload"], format!("{codec}/{kind}"));
        }
    }
}

#[test]
fn more_calls_than_sequence_numbers_wait_their_turn() {
    let load = ["srmp", "--connections", "1", "--depth", "600", "--packets", "5000"];
    row("standard-600", &["echo", "--codec", "srmp"], &load);
}

#[test]
fn large_calls_use_the_long_header() {
    let load = ["srmp", "--connections", "2", "--depth", "3", "--size", "100000", "--packets", "5000"];
    row("standard-large", &["echo", "--codec", "srmp"], &load);
}

#[test]
fn several_workers_share_the_connections() {
    let load = ["echo", "--connections", "5", "--threads", "3", "--depth", "2", "--packets", "5000"];
    row("workers", &["echo"], &load);
}

#[test]
fn each_driver_can_be_asked_for() {
    for driver in ["auto", "epoll"] {
        let load = ["echo", "--connections", "2", "--driver", driver, "--packets", "5000"];
        row(&format!("driver-{driver}"), &["echo", "--driver", driver], &load);
    }
}

#[test]
fn datagrams_of_the_report_all_come_back() {
    for (name, plain) in [("udp", false), ("udp-plain", true)] {
        let plain = if plain { &["--no-offload"][..] } else { &[] };
        let serve = [&["udp-echo"], plain].concat();
        let load = ["udp", "--clients", "100", "--messages", "50", "--size", "1024"];
        let row = row(name, &serve, &[&load, plain].concat());
        assert_eq!((&row["datagrams_sent"], &row["datagrams_lost"]), (&5000.into(), &0.into()));
    }
}

#[test]
fn an_open_load_sends_at_its_rate_on_each_driver() {
    for driver in ["auto", "epoll"] {
        for (kind, serve, mode) in [
            ("rpc", &["rpc", "--driver", driver][..], "unary"),
            ("rpc", &["rpc", "--driver", driver], "bidi"),
            ("length-field", &["echo", "--codec", "length-field", "--driver", driver], "unary"),
        ] {
            let load = ["--connections", "3", "--rate", "25k", "--packets", "5000", "--driver", driver];
            let load = [&[kind, "--mode", mode], &load[..]].concat();
            let row = row(&format!("rate-{kind}-{mode}-{driver}"), serve, &load);
            // The last of 5,000 calls is due after 0.2 s.
            assert!(row["duration_s"].as_f64().unwrap() > 0.199, "{row}");
            assert_eq!((&row["open"]["rate"], &row["open"]["unsent"]), (&25_000.into(), &0.into()));
        }
    }
}

#[test]
fn datagrams_one_way_are_counted_to_the_last() {
    row("udp-send", &["udp-sink"], &["udp-send", "--connections", "2", "--packets", "5000"]);
}

#[test]
fn datagrams_that_a_proxy_loses_are_counted_as_lost() {
    let server = Server::start(&["udp-echo"]);
    let target = server.uri.strip_prefix("udp://").unwrap();
    let path =
        ["proxy", "udp", "--listen", "127.0.0.1:0", "--target", target, "--loss", "20%", "--seed", "3"];
    let proxy = Server::run(&path);
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lossy.json");
    let json = json.to_str().unwrap();
    let output = load(&[
        "udp",
        "--target",
        &proxy.uri,
        "--clients",
        "10",
        "--depth",
        "8",
        "--messages",
        "20",
        "--json",
        json,
    ]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let row: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(row[0]["datagrams_sent"], 200);
    let lost = row[0]["datagrams_lost"].as_u64().unwrap();
    // 0.8² come back.
    assert!((40..110).contains(&lost), "{lost} of 200 at 20 % each way");
    assert!(text(&output.stdout).contains(&format!("{lost} did not come back")), "{}", text(&output.stdout));
}

#[test]
fn what_is_due_while_the_server_stalls_is_late_and_tells_how_long_it_took() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut packet = [0; 32];
        for number in 0.. {
            if peer.read_exact(&mut packet).is_err() {
                break;
            }
            if number == 50 {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            packet[0] |= 0x80;
            std::io::Write::write_all(&mut peer, &packet).unwrap();
        }
    });
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stall.json");
    let arguments =
        ["--connections", "1", "--depth", "4", "--rate", "1k", "--packets", "300", "--target", &uri];
    let output = load(&[&["srmp", "--json", json.to_str().unwrap()], &arguments[..]].concat());
    server.join().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    // Of some 200 calls that are due meanwhile, the depth takes 4; a closed load would have seen 4 slow calls.
    assert!(rows[0]["open"]["late"].as_u64().unwrap() > 150, "{rows}");
    assert!(rows[0]["p90_us"].as_f64().unwrap() > 100_000.0, "{rows}");
    assert!(rows[0]["max_us"].as_f64().unwrap() > 190_000.0, "{rows}");
}

#[test]
fn a_run_of_several_seconds_tells_its_rate_as_it_goes() {
    let server = Server::start(&["rpc"]);
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trend.json");
    let arguments =
        ["rpc", "--connections", "2", "--duration", "2.2", "--warmup", "50ms", "--target", &server.uri];
    let output = load(&[&arguments[..], &["--json", json.to_str().unwrap()]].concat());
    let (told, table) = (text(&output.stderr), text(&output.stdout));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 3, "{told}");
    assert!(lines[0].starts_with("1 s  ") && lines[1].starts_with("2 s  "), "{told}");
    assert!(lines[2].contains("min ") && !told.contains('\u{1b}'), "{told}");
    assert!(table.starts_with("driver") && !table.contains("2 s  "), "{table}");
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(rows[0]["errors"], 0);
}

#[test]
fn a_rate_where_there_is_none_is_refused() {
    for kind in ["echo", "receive", "stream", "udp"] {
        let output = load(&[kind, "--rate", "5"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("--rate is for"), "{}", text(&output.stderr));
    }
}

#[test]
fn one_way_packets_are_counted_to_the_last() {
    let load = ["receive", "--connections", "3", "--batch", "7", "--packets", "5000"];
    assert_eq!(row("receive", &["sink"], &load)["workload"], "receive/batch");
}

#[test]
fn a_reply_that_is_not_what_was_sent_makes_the_load_fail() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let liar = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut packet = [0; 32];
        while peer.read_exact(&mut packet).is_ok() {
            packet[31] ^= 1;
            if std::io::Write::write_all(&mut peer, &packet).is_err() {
                break;
            }
        }
    });
    let output = load(&["echo", "--connections", "1", "--packets", "5", "--target", &uri]);
    liar.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(
        table.contains("NOT VALID: 5 errors") && table.contains("did not come back as it was sent"),
        "{table}"
    );
}

#[test]
fn nobody_there_is_exit_code_1_with_the_reason() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = load(&["echo", "--packets", "5", "--target", &uri]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("refused"), "{}", text(&output.stderr));
}

#[test]
fn more_connections_than_descriptors_is_said_beforehand() {
    let output = load(&["echo", "--connections", "100M", "--packets", "5"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("file descriptors"), "{}", text(&output.stderr));
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    assert_eq!(load(&["echo", "--depth", "0"]).status.code(), Some(2));
}

#[test]
fn a_codec_where_there_is_none_is_refused() {
    let output = Command::new(COREWIRE).args(["serve", "rpc", "--codec", "srmp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("leave --codec out"), "{}", text(&output.stderr));
}

#[test]
fn a_server_ends_cleanly_on_either_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        assert_eq!(Server::start(&["echo"]).signal(signal).0, Some(0), "{signal:?}");
    }
}

#[test]
fn a_taken_port_is_exit_code_1_with_the_reason() {
    let first = Server::start(&["echo"]);
    let second = Command::new(COREWIRE).args(["serve", "echo", "--listen", &first.uri]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("in use"), "{}", text(&second.stderr));
}
