//! A worker's datagram sockets: calling their protocols, sending what is queued, ending them.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use corewire_driver::udp::{Flushed, RecvBatch, SendBatch, UdpError, UdpOptions};
use corewire_driver::{Socket, Token};

use super::port::{UdpPort, UdpProtocol};
use crate::conn::{ConnId, WaiterKey, Waiters};
use crate::panic::guarded;
use crate::stats::Counters;
use crate::timer_wheel::TimerKey;
use crate::worker::{Core, Meter, TimerAction};

/// Batches that one socket receives in a tick, at the most.
const BATCHES_MAX: usize = 4;
/// Bytes queued at which they leave at once, while they are in cache.
const FLUSH_BYTES: usize = 128 * 1024;

/// The datagram side of a worker. Everything is behind a cell of its own, and no cell is held while user code runs.
#[derive(Default)]
pub(crate) struct UdpSockets {
    sockets: RefCell<Vec<Option<Box<SocketState>>>>,
    live: Cell<usize>,
    /// Sockets with something to send, to tell or to end.
    dirty: RefCell<Vec<Token>>,
    /// Takes the place of that list while it is gone through.
    spare: RefCell<Vec<Token>>,
    /// Sockets that have more to receive, in the next tick.
    again: RefCell<Vec<Token>>,
    /// Where sockets with a protocol receive; one for all, so that it stays in cache.
    batch: RefCell<Option<RecvBatch>>,
}

pub(crate) struct SocketState {
    token: Token,
    mode: Mode,
    pub(super) out: SendBatch,
    dirty: bool,
    wants_flush: bool,
    reads_again: bool,
    pub(super) blocked: bool,
    was_blocked: bool,
    pub(super) closing: bool,
    pub(super) drops: u32,
    timer: Option<TimerKey>,
    error: Option<UdpError>,
    /// Connections that wait for the queue to fall.
    followers: Vec<ConnId>,
}

/// Who uses a socket.
pub(super) enum Mode {
    /// A protocol; absent while it is being called.
    Push(Option<Box<dyn UdpProtocol>>),
    /// Tasks that wait to receive, and to send.
    Pull { readers: Waiters, writers: Waiters },
}

impl UdpSockets {
    pub(super) fn with<R>(&self, token: Token, look: impl FnOnce(&mut SocketState) -> R) -> Option<R> {
        let mut sockets = self.sockets.borrow_mut();
        let sock = sockets.get_mut(token.index())?.as_deref_mut().filter(|sock| sock.token == token)?;
        Some(look(sock))
    }

    fn list(&self, sock: &mut SocketState) {
        if !std::mem::replace(&mut sock.dirty, true) {
            self.dirty.borrow_mut().push(sock.token);
        }
    }

    /// Bytes that wait to leave a socket.
    #[inline]
    pub(crate) fn queued(&self, token: Token) -> usize {
        self.with(token, |sock| sock.out.queued()).unwrap_or(0)
    }

    /// Bytes that wait to leave any of them.
    pub(crate) fn queued_on_all(&self) -> usize {
        self.sockets.borrow().iter().flatten().map(|sock| sock.out.queued()).sum()
    }

    /// Has `Core::socket_flushed` called for a connection when the queue of a socket has fallen.
    pub(crate) fn follow(&self, token: Token, id: ConnId) {
        self.with(token, |sock| sock.followers.push(id));
    }

    pub(crate) fn request_flush(&self, token: Token) {
        self.with(token, |sock| {
            sock.wants_flush = true;
            self.list(sock);
        });
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }

    /// Looks at those who wait to receive, or to send.
    pub(super) fn with_waiters<R>(
        &self,
        token: Token,
        to_send: bool,
        look: impl FnOnce(&mut Waiters) -> R,
    ) -> Option<R> {
        self.with(token, |sock| match &mut sock.mode {
            Mode::Pull { readers, writers } => Some(look(if to_send { writers } else { readers })),
            Mode::Push(_) => None,
        })?
    }

    pub(crate) fn remove_waiter(&self, token: Token, to_send: bool, key: WaiterKey) -> Option<Waker> {
        self.with_waiters(token, to_send, |waiters| waiters.remove(key))?
    }
}

impl Core {
    pub(super) fn add_udp(&self, socket: Socket, options: &UdpOptions, mode: Mode) -> io::Result<Token> {
        let token = self.driver.borrow_mut().add_datagram(socket)?;
        let sock = SocketState {
            token,
            mode,
            out: SendBatch::new(options.segment),
            dirty: false,
            wants_flush: false,
            reads_again: false,
            blocked: false,
            was_blocked: false,
            closing: false,
            drops: 0,
            timer: None,
            error: None,
            followers: Vec::new(),
        };
        let mut sockets = self.udp.sockets.borrow_mut();
        if token.index() >= sockets.len() {
            sockets.resize_with(token.index() + 1, || None);
        }
        sockets[token.index()] = Some(Box::new(sock));
        self.udp.live.set(self.udp.live.get() + 1);
        Ok(token)
    }

    /// Calls the protocol of a socket; a panic closes it. Gives whether there was one to call.
    fn call_udp(self: &Rc<Self>, token: Token, call: impl FnOnce(&mut dyn UdpProtocol, &UdpPort)) -> bool {
        let taken = self.udp.with(token, |sock| match &mut sock.mode {
            Mode::Push(protocol) => protocol.take(),
            Mode::Pull { .. } => None,
        });
        let Some(Some(mut protocol)) = taken else { return false };
        let port = UdpPort { core: self.clone(), token };
        let outcome = guarded(|| call(&mut *protocol, &port));
        self.udp.with(token, |sock| {
            sock.mode = Mode::Push(Some(protocol));
            if outcome.is_err() {
                sock.closing = true;
                self.udp.list(sock);
            }
        });
        if let Err(message) = &outcome {
            self.note_panic(message);
        }
        outcome.is_ok()
    }

    pub(crate) fn udp_readable(self: &Rc<Self>, token: Token) {
        let is_push = self.udp.with(token, |sock| match &mut sock.mode {
            Mode::Pull { readers, .. } => {
                readers.take_into(&mut self.senders.woken.borrow_mut());
                false
            }
            // One that has used its quota is told again in the next tick.
            Mode::Push(_) => !sock.reads_again,
        });
        if is_push == Some(true) {
            let mut batch = self.udp.batch.take().unwrap_or_default();
            self.receive_udp(token, &mut batch);
            self.udp.batch.replace(Some(batch));
        }
    }

    fn receive_udp(self: &Rc<Self>, token: Token, batch: &mut RecvBatch) {
        let mut meter = Meter::new();
        for _ in 0..BATCHES_MAX {
            if meter.look() {
                break;
            }
            if self.udp.with(token, |sock| sock.closing) != Some(false) {
                return;
            }
            let received = self.driver.borrow().socket(token).map(|socket| batch.recv(socket));
            match received {
                None => return,
                Some(Ok(_)) => {
                    if let Some(drops) = batch.drops() {
                        self.udp.with(token, |sock| sock.drops = drops);
                    }
                    self.hand_over(token, batch);
                    if !batch.is_full() {
                        return;
                    }
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
                Some(Err(error)) => {
                    self.call_udp(token, |protocol, port| protocol.on_error(port, error.into()));
                }
            }
        }
        // A tick is bounded: what else came has its turn first.
        self.udp.with(token, |sock| sock.reads_again = true);
        self.udp.again.borrow_mut().push(token);
    }

    fn hand_over(self: &Rc<Self>, token: Token, batch: &RecvBatch) {
        let (mut count, mut bytes) = (0, 0);
        // What is sent back from where it was received is not copied.
        self.udp.with(token, |sock| sock.out.lend(batch.memory().clone()));
        self.call_udp(token, |protocol, port| {
            for run in batch.runs() {
                count += run.count() as u64;
                bytes += run.payload().len() as u64;
                protocol.on_run(port, &run);
            }
            protocol.on_batch(port);
        });
        self.udp.with(token, |sock| {
            if sock.out.uses_lent() {
                self.flush_socket(sock);
            }
            sock.out.unlend();
        });
        Counters::add(&self.counters.receives, 1);
        Counters::add(&self.counters.datagrams_received, count);
        Counters::add(&self.counters.received_bytes, bytes);
    }

    pub(crate) fn udp_writable(self: &Rc<Self>, token: Token) {
        self.udp.with(token, |sock| {
            sock.blocked = false;
            if !sock.out.is_empty() {
                self.udp.list(sock);
            }
            if let Mode::Pull { writers, .. } = &mut sock.mode {
                writers.take_into(&mut self.senders.woken.borrow_mut());
            }
        });
    }

    pub(crate) fn udp_timer(self: &Rc<Self>, token: Token) {
        if self.udp.with(token, |sock| sock.timer = None).is_some() {
            self.call_udp(token, |protocol, port| protocol.on_timer(port));
        }
    }

    pub(super) fn set_udp_timer(&self, token: Token, delay: Option<Duration>) {
        self.udp.with(token, |sock| {
            if let Some(key) = sock.timer.take() {
                self.timers.cancel(key);
            }
            sock.timer = delay.map(|delay| self.timers.add(delay, TimerAction::Udp(token)));
        });
    }

    #[inline]
    pub(crate) fn udp_send<R>(
        &self,
        token: Token,
        push: impl FnOnce(&mut SendBatch) -> Result<R, UdpError>,
    ) -> Result<R, UdpError> {
        let pushed = self.udp.with(token, |sock| {
            if sock.closing {
                return Err(UdpError::Closed);
            }
            let pushed = push(&mut sock.out)?;
            self.udp.list(sock);
            if sock.out.queued() >= FLUSH_BYTES && !sock.blocked {
                self.flush_socket(sock);
            }
            Ok(pushed)
        });
        pushed.unwrap_or(Err(UdpError::Closed))
    }

    /// Sends what is queued; what the kernel refuses is kept to be told when no protocol is being called.
    fn flush_socket(&self, sock: &mut SocketState) {
        while !sock.out.is_empty() && !sock.blocked {
            let flushed = self.driver.borrow().socket(sock.token).map(|socket| sock.out.flush(socket));
            let Some(flushed) = flushed else { return };
            self.count_sent(&flushed);
            if flushed.is_blocked {
                (sock.blocked, sock.was_blocked) = (true, true);
                if let Err(error) = self.driver.borrow_mut().set_write_interest(sock.token) {
                    tracing::error!(%error, "a datagram socket cannot be watched for room to send");
                }
            }
            if let Some(error) = flushed.error {
                tracing::debug!(%error, "a datagram was refused");
                sock.error.get_or_insert(error);
            }
        }
    }

    pub(super) fn count_sent(&self, flushed: &Flushed) {
        Counters::add(&self.counters.sends, flushed.calls as u64);
        Counters::add(&self.counters.sent_bytes, flushed.bytes as u64);
        Counters::add(&self.counters.datagrams_sent, flushed.datagrams as u64);
        Counters::add(&self.counters.datagrams_refused, flushed.refused as u64);
    }

    /// At the end of a tick: sends what is queued, tells errors, ends what is to end.
    pub(crate) fn flush_udp(self: &Rc<Self>) {
        for token in self.udp.again.borrow_mut().drain(..) {
            self.udp.with(token, |sock| sock.reads_again = false);
            self.driver.borrow_mut().read_again(token);
        }
        if self.udp.dirty.borrow().is_empty() {
            return;
        }
        let mut dirty = self.udp.dirty.replace(self.udp.spare.take());
        for token in dirty.drain(..) {
            let wants_flush = self.udp.with(token, |sock| {
                // First: what is asked for meanwhile is for the next tick.
                sock.dirty = false;
                std::mem::take(&mut sock.wants_flush)
            });
            if wants_flush == Some(true) {
                self.call_udp(token, |protocol, port| protocol.on_flush(port));
            }
            let told = self.udp.with(token, |sock| {
                self.flush_socket(sock);
                let drained = sock.was_blocked && sock.out.is_empty();
                sock.was_blocked &= !drained;
                (sock.error.take(), drained, sock.closing, std::mem::take(&mut sock.followers))
            });
            let Some((error, drained, closing, followers)) = told else { continue };
            followers.into_iter().for_each(|id| self.socket_flushed(id));
            if let Some(error) = error {
                self.call_udp(token, |protocol, port| protocol.on_error(port, error));
            }
            if drained {
                self.call_udp(token, |protocol, port| protocol.on_drained(port));
            }
            if closing {
                self.end_socket(token);
            }
        }
        self.udp.spare.replace(dirty);
    }

    pub(crate) fn close_udp(&self, token: Token) {
        self.udp.with(token, |sock| {
            sock.closing = true;
            self.udp.list(sock);
        });
    }

    fn end_socket(self: &Rc<Self>, token: Token) {
        self.call_udp(token, |protocol, port| protocol.on_closed(port));
        let taken = {
            let mut sockets = self.udp.sockets.borrow_mut();
            sockets.get_mut(token.index()).and_then(|slot| slot.take_if(|sock| sock.token == token))
        };
        let Some(mut sock) = taken else { return };
        self.udp.live.set(self.udp.live.get() - 1);
        drop(self.driver.borrow_mut().close(token));
        if let Some(key) = sock.timer.take() {
            self.timers.cancel(key);
        }
        let lost = sock.out.clear();
        if lost > 0 {
            Counters::add(&self.counters.datagrams_refused, lost as u64);
        }
        match sock.mode {
            Mode::Push(protocol) => self.guard(|| drop(protocol)),
            Mode::Pull { mut readers, mut writers } => {
                let woken = &mut *self.senders.woken.borrow_mut();
                readers.take_into(woken);
                writers.take_into(woken);
            }
        }
    }

    /// The worker ends, and all datagram sockets with it.
    pub(crate) fn close_all_udp(self: &Rc<Self>) {
        let tokens: Vec<_> = self.udp.sockets.borrow().iter().flatten().map(|sock| sock.token).collect();
        tokens.into_iter().for_each(|token| self.end_socket(token));
        self.reap_closed();
    }
}
