use corewire_proto::codec::{
    Codec, DecodeError, Decoded, EncodeError, FrameHead, LineCodec, LineEnding, Overlong,
};
use corewire_testkit::framing::{Event, assert_split_independent, frame, frames_of};

#[test]
fn both_endings_are_read() {
    let transcript = assert_split_independent(LineCodec::new, b"one\ntwo\r\n\n\r\na\rb\r\r\nrest");
    assert_eq!(transcript.payloads(), [&b"one"[..], b"two", b"", b"", b"a\rb\r"]);
    assert_eq!(transcript.left_over, b"rest");
}

#[test]
fn the_ending_that_is_set_is_written() {
    let mut crlf = LineCodec::new().ending(LineEnding::CrLf);
    assert_eq!(frame(&mut LineCodec::new(), FrameHead::default(), b"hi").unwrap(), b"hi\n");
    assert_eq!(frame(&mut crlf, FrameHead::default(), b"hi").unwrap(), b"hi\r\n");
}

#[test]
fn a_payload_that_would_not_come_out_as_it_is_is_refused() {
    let mut lf = LineCodec::new();
    let mut crlf = LineCodec::new().ending(LineEnding::CrLf);
    let contains = |at| Err(EncodeError::ContainsDelimiter { at });
    assert_eq!(frame(&mut lf, FrameHead::default(), b"a\nb"), contains(1));
    assert_eq!(frame(&mut crlf, FrameHead::default(), b"a\nb"), contains(1));
    assert_eq!(frame(&mut lf, FrameHead::default(), b"ab\r"), contains(2));
    let kept = frame(&mut crlf, FrameHead::default(), b"ab\r").unwrap();
    assert_eq!(frames_of(&mut crlf, [kept]).payloads(), [b"ab\r"]);
}

#[test]
fn a_line_at_the_limit_passes_and_a_longer_one_is_skipped() {
    for overlong in [Overlong::FailFast, Overlong::SkipThenFail] {
        let new = || LineCodec::new().frame_limit(4).overlong(overlong);
        let transcript = assert_split_independent(new, b"four\r\nfives\nfar too long\r\nok\n");
        let payloads = transcript.payloads();
        assert_eq!(payloads, [b"four".as_slice(), b"ok"]);
        assert_eq!(transcript.events[1..3], [Event::Unreadable, Event::Unreadable]);
    }
    let error = frame(&mut LineCodec::new().frame_limit(4), FrameHead::default(), b"fives").unwrap_err();
    assert_eq!(error, EncodeError::TooLong { len: 5, limit: 4 });
}

#[test]
fn an_endless_line_fails_as_soon_as_it_cannot_be_within_the_limit() {
    let mut codec = LineCodec::new().frame_limit(4);
    assert_eq!(codec.decode(b"fours"), Ok(Decoded::Incomplete { needed: 6 }));
    let error = codec.decode(b"fourss").unwrap_err();
    assert_eq!(error, DecodeError::FrameTooLong { len: 6, limit: 4, recoverable: true });
    // One byte is kept for the front of a delimiter; the line's end is still to come.
    assert_eq!(codec.decode(b"fourss"), Ok(Decoded::Skipped { consumed: 5 }));
    assert_eq!(codec.decode(b"s"), Ok(Decoded::Incomplete { needed: 2 }));
    assert_eq!(codec.decode(b"s\nok\n"), Ok(Decoded::Skipped { consumed: 2 }));
    assert!(matches!(codec.decode(b"ok\n"), Ok(Decoded::Frame { consumed: 3, .. })));
}

#[test]
fn the_error_waits_for_the_end_of_the_line_where_that_is_set() {
    let mut codec = LineCodec::new().frame_limit(1).overlong(Overlong::SkipThenFail);
    assert_eq!(codec.decode(b"abcd"), Ok(Decoded::Skipped { consumed: 3 }));
    assert_eq!(codec.decode(b"de"), Ok(Decoded::Skipped { consumed: 1 }));
    assert!(matches!(codec.decode(b"e\n"), Err(DecodeError::FrameTooLong { recoverable: true, .. })));
    assert_eq!(codec.decode(b"e\n"), Ok(Decoded::Skipped { consumed: 2 }));
}

/// Not a measurement: 1 MiB byte by byte would take minutes if each call looked at all bytes again.
#[test]
fn a_slow_drip_of_bytes_is_not_scanned_again_and_again() {
    let line = vec![b'x'; 1 << 20];
    let mut codec = LineCodec::new();
    for have in 1..=line.len() {
        assert_eq!(codec.decode(&line[..have]), Ok(Decoded::Incomplete { needed: have + 1 }));
    }
}
