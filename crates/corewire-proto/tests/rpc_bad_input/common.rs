//! What the tests share.

use corewire_proto::rpc::{Begin, Connection, ConnectionError, MethodPath, Mode, Options, Settings, Version};
use corewire_testkit::rpc_pair::RpcPeer;

pub(crate) const V1: u8 = 1;
pub(crate) const V2: u8 = 2;

pub(crate) const REQUEST: u8 = 0x01;
pub(crate) const RESPONSE: u8 = 0x02;
pub(crate) const PING: u8 = 0x03;
pub(crate) const ERROR: u8 = 0x04;
pub(crate) const INIT: u8 = 0x10;
pub(crate) const ACK: u8 = 0x11;
pub(crate) const DATA: u8 = 0x12;
pub(crate) const END: u8 = 0x13;
pub(crate) const CANCEL: u8 = 0x14;
pub(crate) const CREDIT: u8 = 0x20;
pub(crate) const SETTINGS: u8 = 0x21;

/// A REQUEST's or INIT's names, `S/e`.
pub(crate) const NAMES: &[u8] = b"\0\x01S\0\x01e";

pub(crate) fn frame(version: u8, kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'G', b'R', b'P', b'C', version, kind, flags, 0];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The first frame of a call, with names for this call alone.
pub(crate) fn begun(version: u8, kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    match version {
        V1 => frame(V1, kind, flags, id, body),
        _ => frame(V2, kind, flags | 0x40, id, &[b"\0\0", body].concat()),
    }
}

/// A server to which the client has already spoken this version.
pub(crate) fn server(version: u8) -> RpcPeer {
    server_with(version, Settings::default())
}

pub(crate) fn server_with(version: u8, settings: Settings) -> RpcPeer {
    let mut server = RpcPeer::new(Connection::server(settings));
    if version == V2 {
        server.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap();
        server.out.clear();
    }
    server
}

/// A client that knows the server's settings, with a bidi call (id 0) and a stream (id 1) in use.
pub(crate) fn client(version: Version) -> RpcPeer {
    let mut client = RpcPeer::new(Connection::client(version, Settings::default()));
    let path = MethodPath::new("S", "e").unwrap();
    let begin = Begin { path: &path, mode: Mode::Bidi, end: false, options: Options::default() };
    client.machine.begin(&begin, Some(b"x"), &mut client.out).unwrap();
    client.machine.open_stream(&path, &Options::default(), &mut client.out).unwrap();
    if version == Version::V2 {
        client.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap();
    }
    client.out.clear();
    client
}

/// The peer is cut off with this error, and nothing is left.
#[track_caller]
pub(crate) fn assert_closes(mut peer: RpcPeer, bytes: &[u8], expected: ConnectionError) {
    assert_eq!(peer.receive(bytes), Err(expected));
    peer.lose();
    peer.assert_idle();
}

/// The peer is answered by `answer` and may go on; nothing is left.
#[track_caller]
pub(crate) fn assert_answers(mut peer: RpcPeer, bytes: &[u8], answer: &[u8]) {
    assert_eq!(peer.receive(bytes), Ok(vec![]));
    assert_eq!(peer.out, answer);
    peer.assert_idle();
}
