//! The polite client: small requests that are due at equal distances in time, whether or not others are back.

use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use corewire::runtime::Runtime;
use corewire::{Bytes, CallError, LengthFieldCodec, NetClient, NetUri};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::frames::{is_polite_response, polite_number, polite_request, polite_response_bytes};
use super::plan::Protocol;
use super::{PoliteArgs, address};
use crate::failure::Failure;
use crate::percentiles::{Percentiles, latency};
use crate::system::{self, monotonic_ns};

/// How long answers may take beyond the end of the measurement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The latency of a datagram that was lost.
const DATAGRAM_TIMEOUT: Duration = Duration::from_millis(500);

/// What the polite client says at its end, as one JSON line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PoliteReport {
    /// Requests that were due within the measurement.
    pub(super) due: u64,
    /// Those of them that were answered before its end.
    pub(super) answered: u64,
    /// From when a request was due to its answer.
    pub(super) latency: Percentiles,
    /// From when a request was due to when it was sent: what of the latency is the measuring itself.
    pub(super) own_delay: Percentiles,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

/// Connects, waits for a line on standard input, measures and reports.
pub(crate) fn polite(args: &PoliteArgs) -> Result<(), Failure> {
    // It shares the core with greedy clients, and has no other priority than they: a higher one takes from the server,
    // where the system shares out processors by groups of processes (sessions, containers). It sleeps most of the time,
    // so it is let in soon after it wakes; how soon, it tells.
    if let Some(&cpu) = args.cpus.0.first() {
        system::pin_to(cpu)?;
    }
    let mut client = Client::connect(args)?;
    println!("ready");
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .map_err(Failure::io("cannot read a control line"))?;
    let report = measure(args, &mut client);
    let text = serde_json::to_string(&report).map_err(Failure::io("cannot write the report"))?;
    println!("{text}");
    Ok(())
}

/// Requests that are on their way, the oldest first, with the time at which each was due.
type InFlight = VecDeque<(u32, u64)>;

/// What sends requests and collects answers.
trait Exchange {
    fn send(&mut self, number: u32) -> Result<(), String>;
    /// Waits for answers for so long at most, and gives the numbers of the requests.
    fn wait(&mut self, timeout: Duration, answered: &mut Vec<u32>) -> Result<(), String>;
    /// How long an answer may take, if it may be lost.
    fn patience(&self) -> Option<Duration>;
}

fn measure(args: &PoliteArgs, client: &mut impl Exchange) -> PoliteReport {
    let begun = monotonic_ns();
    let measured_from = begun + nanoseconds(args.warmup);
    let end = measured_from + nanoseconds(args.duration);
    let due_at = |number: u32| begun + u64::from(number) * nanoseconds(args.period);
    let (mut latencies, mut own_delays) = (latency(), latency());
    let (mut in_flight, mut answered) = (InFlight::new(), Vec::new());
    let (mut report, mut next) = (PoliteReport::default(), 0);
    let result = loop {
        let now = monotonic_ns();
        let due = due_at(next);
        if due < end && due <= now {
            if due >= measured_from {
                report.due += 1;
                own_delays.saturating_record(now - due);
            }
            if let Err(error) = client.send(next) {
                break Err(format!("polite request {next}: {error}"));
            }
            in_flight.push_back((next, due));
            next += 1;
            continue;
        }
        if due >= end && in_flight.is_empty() {
            break Ok(());
        }
        let until = if due < end { due } else { end + nanoseconds(ANSWER_TIMEOUT) };
        if now >= until {
            break Err(format!("{} polite requests were never answered", in_flight.len()));
        }
        if let Err(error) =
            client.wait(Duration::from_nanos(until - now).min(DATAGRAM_TIMEOUT), &mut answered)
        {
            break Err(error);
        }
        let now = monotonic_ns();
        for number in answered.drain(..) {
            let Ok(at) = in_flight.binary_search_by_key(&number, |(number, _)| *number) else { continue };
            let Some((_, due)) = in_flight.remove(at) else { continue };
            if due >= measured_from {
                latencies.saturating_record(now - due);
                report.answered += u64::from(now <= end);
            }
        }
        let lost = |due: u64| client.patience().is_some_and(|patience| now - due > nanoseconds(patience));
        while let Some(&(_, due)) = in_flight.front().filter(|(_, due)| lost(*due)) {
            in_flight.pop_front();
            if due >= measured_from {
                latencies.saturating_record(now - due);
            }
        }
    };
    // What never came has waited until now.
    let now = monotonic_ns();
    let waiting = in_flight.iter().filter(|(_, due)| *due >= measured_from);
    waiting.for_each(|(_, due)| latencies.saturating_record(now - due));
    if let Err(error) = result {
        (report.errors, report.first_error) = (1, Some(error));
    }
    (report.latency, report.own_delay) = (Percentiles::of(&latencies), Percentiles::of(&own_delays));
    report
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One connection.
enum Client {
    Tcp { stream: TcpStream, protocol: Protocol, is_echo: bool, received: Vec<u8> },
    Udp(UdpSocket),
    Kcp { client: NetClient, calls: VecDeque<(u32, PoliteCall)>, _runtime: Runtime },
}

type PoliteCall = Pin<Box<dyn Future<Output = Result<Bytes, CallError>>>>;

impl Client {
    fn connect(args: &PoliteArgs) -> Result<Self, Failure> {
        match args.protocol {
            Protocol::Kcp => Self::connect_kcp(args),
            Protocol::Udp => {
                let target = address(&args.target)?;
                let local = crate::udp::any_for(target);
                let socket = UdpSocket::bind(local).map_err(Failure::io("cannot bind a socket"))?;
                socket.connect(target).map_err(Failure::io(format!("cannot reach {target}")))?;
                socket.set_nonblocking(true).map_err(Failure::io("cannot set up a socket"))?;
                Ok(Self::Udp(socket))
            }
            protocol => {
                let target = address(&args.target)?;
                let stream =
                    TcpStream::connect(target).map_err(Failure::io(format!("cannot connect to {target}")))?;
                stream.set_nodelay(true).map_err(Failure::io("cannot set TCP_NODELAY"))?;
                stream.set_nonblocking(true).map_err(Failure::io("cannot set up a connection"))?;
                Ok(Self::Tcp { stream, protocol, is_echo: args.echo, received: vec![] })
            }
        }
    }

    fn connect_kcp(args: &PoliteArgs) -> Result<Self, Failure> {
        let library = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
        let runtime = Runtime::builder().workers(1).cpus(args.cpus.0.clone()).name("polite");
        let runtime = runtime.build().map_err(|error| library(&error))?;
        let worker = runtime.handle().worker(0);
        let worker = worker.ok_or_else(|| Failure::Library("the worker has stopped".into()))?;
        let uri = NetUri::parse(&args.target).map_err(|error| library(&error))?;
        let client = uri.client().no_reconnect().worker(worker).codec(LengthFieldCodec::default);
        let client = client.request_timeout(args.duration + ANSWER_TIMEOUT).connect_blocking();
        let client = client.map_err(|error| library(&error))?;
        Ok(Self::Kcp { client, calls: VecDeque::new(), _runtime: runtime })
    }
}

impl Exchange for Client {
    fn send(&mut self, number: u32) -> Result<(), String> {
        match self {
            Self::Tcp { stream, protocol, .. } => {
                let request = polite_request(*protocol, number);
                // There is room for more than are ever in flight.
                stream.write_all(&request).map_err(|error| error.to_string())
            }
            Self::Udp(socket) => match socket.send(&polite_request(Protocol::Udp, number)) {
                // As good as lost.
                Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.to_string()),
                _ => Ok(()),
            },
            Self::Kcp { client, calls, .. } => {
                let (client, request) = (client.clone(), polite_request(Protocol::Kcp, number));
                let mut call: PoliteCall = Box::pin(async move { client.request(&request).await });
                // A call begins when it is first polled; the answer may be there before the next line.
                if let Poll::Ready(reply) = poll_here(&mut call) {
                    call = Box::pin(std::future::ready(reply));
                }
                calls.push_back((number, call));
                Ok(())
            }
        }
    }

    fn wait(&mut self, timeout: Duration, answered: &mut Vec<u32>) -> Result<(), String> {
        match self {
            Self::Tcp { stream, protocol, is_echo, received } => {
                if !is_readable(stream, timeout)? {
                    return Ok(());
                }
                let mut part = [0; 4096];
                match stream.read(&mut part) {
                    Ok(0) => return Err("the server closed the polite connection".into()),
                    Ok(read) => received.extend(&part[..read]),
                    Err(error) => return Err(error.to_string()),
                }
                let responses = received.chunks_exact(polite_response_bytes(*protocol));
                let rest = responses.remainder().len();
                for response in responses {
                    answered.push(number_of(*protocol, response, *is_echo)?);
                }
                received.drain(..received.len() - rest);
                Ok(())
            }
            Self::Udp(socket) => {
                if is_readable(socket, timeout)? {
                    let mut response = [0; 2048];
                    let length = socket.recv(&mut response).map_err(|error| error.to_string())?;
                    answered.push(number_of(Protocol::Udp, &response[..length], true)?);
                }
                Ok(())
            }
            Self::Kcp { calls, .. } => {
                // Replies come in order.
                let mut take = |answered: &mut Vec<u32>| {
                    while let Some((number, call)) = calls.front_mut() {
                        let Poll::Ready(reply) = poll_here(call) else { break };
                        let reply = reply.map_err(|error| format!("polite request {number}: {error}"))?;
                        answered.push(number_of(Protocol::Kcp, &reply, true)?);
                        calls.pop_front();
                    }
                    Ok::<_, String>(())
                };
                take(answered)?;
                if answered.is_empty() {
                    std::thread::park_timeout(timeout);
                    take(answered)?;
                }
                Ok(())
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        matches!(self, Self::Udp(_)).then_some(DATAGRAM_TIMEOUT)
    }
}

fn number_of(protocol: Protocol, response: &[u8], is_echo: bool) -> Result<u32, String> {
    let number = polite_number(protocol, response);
    number
        .filter(|number| is_polite_response(protocol, *number, response, is_echo))
        .ok_or_else(|| format!("the polite client got what is no answer: {response:?}"))
}

fn is_readable(socket: &impl std::os::fd::AsFd, timeout: Duration) -> Result<bool, String> {
    let timeout = Timespec::try_from(timeout).map_err(|error| error.to_string())?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls with a waker that ends a `park` of this thread.
fn poll_here<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::Cpus;

    /// Answers each request at once, but stalls once.
    struct Stalling {
        stall: Option<(u32, Duration)>,
        fails_at: Option<u32>,
        unanswered: Vec<u32>,
    }

    const PROMPT: Stalling = Stalling { stall: None, fails_at: None, unanswered: vec![] };

    impl Exchange for Stalling {
        fn send(&mut self, number: u32) -> Result<(), String> {
            self.unanswered.push(number);
            if self.fails_at == Some(number) { Err("gone".into()) } else { Ok(()) }
        }

        fn wait(&mut self, timeout: Duration, answered: &mut Vec<u32>) -> Result<(), String> {
            match self.stall {
                Some((number, length)) if self.unanswered.last().is_some_and(|last| *last >= number) => {
                    self.stall = None;
                    std::thread::sleep(length);
                }
                _ if self.unanswered.is_empty() => std::thread::sleep(timeout),
                _ => {}
            }
            answered.append(&mut self.unanswered);
            Ok(())
        }

        fn patience(&self) -> Option<Duration> {
            None
        }
    }

    fn args(warmup_ms: u64, duration_ms: u64) -> PoliteArgs {
        PoliteArgs {
            protocol: Protocol::Echo,
            target: String::new(),
            echo: false,
            warmup: Duration::from_millis(warmup_ms),
            duration: Duration::from_millis(duration_ms),
            period: Duration::from_millis(1),
            cpus: Cpus::default(),
        }
    }

    #[test]
    fn each_request_that_is_due_within_the_measurement_is_counted() {
        let report = measure(&args(5, 20), &mut { PROMPT });
        assert_eq!((report.due, report.errors), (20, 0));
        assert_eq!((report.latency.samples, report.own_delay.samples), (20, 20));
    }

    #[test]
    fn a_stall_is_in_the_latency_of_each_request_that_was_due_meanwhile() {
        let stall = Some((10, Duration::from_millis(60)));
        let report = measure(&args(0, 50), &mut Stalling { stall, ..PROMPT });
        assert_eq!((report.due, report.latency.samples), (50, 50));
        // Number 10 waited for the whole stall, those due after it ever less.
        assert!(report.latency.max_us >= 60_000.0 && report.latency.p50_us >= 10_000.0, "{report:?}");
        assert!(report.answered <= 11, "{report:?}");
    }

    #[test]
    fn an_error_ends_the_requests_and_is_told() {
        let report = measure(&args(0, 5), &mut Stalling { fails_at: Some(0), ..PROMPT });
        assert_eq!((report.due, report.answered, report.errors), (1, 0, 1));
        assert_eq!(report.first_error.as_deref(), Some("polite request 0: gone"));
    }
}
