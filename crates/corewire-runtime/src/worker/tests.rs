//! What a worker keeps, seen from inside.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::{
    CloseReason, Connection, ConnectionOptions, MemoryKind, Protocol, sleep, spawn_local, timeout, yield_now,
};

struct Nothing;

impl Protocol for Nothing {
    fn on_received(&mut self, _: &Connection, _: Bytes) {}
}

fn sockets() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let socket = Socket::from_fd(listener.accept().expect("a connection").0.into()).expect("a socket");
    (socket, peer)
}

fn current() -> Rc<Core> {
    Core::current().expect("a worker")
}

/// Sockets, connections, timers, tasks, and entries in the lists of a tick.
fn kept(core: &Core) -> [usize; 5] {
    let lists = core.senders.dirty.borrow().len()
        + core.conns.closed.borrow().len()
        + core.senders.drained.borrow().len();
    [
        core.driver.borrow().sockets(),
        core.conns.table.borrow().len(),
        core.timers.len(),
        core.tasks.live.borrow().len(),
        lists,
    ]
}

fn polled_once(future: impl Future) {
    let future = std::pin::pin!(future);
    assert!(future.poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
}

#[test]
fn a_worker_is_found_by_its_name_from_any_thread_until_it_has_stopped() {
    let name = crate::run(async {
        let name = current_worker().expect("a worker");
        let found = std::thread::spawn(move || WorkerHandle::of(name)).join().expect("no panic");
        assert_eq!(found.expect("it runs").id(), name);
        name
    });
    assert!(WorkerHandle::of(name.expect("a loop")).is_none());
}

#[test]
fn sleeps_and_timeouts_that_are_dropped_leave_no_timer() {
    crate::run(async {
        let core = current();
        let before = kept(&core);
        let mut sleeps: Vec<_> =
            (0..10_000).map(|ms| Box::pin(sleep(Duration::from_millis(1000 + ms)))).collect();
        for sleep in &mut sleeps {
            polled_once(sleep.as_mut());
            // Another waker replaces the timer.
            polled_once(sleep.as_mut());
        }
        assert_eq!(core.timers.len(), before[2] + 10_000);
        drop(sleeps);
        for _ in 0..1000 {
            polled_once(timeout(Duration::from_secs(1), std::future::pending::<()>()));
            assert_eq!(timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
        }
        assert_eq!(kept(&core), before);
    })
    .expect("a worker");
}

#[test]
fn tasks_that_have_ended_leave_no_entry() {
    crate::run(async {
        let core = current();
        let before = kept(&core);
        let tasks: Vec<_> = (0..1000).map(|_| spawn_local(std::future::pending::<()>())).collect();
        let done: Vec<_> = (0..1000).map(|_| spawn_local(yield_now())).collect();
        yield_now().await;
        assert_eq!(core.tasks.live.borrow().len(), before[3] + 2000);
        tasks.into_iter().for_each(crate::JoinHandle::abort);
        for task in done {
            assert_eq!(task.await, Ok(()));
        }
        yield_now().await;
        assert_eq!(kept(&core), before);
    })
    .expect("a worker");
}

#[test]
fn connections_that_have_ended_leave_nothing() {
    crate::run(async {
        let core = current();
        let before = kept(&core);
        let options = Rc::new(ConnectionOptions {
            idle_timeout: Some(Duration::from_secs(60)),
            high_water: 1000,
            low_water: 10,
            ..ConnectionOptions::default()
        });
        for round in 0..40 {
            let (socket, mut peer) = sockets();
            let connection = Connection::open(socket, options.clone(), Nothing).expect("a connection");
            connection.set_timer(Some(Duration::from_secs(60)));
            if round % 4 == 1 {
                connection.send(&[1; 5000]).expect("an open connection");
            }
            if round % 4 == 2 {
                while connection.queued() == 0 {
                    connection.send(&[2; 1 << 20]).expect("an open connection");
                }
                let _ = peer.read(&mut [0]);
                polled_once(connection.flushed());
            }
            match round % 3 {
                0 => connection.close(),
                1 => connection.abort(CloseReason::Local),
                _ => drop(peer),
            }
        }
        while kept(&core) != before {
            sleep(Duration::from_millis(1)).await;
            // The timer of the sleep has fired by now.
        }
    })
    .expect("a worker");
}

#[test]
fn a_connection_that_does_nothing_is_small() {
    let size = size_of::<crate::conn::Conn>();
    assert!(size <= 296, "{size} bytes for each");
}

/// Sends again each time what it sent is gone.
struct Greedy(Rc<Cell<usize>>);

impl Protocol for Greedy {
    fn on_received(&mut self, _: &Connection, _: Bytes) {}

    fn on_drained(&mut self, connection: &Connection) {
        self.0.set(self.0.get() + 1);
        for _ in 0..70 {
            let _ = connection.send(&[3; 1000]);
        }
    }
}

#[test]
fn a_pause_that_makes_no_room_ends_with_the_end_of_those_that_hold_most() {
    crate::run(async {
        let core = current();
        let limit = core.memory.of_worker.budget.limit();
        let opened = [(); 3].map(|()| {
            let (socket, peer) = sockets();
            let options = Rc::new(ConnectionOptions::default());
            (Connection::open(socket, options, Nothing).expect("a connection"), peer)
        });
        let [large, middle, small] = opened.each_ref().map(|(connection, _)| connection);
        let _held = [(large, limit / 2), (middle, limit * 7 / 16), (small, 1000)]
            .map(|(connection, bytes)| connection.charge(MemoryKind::Reassembly, bytes));
        let is_open = || [large, middle, small].map(Connection::is_open);
        core.watch_memory_at(core.timers.now_ms());
        assert_eq!(is_open(), [true; 3], "below the limit");
        assert!(core.memory.refuses_connections());
        let now = core.timers.now_ms();
        core.watch_memory_at(now + 4_900);
        assert_eq!(is_open(), [true; 3], "what they have begun may be whole soon");
        core.watch_memory_at(now + 5_000);
        assert_eq!(is_open(), [false, true, true]);
    })
    .expect("a worker");
}

#[test]
fn a_sender_that_is_never_done_lets_others_have_their_turn() {
    crate::run(async {
        let (socket, peer) = sockets();
        let options =
            Rc::new(ConnectionOptions { high_water: 1000, low_water: 0, ..ConnectionOptions::default() });
        let drained = Rc::new(Cell::new(0));
        let connection = Connection::open(socket, options, Greedy(drained.clone())).expect("a connection");
        connection.send(&[0; 2000]).expect("an open connection");
        for turn in 0..10 {
            assert!(drained.get() <= turn, "told {} times in {turn} turns", drained.get());
            yield_now().await;
        }
        assert!(drained.get() > 0);
        connection.abort(CloseReason::Local);
        drop(peer);
    })
    .expect("a worker");
}

thread_local! {
    /// Pieces that are left, and those that were done since a task had its turn.
    static PIECES: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// One piece of what is gathered; it takes time.
fn gathered_piece() -> bool {
    let began = corewire_driver::clock::now();
    while began.elapsed() < Duration::from_micros(20) {}
    let (left, done) = PIECES.get();
    PIECES.set((left - 1, done + 1));
    left > 1
}

#[test]
fn what_is_gathered_before_a_flush_leaves_others_their_turn() {
    crate::run(async {
        PIECES.set((1000, 0));
        assert!(before_flush(gathered_piece));
        let (mut most, mut turns) = (0, 0);
        loop {
            yield_now().await;
            let (left, done) = PIECES.get();
            PIECES.set((left, 0));
            most = most.max(done);
            turns += 1;
            if left == 0 {
                break;
            }
        }
        // Twice a tick; each time the clock is looked at once in 16, and 250 us are over the second time.
        assert!(most <= 2 * 32, "{most} pieces in one tick");
        assert!(turns >= 1000 / 64);
    })
    .expect("a worker");
}

#[test]
fn a_high_water_mark_of_zero_lets_one_message_through_at_a_time() {
    crate::run(async {
        let (socket, mut peer) = sockets();
        let options =
            Rc::new(ConnectionOptions { high_water: 0, low_water: 0, ..ConnectionOptions::default() });
        let connection = Connection::open(socket, options, Nothing).expect("a connection");
        for _ in 0..3 {
            let ready = connection.send_ready();
            let ready = timeout(Duration::from_secs(5), ready).await;
            assert_eq!(ready, Ok(Ok(())), "a sender waits for ever");
            connection.send(b"x").expect("an open connection");
            polled_once(connection.send_ready());
        }
        sleep(Duration::from_millis(2)).await;
        peer.read_exact(&mut [0; 3]).expect("three bytes");
    })
    .expect("a worker");
}

#[test]
fn a_worker_that_looks_for_work_is_not_woken_by_a_system_call() {
    if corewire_driver::available_cpus().len() < 2 {
        return; // nobody looks on a machine with a single processor
    }
    let mut config = DriverConfig::default();
    config.spin = Duration::from_secs(20);
    let runtime = crate::Runtime::builder().workers(1).driver_config(config).build().expect("a runtime");
    let wakes = || current().driver.borrow().counters().wakes;
    let before = runtime.handle().spawn_on(0, move || async move { wakes() }).expect("a worker").join();
    for round in 0..1000 {
        let task = runtime.handle().spawn_on(0, move || async move { round }).expect("a worker");
        assert_eq!(task.join(), Ok(round));
    }
    let after = runtime.handle().spawn_on(0, move || async move { wakes() }).expect("a worker").join();
    assert_eq!(after, before);
}

#[test]
fn futures_that_are_dropped_while_they_wait_leave_no_waker() {
    crate::run(async {
        let core = current();
        let (socket, _peer) = sockets();
        let options =
            Rc::new(ConnectionOptions { high_water: 1000, low_water: 10, ..ConnectionOptions::default() });
        let connection = Connection::open(socket, options, Nothing).expect("a connection");
        while connection.queued() < 1000 {
            connection.send(&[2; 1 << 20]).expect("an open connection");
        }
        // The quota of this tick is used: nobody waits for room before the next.
        yield_now().await;
        let waiting = || core.conns.with(connection.id, |conn| conn.waiters.len()).expect("a connection");
        for _ in 0..1000 {
            polled_once(connection.send_ready());
            polled_once(connection.flushed());
        }
        assert_eq!(waiting(), 0);
        let mut one = Box::pin(connection.send_ready());
        for _ in 0..10 {
            polled_once(one.as_mut());
        }
        assert_eq!(waiting(), 1, "one that waits has one place, however often it is polled");
        connection.abort(CloseReason::Local);
        assert!(one.await.is_err(), "it is told of the end");
    })
    .expect("a worker");
}

#[test]
fn futures_that_wait_on_a_shared_socket_leave_no_waker_either() {
    use corewire_driver::udp::UdpOptions;
    use corewire_proto::kcp::{Config, Mode};

    use crate::transport::{kcp, udp};

    crate::run(async {
        let core = current();
        // Nobody answers there.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = silent.local_addr().expect("an address");
        let options =
            Rc::new(ConnectionOptions { high_water: 1000, low_water: 10, ..ConnectionOptions::default() });
        let kcp_options = kcp::KcpOptions {
            conversation: Config::turbo().mode(Mode::Stream),
            keys: None,
            answer_timeout: Duration::from_secs(60),
        };
        let udp_options = UdpOptions::default();
        let kcp = kcp::connect(address, &udp_options, &kcp_options, options.clone(), Box::new(Nothing));
        let udp = udp::connect(address, &udp_options, options, Box::new(Nothing));
        for connection in [kcp.expect("a conversation"), udp.expect("a connection")] {
            let waiting = || core.conns.with(connection.id, |conn| conn.waiters.len());
            while connection.queued() < 1000 {
                connection.send(&[2; 40_000]).expect("an open connection");
            }
            for _ in 0..100 {
                polled_once(connection.flushed());
            }
            assert_eq!(waiting(), Some(0));
            let mut one = Box::pin(connection.flushed());
            polled_once(one.as_mut());
            polled_once(one.as_mut());
            assert_eq!(waiting(), Some(1));
            connection.abort(CloseReason::Local);
            drop(one.await);
            assert_eq!(waiting(), None);
        }
    })
    .expect("a worker");
}

#[test]
fn a_waker_that_panics_harms_nobody() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("a waker of somebody else");
        }
    }
    crate::run(async {
        let core = current();
        let (socket, _peer) = sockets();
        let connection = Connection::open(socket, Rc::default(), Nothing).expect("a connection");
        while connection.queued() == 0 {
            connection.send(&[2; 1 << 20]).expect("an open connection");
        }
        let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
        let mut flushed = std::pin::pin!(connection.flushed());
        assert!(flushed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut sleeping = std::pin::pin!(sleep(Duration::from_millis(1)));
        assert!(sleeping.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        connection.abort(CloseReason::Local);
        while core.counters.panics.get() < 2 {
            yield_now().await;
        }
        assert_eq!(core.conns.table.borrow().len(), 0);
    })
    .expect("a worker");
}

#[test]
fn a_closure_that_looks_at_a_socket_may_use_the_connection() {
    crate::run(async {
        let (socket, mut peer) = sockets();
        let connection = Connection::open(socket, Rc::default(), Nothing).expect("a connection");
        let sent = connection.with_socket(|socket| {
            connection.pause_receive();
            connection.resume_receive();
            connection.send(&[7; 100_000]).expect("an open connection");
            connection.with_socket(|same| same.peer_addr().ok()).flatten().is_some()
                && socket.no_delay().is_ok()
        });
        assert_eq!(sent, Some(true));
        connection.close();
        peer.read_exact(&mut [0; 100_000]).expect("what was sent");
    })
    .expect("a worker");
}

#[test]
fn a_worker_that_has_stopped_is_given_no_tasks() {
    let runtime = crate::Runtime::builder().workers(2).build().expect("a runtime");
    let stopped = runtime.handle().worker(0).expect("a worker");
    assert!(stopped.shared.mailbox.push(Command::Stop(None)).is_ok());
    while !stopped.shared.mailbox.is_closed() {
        std::thread::yield_now();
    }
    for round in 0..4 {
        let task = runtime.handle().spawn(move || async move { round }).expect("the other worker");
        assert_eq!(task.join(), Ok(round));
    }
}

#[test]
fn connections_that_come_at_once_are_opened_over_several_ticks() {
    use crate::{AfterAccept, Listener};
    use corewire_driver::net::{ListenOptions, listen_tcp};

    const CONNECTIONS: usize = 400;
    crate::run(async {
        let socket = listen_tcp("127.0.0.1:0".parse().expect("an address"), &ListenOptions::default());
        let socket = socket.expect("a listener");
        let address = socket.local_addr().expect("an address").as_socket().expect("an internet address");
        // More than wait in the worker: the listener is held back and goes on.
        let peers: Vec<_> =
            (0..CONNECTIONS).map(|_| TcpStream::connect(address).expect("room in the backlog")).collect();
        let ticks = Rc::new(RefCell::new(Vec::new()));
        let _listener = Listener::start(socket, {
            let ticks = ticks.clone();
            move |_socket| {
                ticks.borrow_mut().push(current().counters.ticks.get());
                AfterAccept::Continue
            }
        })
        .expect("a listener");
        while ticks.borrow().len() < CONNECTIONS {
            yield_now().await;
        }
        let ticks = ticks.borrow();
        for of_tick in ticks.chunk_by(|one, next| one == next) {
            assert!(of_tick.len() <= accepting::OPENED_IN_TICK_MAX, "{} in one tick", of_tick.len());
        }
        drop(peers);
    })
    .expect("a worker");
}
