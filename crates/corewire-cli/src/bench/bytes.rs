//! Whether the bytes that were sent have arrived, and were those that the baseline moves.

use super::plan::Cell;
use super::stats::per;
use crate::control::Snapshot;

/// What of the bytes may be frames of the connection: for each of them (going away, 22 bytes; the names of a method, 26),
/// and for its messages (credits).
const AROUND_CONNECTION_MAX: f64 = 64.0;
const AROUND_MESSAGES_MAX: f64 = 0.01;

/// What is compared once all is back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ends {
    /// Of the load, before it sends.
    pub(super) ready: Snapshot,
    /// Of the server, at the end.
    pub(super) last: Snapshot,
}

/// Messages that one side sent and the other never saw, or that were not the bytes that the baseline moves.
pub(super) fn discrepancy(cell: &Cell, load: &Snapshot, ends: &Ends) -> (u64, Option<String>) {
    let server = &ends.last;
    let messages = |bytes: u64| (bytes as f64 / cell.wire_size()).ceil() as u64;
    let missing = load.sent_bytes.abs_diff(server.recv_bytes);
    if missing > 0 {
        let story =
            format!("the load sent {} bytes and the server received {}", load.sent_bytes, server.recv_bytes);
        return (messages(missing), Some(story));
    }
    if !cell.workload.is_echoed() {
        return (0, None);
    }
    // What is echoed is as long as what was sent; a response is not.
    let sent_back = if cell.workload.is_rpc() { server.sent_bytes } else { load.sent_bytes };
    let missing = sent_back.abs_diff(load.recv_bytes);
    if missing > 0 {
        let story = format!("{sent_back} bytes were sent back and the load received {}", load.recv_bytes);
        return (messages(missing), Some(story));
    }
    match unlike_the_baseline(cell, load, &ends.ready) {
        Some(story) => (1, Some(story)),
        None => (0, None),
    }
}

/// The story of a load whose messages were not the bytes that the baseline moves for them.
fn unlike_the_baseline(cell: &Cell, load: &Snapshot, ready: &Snapshot) -> Option<String> {
    let messages = load.messages.saturating_sub(ready.messages) as f64;
    let request = load.sent_bytes.saturating_sub(ready.sent_bytes) as f64;
    let response = load.recv_bytes.saturating_sub(ready.recv_bytes) as f64;
    let (baseline_request, baseline_response) = cell.exchange().per_message();
    let is_like = |ours: f64, baseline: f64| {
        let around =
            AROUND_CONNECTION_MAX * cell.connections as f64 + AROUND_MESSAGES_MAX * baseline * messages;
        (ours - baseline * messages).abs() <= around
    };
    if !cell.workload.is_rpc()
        || (messages > 0.0 && is_like(request, baseline_request) && is_like(response, baseline_response))
    {
        return None;
    }
    let (request, response) = (per(request, messages), per(response, messages));
    Some(format!(
        "a message took {request:.1} request bytes and {response:.1} response bytes, where the baseline moves {baseline_request:.1} and \
         {baseline_response:.1}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CallMode;
    use crate::bench::plan::Workload;

    const ECHO: Cell = Cell { workload: Workload::Echo, connections: 4, depth: 1, size: 32, batch: 1 };

    fn ends(recv_bytes: u64, sent_bytes: u64) -> Ends {
        Ends { ready: Snapshot::default(), last: Snapshot { recv_bytes, sent_bytes, ..Snapshot::default() } }
    }

    fn load(messages: u64, sent_bytes: u64, recv_bytes: u64) -> Snapshot {
        Snapshot { messages, sent_bytes, recv_bytes, ..Snapshot::default() }
    }

    #[test]
    fn bytes_that_one_side_never_saw_are_errors() {
        assert_eq!(discrepancy(&ECHO, &load(100, 3200, 3200), &ends(3136, 3136)).0, 2);
        assert_eq!(discrepancy(&ECHO, &load(100, 3200, 3200), &ends(3200, 3200)), (0, None));
        assert_eq!(discrepancy(&ECHO, &load(99, 3200, 3199), &ends(3200, 3200)).0, 1);
    }

    const CALLS: Cell =
        Cell { workload: Workload::Rpc(CallMode::Unary, 1), connections: 4, depth: 1, size: 47, batch: 1 };

    #[test]
    fn calls_are_compared_in_both_directions() {
        let sent = load(1000, 87_000, 65_000);
        assert_eq!(discrepancy(&CALLS, &sent, &ends(87_000, 65_000)), (0, None));
        assert_eq!(discrepancy(&CALLS, &sent, &ends(86_900, 65_000)).0, 2);
        let (lost, story) = discrepancy(&CALLS, &sent, &ends(87_000, 65_065));
        assert!(lost == 1 && story.unwrap().contains("65065 bytes were sent back"));
    }

    #[test]
    fn calls_that_are_not_what_the_baseline_moves_are_an_error() {
        let more = load(1000, 87_000, 87_000);
        let (errors, story) = discrepancy(&CALLS, &more, &ends(87_000, 87_000));
        let story = story.unwrap();
        assert!(errors == 1 && story.contains("87.0 request bytes and 87.0 response bytes"), "{story}");
        // What was sent before the load began is not a message of it.
        let mut begun = ends(91_000, 69_000);
        begun.ready = load(0, 4_000, 4_000);
        assert_eq!(discrepancy(&CALLS, &load(1000, 91_000, 69_000), &begun), (0, None));
        assert_eq!(discrepancy(&CALLS, &load(0, 0, 0), &ends(0, 0)).0, 1);
    }
}
