//! The etcd registry where members of the cluster swallow what they are sent.
#![cfg(all(feature = "etcd", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]
#![allow(dead_code, reason = "the support module has more than each test file needs")]

mod support;

use corewire_discovery::{Change, Endpoint, EtcdOptions, EtcdRegistry, RegisterOptions, Registry};
use futures_lite::future::block_on;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::Etcd;

fn options(members: &[String]) -> EtcdOptions {
    let mut options = EtcdOptions::new(members);
    options.prefix = "test".into();
    options
}

/// An address to which no connection is ever made: its queue is full, so the kernel drops what comes.
struct BlackHole {
    address: SocketAddr,
    _held: (Socket, Vec<TcpStream>),
}

impl BlackHole {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let queued: Vec<_> = std::iter::from_fn(connect).take(100).collect();
        assert!(queued.len() < 100, "the queue is never full");
        Self { address, _held: (socket, queued) }
    }
}

#[test]
fn members_that_do_not_answer_cost_next_to_no_time() {
    let Some(etcd) = Etcd::start("members_that_do_not_answer_cost_next_to_no_time") else { return };
    let (hole, silent) = (BlackHole::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let dead = [hole.address.to_string(), silent.local_addr().unwrap().to_string()];
    let mut members = [dead[0].clone(), dead[1].clone(), etcd.member()];
    for _ in 0..members.len() {
        let began = Instant::now();
        let registry = block_on(EtcdRegistry::connect(options(&members))).unwrap();
        let endpoint = Arc::new(Endpoint::new("s", "a", "127.0.0.1:7000").unwrap());
        let lease = block_on(registry.register(endpoint, RegisterOptions::new())).unwrap();
        block_on(lease.deregister()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{members:?}: {:?}", began.elapsed());
        members.rotate_left(1);
    }
    // When there is no other, it takes as long as an answer may, and says of each why.
    let mut alone = options(&dead);
    alone.request_timeout = Duration::from_millis(300);
    let began = Instant::now();
    let refused = block_on(EtcdRegistry::connect(alone)).unwrap_err().to_string();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(dead.iter().all(|member| refused.contains(&format!("{member}: no answer"))), "{refused}");
}

/// A way to etcd that can be cut: then it takes everything, and nothing comes of it.
struct Way {
    address: String,
    cut: Arc<AtomicBool>,
}

impl Way {
    fn to(member: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = cut.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&member) else { continue };
                for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    let is_cut = is_cut.clone();
                    std::thread::spawn(move || carry(from, to, &is_cut));
                }
            }
        });
        Self { address, cut }
    }

    fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    let mut was_cut = false;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        // What was cut once is of no use any more, and stays as it is.
        was_cut |= is_cut.load(Ordering::SeqCst);
        if !was_cut && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    if !was_cut {
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn leases_outlive_the_member_that_renewed_them() {
    let Some(etcd) = Etcd::start("leases_outlive_the_member_that_renewed_them") else { return };
    let (one, other) = (Way::to(etcd.member()), Way::to(etcd.member()));
    other.set_cut(true);
    let mut options = options(&[one.address.clone(), other.address.clone()]);
    options.lease_ttl = Duration::from_secs(3);
    let writer = block_on(EtcdRegistry::connect(options)).unwrap();
    let endpoint = |instance| Arc::new(Endpoint::new("s", instance, "127.0.0.1:7000").unwrap());
    let _kept = block_on(writer.register(endpoint("kept"), RegisterOptions::new())).unwrap();
    let reader = block_on(EtcdRegistry::connect(self::options(&[etcd.member()]))).unwrap();
    let mut watch = block_on(reader.watch("s")).unwrap();
    assert!(
        matches!(watch.recv_timeout(Duration::from_secs(9)).unwrap().change, Change::Reset(all) if all.len() == 1)
    );
    other.set_cut(false);
    one.set_cut(true);
    // What is asked just then waits for the other member, and is done by it.
    let late = block_on(writer.register(endpoint("late"), RegisterOptions::new())).unwrap();
    let added = watch.recv_timeout(Duration::from_secs(9)).unwrap().change;
    assert!(matches!(&added, Change::Added(endpoint) if &**endpoint.instance() == "late"), "{added:?}");
    let lapsed = watch.recv_timeout(Duration::from_millis(4_500));
    assert!(lapsed.is_none(), "{lapsed:?}");
    block_on(late.deregister()).unwrap();
}
