use corewire_proto::codec::{
    Codec, ConfigError, DecodeError, Decoded, EncodeError, FrameHead, FrameKind, Matching, Prefix,
    StandardCodec,
};
use corewire_testkit::framing::{Event, assert_split_independent, frame, frames_of, hex};

const fn head(kind: FrameKind, sequence: u32, tag: u8) -> FrameHead {
    FrameHead { kind, sequence, tag }
}

/// The examples of the format's description.
fn examples() -> Vec<(FrameHead, &'static [u8], Vec<u8>)> {
    vec![
        (head(FrameKind::Request, 1, 1), b"Open", hex("01 01 0400 4f70656e")),
        (head(FrameKind::Reply, 1, 1), b"OK", hex("81 01 0200 4f4b")),
        (head(FrameKind::ErrorReply, 1, 1), b"no", hex("c1 01 0200 6e6f")),
        (head(FrameKind::OneWay, 1, 1), b"hi", hex("41 01 0200 6869")),
        (head(FrameKind::Request, 2, StandardCodec::STRING), b"hi", hex("00 02 0200 6869")),
        (head(FrameKind::Request, 5, 1), b"", hex("01 05 0000")),
    ]
}

#[test]
fn examples_are_written_and_read_as_described() {
    for (head, payload, bytes) in examples() {
        assert_eq!(frame(&mut StandardCodec::new(), head, payload).unwrap(), bytes);
        let transcript = frames_of(&mut StandardCodec::new(), [&bytes]);
        assert_eq!(transcript.events, [Event::Frame(head, payload.to_vec())]);
    }
}

#[test]
fn every_cut_of_the_examples_gives_the_same_frames() {
    let stream: Vec<u8> = examples().into_iter().flat_map(|(_, _, bytes)| bytes).collect();
    let transcript = assert_split_independent(StandardCodec::new, &stream);
    assert_eq!(transcript.events.len(), 6);
    assert!(transcript.left_over.is_empty());
}

#[test]
fn the_long_form_begins_at_65_535_bytes() {
    let request = head(FrameKind::Request, 7, 1);
    for (length, header) in
        [(65_534, "01 07 feff"), (65_535, "01 07 ffff ffff0000"), (65_536, "01 07 ffff 00000100")]
    {
        let payload = vec![0x5a; length];
        let mut prefix = Prefix::new();
        StandardCodec::new().encode(request, &payload, &mut prefix).unwrap();
        assert_eq!(prefix.as_slice(), hex(header));
        let mut bytes = prefix.as_slice().to_vec();
        bytes.extend_from_slice(&payload);
        let transcript = frames_of(&mut StandardCodec::new(), bytes.chunks(1000));
        assert_eq!(transcript.events, [Event::Frame(request, payload)]);
    }
}

#[test]
fn a_long_form_that_was_not_needed_is_read_all_the_same() {
    let transcript = frames_of(&mut StandardCodec::new(), [hex("01 07 ffff 02000000 6869")]);
    assert_eq!(transcript.payloads(), [b"hi"]);
}

#[test]
fn a_header_cut_anywhere_asks_for_the_rest_of_the_header_then_of_the_frame() {
    let bytes = hex("01 07 ffff 02000100");
    let mut codec = StandardCodec::new();
    for (have, needed) in [(1, 4), (3, 4), (4, 8), (5, 8), (7, 8), (8, 65_546)] {
        assert_eq!(codec.decode(&bytes[..have]), Ok(Decoded::Incomplete { needed }));
    }
}

#[test]
fn a_length_over_the_limit_or_negative_is_an_error_at_once() {
    let cases = [
        ("01 01 ffff 01000001", 16_777_217),
        ("01 01 ffff ffffff7f", 2_147_483_647),
        ("01 01 ffff 00000080", -2_147_483_648),
        ("01 01 ffff ffffffff", -1),
    ];
    for (bytes, len) in cases {
        let error = StandardCodec::new().decode(&hex(bytes)).unwrap_err();
        assert_eq!(error, DecodeError::FrameTooLong { len, limit: 16_777_216, recoverable: false });
        assert!(!error.is_recoverable());
    }
    let at_limit = StandardCodec::new().decode(&hex("01 01 ffff 00000001"));
    assert_eq!(at_limit, Ok(Decoded::Incomplete { needed: 16_777_224 }));
}

#[test]
fn the_limit_holds_for_short_frames_and_for_sending() {
    let mut codec = StandardCodec::new().frame_limit(3).unwrap();
    assert!(matches!(
        codec.decode(&hex("01 01 0400")),
        Err(DecodeError::FrameTooLong { len: 4, limit: 3, .. })
    ));
    let error = frame(&mut codec, FrameHead::default(), b"four").unwrap_err();
    assert_eq!(error, EncodeError::TooLong { len: 4, limit: 3 });
    assert!(frame(&mut codec, FrameHead::default(), b"abc").is_ok());
}

#[test]
fn numbers_that_do_not_fit_are_refused_not_cut() {
    let error = frame(&mut StandardCodec::new(), head(FrameKind::Request, 256, 1), b"").unwrap_err();
    assert!(matches!(error, EncodeError::HeadOutOfRange { value: 256, limit: 255, .. }));
    let error = frame(&mut StandardCodec::new(), head(FrameKind::Request, 1, 64), b"").unwrap_err();
    assert!(matches!(error, EncodeError::HeadOutOfRange { value: 64, limit: 63, .. }));
}

#[test]
fn a_plain_message_is_sent_as_one_way() {
    let bytes = frame(&mut StandardCodec::new(), head(FrameKind::Message, 0, 1), b"").unwrap();
    assert_eq!(bytes, hex("41 00 0000"));
}

#[test]
fn the_data_kind_goes_into_what_this_side_begins() {
    let codec = StandardCodec::new().data_kind(StandardCodec::JSON).unwrap();
    assert_eq!(codec.request_head(9), head(FrameKind::Request, 9, 3));
    assert_eq!(codec.one_way_head().tag, 3);
    assert_eq!(StandardCodec::new().request_head(9).tag, StandardCodec::PACKET);
    assert_eq!(codec.matching(), Matching::Sequence { modulus: 256 });
}

#[test]
fn a_reply_carries_the_kind_and_number_of_its_request() {
    let request = head(FrameKind::Request, 200, StandardCodec::BINARY_OBJECT);
    assert_eq!(frame(&mut StandardCodec::new(), request.reply(), b"").unwrap(), hex("82 c8 0000"));
    assert_eq!(frame(&mut StandardCodec::new(), request.error_reply(), b"").unwrap(), hex("c2 c8 0000"));
}

#[test]
fn settings_out_of_range_are_refused() {
    let error = StandardCodec::new().frame_limit(1 << 31).unwrap_err();
    assert!(matches!(error, ConfigError::OutOfRange { setting: "frame_limit", .. }));
    let error = StandardCodec::new().data_kind(64).unwrap_err();
    assert!(matches!(error, ConfigError::OutOfRange { setting: "data_kind", value: 64, .. }));
}
