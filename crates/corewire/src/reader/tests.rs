use corewire_proto::codec::{
    DelimiterCodec, EncodeError, LengthFieldCodec, LineCodec, Overlong, Prefix, StandardCodec, Varint32Codec,
};

use super::*;

/// Collects frames; checks that payloads lie in their block.
#[derive(Default)]
struct Collect {
    frames: Vec<Vec<u8>>,
    errors: usize,
    stop_after: Option<usize>,
}

impl FrameSink for Collect {
    fn frame(&mut self, _: FrameHead, payload: &[u8], block: &Bytes) -> bool {
        if !payload.is_empty() {
            assert_eq!(block.slice_ref(payload), payload);
        }
        self.frames.push(payload.to_vec());
        self.stop_after != Some(self.frames.len())
    }

    fn error(&mut self, error: DecodeError) -> bool {
        self.errors += 1;
        error.is_recoverable()
    }
}

fn wire(codec: &mut impl Codec, payloads: &[Vec<u8>]) -> Result<Vec<u8>, EncodeError> {
    let mut wire = Vec::new();
    for payload in payloads {
        let mut prefix = Prefix::new();
        codec.encode(FrameHead::default(), payload, &mut prefix)?;
        wire.extend_from_slice(prefix.as_slice());
        wire.extend_from_slice(payload);
        wire.extend_from_slice(codec.suffix());
    }
    Ok(wire)
}

fn read_in_pieces<C: Codec>(codec: C, wire: &[u8], step: usize) -> Collect {
    let (mut reader, mut sink) = (FrameReader::default(), Collect::default());
    let codec = RefCell::new(codec);
    for piece in wire.chunks(step) {
        reader.read(&codec, Bytes::copy_from_slice(piece), &mut sink);
    }
    assert_eq!(reader.pending(), 0);
    sink
}

fn payloads() -> Vec<Vec<u8>> {
    [0_usize, 1, 30, 200, 5000, 1, 0, 70_000, 3].iter().map(|&len| vec![b'x'; len]).collect()
}

#[test]
fn frames_are_the_same_however_the_stream_is_cut() {
    let payloads = payloads();
    let standard = wire(&mut StandardCodec::default(), &payloads).unwrap();
    let line = wire(&mut LineCodec::new(), &payloads[..5]).unwrap();
    for step in (1..200).chain([4096, 4097, 65_536, 1 << 20]) {
        assert_eq!(read_in_pieces(StandardCodec::default(), &standard, step).frames, payloads, "step {step}");
        assert_eq!(read_in_pieces(LineCodec::new(), &line, step).frames, payloads[..5], "step {step}");
    }
}

#[test]
fn a_frame_over_the_limit_is_skipped_and_the_next_one_read() {
    let codec = || {
        let limited = LengthFieldCodec::builder().max_frame_length(100).overlong(Overlong::SkipThenFail);
        limited.build().unwrap()
    };
    let mut writer = LengthFieldCodec::builder().build().unwrap();
    let wire = wire(&mut writer, &[vec![1; 10], vec![2; 5000], vec![3; 10]]).unwrap();
    for step in 1..300 {
        let sink = read_in_pieces(codec(), &wire, step);
        assert_eq!(sink.frames, [vec![1; 10], vec![3; 10]], "step {step}");
        assert_eq!(sink.errors, 1, "step {step}");
    }
}

#[test]
fn a_large_announcement_alone_takes_little_memory() {
    let (mut reader, mut sink) = (FrameReader::default(), Collect::default());
    let codec = RefCell::new(StandardCodec::default());
    let header = [0x01, 0x01, 0xff, 0xff, 0x00, 0x00, 0xf0, 0x00];
    reader.read(&codec, Bytes::copy_from_slice(&header), &mut sink);
    assert_eq!(reader.needed, 8 + 0x00f0_0000);
    assert!(reader.partial.capacity() < 1024, "{} bytes", reader.partial.capacity());
}

#[test]
fn a_sink_that_has_enough_gets_no_more() {
    let wire = wire(&mut StandardCodec::default(), &payloads()).unwrap();
    let (mut reader, mut sink) =
        (FrameReader::default(), Collect { stop_after: Some(2), ..Collect::default() });
    reader.read(&RefCell::new(StandardCodec::default()), Bytes::from(wire), &mut sink);
    assert_eq!(sink.frames.len(), 2);
}

fn read_datagrams<C: Codec>(codec: C, datagrams: &[&[u8]]) -> Collect {
    let mut sink = Collect::default();
    let codec = RefCell::new(codec);
    for datagram in datagrams {
        let block = Bytes::copy_from_slice(datagram);
        read_datagram(&codec, &block, &block, &mut sink);
    }
    sink
}

#[test]
fn a_frame_that_is_skipped_ends_with_its_datagram() {
    let lengths = |overlong| {
        LengthFieldCodec::builder().field_width(1).max_frame_length(10).overlong(overlong).build().unwrap()
    };
    for overlong in [Overlong::FailFast, Overlong::SkipThenFail] {
        let cut = [&[200, 1, 2, 3][..], &[2, b'o', b'k']];
        let read = read_datagrams(lengths(overlong), &cut);
        assert_eq!((read.frames, read.errors), (vec![b"ok".to_vec()], 1), "{overlong:?}");
        let cut = [&b"far too long for a line"[..], b"ok\n"];
        let line = LineCodec::new().frame_limit(10).overlong(overlong);
        let read = read_datagrams(line, &cut);
        assert_eq!((read.frames, read.errors), (vec![b"ok".to_vec()], 1), "{overlong:?}");
        let cut = [&b"far too long for a part"[..], b"ok;"];
        let delimited = DelimiterCodec::new(b";").unwrap().frame_limit(10).overlong(overlong);
        let read = read_datagrams(delimited, &cut);
        assert_eq!((read.frames, read.errors), (vec![b"ok".to_vec()], 1), "{overlong:?}");
    }
    let read = read_datagrams(Varint32Codec::with_frame_limit(10).unwrap(), &[&[99, 1], &[2, b'o', b'k']]);
    assert_eq!((read.frames, read.errors), (vec![b"ok".to_vec()], 1));
}

#[test]
fn the_half_of_a_frame_is_told_and_not_continued_by_the_next_datagram() {
    let halves = [&b"half a li"[..], b"ne\n", b"", b"a\nb\nc"];
    let read = read_datagrams(LineCodec::new(), &halves);
    assert_eq!(read.frames, [&b"ne"[..], b"a", b"b"]);
    assert_eq!(read.errors, 2);
}
