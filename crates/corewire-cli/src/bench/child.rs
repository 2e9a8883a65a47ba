//! A server or load process under the benchmark's hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::control::Snapshot;
use crate::failure::Failure;

/// How long a process may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process may take to end after `stop` before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a process that failed may take to close its standard error.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(200);
/// How much of the end of a child's standard error is kept for the report of its death.
const STDERR_TAIL: usize = 4096;

/// One child process; it is killed when this is dropped.
pub(crate) struct Process {
    role: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_reader: JoinHandle<()>,
}

impl Process {
    /// Starts this same program with other arguments, and without the variables named.
    pub(crate) fn start(role: &'static str, arguments: &[String], without: &[&str]) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::io("cannot find the path of this program"))?;
        let mut command = Command::new(program);
        for variable in without {
            command.env_remove(variable);
        }
        Self::start_program(role, command.args(arguments))
    }

    fn start_program(role: &'static str, command: &mut Command) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Failure::io(format!("cannot start the {role} process")))?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::Setting("a child process has no pipes".into()));
        };
        let (to_us, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to_us.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let tail = Arc::clone(&stderr);
        let stderr_reader = std::thread::spawn(move || keep_tail(errors, &tail));
        Ok(Self { role, child, input, lines, stderr, stderr_reader })
    }

    /// Sends one line.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.input, "{line}").map_err(|_| self.failure("ended early"))
    }

    /// The next line that the process writes.
    pub(crate) fn line(&mut self, limit: Duration) -> Result<String, Failure> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.failure(&format!("did not answer within {limit:?}"))),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure("ended early")),
        }
    }

    /// The next line, which must begin so; the rest of it.
    pub(crate) fn line_after(&mut self, lead: &str, limit: Duration) -> Result<String, Failure> {
        let line = self.line(limit)?;
        match line.strip_prefix(lead) {
            Some(rest) => Ok(rest.trim().into()),
            None => Err(self.failure(&format!("wrote {line:?} where {lead:?} was expected"))),
        }
    }

    /// The next line as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, Failure> {
        let line = self.line(limit)?;
        serde_json::from_str(&line).map_err(|error| self.failure(&format!("wrote {line:?}: {error}")))
    }

    /// Asks for the state of the process and waits for it.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        self.tell("snapshot")?;
        self.json(ANSWER_TIMEOUT)
    }

    /// The name of the driver that the process runs on.
    pub(crate) fn driver(&mut self) -> Result<String, Failure> {
        self.tell("driver")?;
        self.json(ANSWER_TIMEOUT)
    }

    /// Waits for the end of a process that was told to stop; kills it when it does not come.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        while begun.elapsed() < STOP_TIMEOUT {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failure(&format!("ended with {status}"))),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(Failure::io("cannot wait for a child process")(error)),
            }
        }
        Err(self.failure(&format!("did not end within {STOP_TIMEOUT:?}")))
    }

    fn failure(&mut self, what: &str) -> Failure {
        // A dying process closes its output before its last words have been read.
        let begun = Instant::now();
        while !self.stderr_reader.is_finished() && begun.elapsed() < LAST_WORDS_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let stderr = match text.trim() {
            "" => String::new(),
            text => format!("; it last wrote:\n{text}"),
        };
        Failure::Child { role: self.role, what: what.into(), stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn keep_tail(mut from: impl Read, tail: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&chunk[..read]);
        let over = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start_program("test", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_child_that_dies_fails_with_the_end_of_its_standard_error() {
        let failure =
            shell("echo lost my way >&2; exit 3").line(Duration::from_secs(10)).unwrap_err().to_string();
        assert!(failure.contains("ended early") && failure.contains("lost my way"), "{failure}");
    }

    #[test]
    fn a_bad_exit_code_is_a_failure() {
        assert!(shell("exit 3").finish().unwrap_err().to_string().contains('3'));
        shell("exit 0").finish().unwrap();
    }

    #[test]
    fn a_child_that_says_nothing_times_out_and_is_killed_on_drop() {
        let mut silent = shell("exec sleep 1000");
        let failure = silent.line(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(failure.contains("did not answer"), "{failure}");
        let begun = Instant::now();
        drop(silent);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn lines_go_both_ways() {
        let mut parrot = shell("while read line; do echo \"said $line\"; done");
        parrot.tell("hello").unwrap();
        assert_eq!(parrot.line_after("said ", Duration::from_secs(10)).unwrap(), "hello");
    }

    #[test]
    fn only_the_tail_of_standard_error_is_kept() {
        let tail = Mutex::new(Vec::new());
        let text: Vec<u8> = (0..3 * STDERR_TAIL).map(|at| (at % 100) as u8).collect();
        keep_tail(&text[..], &tail);
        assert_eq!(tail.into_inner().unwrap(), text[2 * STDERR_TAIL..]);
    }
}
