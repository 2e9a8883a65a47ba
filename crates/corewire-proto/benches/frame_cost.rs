//! What framing and matching cost by themselves, without sockets: ns per frame and per call.
//!
//! `cargo bench -p corewire-proto --bench frame_cost`. Each row is the best of nine runs over a buffer that
//! stays in the cache. The figures move from machine to machine; rows of one run can be compared.

use std::hint::black_box;
use std::time::{Duration, Instant};

use corewire_proto::codec::{
    ByteOrder, Codec, Decoded, DelimiterCodec, FixedLengthCodec, FrameHead, FrameKind, LengthFieldCodec,
    LineCodec, Matching, Prefix, StandardCodec, Varint32Codec,
};
use corewire_proto::matching::{CallTable, Matched};

const FRAMES: usize = 512;
const TURNS: u32 = 2_000;

fn main() {
    // Some drivers run benches as tests, to see that they still work.
    let turns = if std::env::args().any(|argument| argument == "--test") { 1 } else { TURNS };
    println!("{:<60}{:>10}{:>12}", "", "ns each", "M/s");
    framing("standard, 28 B payload", StandardCodec::new, 28, turns);
    framing("standard, 4 KiB payload", StandardCodec::new, 4096, turns);
    framing("length field 2 LE, 30 B payload", LengthFieldCodec::default, 30, turns);
    let netty = LengthFieldCodec::builder().field_offset(2).field_width(3).byte_order(ByteOrder::Big);
    let netty = netty.length_adjustment(-5).build().expect("settings that agree");
    framing("length field 3 BE, offset 2, 27 B payload", || netty.clone(), 27, turns);
    framing("varint32, 31 B payload", Varint32Codec::new, 31, turns);
    framing("fixed length 32 B", || FixedLengthCodec::new(32).expect("not zero"), 32, turns);
    framing("line, 31 B payload", LineCodec::new, 31, turns);
    let delimiter = |all: &[&[u8]]| DelimiterCodec::any_of(all).expect("good delimiters");
    framing("delimiter \\r\\n\\r\\n, 28 B payload", || delimiter(&[b"\r\n\r\n"]), 28, turns);
    framing("delimiters \\n and \\r\\n, 31 B payload", || delimiter(&[b"\n", b"\r\n"]), 31, turns);
    for depth in [1, 255] {
        calls(Matching::Sequence { modulus: 256 }, "sequence", depth, turns);
    }
    for depth in [1, 128] {
        calls(Matching::Fifo, "in order", depth, turns);
    }
    standard_call(turns);
}

/// Decodes, and then encodes, a buffer of equal frames.
fn framing<C: Codec>(name: &str, new: impl Fn() -> C, payload_len: usize, turns: u32) {
    let payload = vec![b'x'; payload_len];
    let turns = (turns as usize * 32 / payload_len.max(32)).max(1) as u32;
    let mut codec = new();
    let head = codec.request_head(1);
    let mut prefix = Prefix::new();
    codec.encode(head, &payload, &mut prefix).expect("a payload that fits");
    let frame = [prefix.as_slice(), &payload, codec.suffix()].concat();
    let stream = frame.repeat(FRAMES);
    row(&format!("decode {name}"), FRAMES, turns, || decode_all(&mut codec, black_box(&stream)));
    let mut out = Vec::with_capacity(stream.len());
    row(&format!("encode {name}"), FRAMES, turns, || {
        out.clear();
        for _ in 0..FRAMES {
            let mut prefix = Prefix::new();
            if codec.encode(head, black_box(&payload), &mut prefix).is_ok() {
                out.extend_from_slice(prefix.as_slice());
                out.extend_from_slice(&payload);
                out.extend_from_slice(codec.suffix());
            }
        }
        out.len()
    });
}

/// As a connection's loop does it: one call per frame, the payload touched.
#[inline(never)]
fn decode_all<C: Codec>(codec: &mut C, stream: &[u8]) -> usize {
    let mut at = 0;
    let mut sum = 0;
    while at < stream.len() {
        let input = &stream[at..];
        match codec.decode(input) {
            Ok(Decoded::Frame { head, payload, consumed }) => {
                sum += input[payload].len() + head.sequence as usize;
                at += consumed;
            }
            Ok(Decoded::Skipped { consumed }) => at += consumed,
            Ok(Decoded::Incomplete { .. }) | Err(_) => break,
        }
    }
    sum
}

/// Begins a call and completes the oldest one, with `depth` in flight.
fn calls(matching: Matching, name: &str, depth: usize, turns: u32) {
    let mut table = CallTable::new(matching, 65_536);
    let mut numbers = [0u32; 256];
    for number in &mut numbers[..depth] {
        if let Ok(key) = table.begin(0u64) {
            *number = table.sequence_of(key);
        }
    }
    let kind = if matching == Matching::Fifo { FrameKind::Message } else { FrameKind::Reply };
    row(&format!("begin + complete, {name}, {depth} in flight"), FRAMES, turns, || {
        let mut sum = 0;
        for turn in 0..FRAMES {
            let at = turn % depth;
            let head = FrameHead { kind, sequence: numbers[at], tag: 0 };
            if let Matched::Call(value) = table.complete(black_box(&head)) {
                sum += value as usize;
            }
            if let Ok(key) = table.begin(turn as u64) {
                numbers[at] = table.sequence_of(key);
            }
        }
        sum
    });
}

/// All that a client adds to one SRMP request and its reply: begin, encode, decode, complete.
fn standard_call(turns: u32) {
    let mut codec = StandardCodec::new();
    let mut table = CallTable::new(codec.matching(), 256);
    let mut wire = Vec::with_capacity(64);
    row("begin, encode, decode, complete: SRMP, 28 B", FRAMES, turns, || {
        let mut sum = 0;
        for turn in 0..FRAMES {
            let Ok(key) = table.begin(turn as u64) else { continue };
            let head = codec.request_head(table.sequence_of(key)).reply();
            wire.clear();
            let mut prefix = Prefix::new();
            if codec.encode(head, black_box(&[b'x'; 28]), &mut prefix).is_ok() {
                wire.extend_from_slice(prefix.as_slice());
                wire.extend_from_slice(&[b'x'; 28]);
            }
            if let Ok(Decoded::Frame { head, .. }) = codec.decode(black_box(&wire))
                && let Matched::Call(value) = table.complete(&head)
            {
                sum += value as usize;
            }
        }
        sum
    });
}

fn row(name: &str, items: usize, turns: u32, mut work: impl FnMut() -> usize) {
    let mut best = Duration::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..turns {
            black_box(work());
        }
        best = best.min(start.elapsed());
    }
    let ns = best.as_nanos() as f64 / (f64::from(turns) * items as f64);
    println!("{name:<60}{ns:>10.2}{:>12.1}", 1000.0 / ns);
}
