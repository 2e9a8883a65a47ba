use corewire_proto::codec::{Codec, ConfigError, Decoded, DelimiterCodec, EncodeError, FrameHead, Overlong};
use corewire_testkit::framing::{Event, assert_split_independent, frame, frames_of};

fn any_of(delimiters: &[&[u8]]) -> DelimiterCodec {
    DelimiterCodec::any_of(delimiters).unwrap()
}

#[test]
fn one_delimiter_of_several_bytes_is_found_across_every_cut() {
    let transcript = assert_split_independent(|| any_of(&[b"<end>"]), b"a<end><end>b<en<end>c<e");
    assert_eq!(transcript.payloads(), [&b"a"[..], b"", b"b<en"]);
    assert_eq!(transcript.left_over, b"c<e");
}

#[test]
fn of_several_delimiters_the_one_that_ends_first_counts() {
    let transcript = assert_split_independent(|| any_of(&[b"\0", b"||"]), b"a|b||c\0||d\0");
    assert_eq!(transcript.payloads(), [&b"a|b"[..], b"c", b"", b"d"]);
}

#[test]
fn of_delimiters_that_end_together_the_longest_is_taken_off() {
    let transcript = assert_split_independent(|| any_of(&[b"\n", b"\r\n"]), b"a\nb\r\n\r\n");
    assert_eq!(transcript.payloads(), [&b"a"[..], b"b", b""]);
}

#[test]
fn more_than_three_delimiters_work_too() {
    let transcript = assert_split_independent(|| any_of(&[b";", b",", b"!", b"ab", b"?"]), b"1;2,3!4ab5?a");
    assert_eq!(transcript.payloads(), [b"1", b"2", b"3", b"4", b"5"]);
}

#[test]
fn a_delimiter_that_overlaps_itself_is_found_from_the_left() {
    let transcript = assert_split_independent(|| any_of(&[b"aa"]), b"aaaxaa");
    assert_eq!(transcript.payloads(), [&b""[..], b"ax"]);
}

#[test]
fn a_payload_that_would_end_early_is_refused() {
    let contains = |at| Err(EncodeError::ContainsDelimiter { at });
    assert_eq!(frame(&mut any_of(&[b"||"]), FrameHead::default(), b"a||b"), contains(1));
    assert_eq!(frame(&mut any_of(&[b"\0", b"||"]), FrameHead::default(), b"a||b"), contains(1));
    // The payload's last byte and the delimiter's first ones make a delimiter.
    assert_eq!(frame(&mut any_of(&[b"||"]), FrameHead::default(), b"a|"), contains(1));
    assert_eq!(frame(&mut any_of(&[b"\n", b"\r\n"]), FrameHead::default(), b"ab\r"), contains(2));
    let long = vec![b'x'; 1000];
    let bytes = frame(&mut any_of(&[b"||"]), FrameHead::default(), &long).unwrap();
    assert_eq!(frames_of(&mut any_of(&[b"||"]), [bytes]).payloads(), [long]);
}

#[test]
fn the_first_delimiter_is_written() {
    assert_eq!(frame(&mut any_of(&[b"\0", b"||"]), FrameHead::default(), b"a").unwrap(), b"a\0");
}

#[test]
fn a_frame_over_the_limit_is_skipped_and_the_next_is_read() {
    for overlong in [Overlong::FailFast, Overlong::SkipThenFail] {
        let new = || any_of(&[b"||"]).frame_limit(3).overlong(overlong);
        let transcript = assert_split_independent(new, b"abc||four||far|too|long||d||and no end");
        assert_eq!(transcript.payloads(), [&b"abc"[..], b"d"]);
        assert_eq!(transcript.events[1..3], [Event::Unreadable, Event::Unreadable]);
    }
}

#[test]
fn delimiters_that_cannot_work_are_refused() {
    let out_of_range = |delimiters: &[&[u8]]| {
        matches!(DelimiterCodec::any_of(delimiters), Err(ConfigError::OutOfRange { .. }))
    };
    assert!(out_of_range(&[]));
    assert!(out_of_range(&[b"a", b""]));
    assert!(out_of_range(&[&[b'x'; 65]]));
    assert!(DelimiterCodec::new(&[b'x'; 64]).is_ok());
    let error = DelimiterCodec::any_of(&[b"\r", b"\r\n"]).unwrap_err();
    let unreachable = ConfigError::UnreachableDelimiter { longer: b"\r\n".to_vec(), shorter: b"\r".to_vec() };
    assert_eq!(error, unreachable);
}

/// Not a measurement: 512 KiB byte by byte would take minutes if each call looked at all bytes again.
#[test]
fn a_slow_drip_of_bytes_is_not_scanned_again_and_again() {
    let stream = vec![b'x'; 512 << 10];
    for mut codec in [any_of(&[b"<end>"]), any_of(&[b"\0", b"||"])] {
        for have in 1..=stream.len() {
            assert_eq!(codec.decode(&stream[..have]), Ok(Decoded::Incomplete { needed: have + 1 }));
        }
    }
}
