//! Every codec over real sockets: frames cut anywhere, long frames, limits, ends in the middle.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::Sender;

use corewire::proto::codec::{ByteOrder, Codec, DecodeError, Overlong};
use corewire::{
    CloseReason, DelimiterCodec, FixedLengthCodec, Frame, Handler, LengthFieldCodec, LineCodec, NetUri,
    RawCodec, ServerHandle, Session, StandardCodec, Varint32Codec,
};
use corewire_testkit::rng::Rng;

use crate::common::*;

/// Echoes, and tells of errors and ends.
pub(crate) struct Watch(Sender<String>);

impl Handler for Watch {
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        // A peer may be gone; a delimiter codec cannot carry everything that a raw one reads.
        let _ = session.reply(&frame, frame.payload());
    }
    fn on_error(&mut self, _: &Session, error: &DecodeError) {
        let _ = self.0.send(format!("error recoverable={}", error.is_recoverable()));
    }
    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        let _ = self.0.send(format!("close {reason}"));
    }
}

pub(crate) fn watch<C: Codec>(
    codec: impl Fn() -> C + Send + Sync + 'static,
) -> (ServerHandle, Events<String>) {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let handler = move || Watch(sender.lock().unwrap().clone());
    (local().codec(codec).handler(handler).start().unwrap(), events)
}

fn netty() -> LengthFieldCodec {
    // Two bytes of magic, then a big-endian length that counts everything.
    LengthFieldCodec::builder()
        .field_offset(2)
        .field_width(4)
        .byte_order(ByteOrder::Big)
        .length_adjustment(-6)
        .build()
        .unwrap()
}

fn skipping(overlong: Overlong) -> LengthFieldCodec {
    LengthFieldCodec::builder()
        .field_width(2)
        .byte_order(ByteOrder::Little)
        .max_frame_length(102)
        .overlong(overlong)
        .build()
        .unwrap()
}

/// What a codec's echo sends back for some payloads, whatever the pieces are in which they arrive.
fn echoes<C: Codec>(make: impl Fn() -> C + Send + Sync + Copy + 'static, payloads: &[&[u8]]) {
    let (server, _events) = watch(make);
    let wire: Vec<Vec<u8>> = payloads.iter().map(|payload| frame_of(make(), payload)).collect();
    let whole = wire.concat();
    let expected = reply_of(make(), payloads);
    // At once.
    let mut peer = raw(&server);
    peer.write_all(&whole).unwrap();
    expect(&mut peer, &expected);
    // One byte at a time: each is on its way before the next one is written.
    for byte in &whole {
        peer.write_all(std::slice::from_ref(byte)).unwrap();
    }
    expect(&mut peer, &expected);
    // Cut at every byte: what is whole is answered before the rest comes.
    for cut in 1..whole.len() {
        peer.write_all(&whole[..cut]).unwrap();
        let ready = ready_by(&wire, cut);
        let first = reply_of(make(), &payloads[..ready]);
        expect(&mut peer, &first);
        peer.write_all(&whole[cut..]).unwrap();
        expect(&mut peer, &expected[first.len()..]);
    }
}

fn ready_by(wire: &[Vec<u8>], cut: usize) -> usize {
    let mut end = 0;
    wire.iter()
        .take_while(|frame| {
            end += frame.len();
            end <= cut
        })
        .count()
}

fn frame_of<C: Codec>(mut codec: C, payload: &[u8]) -> Vec<u8> {
    let mut prefix = corewire::proto::codec::Prefix::new();
    codec.encode(codec.request_head(5), payload, &mut prefix).unwrap();
    [prefix.as_slice(), payload, codec.suffix()].concat()
}

fn reply_of<C: Codec>(mut codec: C, payloads: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::new();
    for payload in payloads {
        let mut prefix = corewire::proto::codec::Prefix::new();
        codec.encode(codec.request_head(5).reply(), payload, &mut prefix).unwrap();
        all.extend([prefix.as_slice(), payload, codec.suffix()].concat());
    }
    all
}

const PAYLOADS: &[&[u8]] = &[b"hello", b"x", b"a third one"];

#[test]
fn standard_frames_cut_anywhere_are_whole() {
    echoes(StandardCodec::default, &[b"hello", b"", b"third"]);
}

#[test]
fn length_field_frames_of_every_newlife_form_cut_anywhere_are_whole() {
    echoes(|| LengthFieldCodec::newlife(0, 1).unwrap(), PAYLOADS);
    echoes(|| LengthFieldCodec::newlife(0, 2).unwrap(), PAYLOADS);
    echoes(|| LengthFieldCodec::newlife(3, 4).unwrap(), PAYLOADS);
    echoes(|| LengthFieldCodec::newlife(0, -1).unwrap(), PAYLOADS);
    echoes(|| LengthFieldCodec::newlife(0, -2).unwrap(), PAYLOADS);
    echoes(|| LengthFieldCodec::newlife(0, -4).unwrap(), PAYLOADS);
    echoes(|| LengthFieldCodec::newlife(0, 0).unwrap(), &[b"hello", &[7; 200], b""]);
}

#[test]
fn varint_frames_cut_anywhere_are_whole() {
    echoes(Varint32Codec::new, &[b"hello", &[7; 200], b""]);
}

#[test]
fn line_frames_cut_anywhere_are_whole() {
    echoes(LineCodec::new, &[b"hello", b"", b"third line"]);
}

#[test]
fn delimiter_frames_cut_anywhere_are_whole() {
    echoes(|| DelimiterCodec::new(b"||").unwrap(), PAYLOADS);
}

#[test]
fn fixed_frames_cut_anywhere_are_whole() {
    echoes(|| FixedLengthCodec::new(5).unwrap(), &[b"hello", b"worl\0"]);
}

#[test]
fn netty_frames_cut_anywhere_are_whole() {
    assert_eq!(frame_of(netty(), b"hello"), b"\0\0\0\0\0\x0bhello");
    echoes(netty, PAYLOADS);
}

#[test]
fn raw_bytes_come_back_as_they_are() {
    let (server, _events) = watch(|| RawCodec);
    let mut peer = raw(&server);
    for byte in 0..=255_u8 {
        peer.write_all(&[byte]).unwrap();
        expect(&mut peer, &[byte]);
    }
}

#[test]
fn frames_of_1_mib_go_through_every_codec_that_carries_them() {
    fn through<C: Codec>(make: impl Fn() -> C + Send + Sync + Copy + 'static) {
        let (server, _events) = watch(make);
        let client = NetUri::parse(server.uri()).unwrap().client().codec(make).connect_blocking().unwrap();
        for len in [1 << 20, 1, (1 << 20) - 1] {
            let payload: Vec<u8> = (0..len).map(|at| b'a' + (at % 23) as u8).collect();
            assert!(wait(client.request(&payload)).unwrap() == payload);
        }
    }
    through(StandardCodec::default);
    through(|| LengthFieldCodec::newlife(0, 4).unwrap());
    through(|| LengthFieldCodec::newlife(2, 0).unwrap());
    through(|| Varint32Codec::with_frame_limit(2 << 20).unwrap());
    // These two tell no replies from messages.
    for line in [true, false] {
        let (server, _events) = if line {
            watch(|| LineCodec::new().frame_limit(2 << 20))
        } else {
            watch(|| DelimiterCodec::new(b"\n").unwrap().frame_limit(2 << 20))
        };
        let mut peer = raw(&server);
        let frame = [&vec![b'x'; 1 << 20][..], b"\n"].concat();
        let mut writer = peer.try_clone().unwrap();
        let writing = {
            let frame = frame.clone();
            std::thread::spawn(move || writer.write_all(&frame).unwrap())
        };
        expect(&mut peer, &frame);
        writing.join().unwrap();
    }
}

#[test]
fn a_frame_over_the_limit_is_skipped_where_the_codec_can() {
    for overlong in [Overlong::FailFast, Overlong::SkipThenFail] {
        let (server, events) = watch(move || skipping(overlong));
        let mut peer = raw(&server);
        let long = [&1000_u16.to_le_bytes()[..], &[9; 1000]].concat();
        peer.write_all(&[b"\x02\0ok", &long[..], b"\x05\0after"].concat()).unwrap();
        expect(&mut peer, b"\x02\0ok\x05\0after");
        assert_eq!(events.next(), "error recoverable=true");
        // Also in pieces.
        for piece in long.chunks(7) {
            peer.write_all(piece).unwrap();
        }
        peer.write_all(b"\x01\0!").unwrap();
        expect(&mut peer, b"\x01\0!");
        assert_eq!(events.next(), "error recoverable=true");
        assert_eq!(events.so_far(), Vec::<String>::new());
    }
    let (server, events) = watch(|| LineCodec::new().frame_limit(10));
    let mut peer = raw(&server);
    peer.write_all(&[b"short\n", &[b'x'; 500][..], b"\nagain\n"].concat()).unwrap();
    expect(&mut peer, b"short\nagain\n");
    assert_eq!(events.next(), "error recoverable=true");
}

#[test]
fn a_frame_that_breaks_the_format_closes_its_connection_and_no_other() {
    fn fatal<C: Codec>(make: impl Fn() -> C + Send + Sync + Copy + 'static, bad: &[u8]) {
        let (server, events) = watch(make);
        let mut good = raw(&server);
        let mut peer = raw(&server);
        // What was whole before it is answered.
        peer.write_all(&[&frame_of(make(), b"first")[..], bad].concat()).unwrap();
        assert_eq!(read_to_end(&mut peer), reply_of(make(), &[b"first"]));
        assert_eq!(events.next(), "error recoverable=false");
        let close = events.next();
        assert!(close.starts_with("close the peer broke the protocol: "), "{close}");
        good.write_all(&frame_of(make(), b"other")).unwrap();
        expect(&mut good, &reply_of(make(), &[b"other"]));
    }
    // Over the limit; negative.
    fatal(StandardCodec::default, &[1, 1, 0xff, 0xff, 1, 0, 0, 1]);
    fatal(StandardCodec::default, &[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    // A number that never ends.
    fatal(|| LengthFieldCodec::newlife(0, 0).unwrap(), &[0xff; 12]);
    fatal(Varint32Codec::new, &[0xff; 12]);
}

/// Says hello, then part of a frame, and finishes sending.
fn half_close(server: &ServerHandle, bytes: &[u8]) -> TcpStream {
    let mut peer = raw(server);
    peer.write_all(bytes).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    peer
}

#[test]
fn after_a_half_close_at_the_border_of_a_frame_replies_still_arrive() {
    let (server, events) = watch(StandardCodec::default);
    let frames = srmp(1, 1, &[5; 60_000]).repeat(30);
    let mut peer = half_close(&server, &frames);
    assert!(read_to_end(&mut peer) == srmp(0x81, 1, &[5; 60_000]).repeat(30));
    assert_eq!(events.next(), "close closed by the peer");
}

#[test]
fn a_half_close_in_the_middle_of_a_frame_says_so_and_replies_still_arrive() {
    let (server, events) = watch(StandardCodec::default);
    for cut in [1, 3, 4, 7] {
        let bytes = [srmp(1, 1, b"whole"), srmp(1, 2, b"half")[..cut].to_vec()].concat();
        let mut peer = half_close(&server, &bytes);
        assert_eq!(read_to_end(&mut peer), srmp(0x81, 1, b"whole"));
        let expected = format!("in the middle of a frame, of which {cut} bytes had come");
        let close = events.next();
        assert!(close.ends_with(&expected), "{close}");
    }
}

#[test]
fn a_reset_in_the_middle_of_a_frame_harms_nobody() {
    let (server, events) = watch(StandardCodec::default);
    let mut peer = raw(&server);
    peer.write_all(&[srmp(1, 1, b"whole"), srmp(1, 2, b"half")[..6].to_vec()].concat()).unwrap();
    expect(&mut peer, &srmp(0x81, 1, b"whole"));
    reset(peer);
    let close = events.next();
    assert!(close.starts_with("close the connection is lost: "), "{close}");
    assert_serves(&server);
}

/// Throws what a seed gives at a server, on several connections, until the server ends each or all is said.
fn bombard<C: Codec>(seed: u64, make: impl Fn() -> C + Send + Sync + 'static, good: &[u8]) {
    let (server, _events) = watch(make);
    let mut rng = Rng::new(seed);
    let mut witness = raw(&server);
    for _ in 0..30 {
        let mut peer = raw(&server);
        for _ in 0..rng.below(20) {
            match peer.write_all(&rng.bytes(3000)) {
                Ok(()) => {}
                Err(error) if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()) => {
                    break;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        if rng.below(2) == 0 {
            reset(peer);
        }
        // Somebody else is served meanwhile.
        witness.write_all(good).unwrap();
        let mut reply = vec![0; good.len()];
        std::io::Read::read_exact(&mut witness, &mut reply).unwrap();
        assert_eq!(reply[reply.len() - 2..], good[good.len() - 2..], "seed {seed}");
    }
    assert_eq!(server.stats().workers.panics, 0, "seed {seed}");
}

#[test]
fn random_bytes_at_every_codec_harm_nobody_else() {
    bombard(1, StandardCodec::default, &srmp(1, 1, b"good"));
    bombard(2, || LengthFieldCodec::newlife(0, 2).unwrap(), b"\x04\0good");
    bombard(3, || LengthFieldCodec::newlife(0, -4).unwrap(), b"\0\0\0\x04good");
    bombard(4, || LengthFieldCodec::newlife(0, 0).unwrap(), b"\x04good");
    bombard(5, netty, b"\0\0\0\0\0\x0agood");
    bombard(6, || skipping(Overlong::SkipThenFail), b"\x04\0good");
    bombard(7, Varint32Codec::new, b"\x04good");
    bombard(8, LineCodec::new, b"good\n");
    bombard(9, || DelimiterCodec::any_of(&[b"\r\n", b"\0"]).unwrap(), b"good\r\n");
    bombard(10, || FixedLengthCodec::new(4).unwrap(), b"good");
    bombard(11, || RawCodec, b"good");
}

#[test]
fn a_client_survives_random_bytes_from_its_server() {
    let server = RawServer::new();
    let mut reconnect = corewire::client::Reconnect::default();
    reconnect.initial = std::time::Duration::from_millis(1);
    reconnect.max = std::time::Duration::from_millis(2);
    let client = client_of(&server.uri).reconnect(reconnect).connect_blocking().unwrap();
    let mut rng = Rng::new(12);
    for _ in 0..20 {
        let mut peer = server.accept();
        while peer.write_all(&rng.bytes(3000)).is_ok() && rng.below(20) > 0 {}
        reset(peer);
    }
    let mut peer = server.accept();
    let mut call = client.request(b"sane?");
    assert!(poll_once(&mut call).is_pending());
    let (_, sequence, _) = read_srmp(&mut peer);
    peer.write_all(&srmp(0x81, sequence, b"sane")).unwrap();
    assert_eq!(wait(call).unwrap(), &b"sane"[..]);
}
