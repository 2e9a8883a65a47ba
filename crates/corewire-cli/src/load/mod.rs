//! `corewire load`: makes load for any server that echoes or swallows what it is sent.

mod calls;
mod connect;
mod echo;
mod flow;
mod one_way;
mod open;
mod rpc;
mod schedule;
mod tally;
mod worker_state;
mod workers;

use crate::args::{CallMode, LoadArgs, LoadKind};
use crate::bench::{OpenLoad, Row, latencies, per, results, write_json};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::percentiles::Percentiles;
use crate::run_control::{Length, Timed, by_clock, by_control};
use crate::system;

/// Loads the target and prints what came of it; whether there were no errors.
pub(crate) fn load(args: &LoadArgs) -> Result<bool, Failure> {
    payload_size(args.kind, args.size)?;
    if args.streams > 1 && args.kind != LoadKind::Stream {
        return Err(Failure::Setting("--streams is for load stream; rpc has --depth".into()));
    }
    if args.rate.is_some() && !matches!(args.kind, LoadKind::Rpc | LoadKind::Srmp | LoadKind::LengthField) {
        return Err(Failure::Setting("--rate is for rpc, srmp and length-field".into()));
    }
    system::check_fd_limit(args.connections)?;
    let workers = if args.kind.is_udp() { crate::udp::workers(args)? } else { workers::start(args)? };
    if args.control {
        return by_control(workers).map(|()| true);
    }
    let length = match args.packets_in_all() {
        Some(_) => Length::Messages,
        None => Length::Clock { warmup: args.warmup, duration: args.duration },
    };
    let driver = workers.driver.clone();
    let row = row(args, driver, by_clock(workers, length)?);
    let valid = row.errors == 0;
    print!("{}", results(std::slice::from_ref(&row)));
    let latencies = latencies(std::slice::from_ref(&row));
    if !latencies.is_empty() {
        print!("\n{latencies}");
    }
    if let Some(path) = &args.json {
        write_json(path, &[row])?;
    }
    Ok(valid)
}

/// Bytes of payload in a message of `size` bytes on the wire.
fn payload_size(kind: LoadKind, size: usize) -> Result<usize, Failure> {
    let refuse = |why: &str| Err(Failure::Setting(format!("--size {size} cannot be sent: {why}")));
    match kind {
        LoadKind::Receive | LoadKind::Echo | LoadKind::Rpc | LoadKind::Stream => Ok(size),
        LoadKind::Udp | LoadKind::UdpSend if size > 65_507 => refuse("a datagram has 65507 bytes at most"),
        LoadKind::Udp | LoadKind::UdpSend => Ok(size),
        LoadKind::Srmp => match size {
            0..=4 => refuse("the header alone has 4 bytes and the payload needs one"),
            5..=65_538 => Ok(size - 4),
            65_539..=65_542 => refuse("with the header, messages have up to 65538 bytes or from 65543 on"),
            _ => Ok(size - 8),
        },
        LoadKind::LengthField => match size {
            0..=2 => refuse("the header alone has 2 bytes and the payload needs one"),
            3..=65_537 => Ok(size - 2),
            _ => refuse("the payload does not fit the 2-byte length, 65535 at most"),
        },
    }
}

/// What exchange on each connection.
fn exchange(args: &LoadArgs) -> Exchange {
    let size = args.size as u64;
    match args.kind {
        LoadKind::Rpc => Exchange::calls(size, args.wire),
        LoadKind::Stream => Exchange::streams(size, args.frames as u64, args.wire),
        _ => Exchange::endless(size, size),
    }
}

/// The name of a workload of calls in tables and JSON.
pub(crate) fn rpc_name(mode: CallMode, wire: u8) -> &'static str {
    match (mode, wire) {
        (CallMode::Unary, 1) => "rpc/unary",
        (CallMode::ClientStream, 1) => "rpc/client-stream",
        (CallMode::ServerStream, 1) => "rpc/server-stream",
        (CallMode::Bidi, 1) => "rpc/bidi",
        (CallMode::Unary, _) => "rpc2/unary",
        (CallMode::ClientStream, _) => "rpc2/client-stream",
        (CallMode::ServerStream, _) => "rpc2/server-stream",
        (CallMode::Bidi, _) => "rpc2/bidi",
    }
}

/// The name of a workload of streams in tables and JSON.
pub(crate) fn stream_name(wire: u8, is_many: bool) -> &'static str {
    match (wire, is_many) {
        (1, false) => "stream",
        (1, true) => "stream/many",
        (_, false) => "stream2",
        (_, true) => "stream2/many",
    }
}

/// What the load alone can say: the server's figures and the baseline are not known here.
fn row(args: &LoadArgs, driver: String, timed: Timed) -> Row {
    let Timed { before, after, report } = timed;
    let seconds = (after.at_ns - before.at_ns) as f64 / 1e9;
    let messages = match args.kind {
        LoadKind::Receive | LoadKind::UdpSend => {
            (after.sent_bytes - before.sent_bytes) as f64 / args.size as f64
        }
        _ => (after.messages - before.messages) as f64,
    };
    let msgs_per_s = per(messages, seconds);
    let heap = per((after.heap_bytes - before.heap_bytes) as f64, messages);
    let datagrams = |bytes: u64| (args.kind == LoadKind::Udp).then(|| bytes.div_ceil(args.size as u64));
    let totals = report.totals;
    let workload = match (args.kind, args.batch, args.depth) {
        (LoadKind::Receive, 1, _) => "receive/single",
        (LoadKind::Receive, ..) => "receive/batch",
        (LoadKind::Echo, ..) => "echo",
        (LoadKind::Udp, ..) => "udp/echo",
        (LoadKind::UdpSend, ..) => "udp/send",
        (LoadKind::Srmp, _, 1) => "srmp/single",
        (LoadKind::Srmp, ..) => "srmp/pipelined",
        (LoadKind::LengthField, _, 1) => "length-field/single",
        (LoadKind::LengthField, ..) => "length-field/pipelined",
        (LoadKind::Rpc, ..) => rpc_name(args.mode, args.wire),
        (LoadKind::Stream, ..) => stream_name(args.wire, args.streams > 1),
    };
    Row {
        workload: workload.into(),
        driver,
        connections: args.connections,
        depth: args.depth,
        size: args.size,
        batch: args.batch,
        repeats: 1,
        duration_s: seconds,
        msgs_per_s,
        msgs_per_s_min: msgs_per_s,
        msgs_per_s_max: msgs_per_s,
        mbit_per_s: msgs_per_s * exchange(args).per_message().0 * 8.0 / 1e6,
        ns_per_msg: per(1e9, msgs_per_s),
        client_cpu_ns_per_msg: per((after.cpu_ns - before.cpu_ns) as f64, messages),
        heap_bytes_per_msg: heap,
        client_heap_bytes_per_msg: heap,
        errors: totals.errors,
        datagrams_sent: datagrams(totals.sent_bytes),
        datagrams_lost: datagrams(totals.sent_bytes.saturating_sub(totals.recv_bytes)),
        first_error: report.first_error,
        ..Row::default()
    }
    .with_open(args.rate.map(|rate| OpenLoad { rate, late: after.late - before.late, unsent: report.unsent }))
    .with_fairness(report.fairness)
    .with_latency(Percentiles::over(&[report.latency]), Percentiles::over(&[report.streams]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_part_of_the_size() {
        assert_eq!(payload_size(LoadKind::Echo, 32).unwrap(), 32);
        assert_eq!(payload_size(LoadKind::Srmp, 32).unwrap(), 28);
        assert_eq!(payload_size(LoadKind::Srmp, 65_543).unwrap(), 65_535);
        assert_eq!(payload_size(LoadKind::LengthField, 32).unwrap(), 30);
    }

    #[test]
    fn sizes_that_no_message_can_have_are_refused() {
        for (kind, size) in [
            (LoadKind::Srmp, 4),
            (LoadKind::Srmp, 65_540),
            (LoadKind::LengthField, 2),
            (LoadKind::LengthField, 65_538),
        ] {
            assert!(payload_size(kind, size).is_err(), "{kind:?} {size}");
        }
    }
}
