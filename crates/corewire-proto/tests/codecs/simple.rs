use corewire_proto::codec::{
    Codec, ConfigError, Decoded, EncodeError, FixedLengthCodec, FrameHead, Matching, RawCodec,
};
use corewire_testkit::framing::{assert_split_independent, frame, frames_of};

#[test]
fn raw_hands_on_every_chunk_as_it_is() {
    let transcript = frames_of(&mut RawCodec, [&b"ab"[..], b"", b"c"]);
    assert_eq!(transcript.payloads(), [&b"ab"[..], b"c"]);
    assert_eq!(frame(&mut RawCodec, FrameHead::default(), b"abc").unwrap(), b"abc");
    assert_eq!(RawCodec.matching(), Matching::None);
}

#[test]
fn fixed_length_cuts_at_every_multiple() {
    let transcript = assert_split_independent(|| FixedLengthCodec::new(3).unwrap(), b"abcdefgh");
    assert_eq!(transcript.payloads(), [b"abc", b"def"]);
    assert_eq!(transcript.left_over, b"gh");
    assert_eq!(FixedLengthCodec::new(3).unwrap().decode(b"a"), Ok(Decoded::Incomplete { needed: 3 }));
}

#[test]
fn fixed_length_refuses_another_length() {
    let mut codec = FixedLengthCodec::new(3).unwrap();
    for payload in [&b""[..], b"ab", b"abcd"] {
        let error = frame(&mut codec, FrameHead::default(), payload).unwrap_err();
        assert_eq!(error, EncodeError::WrongLength { len: payload.len(), expected: 3 });
    }
    assert!(matches!(FixedLengthCodec::new(0), Err(ConfigError::OutOfRange { value: 0, .. })));
}
