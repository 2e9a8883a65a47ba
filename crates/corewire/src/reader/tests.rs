use corewire_proto::codec::{
    DelimiterCodec, EncodeError, FrameHead, LengthFieldCodec, LineCodec, Overlong, Prefix, StandardCodec,
    Varint32Codec,
};

use super::*;

/// Collects frames; checks that payloads lie in their block.
#[derive(Default)]
struct Collect {
    frames: Vec<Vec<u8>>,
    errors: usize,
    /// Stops at each multiple of this many frames and errors.
    stop_every: Option<usize>,
}

impl Collect {
    fn goes_on(&self) -> bool {
        self.stop_every.is_none_or(|every| !(self.frames.len() + self.errors).is_multiple_of(every))
    }
}

impl FrameSink for Collect {
    fn frame(&mut self, frame: Frame<'_>) -> bool {
        assert_eq!(frame.shared(), frame.payload());
        self.frames.push(frame.payload().to_vec());
        self.goes_on()
    }

    fn error(&mut self, error: DecodeError) -> bool {
        self.errors += 1;
        error.is_recoverable() && self.goes_on()
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
        assert!(reader.read(&codec, Bytes::copy_from_slice(piece), &mut sink).is_empty());
    }
    assert_eq!(reader.pending(), 0);
    sink
}

/// As `read_in_pieces`, with a sink that stops after each `stop_every` frames and errors.
fn read_with_stops<C: Codec>(codec: C, wire: &[u8], step: usize, stop_every: usize) -> Collect {
    let mut reader = FrameReader::default();
    let mut sink = Collect { stop_every: Some(stop_every), ..Collect::default() };
    let codec = RefCell::new(codec);
    for piece in wire.chunks(step) {
        let mut data = Bytes::copy_from_slice(piece);
        while !data.is_empty() {
            let events = sink.frames.len() + sink.errors;
            data = reader.read(&codec, data, &mut sink);
            assert!(sink.frames.len() + sink.errors <= events + stop_every, "no frame after a stop");
        }
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
    assert!(reader.read(&codec, Bytes::copy_from_slice(&header), &mut sink).is_empty());
    let partial = reader.partial.as_ref().expect("the beginning of a frame");
    assert_eq!(partial.needed, 8 + 0x00f0_0000);
    assert!(reader.held() < 1024, "{} bytes", reader.held());
}

#[test]
fn a_sink_that_has_enough_gets_no_more() {
    let wire = wire(&mut StandardCodec::default(), &payloads()).unwrap();
    let (mut reader, mut sink) =
        (FrameReader::default(), Collect { stop_every: Some(2), ..Collect::default() });
    let rest = reader.read(&RefCell::new(StandardCodec::default()), Bytes::from(wire.clone()), &mut sink);
    assert_eq!(sink.frames.len(), 2);
    assert_eq!(rest, wire[4 + 5..], "all behind the second frame is handed back");
    assert_eq!(reader.pending(), 0);
}

#[test]
fn stopping_at_any_frame_and_going_on_with_the_rest_gives_the_same_frames() {
    let payloads: Vec<Vec<u8>> =
        [0_usize, 1, 30, 200, 5000, 1, 0, 9_000, 3].iter().map(|&len| vec![b'x'; len]).collect();
    let standard = wire(&mut StandardCodec::default(), &payloads).unwrap();
    let line = wire(&mut LineCodec::new(), &payloads).unwrap();
    for step in (1..64).chain([250, 4096, 4097, 8191, 1 << 20]) {
        for every in 1..=payloads.len() {
            let read = read_with_stops(StandardCodec::default(), &standard, step, every);
            assert_eq!(read.frames, payloads, "step {step}, a stop at each {every}");
            let read = read_with_stops(LineCodec::new(), &line, step, every);
            assert_eq!(read.frames, payloads, "step {step}, a stop at each {every}");
        }
    }
}

#[test]
fn stopping_at_an_error_and_going_on_with_the_rest_gives_the_same_frames() {
    let limited = || LineCodec::new().frame_limit(100).overlong(Overlong::SkipThenFail);
    let lines = wire(&mut LineCodec::new(), &[vec![b'a'; 10], vec![b'b'; 5000], vec![b'c'; 10]]).unwrap();
    assert_stops_change_nothing(limited, &lines);
    assert_stops_change_nothing(Resynchronizing::default, RESYNCHRONIZED);
}

fn assert_stops_change_nothing<C: Codec>(new: impl Fn() -> C, wire: &[u8]) {
    let whole = read_in_pieces(new(), wire, usize::MAX);
    assert!(whole.errors > 0);
    for step in 1..=wire.len().min(300) {
        for every in 1..=3 {
            let read = read_with_stops(new(), wire, step, every);
            assert_eq!(read.frames, whole.frames, "step {step}, a stop at each {every}");
            assert_eq!(read.errors, whole.errors, "step {step}, a stop at each {every}");
        }
    }
}

/// Frames of one length byte and as many bytes, whose last must be `.`. After an error it steps over the length byte
/// alone, so what was kept as the beginning of a frame may turn out to hold whole ones.
#[derive(Default)]
struct Resynchronizing {
    has_failed: bool,
}

/// A frame; one that announces 40 bytes and is wrong, in which three whole frames lie; a frame.
const RESYNCHRONIZED: &[u8] =
    b"\x02a.\x28\x03bb.\x01.\x05cccc.\x02d.\x02e.\x02f.\x02g.\x02h.\x02i.\x02j.\x02k.\x02l.\x02m.";

impl Codec for Resynchronizing {
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        if std::mem::take(&mut self.has_failed) {
            return Ok(Decoded::Skipped { consumed: 1 });
        }
        let len = usize::from(input[0]);
        match input.get(1..=len) {
            None => Ok(Decoded::Incomplete { needed: 1 + len }),
            Some([.., b'.']) => {
                Ok(Decoded::Frame { head: FrameHead::default(), payload: 1..1 + len, consumed: 1 + len })
            }
            Some(_) => {
                self.has_failed = true;
                Err(DecodeError::Payload("no dot at its end".to_owned()))
            }
        }
    }

    fn encode(&mut self, _: FrameHead, _: &[u8], _: &mut Prefix) -> Result<(), EncodeError> {
        Ok(())
    }
}

#[test]
fn whole_frames_in_what_was_kept_do_not_wait_for_more_bytes() {
    let codec = RefCell::new(Resynchronizing::default());
    let (mut reader, mut sink) = (FrameReader::default(), Collect::default());
    // 6 bytes are announced; the last of them shows that they were none, and that three frames lie in them.
    for piece in [&b"\x06\x01.\x01.\x01"[..], b"x"] {
        assert!(reader.read(&codec, Bytes::copy_from_slice(piece), &mut sink).is_empty());
    }
    assert_eq!(sink.frames, [b".", b"."]);
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
