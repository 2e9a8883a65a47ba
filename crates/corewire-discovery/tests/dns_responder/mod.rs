//! A DNS server of the test's own, on loopback.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Answer,
    Fail,
    Garbage,
}

pub(crate) struct Responder {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    zone: Mutex<Zone>,
    questions: AtomicUsize,
    stop: AtomicBool,
}

struct Zone {
    mode: Mode,
    ttl_s: u32,
    /// Names for which it says that it has failed.
    failing: HashSet<String>,
    /// Names that it does not answer for.
    ignored: HashSet<String>,
    records: HashMap<String, Vec<(u16, Vec<u8>)>>,
}

impl Responder {
    pub(crate) fn start(ttl_s: u32) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout can be set");
        let zone = Mutex::new(Zone {
            mode: Mode::Answer,
            ttl_s,
            failing: HashSet::new(),
            ignored: HashSet::new(),
            records: HashMap::new(),
        });
        let shared = Arc::new(Shared { zone, questions: AtomicUsize::new(0), stop: AtomicBool::new(false) });
        let serving = shared.clone();
        std::thread::spawn(move || serving.serve(&socket));
        Self { address, shared }
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.shared.zone.lock().expect("no panic").mode = mode;
    }

    pub(crate) fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let record = |address: &&str| match address.parse().expect("an address") {
            IpAddr::V4(ip) => (A, ip.octets().to_vec()),
            IpAddr::V6(ip) => (AAAA, ip.octets().to_vec()),
        };
        self.set(name, addresses.iter().map(record).collect());
    }

    /// Each target with priority, weight and port.
    pub(crate) fn set_services(&self, name: &str, targets: &[(u16, u16, u16, &str)]) {
        let record = |(priority, weight, port, target): &(u16, u16, u16, &str)| {
            let numbers = [priority, weight, port];
            let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            for label in target.split('.').filter(|label| !label.is_empty()) {
                data.push(label.len() as u8);
                data.extend(label.as_bytes());
            }
            data.push(0);
            (SRV, data)
        };
        self.set(name, targets.iter().map(record).collect());
    }

    pub(crate) fn fail(&self, name: &str) {
        self.shared.zone.lock().expect("no panic").failing.insert(name.to_owned());
    }

    pub(crate) fn ignore(&self, name: &str) {
        self.shared.zone.lock().expect("no panic").ignored.insert(name.to_owned());
    }

    pub(crate) fn mend(&self, name: &str) {
        self.shared.zone.lock().expect("no panic").failing.remove(name);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.shared.zone.lock().expect("no panic").records.remove(name);
    }

    pub(crate) fn questions(&self) -> usize {
        self.shared.questions.load(Ordering::Relaxed)
    }

    fn set(&self, name: &str, records: Vec<(u16, Vec<u8>)>) {
        self.shared.zone.lock().expect("no panic").records.insert(name.to_owned(), records);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn serve(&self, socket: &UdpSocket) {
        let mut buffer = [0; 1500];
        while !self.stop.load(Ordering::Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            self.questions.fetch_add(1, Ordering::Relaxed);
            if let Some(reply) = self.reply(&buffer[..length]) {
                let _ = socket.send_to(&reply, from);
            }
        }
    }

    fn reply(&self, question: &[u8]) -> Option<Vec<u8>> {
        let zone = self.zone.lock().expect("no panic");
        let (mut labels, mut at) = (Vec::new(), 12);
        while *question.get(at)? > 0 {
            let end = at + 1 + usize::from(question[at]);
            labels.push(String::from_utf8_lossy(question.get(at + 1..end)?).to_lowercase());
            at = end;
        }
        let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
        let name = labels.join(".");
        let known = zone.records.get(&name);
        let answers: Vec<_> = known.into_iter().flatten().filter(|(of, _)| *of == kind).collect();
        let code = match zone.mode {
            Mode::Garbage => return Some([&question[..2], &[0xff; 40]].concat()),
            _ if zone.ignored.contains(&name) => return None,
            Mode::Fail => 2,
            Mode::Answer if zone.failing.contains(&name) => 2,
            Mode::Answer if known.is_none() => 3,
            Mode::Answer => 0,
        };
        let answers = if code == 0 { answers } else { Vec::new() };
        let mut reply = question[..2].to_vec();
        reply.extend([0x81, 0x80 | code, 0, 1, 0, answers.len() as u8, 0, 0, 0, 0]);
        reply.extend(&question[12..at + 5]);
        for (kind, data) in answers {
            reply.extend([0xc0, 12]);
            reply.extend(kind.to_be_bytes());
            reply.extend([0, 1]);
            reply.extend(zone.ttl_s.to_be_bytes());
            reply.extend((data.len() as u16).to_be_bytes());
            reply.extend(data);
        }
        Some(reply)
    }
}
