use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use corewire::runtime::Runtime;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Setup {
    target: TcpListener,
    address: SocketAddr,
    _runtime: Runtime,
}

fn args(target: SocketAddr) -> TcpProxyArgs {
    TcpProxyArgs {
        listen: "127.0.0.1:0".parse().unwrap(),
        target,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bandwidth: None,
        buffer: 1 << 20,
        cut_after: None,
        cut_probability: None,
        seed: 7,
    }
}

/// A proxy before a target that the test plays.
fn setup(change: impl FnOnce(&mut TcpProxyArgs)) -> Setup {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut args = args(target.local_addr().unwrap());
    change(&mut args);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let started = runtime.handle().spawn_on(0, move || async move { start(&args) });
    let address = started.unwrap().join().unwrap().unwrap();
    Setup { target, address, _runtime: runtime }
}

impl Setup {
    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        let client = self.client();
        let target = self.target.accept().unwrap().0;
        target.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, target)
    }
}

/// All that comes before the end or an error.
fn drain(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    let error = stream.read_to_end(&mut all).err().map(|error| error.kind());
    (all, error)
}

fn reset_now(stream: TcpStream) {
    Socket::from_fd(stream.into()).unwrap().set_reset_on_close().unwrap();
}

#[test]
fn bytes_arrive_late_whole_and_in_order_both_ways() {
    let setup =
        setup(|args| (args.delay, args.jitter) = (Duration::from_millis(20), Duration::from_millis(5)));
    let (mut client, mut target) = setup.pair();
    let sent: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let begun = Instant::now();
    client.write_all(&sent).unwrap();
    let mut there = vec![0; sent.len()];
    target.read_exact(&mut there).unwrap();
    target.write_all(&there).unwrap();
    let mut back = vec![0; sent.len()];
    client.read_exact(&mut back).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(40), "{:?}", begun.elapsed());
    assert!(back == sent);
}

#[test]
fn a_rate_is_kept() {
    // 800 kbit/s: 20,000 bytes take 200 ms.
    let setup = setup(|args| args.bandwidth = Some(800_000));
    let (mut client, mut target) = setup.pair();
    let begun = Instant::now();
    client.write_all(&[1; 10_000]).unwrap();
    client.write_all(&[1; 10_000]).unwrap();
    target.read_exact(&mut [0; 20_000]).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(199), "{:?}", begun.elapsed());
}

#[test]
fn a_half_close_is_passed_on_and_the_answer_comes_back_after_it() {
    let setup = setup(|args| args.delay = Duration::from_millis(2));
    let (mut client, mut target) = setup.pair();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(drain(&mut target), (b"question".to_vec(), None));
    target.write_all(&[5; 100_000]).unwrap();
    drop(target);
    let (answer, error) = drain(&mut client);
    assert_eq!((answer.len(), error), (100_000, None));
}

#[test]
fn a_reset_is_passed_on_from_either_side() {
    let setup = setup(|args| args.delay = Duration::from_millis(2));
    let (mut client, target) = setup.pair();
    reset_now(target);
    assert_eq!(drain(&mut client), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    let (client, mut target) = setup.pair();
    reset_now(client);
    assert_eq!(drain(&mut target), (Vec::new(), Some(ErrorKind::ConnectionReset)));
}

#[test]
fn a_reset_after_a_half_close_is_passed_on() {
    let setup = setup(|_| ());
    let (client, mut target) = setup.pair();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(drain(&mut target), (Vec::new(), None));
    reset_now(client);
    // The target notices when it sends.
    let begun = Instant::now();
    while target.write_all(&[1; 1000]).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the target is never told");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_is_cut_after_just_so_many_bytes() {
    let setup = setup(|args| args.cut_after = Some(CutAfter::Bytes(1000)));
    let (mut client, mut target) = setup.pair();
    client.write_all(&[1; 600]).unwrap();
    target.read_exact(&mut [0; 600]).unwrap();
    target.write_all(&[2; 100_000]).unwrap();
    let (rest, error) = drain(&mut client);
    assert_eq!((rest.len(), error), (400, Some(ErrorKind::ConnectionReset)));
    assert_eq!(drain(&mut target).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_connection_is_cut_after_its_time() {
    let setup = setup(|args| args.cut_after = Some(CutAfter::Time(Duration::from_millis(30))));
    let begun = Instant::now();
    let (mut client, mut target) = setup.pair();
    assert_eq!(drain(&mut client).1, Some(ErrorKind::ConnectionReset));
    assert_eq!(drain(&mut target).1, Some(ErrorKind::ConnectionReset));
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_client_without_a_target_is_reset() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let setup = setup(|args| args.target = free);
    assert_eq!(drain(&mut setup.client()).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_target_that_does_not_read_holds_the_client_back() {
    const MUCH: usize = 256 << 20;
    let setup = setup(|args| args.buffer = 64 << 10);
    let (mut client, mut target) = setup.pair();
    client.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0;
    while sent < MUCH {
        match client.write(&[9; 64 << 10]) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(sent < MUCH / 4, "{sent} bytes went nowhere");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(drain(&mut target).0.len(), sent);
}

#[test]
fn a_seed_replays_which_connections_are_cut_and_where() {
    let mut args = args("127.0.0.1:1".parse().unwrap());
    args.cut_probability = Some(0.3);
    let fates = |args: &TcpProxyArgs, seed| -> Vec<_> {
        (0..1000_u64).map(|n| fate(args, &mut Rng::new(seed + n))).collect()
    };
    let some = fates(&args, 1);
    let cut = some.iter().flatten().count();
    assert!((230..370).contains(&cut), "{cut} of 1000 at 30 %");
    assert_eq!(some, fates(&args, 1));
    assert_ne!(some, fates(&args, 5000));
    args.cut_after = Some(CutAfter::Bytes(5));
    assert_eq!(fates(&args, 1).iter().flatten().filter(|at| **at == CutAfter::Bytes(5)).count(), cut);
    args.cut_probability = None;
    assert!(fates(&args, 1).iter().all(|fate| *fate == args.cut_after));
}

#[test]
fn a_cut_is_written_as_bytes_or_as_a_time() {
    assert_eq!(cut_after("64K"), Ok(CutAfter::Bytes(65_536)));
    assert_eq!(cut_after("500ms"), Ok(CutAfter::Time(Duration::from_millis(500))));
    assert_eq!(cut_after("2s"), Ok(CutAfter::Time(Duration::from_secs(2))));
    for bad in ["", "0", "x", "-1s", "s"] {
        assert!(cut_after(bad).is_err(), "{bad:?}");
    }
}
