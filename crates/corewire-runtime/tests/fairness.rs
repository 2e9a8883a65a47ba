//! Whoever pipelines without end waits for the others, not they for it.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use common::{off_worker, options, run, sockets, some_ticks};
use corewire_runtime::{CloseReason, Connection, ConnectionOptions, Protocol, sleep, spawn_local, yield_now};

const FRAME: usize = 8;
/// Time that each greedy frame takes, at the least: so the budget of a tick, which is of time, is a number of frames.
const FRAME_TIME: Duration = Duration::from_micros(10);
/// Frames of one connection in one tick, at the most: the clock is looked at once in 32 of them. One receive can bring
/// three hundred times as many.
const FRAMES_IN_TICK_MAX: usize = 256;

/// Decodes frames of eight bytes, each with its number, and calls for each.
struct Frames<F> {
    on_frame: F,
    partial: Vec<u8>,
    ended: Rc<Cell<Option<u64>>>,
    next: u64,
}

impl<F: FnMut(&Connection, u64) + 'static> Frames<F> {
    fn new(on_frame: F) -> Self {
        Self { on_frame, partial: Vec::new(), ended: Rc::default(), next: 0 }
    }
}

impl<F: FnMut(&Connection, u64) + 'static> Protocol for Frames<F> {
    fn on_received(&mut self, connection: &Connection, mut data: Bytes) {
        while self.partial.len() + data.len() >= FRAME {
            let rest = FRAME - self.partial.len();
            self.partial.extend_from_slice(&data[..rest]);
            data.advance(rest);
            let number = u64::from_le_bytes(self.partial[..].try_into().unwrap());
            self.partial.clear();
            assert_eq!(number, self.next, "frames come in order, each once");
            self.next += 1;
            (self.on_frame)(connection, number);
            if !connection.frame_done(FRAME) {
                if !data.is_empty() {
                    connection.defer(data);
                }
                return;
            }
        }
        self.partial.extend_from_slice(&data);
    }

    fn on_read_closed(&mut self, _: &Connection) {
        self.ended.set(Some(self.next));
    }
}

fn numbers(count: u64) -> Vec<u8> {
    (0..count).flat_map(u64::to_le_bytes).collect()
}

fn open(
    options: Rc<ConnectionOptions>,
    on_frame: impl FnMut(&Connection, u64) + 'static,
) -> (Connection, StdStream, Rc<Cell<Option<u64>>>) {
    let (socket, peer) = sockets();
    let protocol = Frames::new(on_frame);
    let ended = protocol.ended.clone();
    (Connection::open(socket, options, protocol).unwrap(), peer, ended)
}

/// Has a thread send frames and read the answers until the connection is gone.
fn flood(peer: StdStream) {
    let mut reader = peer.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut answers = vec![0; 1 << 20];
        while matches!(reader.read(&mut answers), Ok(1..)) {}
    });
    std::thread::spawn(move || {
        let mut peer = peer;
        let mut next = 0_u64;
        loop {
            let block: Vec<u8> = (next..next + 8192).flat_map(u64::to_le_bytes).collect();
            next += 8192;
            if peer.write_all(&block).is_err() {
                return;
            }
        }
    });
}

#[test]
fn one_who_pipelines_without_end_keeps_nobody_waiting() {
    run(async {
        /// The polite request under way: the tick it was sent in.
        #[derive(Default)]
        struct Polite {
            peer: Option<StdStream>,
            sent: Option<u64>,
            rounds: u64,
            slowest: u64,
        }
        let polite = Rc::new(RefCell::new(Polite::default()));
        let (_polite, peer, _) = open(options(|_| {}), {
            let polite = polite.clone();
            move |connection, number| {
                connection.send(&number.to_le_bytes()).unwrap();
                let polite = &mut *polite.borrow_mut();
                // Not where the answer is seen: while the flood pauses, nobody looks, and the task turns on.
                polite.slowest = polite.slowest.max(connection.tick() - polite.sent.unwrap());
            }
        });
        peer.set_nonblocking(true).unwrap();
        polite.borrow_mut().peer = Some(peer);

        let in_tick = Rc::new(Cell::new((0, 0)));
        let most = Rc::new(Cell::new(0));
        let frames = Rc::new(Cell::new(0_usize));
        let (greedy, greedy_peer, _) = open(options(|_| {}), {
            let (polite, in_tick, most, frames) =
                (polite.clone(), in_tick.clone(), most.clone(), frames.clone());
            move |connection, number| {
                connection.send(&number.to_le_bytes()).unwrap();
                frames.set(frames.get() + 1);
                let (tick, count) = in_tick.get();
                let count = if tick == connection.tick() { count + 1 } else { 1 };
                in_tick.set((connection.tick(), count));
                most.set(most.get().max(count));
                let began = Instant::now();
                while began.elapsed() < FRAME_TIME {}
                // Sends the polite request, and looks for its answer, in the middle of the flood.
                if number % 64 == 0 {
                    let polite = &mut *polite.borrow_mut();
                    let mut peer = polite.peer.as_ref().unwrap();
                    match polite.sent {
                        None => {
                            peer.write_all(&polite.rounds.to_le_bytes()).unwrap();
                            polite.sent = Some(connection.tick());
                        }
                        Some(_) => {
                            if peer.read(&mut [0; FRAME]).is_ok() {
                                polite.rounds += 1;
                                polite.sent = None;
                            }
                        }
                    }
                }
            }
        });
        flood(greedy_peer);
        // Tasks and timers have their turns too.
        let between = Rc::new(Cell::new(0));
        let task = spawn_local({
            let (between, frames) = (between.clone(), frames.clone());
            async move {
                loop {
                    let before = frames.get();
                    yield_now().await;
                    between.set(between.get().max(frames.get() - before));
                }
            }
        });
        while polite.borrow().rounds < 200 {
            sleep(Duration::from_millis(1)).await;
        }
        task.abort();
        greedy.abort(CloseReason::Local);
        let most = most.get().max(between.get());
        assert!(most <= FRAMES_IN_TICK_MAX, "{most} frames were handled in one tick");
        let slowest = polite.borrow().slowest;
        assert!(slowest <= 3, "a polite request waited for {slowest} ticks");
    });
}

#[test]
fn answers_leave_when_a_quota_is_used_and_not_when_all_others_are_done() {
    run(async {
        let opened: Rc<RefCell<Vec<Connection>>> = Rc::default();
        let handled = Rc::new(RefCell::new([0_u64; 2]));
        let waiting_first = Rc::new(Cell::new(None));
        let (mut connections, mut peers) = (Vec::new(), Vec::new());
        for at in 0..2 {
            let (opened, handled, waiting_first) = (opened.clone(), handled.clone(), waiting_first.clone());
            let on_frame = move |connection: &Connection, number: u64| {
                connection.send(&number.to_le_bytes()).unwrap();
                handled.borrow_mut()[at] += 1;
                let other = handled.borrow()[1 - at];
                if number == 0 && other > 0 {
                    // The other one has begun and is not done: its answers are on their way.
                    waiting_first.set(Some((opened.borrow()[1 - at].queued(), other)));
                }
            };
            let (socket, mut peer) = sockets();
            peer.write_all(&numbers(6000)).unwrap();
            peers.push(peer);
            connections.push((socket, on_frame));
        }
        for (socket, on_frame) in connections {
            let connection = Connection::open(socket, options(|_| {}), Frames::new(on_frame)).unwrap();
            opened.borrow_mut().push(connection);
        }
        while handled.borrow().iter().any(|count| *count < 6000) {
            yield_now().await;
        }
        let (waiting, other) = waiting_first.get().unwrap();
        assert!(other < 6000, "the second began when the first was done");
        assert_eq!(waiting, 0, "bytes of {other} answers wait for the other connection");
        opened.borrow().iter().for_each(Connection::close);
    });
}

#[test]
fn the_first_answers_of_one_that_is_alone_leave_while_the_others_are_made() {
    run(async {
        let answered = Rc::new(Cell::new(0));
        let (socket, mut peer) = sockets();
        peer.write_all(&numbers(128)).unwrap();
        let on_frame = {
            let answered = answered.clone();
            move |connection: &Connection, number: u64| {
                connection.send(&number.to_le_bytes()).unwrap();
                if number == 100 {
                    answered.set(101 - connection.queued() / FRAME);
                }
            }
        };
        let frames = Frames::new(on_frame);
        let connection = Connection::open(socket, options(|_| {}), frames).unwrap();
        while answered.get() == 0 {
            yield_now().await;
        }
        // At the least, since they leave as well when their turn has taken its time: on a machine that is stopped meanwhile.
        assert!(answered.get() >= 64, "{} answers had left when the hundredth was made", answered.get());
        connection.close();
    });
}

#[test]
fn a_paused_connection_decodes_no_frame_until_it_goes_on() {
    run(async {
        let seen = Rc::new(Cell::new(0));
        let (connection, mut peer, ended) = open(options(|_| {}), {
            let seen = seen.clone();
            move |connection, number| {
                seen.set(number + 1);
                if number % 1000 == 10 {
                    connection.pause_receive();
                }
            }
        });
        peer.write_all(&numbers(5000)).unwrap();
        // The end comes behind what is deferred.
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        for stop in [11, 1011, 2011, 3011, 4011] {
            while seen.get() < stop {
                yield_now().await;
            }
            some_ticks(3).await;
            assert_eq!((seen.get(), ended.get()), (stop, None));
            assert!(connection.is_open());
            connection.resume_receive();
        }
        while ended.get().is_none() {
            yield_now().await;
        }
        assert_eq!((seen.get(), ended.get()), (5000, Some(5000)));
        connection.close();
    });
}

#[test]
fn the_end_is_told_when_a_pause_by_the_last_frame_is_over() {
    run(async {
        let (connection, mut peer, ended) = open(options(|_| {}), |connection, number| {
            if number == 10 || number == 4999 {
                connection.pause_receive();
            }
        });
        peer.write_all(&numbers(5000)).unwrap();
        drop(peer);
        while connection.deferred() == 0 {
            yield_now().await;
        }
        for _ in 0..2 {
            some_ticks(5).await;
            assert_eq!(ended.get(), None);
            connection.resume_receive();
        }
        while ended.get().is_none() {
            yield_now().await;
        }
        assert_eq!(ended.get(), Some(5000));
        connection.close();
    });
}

#[test]
fn no_frame_is_decoded_while_the_peer_leaves_answers_unread() {
    run(async {
        let small = options(|options| (options.high_water, options.low_water) = (64 * 1024, 1024));
        let seen = Rc::new(Cell::new(0_u64));
        let over = Rc::new(Cell::new(0_u64));
        let (connection, mut peer, _) = open(small, {
            let (seen, over) = (seen.clone(), over.clone());
            move |connection, number| {
                if connection.queued() >= 64 * 1024 {
                    over.set(over.get() + 1);
                }
                seen.set(number + 1);
                connection.send(&[7; 32 * 1024]).unwrap();
            }
        });
        peer.write_all(&numbers(2000)).unwrap();
        while connection.queued() < 64 * 1024 {
            yield_now().await;
        }
        some_ticks(5).await;
        assert!(seen.get() < 2000, "the peer's buffers take all the answers: nothing is shown");
        assert!(connection.deferred() > 0);
        let (socket, got) = off_worker(move || {
            let mut answers = vec![0; 2000 * 32 * 1024];
            peer.read_exact(&mut answers).unwrap();
            (peer, answers.len())
        })
        .await;
        assert_eq!((seen.get(), got), (2000, 2000 * 32 * 1024));
        assert_eq!(over.get(), 0, "a frame was decoded over the high-water mark");
        assert_eq!(connection.deferred(), 0);
        drop(socket);
        connection.close();
    });
}

#[test]
fn what_waits_for_its_turn_is_little() {
    run(async {
        let (paused, peer, _) = open(options(|_| {}), |connection, number| {
            if number == 100_000 {
                connection.pause_receive();
            }
        });
        flood(peer);
        let mut most = 0;
        for _ in 0..200 {
            yield_now().await;
            most = most.max(paused.deferred());
        }
        some_ticks(20).await;
        most = most.max(paused.deferred());
        paused.abort(CloseReason::Local);
        assert!(most <= 4 << 20, "{most} bytes wait for one connection");
    });
}

#[test]
fn a_close_drops_what_is_deferred() {
    run(async {
        let seen = Rc::new(Cell::new(0));
        let (connection, mut peer, ended) = open(options(|_| {}), {
            let seen = seen.clone();
            move |connection, number| {
                seen.set(number + 1);
                if number == 10 {
                    connection.close();
                }
            }
        });
        peer.write_all(&numbers(5000)).unwrap();
        let mut end = Vec::new();
        off_worker(move || drop(peer.read_to_end(&mut end))).await;
        assert_eq!((seen.get(), ended.get(), connection.deferred()), (11, None, 0));
    });
}

#[test]
fn futures_of_aborted_tasks_do_not_pile_up() {
    struct Live(Rc<Cell<usize>>);
    impl Drop for Live {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    run(async {
        let (live, most, seen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (connection, mut peer, _) = open(options(|_| {}), {
            let (live, most, seen) = (live.clone(), most.clone(), seen.clone());
            move |_, number| {
                live.set(live.get() + 1);
                most.set(most.get().max(live.get()));
                seen.set(number + 1);
                let held = Live(live.clone());
                let task = spawn_local(async move {
                    std::future::pending::<()>().await;
                    drop(held);
                });
                task.abort();
            }
        });
        peer.write_all(&numbers(20_000)).unwrap();
        while seen.get() < 20_000 {
            yield_now().await;
        }
        yield_now().await;
        assert_eq!(live.get(), 0);
        assert!(most.get() <= 700, "{} futures of aborted tasks were held at once", most.get());
        connection.close();
    });
}
