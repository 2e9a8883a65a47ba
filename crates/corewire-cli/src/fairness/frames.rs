//! The bytes of requests, and what their answers look like: each protocol by hand, so that making a request costs a
//! greedy client nothing beside the server's work.

use super::plan::Protocol;

/// Bytes that a block of requests has at most, unless one request alone is longer.
const BLOCK_MAX: usize = 64 * 1024;
/// Payload of a polite request: its number, then filling.
pub(super) const POLITE_PAYLOAD: usize = 28;

/// SRMP: kind and sequence, then the length.
const SRMP_REQUEST: u8 = 0x01;
const SRMP_REPLY: u8 = 0x81;
/// The longest payload with a short header.
const SRMP_SHORT_MAX: usize = 0xfffe;

const RPC_REQUEST: u8 = 0x01;
const RPC_STREAM_INIT: u8 = 0x10;
const RPC_STREAM_DATA: u8 = 0x12;
/// The flag of a call's only frame.
const RPC_END: u8 = 0x04;
const RPC_HEADER: usize = 16;
/// Bytes of a response before its payload: the header and the code.
const RPC_RESPONSE_HEADER: usize = RPC_HEADER + 2;

/// What a greedy client sends and gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GreedyFrames {
    /// Sent first on each connection; requests follow when so many bytes have come back.
    pub(super) opening: (Vec<u8>, usize),
    /// Whole requests, one behind the other; sent again and again.
    pub(super) block: Vec<u8>,
    pub(super) request_bytes: usize,
    pub(super) response_bytes: usize,
}

impl GreedyFrames {
    /// Requests with so many bytes of payload.
    pub(super) fn new(protocol: Protocol, payload: usize) -> Self {
        let filling: Vec<u8> = (0..payload).map(|at| at as u8).collect();
        let one = |number: u32| match protocol {
            Protocol::Rpc => rpc_call(number, &filling),
            Protocol::Stream => rpc_frame(RPC_STREAM_DATA, 0, 1, &filling),
            _ if protocol.is_srmp() => srmp_frame(number as u8, &filling),
            _ => filling.clone(),
        };
        let request_bytes = one(0).len();
        let count = match protocol {
            // One message in each `send`.
            Protocol::Echo => 1,
            _ => (BLOCK_MAX / request_bytes.max(1)).max(1),
        };
        let opening = match protocol {
            Protocol::Stream => {
                let route = names("StreamBenchService", "echo");
                (rpc_frame(RPC_STREAM_INIT, 0, 1, &route), RPC_HEADER)
            }
            _ => (vec![], 0),
        };
        let response_bytes = match protocol {
            Protocol::Rpc => RPC_RESPONSE_HEADER + payload,
            _ => request_bytes,
        };
        let block = (0..count as u32).flat_map(one).collect();
        Self { opening, block, request_bytes, response_bytes }
    }
}

/// A polite request.
pub(super) fn polite_request(protocol: Protocol, number: u32) -> Vec<u8> {
    let mut payload = [0; POLITE_PAYLOAD];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    match protocol {
        Protocol::Rpc | Protocol::Stream => rpc_call(number, &payload),
        _ if protocol.is_srmp() => srmp_frame(number as u8, &payload),
        _ => payload.to_vec(),
    }
}

/// Bytes of the answer to a polite request.
pub(super) fn polite_response_bytes(protocol: Protocol) -> usize {
    POLITE_PAYLOAD + polite_response_header(protocol)
}

/// The number that an answer carries.
pub(super) fn polite_number(protocol: Protocol, response: &[u8]) -> Option<u32> {
    let payload = response.get(polite_response_header(protocol)..)?;
    payload.first_chunk().copied().map(u32::from_le_bytes)
}

/// Whether an answer is that to the request with this number. `is_echo`: from a server that sends back what it gets.
pub(super) fn is_polite_response(protocol: Protocol, number: u32, response: &[u8], is_echo: bool) -> bool {
    let header = polite_response_header(protocol);
    let Some(payload) = response.get(header..) else { return false };
    let is_reply = match protocol {
        Protocol::Rpc | Protocol::Stream => response[RPC_HEADER..header] == [0, 0],
        _ if protocol.is_srmp() => response[0] == if is_echo { SRMP_REQUEST } else { SRMP_REPLY },
        _ => true,
    };
    is_reply && payload.len() == POLITE_PAYLOAD && payload[..4] == number.to_le_bytes()
}

fn polite_response_header(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Rpc | Protocol::Stream => RPC_RESPONSE_HEADER,
        _ if protocol.is_srmp() => 4,
        _ => 0,
    }
}

fn srmp_frame(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![SRMP_REQUEST, sequence];
    if payload.len() <= SRMP_SHORT_MAX {
        frame.extend((payload.len() as u16).to_le_bytes());
    } else {
        frame.extend([0xff, 0xff]);
        frame.extend((payload.len() as u32).to_le_bytes());
    }
    frame.extend(payload);
    frame
}

fn rpc_call(id: u32, payload: &[u8]) -> Vec<u8> {
    let body = [names("BenchEchoService", "echo").as_slice(), payload].concat();
    rpc_frame(RPC_REQUEST, RPC_END, id, &body)
}

fn rpc_frame(kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = b"GRPC".to_vec();
    frame.extend([1, kind, flags, 0]);
    frame.extend(id.to_be_bytes());
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    frame
}

fn names(service: &str, method: &str) -> Vec<u8> {
    let mut names = Vec::new();
    for name in [service, method] {
        names.extend((name.len() as u16).to_be_bytes());
        names.extend(name.as_bytes());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_those_of_the_formats() {
        assert_eq!(srmp_frame(1, b"Open"), [1, 1, 4, 0, b'O', b'p', b'e', b'n']);
        assert_eq!(srmp_frame(7, &[0; 65_535])[..8], [1, 7, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        let call = rpc_call(3001, b"Hello");
        assert_eq!(call[..8], [0x47, 0x52, 0x50, 0x43, 1, 1, 4, 0]);
        assert_eq!(call[8..16], [0, 0, 0x0b, 0xb9, 0, 0, 0, 29]);
        assert!(call.ends_with(b"\x00\x04echoHello"));
    }

    #[test]
    fn a_block_is_whole_requests_and_a_stream_is_opened_first() {
        for protocol in [Protocol::Srmp, Protocol::Rpc, Protocol::Stream, Protocol::Echo] {
            for payload in [1, 28, 65_536] {
                let frames = GreedyFrames::new(protocol, payload);
                assert_eq!(frames.block.len() % frames.request_bytes, 0);
                assert!(frames.block.len() <= BLOCK_MAX.max(frames.request_bytes));
                assert_eq!(frames.opening.0.is_empty(), protocol != Protocol::Stream);
            }
        }
        assert_eq!(GreedyFrames::new(Protocol::Rpc, 1).response_bytes, 19);
    }

    #[test]
    fn an_answer_is_known_by_its_number() {
        let request = polite_request(Protocol::Srmp, 7);
        let mut reply = request.clone();
        reply[0] = SRMP_REPLY;
        assert_eq!(reply.len(), polite_response_bytes(Protocol::Srmp));
        assert_eq!(polite_number(Protocol::Srmp, &reply), Some(7));
        assert!(is_polite_response(Protocol::Srmp, 7, &reply, false));
        assert!(!is_polite_response(Protocol::Srmp, 8, &reply, false));
        assert!(is_polite_response(Protocol::Srmp, 7, &request, true));
        assert!(!is_polite_response(Protocol::Srmp, 7, &request, false));
        assert!(!is_polite_response(Protocol::Srmp, 7, &reply[..3], false));
    }

    #[test]
    fn an_rpc_answer_with_a_code_is_not_the_answer() {
        let mut reply = rpc_frame(2, 4, 9, &[&[0, 0][..], &9_u32.to_le_bytes(), &[0; 24]].concat());
        assert!(is_polite_response(Protocol::Rpc, 9, &reply, false));
        reply[17] = 3;
        assert!(!is_polite_response(Protocol::Rpc, 9, &reply, false));
    }
}
