use corewire_proto::codec::{
    ByteOrder, Codec, ConfigError, DecodeError, Decoded, EncodeError, FrameHead, LengthFieldBuilder,
    LengthFieldCodec, Matching, Overlong, Prefix,
};
use corewire_testkit::framing::{Event, assert_split_independent, frame, frames_of, hex};

const SIZES: [i32; 7] = [0, 1, 2, 4, -1, -2, -4];

fn header(codec: &mut LengthFieldCodec, length: usize) -> Result<Vec<u8>, EncodeError> {
    let mut prefix = Prefix::new();
    let result = codec.encode(FrameHead::default(), &vec![0; length], &mut prefix);
    result.map(|()| prefix.as_slice().to_vec())
}

#[test]
fn newlife_lengths_are_written_as_described() {
    // Sizes 0, 1, 2, 4, -2, -4.
    let table: [(usize, [&str; 6]); 4] = [
        (5, ["05", "05", "0500", "05000000", "0005", "00000005"]),
        (128, ["8001", "80", "8000", "80000000", "0080", "00000080"]),
        (300, ["ac02", "error", "2c01", "2c010000", "012c", "0000012c"]),
        (65_536, ["808004", "error", "error", "00000100", "error", "00010000"]),
    ];
    for (length, row) in table {
        for (size, expected) in [0, 1, 2, 4, -2, -4].into_iter().zip(row) {
            let written = header(&mut LengthFieldCodec::newlife(0, size).unwrap(), length);
            match expected {
                "error" => {
                    let limit = if size == 1 { 255 } else { 65_535 };
                    assert_eq!(written, Err(EncodeError::TooLong { len: length, limit }));
                }
                bytes => assert_eq!(written.unwrap(), hex(bytes), "{length} as {size}"),
            }
        }
    }
}

#[test]
fn newlife_frames_are_read_back_from_every_cut() {
    for size in SIZES {
        for offset in [0, 3] {
            let new = || LengthFieldCodec::newlife(offset, size).unwrap();
            let mut stream = Vec::new();
            for payload in [&b"Hello"[..], b"", &[7; 200]] {
                stream.extend(frame(&mut new(), FrameHead::default(), payload).unwrap());
            }
            let transcript = assert_split_independent(new, &stream);
            assert_eq!(transcript.payloads(), [&b"Hello"[..], b"", &[7; 200]], "{size} {offset}");
            assert!(transcript.left_over.is_empty());
        }
    }
}

#[test]
fn offset_bytes_are_zero_when_written_and_ignored_when_read() {
    let mut codec = LengthFieldCodec::newlife(3, 2).unwrap();
    assert_eq!(frame(&mut codec, FrameHead::default(), b"hi").unwrap(), hex("000000 0200 6869"));
    assert_eq!(frames_of(&mut codec, [hex("aabbcc 0200 6869")]).payloads(), [b"hi"]);
}

#[test]
fn a_chunk_that_ends_inside_the_length_field_is_only_incomplete() {
    for size in SIZES {
        let mut codec = LengthFieldCodec::newlife(2, size).unwrap();
        let header = 2 + size.unsigned_abs().max(1) as usize;
        for have in 1..header {
            assert_eq!(
                codec.decode(&[0xff; 8][..have]),
                Ok(Decoded::Incomplete { needed: header }),
                "{size}"
            );
        }
    }
}

#[test]
fn an_unknown_newlife_size_is_refused() {
    for size in [3, -3, 8, 5, i32::MIN] {
        assert!(matches!(
            LengthFieldCodec::newlife(0, size),
            Err(ConfigError::OutOfRange { setting: "size", .. })
        ));
    }
}

#[test]
fn the_default_is_two_little_endian_bytes_matched_in_order() {
    let mut codec = LengthFieldCodec::default();
    assert_eq!(header(&mut codec, 300).unwrap(), hex("2c01"));
    assert_eq!(codec.matching(), Matching::Fifo);
    assert_eq!(header(&mut LengthFieldBuilder::default().build().unwrap(), 300).unwrap(), hex("2c01"));
}

/// The cases of the decoder's own documentation in Netty: field at the front, in the middle, with the header
/// stripped or not, and a length that counts everything. Each header is followed by "HELLO, WORLD".
#[test]
fn netty_parameters_mean_what_they_mean_in_netty() {
    let cases = [
        // offset, width, adjustment, strip, header, bytes of the header that are shown
        (0, 2, 0, 0, "000c", 2),
        (0, 2, 0, 2, "000c", 0),
        (0, 2, -2, 0, "000e", 2),
        (2, 3, 0, 0, "cafe 00000c", 5),
        (0, 3, 2, 0, "00000c cafe", 5),
        (1, 2, 1, 3, "ca 000c fe", 1),
        (1, 2, -3, 3, "ca 0010 fe", 1),
    ];
    for (offset, width, adjustment, strip, header, shown) in cases {
        let new = || {
            let builder = LengthFieldCodec::builder().field_offset(offset).field_width(width).strip(strip);
            builder.byte_order(ByteOrder::Big).length_adjustment(adjustment).build().unwrap()
        };
        let mut one = hex(header);
        let from = one.len() - shown;
        one.extend(b"HELLO, WORLD");
        let transcript = assert_split_independent(new, &one.repeat(2));
        assert_eq!(transcript.payloads(), [&one[from..]; 2], "{header}");
    }
}

#[test]
fn what_is_written_is_what_is_read_for_all_widths_and_adjustments() {
    for width in [1, 2, 3, 4, 8] {
        for order in [ByteOrder::Big, ByteOrder::Little] {
            for (adjustment, includes, strip) in
                [(0, false, None), (-3, false, None), (2, false, Some(12)), (0, true, None)]
            {
                let mut builder =
                    LengthFieldCodec::builder().field_offset(2).field_width(width).byte_order(order);
                builder = builder.length_adjustment(adjustment).length_includes_field(includes);
                if let Some(strip) = strip {
                    builder = builder.strip(strip);
                }
                let mut codec = builder.build().unwrap();
                let bytes = frame(&mut codec, FrameHead::default(), b"payload").unwrap();
                assert_eq!(
                    frames_of(&mut codec, [bytes]).payloads(),
                    [b"payload"],
                    "{width} {order:?} {adjustment}"
                );
            }
        }
    }
}

#[test]
fn a_length_that_includes_the_field_counts_its_width() {
    let builder = LengthFieldCodec::builder().field_width(4).byte_order(ByteOrder::Big);
    let mut codec = builder.length_includes_field(true).build().unwrap();
    assert_eq!(frame(&mut codec, FrameHead::default(), b"hi").unwrap(), hex("00000006 6869"));
    let error = codec.decode(&hex("00000003")).unwrap_err();
    assert!(matches!(error, DecodeError::Malformed { value: 3, .. }));
}

#[test]
fn the_prepender_writes_only_the_field() {
    let builder = || LengthFieldCodec::builder().field_offset(4).field_width(2).byte_order(ByteOrder::Big);
    let mut plain = builder().prepend(0, false).build().unwrap();
    assert_eq!(frame(&mut plain, FrameHead::default(), b"HELLO, WORLD").unwrap()[..2], hex("000c"));
    let mut including = builder().prepend(0, true).build().unwrap();
    assert_eq!(header(&mut including, 12).unwrap(), hex("000e"));
    let mut adjusted = builder().prepend(-5, false).build().unwrap();
    assert_eq!(header(&mut adjusted, 12).unwrap(), hex("0007"));
    assert_eq!(header(&mut adjusted, 5).unwrap(), hex("0000"));
    assert_eq!(header(&mut adjusted, 4), Err(EncodeError::TooShort { len: 4, least: 5 }));
}

#[test]
fn a_frame_over_the_limit_fails_at_once_or_after_it_and_the_next_is_read() {
    for overlong in [Overlong::FailFast, Overlong::SkipThenFail] {
        let new = || LengthFieldCodec::builder().max_frame_length(6).overlong(overlong).build().unwrap();
        let stream = hex("0400 61626364  0500 6162636465  0200 6869");
        let transcript = assert_split_independent(new, &stream);
        assert_eq!(transcript.payloads(), [&b"abcd"[..], b"hi"]);
        assert_eq!(transcript.events[1], Event::Unreadable);
    }
}

#[test]
fn fail_fast_fails_on_the_header_and_skip_then_fail_on_the_last_byte() {
    let error = DecodeError::FrameTooLong { len: 7, limit: 6, recoverable: true };
    let bytes = hex("0500 6162636465 01");
    let builder = LengthFieldCodec::builder().max_frame_length(6);

    let mut fast = builder.clone().build().unwrap();
    assert_eq!(fast.decode(&bytes[..2]), Err(error.clone()));
    assert_eq!(fast.decode(&bytes[..2]), Ok(Decoded::Skipped { consumed: 2 }));
    assert_eq!(fast.decode(&bytes[2..]), Ok(Decoded::Skipped { consumed: 5 }));
    assert_eq!(fast.decode(&bytes[7..]), Ok(Decoded::Incomplete { needed: 2 }));

    let mut late = builder.overlong(Overlong::SkipThenFail).build().unwrap();
    assert_eq!(late.decode(&bytes[..2]), Ok(Decoded::Skipped { consumed: 2 }));
    assert_eq!(late.decode(&bytes[2..6]), Ok(Decoded::Skipped { consumed: 4 }));
    assert_eq!(late.decode(&bytes[6..]), Err(error));
    assert_eq!(late.decode(&bytes[6..]), Ok(Decoded::Skipped { consumed: 1 }));
    assert_eq!(late.decode(&bytes[7..]), Ok(Decoded::Incomplete { needed: 2 }));
}

#[test]
fn a_length_below_the_header_ends_the_connection() {
    let builder = LengthFieldCodec::builder().field_width(4).byte_order(ByteOrder::Big);
    let mut codec = builder.clone().length_adjustment(-4).build().unwrap();
    let error = codec.decode(&hex("00000003 00")).unwrap_err();
    assert!(matches!(error, DecodeError::Malformed { value: 3, .. }));
    assert!(!error.is_recoverable());
    assert!(codec.decode(&hex("00000004")).is_ok());
    let mut codec = builder.strip(6).build().unwrap();
    assert!(matches!(codec.decode(&hex("00000001 00")), Err(DecodeError::Malformed { value: 1, .. })));
}

#[test]
fn extreme_lengths_of_eight_bytes_neither_overflow_nor_wait() {
    for adjustment in [0, i32::MAX, i32::MIN] {
        let builder = LengthFieldCodec::builder().field_width(8).byte_order(ByteOrder::Big);
        // A length that cannot say an empty payload is refused for small fields only.
        let mut codec = builder.length_adjustment(adjustment).build().unwrap();
        for bytes in ["7fffffffffffffff", "4000000000000001", "00000000ffffffff"] {
            let error = codec.clone().decode(&hex(bytes)).unwrap_err();
            assert!(matches!(error, DecodeError::FrameTooLong { recoverable: true, .. }), "{error}");
        }
        for (bytes, value) in [("ffffffffffffffff", -1), ("8000000000000000", i128::from(i64::MIN))] {
            let error = codec.decode(&hex(bytes)).unwrap_err();
            assert_eq!(error, DecodeError::Malformed { what: "a negative length", value });
        }
    }
}

#[test]
fn the_largest_length_is_reported_exactly_and_skipped_without_end() {
    let builder = LengthFieldCodec::builder().field_width(8).byte_order(ByteOrder::Big);
    let mut codec = builder.length_adjustment(i32::MAX).build().unwrap();
    let len = i128::from(i64::MAX) + i128::from(i32::MAX) + 8;
    let bytes = hex("7fffffffffffffff");
    assert_eq!(
        codec.decode(&bytes),
        Err(DecodeError::FrameTooLong { len, limit: 16 << 20, recoverable: true })
    );
    for _ in 0..3 {
        assert_eq!(codec.decode(&bytes), Ok(Decoded::Skipped { consumed: 8 }));
    }
}

#[test]
fn contradicting_settings_are_refused() {
    let builder = LengthFieldCodec::builder;
    let out_of_range = |builder: LengthFieldBuilder, name: &str| matches!(builder.build(), Err(ConfigError::OutOfRange { setting, .. }) if setting == name);
    for width in [0, 5, 6, 7, 9, usize::MAX] {
        assert!(out_of_range(builder().field_width(width), "field_width"));
    }
    assert!(out_of_range(builder().max_frame_length(usize::MAX), "max_frame_length"));
    assert!(out_of_range(builder().field_width(1).length_adjustment(-256), "length_adjustment"));
    let too_long =
        |builder: LengthFieldBuilder| matches!(builder.build(), Err(ConfigError::HeaderTooLong { .. }));
    assert!(too_long(builder().field_offset(usize::MAX)));
    assert!(too_long(builder().field_offset(63)));
    assert!(builder().field_offset(62).build().is_ok());
    assert!(too_long(builder().strip(65)));
    assert!(too_long(builder().max_frame_length(1)));
    let conflict = |builder: LengthFieldBuilder| matches!(builder.build(), Err(ConfigError::Conflict(_)));
    assert!(conflict(builder().varint().length_includes_field(true)));
    assert!(conflict(builder().varint().prepend(0, true)));
    assert!(conflict(builder().varint().strip(1)));
    assert!(builder().varint().field_offset(1).strip(1).build().is_ok());
}

#[test]
fn the_limit_holds_for_sending_too() {
    let mut codec = LengthFieldCodec::builder().max_frame_length(6).build().unwrap();
    assert_eq!(header(&mut codec, 4).unwrap(), hex("0400"));
    assert_eq!(header(&mut codec, 5), Err(EncodeError::TooLong { len: 5, limit: 4 }));
}
