//! The server side of the baseline.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, listen, sockopt};

use super::HOT_BUFFER;
use super::poll::{Moved, Poll, address, receive, transmit};
use crate::args::{BaselineServeArgs, ServeKind};
use crate::control::{Traffic, attend_server};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::system;

const LISTENER: u64 = u64::MAX;
const BACKLOG: i32 = 4096;
/// What is only counted is received in smaller pieces: the sender goes on while a piece is copied.
const SINK_BUFFER: usize = 128 * 1024;
/// What is shorter is copied to a buffer of its own before it is sent back, as in the library; what is longer is sent from
/// where it was received.
const COPIED_MAX: usize = 16 * 1024;

/// Serves until standard input says `stop` or ends; without `--control`, until the process is killed.
pub(crate) fn serve(args: &BaselineServeArgs) -> Result<(), Failure> {
    let listener = bind(&args.listen)?;
    let local = listener.local_addr().map_err(Failure::io("cannot read the listening address"))?;
    let traffic = Arc::new(Traffic::default());
    let (cpu, kind, exchange) = (args.cpus.0.first().copied(), args.kind, args.exchange);
    let counters = Arc::clone(&traffic);
    let thread = std::thread::spawn(move || {
        if let Some(cpu) = cpu {
            system::pin_to(cpu)?;
        }
        Server::new(listener.into(), kind, exchange, counters)?.run()
    });
    println!("listening on tcp://{local}");
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    if args.control {
        let watch = Arc::clone(&traffic);
        std::thread::spawn(move || {
            // The loop ends only by a failure; the benchmark then finds it on standard error.
            if let Ok(Err(failure)) = thread.join() {
                eprintln!("corewire: {failure}");
            }
            std::process::exit(1);
        });
        attend_server("baseline", |snapshot| watch.add_to(snapshot))
    } else {
        thread.join().map_err(|_| Failure::Library("the server thread panicked".into()))?
    }
}

fn bind(uri: &str) -> Result<TcpListener, Failure> {
    let listener =
        TcpListener::bind(address(uri)?).map_err(Failure::io(format!("cannot listen on {uri}")))?;
    listen(&listener, BACKLOG).map_err(Failure::io("cannot set the backlog"))?;
    listener.set_nonblocking(true).map_err(Failure::io("cannot set up the listener"))?;
    Ok(listener)
}

struct Server {
    poll: Poll,
    listener: OwnedFd,
    echo: bool,
    /// What is sent back, if not what was received.
    exchange: Option<Exchange>,
    hot: Vec<u8>,
    /// What is sent.
    payload: Vec<u8>,
    connections: Vec<Option<Connection>>,
    vacant: Vec<usize>,
    traffic: Arc<Traffic>,
}

struct Connection {
    fd: OwnedFd,
    /// What a send did not take; empty in all but the heaviest loads.
    left: VecDeque<u8>,
    /// With [`Exchange`]: bytes received, and bytes to send.
    received: u64,
    owed: u64,
}

impl Server {
    fn new(
        listener: OwnedFd,
        kind: ServeKind,
        exchange: Option<Exchange>,
        traffic: Arc<Traffic>,
    ) -> Result<Self, Failure> {
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER, EventFlags::IN)?;
        let echo = kind.is_echo();
        Ok(Self {
            poll,
            listener,
            echo,
            exchange,
            hot: vec![0; if echo { HOT_BUFFER } else { SINK_BUFFER }],
            payload: vec![0x5a; HOT_BUFFER],
            connections: vec![],
            vacant: vec![],
            traffic,
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        loop {
            for at in 0..self.poll.wait()? {
                let (token, flags) = self.poll.event(at);
                if token == LISTENER {
                    self.accept()?;
                    continue;
                }
                let slot = token as usize;
                if flags.contains(EventFlags::OUT) {
                    self.on_writable(slot)?;
                } else {
                    self.on_readable(slot)?;
                }
            }
        }
    }

    fn accept(&mut self) -> Result<(), Failure> {
        loop {
            let fd = match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => return Err(Failure::io("cannot accept a connection")(error)),
            };
            sockopt::set_tcp_nodelay(&fd, true).map_err(Failure::io("cannot set TCP_NODELAY"))?;
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.add(&fd, slot as u64, EventFlags::IN)?;
            self.connections[slot] = Some(Connection { fd, left: VecDeque::new(), received: 0, owed: 0 });
            self.traffic.sessions.add(1);
        }
    }

    #[inline]
    fn on_readable(&mut self, slot: usize) -> Result<(), Failure> {
        let Some(connection) = &mut self.connections[slot] else { return Ok(()) };
        let received = match receive(&connection.fd, &mut self.hot) {
            Moved::Bytes(bytes) => bytes,
            Moved::NotNow => return Ok(()),
            Moved::Closed => return self.close(slot),
        };
        self.traffic.recv_calls.add(1);
        self.traffic.recv_bytes.add(received as u64);
        if !self.echo {
            return Ok(());
        }
        if let Some(exchange) = &self.exchange {
            let due = exchange.due(connection.received);
            connection.received += received as u64;
            connection.owed += exchange.due(connection.received) - due;
            return self.pay(slot, false);
        }
        let reply = if received < COPIED_MAX {
            self.payload[..received].copy_from_slice(&self.hot[..received]);
            &self.payload[..received]
        } else {
            &self.hot[..received]
        };
        let sent = match transmit(&connection.fd, reply) {
            Moved::Bytes(sent) => sent,
            Moved::NotNow => 0,
            Moved::Closed => return self.close(slot),
        };
        self.traffic.send_calls.add(1);
        self.traffic.sent_bytes.add(sent as u64);
        if sent < received {
            connection.left.extend(&self.hot[sent..received]);
            // Reading goes on when the peer has taken these, which bounds what is kept for it.
            self.poll.change(&connection.fd, slot as u64, EventFlags::OUT)?;
        }
        Ok(())
    }

    /// Sends what is owed, all of it in one call where the kernel takes it.
    #[inline]
    fn pay(&mut self, slot: usize, was_blocked: bool) -> Result<(), Failure> {
        let Some(connection) = &mut self.connections[slot] else { return Ok(()) };
        while connection.owed > 0 {
            let bytes = self.payload.len().min(usize::try_from(connection.owed).unwrap_or(usize::MAX));
            match transmit(&connection.fd, &self.payload[..bytes]) {
                Moved::Bytes(sent) => {
                    connection.owed -= sent as u64;
                    self.traffic.send_calls.add(1);
                    self.traffic.sent_bytes.add(sent as u64);
                    if sent < bytes {
                        break;
                    }
                }
                Moved::NotNow => break,
                Moved::Closed => return self.close(slot),
            }
        }
        let is_blocked = connection.owed > 0;
        if is_blocked != was_blocked {
            // Reading goes on when the peer has taken these.
            let flags = if is_blocked { EventFlags::OUT } else { EventFlags::IN };
            self.poll.change(&connection.fd, slot as u64, flags)?;
        }
        Ok(())
    }

    fn on_writable(&mut self, slot: usize) -> Result<(), Failure> {
        if self.exchange.is_some() {
            return self.pay(slot, true);
        }
        let Some(connection) = &mut self.connections[slot] else { return Ok(()) };
        while !connection.left.is_empty() {
            match transmit(&connection.fd, connection.left.as_slices().0) {
                Moved::Bytes(sent) => {
                    connection.left.drain(..sent);
                    self.traffic.send_calls.add(1);
                    self.traffic.sent_bytes.add(sent as u64);
                }
                Moved::NotNow => return Ok(()),
                Moved::Closed => return self.close(slot),
            }
        }
        self.poll.change(&connection.fd, slot as u64, EventFlags::IN)
    }

    fn close(&mut self, slot: usize) -> Result<(), Failure> {
        if self.connections[slot].take().is_some() {
            self.vacant.push(slot);
            self.traffic.sessions.subtract(1);
        }
        Ok(())
    }
}
