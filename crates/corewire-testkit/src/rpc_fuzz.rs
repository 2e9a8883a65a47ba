//! Bodies of the RPC fuzz targets. They take any bytes, and run over seeded ones as ordinary tests.

use corewire_proto::rpc::{Connection, Frame, FrameType, HEADER_LEN, Header, Settings, Version};

use crate::choices::Choices;
use crate::fuzz::Target;
use crate::rpc_pair::{RpcPeer, Seen};

pub use crate::rpc_sim::rpc_machines;

/// Every RPC target and its name, which is also that of its corpus.
pub const TARGETS: [(&str, Target); 3] =
    [("rpc_frames", rpc_frames), ("rpc_input", rpc_input), ("rpc_machines", rpc_machines)];

/// Any bytes as frames: reading never panics, and writing what was read gives the bytes back.
///
/// # Panics
/// It does not.
pub fn rpc_frames(mut data: &[u8]) {
    while let Ok(Some((header, frame))) = Frame::parse(data) {
        let (whole, rest) = data.split_at(HEADER_LEN + header.body_len as usize);
        let mut written = Vec::new();
        frame.emit(header.version, header.id, &mut written);
        if !is_body_skipped(&header) {
            assert_eq!(written, whole, "{frame:?}");
        }
        let again = Frame::parse(&written).expect("what was written is a frame").expect("and a whole one");
        assert_eq!(again.1, frame);
        data = rest;
    }
}

fn is_body_skipped(header: &Header) -> bool {
    match header.kind {
        FrameType::StreamInitAck | FrameType::StreamEnd => true,
        FrameType::Ping | FrameType::Error => header.version == Version::V1,
        // A cancel of code 0 without a reason says no more than an empty one.
        FrameType::Cancel => header.version == Version::V1 || header.body_len == 2,
        // Nothing accepted: the id means nothing.
        FrameType::GoAway => header.flags.0 != 0,
        _ => false,
    }
}

/// Any bytes as the peer of one machine: it never panics, sees the same in any chunks, and has nothing left at the
/// end.
///
/// # Panics
/// It does not.
pub fn rpc_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (role, step) = (choices.byte() % 3, choices.below(64) + 1);
    let input = choices.rest();
    let machine = || match role {
        0 => Connection::server(small_settings()),
        1 => Connection::client(Version::V1, small_settings()),
        _ => Connection::client(Version::V2, small_settings()),
    };
    let whole = run(RpcPeer::new(machine()), input, input.len().max(1));
    let split = run(RpcPeer::new(machine()), input, step);
    assert_eq!(whole.0, split.0, "events depend on where chunks end");
    assert_eq!(whole.1, split.1, "output depends on where chunks end");
}

fn small_settings() -> Settings {
    Settings {
        window: 64,
        max_body: 512,
        max_calls: 4,
        max_streams: 4,
        max_extension: 64,
        ..Settings::default()
    }
}

fn run(mut peer: RpcPeer, input: &[u8], step: usize) -> (Vec<Seen>, Vec<u8>) {
    let mut all = Vec::new();
    begin_some(&mut peer);
    for chunk in input.chunks(step) {
        match peer.receive(chunk) {
            Ok(seen) => all.extend(seen),
            // The events before the error were seen in both runs or in none: leave the comparison to what is sound.
            Err(_) => {
                all.clear();
                peer.out.clear();
                break;
            }
        }
    }
    let lost = peer.lose();
    assert!(lost.len() <= 8, "more calls than the limits allow");
    peer.assert_idle();
    (all, peer.out)
}

/// A client has calls of every kind that frames can belong to (ids 0 to 3, and a stream, id 4 in version 2).
fn begin_some(peer: &mut RpcPeer) {
    use corewire_proto::rpc::{Begin, MethodPath, Mode, Options};
    let path = MethodPath::new("S", "m").expect("short names");
    for mode in [Mode::Unary, Mode::ClientStream, Mode::ServerStream, Mode::Bidi] {
        let begin = Begin { path: &path, mode, end: false, options: Options::default() };
        // A server cannot, and does not.
        let _ = peer.machine.begin(&begin, Some(b"x"), &mut peer.out);
    }
    let _ = peer.machine.open_stream(&path, &Options::default(), &mut peer.out);
}
