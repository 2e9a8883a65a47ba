//! What needs a process of its own: signals, and the limit of descriptors. The child is this test program again, with
//! one of its ignored tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corewire::{Frame, NetServer, Session, StandardCodec};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::common::*;

/// Starts a child; what it prints is read by lines.
fn start(role: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([role, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("COREWIRE_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The rest of the line that has this in it.
fn line_with(output: &mut impl BufRead, word: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended without saying {word:?}");
        if let Some((_, rest)) = line.split_once(word) {
            return rest.trim().to_owned();
        }
    }
}

fn end(mut child: Child, mut output: BufReader<std::process::ChildStdout>) {
    output.read_to_end(&mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Somebody runs all that is ignored: there is no parent to talk to.
fn is_child() -> bool {
    std::env::var_os("COREWIRE_TEST_CHILD").is_some()
}

fn stopped_by(signal: Signal) {
    let (child, mut output) = start("process::child_that_runs_until_a_signal");
    let address = line_with(&mut output, "listening on tcp://");
    let mut peer = raw_to(address.parse().unwrap());
    peer.write_all(&srmp(1, 1, b"x")).unwrap();
    assert_eq!(read_srmp(&mut peer).2.len(), 50_000);
    kill_process(Pid::from_child(&child), signal).unwrap();
    // The server says goodbye to its session and reports it.
    assert_eq!(read_srmp(&mut peer).2, b"goodbye");
    assert_eq!(read_to_end(&mut peer), b"");
    // The connection that found out whether it listens may be over by now, or not.
    let report = line_with(&mut output, "report: ");
    assert!(
        ["1 sessions: 1 finished, 0 cut", "2 sessions: 2 finished, 0 cut"].contains(&&*report),
        "{report}"
    );
    end(child, output);
}

#[test]
fn run_ends_in_order_at_sigterm() {
    stopped_by(Signal::TERM);
}

#[test]
fn run_ends_in_order_at_sigint() {
    stopped_by(Signal::INT);
}

struct Polite;

impl corewire::Handler for Polite {
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        session.reply(&frame, &[0; 50_000]).unwrap();
    }
    fn on_shutdown(&mut self, session: &Session) {
        session.send(b"goodbye").unwrap();
        session.close();
    }
}

#[test]
#[ignore = "a child of the tests of signals"]
fn child_that_runs_until_a_signal() {
    if !is_child() {
        return;
    }
    // A port of its own: run() does not say where it listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = NetServer::bind(format!("tcp://127.0.0.1:{port}"))
        .codec(StandardCodec::default)
        .handler(|| Polite)
        .workers(2)
        .shutdown_deadline(PATIENCE);
    std::thread::spawn(move || {
        // Once it listens.
        while TcpStream::connect(("127.0.0.1", port)).map(reset).is_err() {
            std::thread::yield_now();
        }
        println!("\nlistening on tcp://127.0.0.1:{port}");
    });
    println!("\nreport: {}", server.run().unwrap());
}

#[test]
fn a_server_out_of_descriptors_goes_on() {
    let (mut child, mut output) = start("process::child_with_few_descriptors");
    let address = line_with(&mut output, "listening on tcp://").parse().unwrap();
    let mut first = raw_to(address);
    first.write_all(&srmp(1, 1, b"first")).unwrap();
    expect(&mut first, &srmp(0x81, 1, b"first"));
    // Far more than it can have; the kernel's backlog takes the rest.
    let crowd: Vec<_> = (0..200).map(|_| raw_to(address)).collect();
    line_with(&mut output, "accepts failed");
    // Those that it has are served.
    first.write_all(&srmp(1, 2, b"again")).unwrap();
    expect(&mut first, &srmp(0x81, 2, b"again"));
    drop(crowd);
    // And new ones, once there are descriptors again.
    let mut last = raw_to(address);
    last.write_all(&srmp(1, 3, b"last")).unwrap();
    expect(&mut last, &srmp(0x81, 3, b"last"));
    child.stdin.take().unwrap().write_all(b"stop\n").unwrap();
    assert_eq!(line_with(&mut output, "panics: "), "0");
    end(child, output);
}

#[test]
#[ignore = "a child of the test of descriptors"]
fn child_with_few_descriptors() {
    if !is_child() {
        return;
    }
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = standard_echo();
    println!("\nlistening on {}", server.uri());
    while server.stats().workers.accept_failures == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("\naccepts failed");
    std::io::stdin().read_exact(&mut [0; 5]).unwrap();
    println!("\npanics: {}", server.stats().workers.panics);
}

#[test]
fn too_few_descriptors_to_start_are_an_error() {
    let (child, mut output) = start("process::child_without_descriptors");
    let error = line_with(&mut output, "error: ");
    assert!(error.contains("Too many open files") || error.contains("os error 24"), "{error}");
    end(child, output);
}

#[test]
#[ignore = "a child of the test of descriptors"]
fn child_without_descriptors() {
    if !is_child() {
        return;
    }
    let mut kept = Vec::new();
    let limit = Rlimit { current: Some(40), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        kept.push(file);
    }
    let error = NetServer::bind("tcp://127.0.0.1:0").workers(1).start().unwrap_err();
    println!("\nerror: {error}");
}
