use corewire_proto::codec::{
    Codec, ConfigError, DecodeError, Decoded, EncodeError, FrameHead, Prefix, Varint32Codec,
};
use corewire_testkit::framing::{Event, assert_split_independent, frame, hex};

#[test]
fn lengths_are_written_as_protobuf_does() {
    let cases = [
        (0, "00"),
        (5, "05"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_384, "808001"),
        (65_536, "808004"),
    ];
    for (length, bytes) in cases {
        let mut prefix = Prefix::new();
        Varint32Codec::new().encode(FrameHead::default(), &vec![0; length], &mut prefix).unwrap();
        assert_eq!(prefix.as_slice(), hex(bytes), "{length}");
    }
}

#[test]
fn frames_come_out_the_same_however_they_are_cut() {
    let mut codec = Varint32Codec::new();
    let mut stream = Vec::new();
    for length in [0, 1, 127, 128, 300] {
        stream.extend(frame(&mut codec, FrameHead::default(), &vec![length as u8; length]).unwrap());
    }
    let transcript = assert_split_independent(Varint32Codec::new, &stream);
    assert_eq!(
        transcript.payloads().iter().map(|payload| payload.len()).collect::<Vec<_>>(),
        [0, 1, 127, 128, 300]
    );
}

#[test]
fn a_cut_varint_asks_for_one_more_byte() {
    for have in 1..5 {
        assert_eq!(
            Varint32Codec::new().decode(&[0x80; 5][..have]),
            Ok(Decoded::Incomplete { needed: have + 1 })
        );
    }
}

#[test]
fn a_varint_of_more_than_32_bits_ends_the_connection() {
    for bytes in ["8080808080", "ffffffffffffffffff01", "ffffffff10", "ffffffffff"] {
        let error = Varint32Codec::new().decode(&hex(bytes)).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed { .. }), "{bytes}: {error}");
        assert!(!error.is_recoverable());
    }
}

#[test]
fn the_largest_and_the_negative_lengths_of_32_bits_are_too_long_not_negative() {
    for (bytes, value) in [("ffffffff07", 2_147_483_647), ("ffffffff0f", 4_294_967_295)] {
        let error = Varint32Codec::new().decode(&hex(bytes)).unwrap_err();
        assert!(matches!(error, DecodeError::FrameTooLong { len, .. } if len == value + 5), "{error}");
    }
}

#[test]
fn a_frame_over_the_limit_is_skipped_and_the_next_is_read() {
    let new = || Varint32Codec::with_frame_limit(10).unwrap();
    let mut stream = hex("0b");
    stream.extend([0; 11]);
    stream.extend(hex("02 6869"));
    let transcript = assert_split_independent(new, &stream);
    assert_eq!(transcript.events[0], Event::Unreadable);
    assert_eq!(transcript.payloads(), [b"hi"]);
    let error = frame(&mut new(), FrameHead::default(), &[0; 6]).unwrap_err();
    assert_eq!(error, EncodeError::TooLong { len: 6, limit: 5 });
}

#[test]
fn a_limit_without_room_for_the_varint_is_refused() {
    assert!(matches!(
        Varint32Codec::with_frame_limit(4),
        Err(ConfigError::HeaderTooLong { header: 5, limit: 4 })
    ));
}
