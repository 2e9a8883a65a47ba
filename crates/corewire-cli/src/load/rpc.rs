//! RPC calls of every mode, and streams.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use corewire::spawn_local;
use corewire_rpc::{Bytes, Channel, MethodPath, Status, UnaryCall, Version};

use super::open::Open;
use super::tally::Tally;
use super::worker_state::{WorkerState, share};
use crate::args::{CallMode, LoadArgs, LoadKind};
use crate::failure::Failure;
use crate::pattern::{Pattern, Probe};
use crate::system::monotonic_ns;

/// A channel of one connection that stands.
pub(super) async fn connect(args: &LoadArgs) -> Result<Channel, Failure> {
    let version = if args.wire == 1 { Version::V1 } else { Version::V2 };
    let channel = Channel::to(args.tls.apply(&args.target)?).protocol(version).fail_fast().build();
    let channel = channel.map_err(|error| Failure::Library(error.to_string()))?;
    // A channel connects when it is first used.
    let answer = channel.unary("BenchEchoService/echo", "ready?").await;
    answer.map_err(|status| Failure::Library(status.to_string()))?;
    Ok(channel)
}

/// Starts the tasks that call until the phase or the budget ends.
pub(super) fn start(state: &Rc<WorkerState>, channel: &Channel, index: usize, open: Option<&Rc<Open>>) {
    let args = &state.args;
    let places = match args.kind {
        LoadKind::Stream => args.streams as u64,
        // Those of an open load wait for their time one by one.
        _ if open.is_some() && args.mode != CallMode::Unary => args.depth as u64,
        _ => 1,
    };
    let left = Rc::new(Cell::new(places));
    for place in 0..places {
        let (state, channel, left) = (Rc::clone(state), channel.clone(), Rc::clone(&left));
        let open = open.cloned();
        drop(spawn_local(async move {
            let mut connection = EchoConnection::new(&state, &channel, index);
            connection.budget = share(connection.budget, places, place);
            if let Err(status) = connection.run(open.as_deref()).await {
                state.shared.error(|| format!("connection {index}: {status}"));
            }
            left.set(left.get() - 1);
            if left.get() == 0 {
                state.shared.finished();
            }
        }));
    }
}

/// What calls say: more than a connection has in flight, so that a reply that went to the wrong call is told by its
/// content. All connections of a worker share them, as the baseline sends everything from one place.
pub(super) fn payloads(depth: usize, size: usize) -> Rc<[Bytes]> {
    let mut pattern = Pattern::new(size);
    (0..=depth as u64).map(|at| Bytes::copy_from_slice(pattern.message(at))).collect()
}

/// Replies up to this size are compared whole; of larger ones every 16th is, and of the others the ends.
const COMPARED_MAX: usize = 4096;

fn is_compared(number: u64, size: usize) -> bool {
    size <= COMPARED_MAX || number.is_multiple_of(16)
}

/// Whether length and both ends agree; the front tells which message it is.
fn is_alike(reply: &[u8], message: &[u8]) -> bool {
    const END: usize = 64;
    reply.len() == message.len()
        && reply[..END] == message[..END]
        && reply[reply.len() - END..] == message[message.len() - END..]
}

/// The calls of one connection.
struct EchoConnection<'a> {
    state: &'a WorkerState,
    channel: &'a Channel,
    path: MethodPath,
    /// Of the payloads, the one of its first message: neighbours begin with different ones.
    first: usize,
    budget: u64,
}

impl<'a> EchoConnection<'a> {
    fn new(state: &'a WorkerState, channel: &'a Channel, index: usize) -> Self {
        let args = &state.args;
        let service = if args.kind == LoadKind::Stream { "StreamBenchService" } else { "BenchEchoService" };
        let path = MethodPath::new(service, "echo").unwrap_or_else(|_| unreachable!("the names are short"));
        Self { state, channel, path, first: index, budget: state.budget(index).unwrap_or(u64::MAX) }
    }

    /// Calls until the phase or the budget ends; `open` says when calls are due, where it is not when others are back.
    async fn run(&self, open: Option<&Open>) -> Result<(), Status> {
        match (self.state.args.kind, self.state.args.mode, open) {
            (LoadKind::Stream, ..) => self.streams().await,
            (_, CallMode::Unary, _) => self.unary(open).await,
            (_, _, None) => self.modes().await,
            (_, _, Some(open)) => self.mode_calls_when_due(open).await,
        }
    }

    #[inline]
    fn message(&self, number: u64) -> &Bytes {
        let payloads = &self.state.payloads;
        &payloads[((number + self.first as u64) % payloads.len() as u64) as usize]
    }

    #[inline]
    fn sent(&self) {
        self.state.traffic().in_flight.add(1);
    }

    #[inline]
    fn received(&self, number: u64, reply: &Bytes) {
        let traffic = self.state.traffic();
        traffic.in_flight.subtract(1);
        traffic.messages.add(1);
        let message = self.message(number);
        let is_same =
            if is_compared(number, message.len()) { reply == message } else { is_alike(reply, message) };
        if !is_same {
            self.state.shared.error(|| format!("message {number} got another reply"));
        }
    }

    /// The oldest call first: the server answers in order.
    async fn unary(&self, open: Option<&Open>) -> Result<(), Status> {
        let depth = self.state.args.depth;
        let mut calls: VecDeque<UnaryCall> = VecDeque::with_capacity(depth);
        let (mut sent, mut back) = (0, 0);
        let mut probe = Probe::new(depth);
        poll_fn(|context| {
            loop {
                let mut may_come = false;
                while calls.len() < depth && sent < self.budget && self.state.may_send() {
                    if let Some(open) = open {
                        let due = open.poll_take(self.state, context);
                        may_come = due.is_pending();
                        let Poll::Ready(Some(_)) = due else { break };
                    } else {
                        probe.sending(sent, sent + 1, monotonic_ns);
                    }
                    self.sent();
                    let mut call = self.channel.unary(&self.path, self.message(sent).clone());
                    sent += 1;
                    // A call begins when it is first polled.
                    if let Poll::Ready(ended) = Pin::new(&mut call).poll(context) {
                        self.state.traffic().in_flight.subtract(1);
                        return Poll::Ready(ended.map(|_| ()));
                    }
                    calls.push_back(call);
                }
                let Some(oldest) = calls.front_mut() else {
                    return if may_come { Poll::Pending } else { Poll::Ready(Ok(())) };
                };
                let Poll::Ready(reply) = Pin::new(oldest).poll(context) else { return Poll::Pending };
                calls.pop_front();
                self.received(back, &reply?);
                if let Some(open) = open {
                    open.record(self.state, back);
                }
                back += 1;
                if let Some(nanoseconds) = probe.received(back, monotonic_ns) {
                    self.state.record(nanoseconds);
                }
            }
        })
        .await
    }

    /// `depth` calls at a time, one after the other in each place.
    async fn modes(&self) -> Result<(), Status> {
        let mut probe = (0..self.state.args.depth).map(|at| self.mode_calls(at)).collect::<Vec<_>>();
        let mut places: Vec<_> = probe.drain(..).map(Box::pin).collect();
        poll_fn(|context| poll_all(&mut places, context)).await
    }

    async fn mode_calls(&self, place: usize) -> Result<(), Status> {
        let depth = self.state.args.depth;
        let share = share(self.budget, depth as u64, place as u64);
        let mut probe = Probe::new(depth);
        for number in 0..share {
            if !self.state.may_send() {
                break;
            }
            probe.sending(number, number + 1, monotonic_ns);
            let reply = self.mode_call(number).await?;
            self.received(number, &reply);
            if let Some(nanoseconds) = probe.received(number + 1, monotonic_ns) {
                self.state.record(nanoseconds);
            }
        }
        Ok(())
    }

    async fn mode_calls_when_due(&self, open: &Open) -> Result<(), Status> {
        while let Some(number) = open.take(self.state).await {
            let reply = self.mode_call(number).await?;
            self.received(number, &reply);
            open.record(self.state, number);
        }
        Ok(())
    }

    async fn mode_call(&self, number: u64) -> Result<Bytes, Status> {
        self.sent();
        let message = self.message(number).clone();
        match self.state.args.mode {
            CallMode::ClientStream => {
                let (sink, reply) =
                    self.channel.client_stream::<Bytes, Bytes>(&self.path).only(message).await?;
                drop(sink);
                reply.await
            }
            CallMode::ServerStream => {
                let mut replies = self.channel.server_stream::<Bytes, Bytes>(&self.path, message).await?;
                only(replies.next().await)
            }
            CallMode::Bidi => {
                let (sink, mut replies) = self.channel.bidi::<Bytes, Bytes>(&self.path).only(message).await?;
                drop(sink);
                only(replies.next().await)
            }
            CallMode::Unary => self.channel.unary(&self.path, message).await,
        }
    }

    /// One stream after the other, each of so many frames, of which `depth` are in flight.
    async fn streams(&self) -> Result<(), Status> {
        let tally = (self.state.args.streams > 1).then(|| self.state.tally());
        let frames = self.state.args.frames as u64;
        let mut probe = Probe::new(self.state.args.depth);
        let (mut left, mut frame) = (self.budget, 0);
        while left > 0 && self.state.may_send() {
            let count = frames.min(left);
            left -= count;
            let begun = monotonic_ns();
            // Between two frames nothing else may be in flight, and yet the stream is not at its end.
            self.state.traffic().in_flight.add(1);
            self.one_stream(frame, count, &mut probe, tally.as_deref()).await?;
            self.state.traffic().in_flight.subtract(1);
            frame += count;
            self.state.record_stream(monotonic_ns().saturating_sub(begun));
        }
        Ok(())
    }

    async fn one_stream(
        &self,
        first: u64,
        count: u64,
        probe: &mut Probe,
        tally: Option<&Tally>,
    ) -> Result<(), Status> {
        let depth = self.state.args.depth as u64;
        let (sink, mut replies) = self.channel.stream(&self.path).await?;
        let mut sink = Some(sink);
        let (mut sent, mut back) = (0, 0);
        while back < count {
            while sent < count && sent - back < depth {
                probe.sending(first + sent, first + sent + 1, monotonic_ns);
                self.sent();
                if let Some(sink) = &mut sink {
                    sink.send(self.message(sent).clone()).await?;
                }
                sent += 1;
            }
            if sent == count
                && let Some(sink) = sink.take()
            {
                sink.finish().await?;
            }
            self.received(back, &only(replies.next().await)?);
            back += 1;
            if let Some(nanoseconds) = probe.received(first + back, monotonic_ns) {
                self.state.record(nanoseconds);
            }
            if let Some(tally) = tally {
                tally.count(&self.state.shared);
            }
        }
        match replies.next().await {
            None => Ok(()),
            Some(Err(status)) => Err(status),
            Some(Ok(_)) => Err(Status::internal("a stream has more frames than were sent")),
        }
    }
}

fn only(reply: Option<Result<Bytes, Status>>) -> Result<Bytes, Status> {
    reply.unwrap_or_else(|| Err(Status::internal("the replies ended early")))
}

/// Polls those that are left; ready when all are, or with the first error.
fn poll_all<F: Future<Output = Result<(), Status>>>(
    places: &mut Vec<Pin<Box<F>>>,
    context: &mut Context<'_>,
) -> Poll<Result<(), Status>> {
    let mut failed = Ok(());
    places.retain_mut(|place| match place.as_mut().poll(context) {
        Poll::Pending => true,
        Poll::Ready(ended) => {
            if ended.is_err() {
                failed = ended;
            }
            false
        }
    });
    if failed.is_err() || places.is_empty() { Poll::Ready(failed) } else { Poll::Pending }
}
