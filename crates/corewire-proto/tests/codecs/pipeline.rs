#![cfg(feature = "json")]

use corewire_proto::codec::{
    Codec, DecodeError, EncodeError, FrameHead, FrameKind, JsonCodec, LineCodec, Pipeline, PipelineDecoded,
    StandardCodec,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

fn orders() -> Pipeline<StandardCodec, JsonCodec<Order>> {
    Pipeline::new(StandardCodec::new().data_kind(StandardCodec::JSON).unwrap(), JsonCodec::new())
}

#[test]
fn a_value_goes_through_framing_and_json_and_back() {
    let mut pipeline = orders();
    let order = Order { item: "tea".into(), count: 2 };
    let head = pipeline.framing().request_head(7);
    let mut wire = Vec::new();
    pipeline.encode(head, &order, &mut wire).unwrap();
    assert_eq!(&wire[..4], [0x03, 0x07, 24, 0]);
    assert_eq!(&wire[4..], br#"{"item":"tea","count":2}"#);
    let consumed = wire.len();
    assert_eq!(pipeline.decode(&wire), Ok(PipelineDecoded::Value { head, value: order, consumed }));
    assert_eq!(head.kind, FrameKind::Request);
}

#[test]
fn an_unreadable_payload_is_an_error_once_and_then_stepped_over() {
    let mut pipeline = Pipeline::new(LineCodec::new(), JsonCodec::<u32>::new());
    let stream = b"1\nx\n2\n";
    assert!(matches!(pipeline.decode(stream), Ok(PipelineDecoded::Value { value: 1, consumed: 2, .. })));
    let error = pipeline.decode(&stream[2..]).unwrap_err();
    assert!(matches!(error, DecodeError::Payload(_)) && error.is_recoverable());
    assert_eq!(pipeline.decode(&stream[2..]), Ok(PipelineDecoded::Skipped { consumed: 2 }));
    assert!(matches!(
        pipeline.decode(&stream[4..]),
        Ok(PipelineDecoded::Value { value: 2, consumed: 2, .. })
    ));
}

#[test]
fn what_follows_the_value_in_a_payload_is_not_dropped_silently() {
    let mut pipeline = Pipeline::new(LineCodec::new(), JsonCodec::<u32>::new());
    assert!(matches!(pipeline.decode(b"1 2\n"), Err(DecodeError::Payload(_))));
    assert!(matches!(pipeline.decode(b"1 2\n"), Ok(PipelineDecoded::Skipped { consumed: 4 })));
    assert!(matches!(pipeline.decode(b" 1 \n"), Ok(PipelineDecoded::Value { value: 1, .. })));
}

#[test]
fn incomplete_and_skipped_come_through() {
    let mut pipeline = Pipeline::new(LineCodec::new().frame_limit(1), JsonCodec::<u32>::new());
    assert_eq!(pipeline.decode(b"1"), Ok(PipelineDecoded::Incomplete { needed: 2 }));
    assert!(pipeline.decode(b"123\n").is_err());
    assert_eq!(pipeline.decode(b"123\n"), Ok(PipelineDecoded::Skipped { consumed: 4 }));
}

#[test]
fn nothing_is_written_when_either_codec_refuses() {
    let mut out = b"before".to_vec();
    let mut small = Pipeline::new(StandardCodec::new().frame_limit(3).unwrap(), JsonCodec::<u32>::new());
    let error = small.encode(FrameHead::default(), &12_345, &mut out).unwrap_err();
    assert!(matches!(error, EncodeError::TooLong { len: 5, limit: 3 }));
    // A map whose keys are not texts is no JSON.
    type Map = std::collections::BTreeMap<Vec<u8>, u32>;
    let mut maps = Pipeline::new(LineCodec::new(), JsonCodec::<Map>::new());
    let map = Map::from([(vec![1], 2)]);
    assert!(matches!(maps.encode(FrameHead::default(), &map, &mut out), Err(EncodeError::Value(_))));
    assert_eq!(out, b"before");
    small.encode(FrameHead::default(), &123, &mut out).unwrap();
    assert_eq!(&out[6..], b"\x40\x00\x03\x00123");
}

#[test]
fn what_is_read_and_what_is_written_may_differ() {
    let mut server = Pipeline::new(LineCodec::new(), JsonCodec::<u32, String>::new());
    let Ok(PipelineDecoded::Value { head, value, .. }) = server.decode(b"41\n") else { panic!("no value") };
    let mut out = Vec::new();
    server.encode(head.reply(), &format!("{}", value + 1), &mut out).unwrap();
    assert_eq!(out, b"\"42\"\n");
}
