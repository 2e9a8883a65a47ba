//! An etcd of the test's own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Etcd {
    data: PathBuf,
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
    /// Certificate and key, to speak TLS.
    tls: Option<(PathBuf, PathBuf)>,
}

impl Etcd {
    /// `None`, and says so, when there is no etcd on this machine; in CI that is a failure.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with(test, None)
    }

    pub(crate) fn start_with(test: &str, tls: Option<(PathBuf, PathBuf)>) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        {
            let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!in_ci, "there is no etcd on this machine, and in CI there must be; install etcd-server");
            eprintln!("SKIPPED {test}: there is no etcd on this machine; install etcd-server to run it");
            return None;
        }
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let data = std::env::temp_dir().join(format!("corewire-etcd-{}-{number}", std::process::id()));
        let (client_port, peer_port) = free_ports();
        let mut etcd = Self { data, client_port, peer_port, process: None, tls };
        etcd.restart();
        Some(etcd)
    }

    pub(crate) fn member(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// The sum of etcd's own counters whose lines begin with this.
    pub(crate) fn metric(&self, prefix: &str) -> u64 {
        let answer = self.ask("/metrics").expect("etcd answers");
        let values = answer.lines().filter(|line| line.starts_with(prefix));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("etcd can be killed");
            process.wait().expect("etcd has ended");
        }
    }

    /// Loses all it knew.
    pub(crate) fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.data).expect("the data can be removed");
    }

    /// Starts it again on the same ports and waits until it answers.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (mut client, peer) = (url(self.client_port), url(self.peer_port));
        let mut command = Command::new("etcd");
        if let Some((certificate, key)) = &self.tls {
            client = client.replace("http:", "https:");
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        let process = command
            .arg("--data-dir")
            .arg(&self.data)
            .args(["--name", "test", "--initial-cluster", &format!("test={peer}")])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd can be started");
        self.process = Some(process);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.answers() {
            let running = self.process.as_mut().and_then(|process| process.try_wait().ok());
            assert!(matches!(running, Some(None)), "etcd has ended: {running:?}");
            assert!(Instant::now() < deadline, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Right after its start etcd listens before it answers.
    fn answers(&self) -> bool {
        if self.tls.is_some() {
            return TcpStream::connect(self.member()).is_ok();
        }
        self.ask("/health").is_some_and(|answer| answer.contains("\"true\""))
    }

    fn ask(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.member()).ok()?;
        let mut answer = String::new();
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout can be set");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// Ports nobody is given by the system: it gives out those from 32,768 on. A port of that kind would be free to
/// others while etcd is killed, and a client that tries it again and again may even connect to itself.
fn free_ports() -> (u16, u16) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut free = std::iter::repeat_with(|| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        10_000 + ((std::process::id() as usize * 37 + step) % 20_000) as u16
    })
    .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    (free.next().expect("there is a free port"), free.next().expect("there is a free port"))
}
