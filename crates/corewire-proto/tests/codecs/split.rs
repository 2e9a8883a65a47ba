//! However a stream falls into chunks, the same frames come out; and whatever the bytes are, nothing panics.

use corewire_proto::codec::{
    ByteOrder, Codec, DelimiterCodec, FixedLengthCodec, LengthFieldCodec, LineCodec, LineEnding, Overlong,
    StandardCodec, Varint32Codec,
};
use corewire_testkit::framing::{cut, frame, frames_of};
use proptest::collection::vec;
use proptest::prelude::*;

/// Payloads written as one stream come out of any cut of it, in order and unchanged.
fn check_payloads<C: Codec>(new: impl Fn() -> C, payloads: &[Vec<u8>], points: &[usize]) {
    let mut stream = Vec::new();
    let mut written = Vec::new();
    for (number, payload) in payloads.iter().enumerate() {
        if let Ok(bytes) = frame(&mut new(), new().request_head(number as u32), payload) {
            stream.extend(bytes);
            written.push(&payload[..]);
        }
    }
    let transcript = frames_of(&mut new(), cut(&stream, points));
    assert_eq!(transcript.payloads(), written);
    assert_eq!(transcript.events.len(), written.len());
    assert!(transcript.left_over.is_empty());
}

/// Any bytes give the same in one piece and cut.
fn check_bytes<C: Codec>(new: impl Fn() -> C, stream: &[u8], points: &[usize]) {
    let whole = frames_of(&mut new(), [stream]);
    assert_eq!(frames_of(&mut new(), cut(stream, points)), whole);
    assert_eq!(frames_of(&mut new(), stream.chunks(1)), whole);
}

fn length_fields() -> Vec<LengthFieldCodec> {
    let mut codecs: Vec<_> = [0, 1, 2, 4, -1, -2, -4]
        .into_iter()
        .map(|size| LengthFieldCodec::newlife(1, size).unwrap())
        .collect();
    for overlong in [Overlong::FailFast, Overlong::SkipThenFail] {
        let builder = LengthFieldCodec::builder().overlong(overlong).max_frame_length(40);
        codecs.push(builder.clone().field_width(1).length_includes_field(true).build().unwrap());
        codecs.push(builder.clone().field_width(3).length_adjustment(2).strip(5).build().unwrap());
        codecs.push(builder.field_width(8).byte_order(ByteOrder::Big).length_adjustment(-8).build().unwrap());
    }
    codecs
}

fn texts() -> Vec<LineCodec> {
    let both = [LineEnding::Lf, LineEnding::CrLf];
    let codecs = both.map(|ending| LineCodec::new().ending(ending).frame_limit(8));
    let late = codecs.clone().map(|codec| codec.overlong(Overlong::SkipThenFail));
    codecs.into_iter().chain(late).collect()
}

fn delimiters() -> Vec<DelimiterCodec> {
    let sets: [&[&[u8]]; 4] = [&[b"ab"], &[b"aa"], &[b"\n", b"\r\n"], &[b"a", b"b\n", b"\r", b"c", b"\0\0"]];
    sets.into_iter().map(|set| DelimiterCodec::any_of(set).unwrap().frame_limit(8)).collect()
}

/// Bytes of which delimiters and line ends are made, so that they come up and half come up.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'\r'), Just(b'\n'), Just(0), Just(b'x')], 0..60)
}

/// Bytes of which lengths within and over the limits are made.
fn numbers() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![4 => 0..12u8, 1 => Just(0xff), 1 => any::<u8>()], 0..120)
}

proptest! {
    #[test]
    fn any_payloads_survive_any_cut(
        payloads in vec(vec(any::<u8>(), 0..40), 0..8),
        points in vec(any::<usize>(), 0..8),
    ) {
        check_payloads(StandardCodec::new, &payloads, &points);
        check_payloads(Varint32Codec::new, &payloads, &points);
        for codec in length_fields() {
            check_payloads(|| codec.clone(), &payloads, &points);
        }
        check_payloads(|| FixedLengthCodec::new(7).unwrap(), &payloads, &points);
    }

    #[test]
    fn any_texts_survive_any_cut(
        payloads in vec(text(), 0..8),
        points in vec(any::<usize>(), 0..8),
    ) {
        for codec in texts() {
            check_payloads(|| codec.clone().frame_limit(100), &payloads, &points);
        }
        for codec in delimiters() {
            check_payloads(|| codec.clone().frame_limit(100), &payloads, &points);
        }
    }

    #[test]
    fn any_bytes_give_the_same_however_they_are_cut(
        stream in numbers(),
        points in vec(any::<usize>(), 0..8),
    ) {
        check_bytes(|| StandardCodec::new().frame_limit(50).unwrap(), &stream, &points);
        check_bytes(|| Varint32Codec::with_frame_limit(20).unwrap(), &stream, &points);
        for codec in length_fields() {
            check_bytes(|| codec.clone(), &stream, &points);
        }
    }

    #[test]
    fn any_text_gives_the_same_however_it_is_cut(
        stream in text(),
        points in vec(any::<usize>(), 0..8),
    ) {
        for codec in texts() {
            check_bytes(|| codec.clone(), &stream, &points);
        }
        for codec in delimiters() {
            check_bytes(|| codec.clone(), &stream, &points);
        }
    }
}
