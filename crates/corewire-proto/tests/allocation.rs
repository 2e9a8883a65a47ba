//! In steady state a frame and a call cost no memory.

use corewire_proto::codec::{
    Codec, Decoded, DelimiterCodec, FixedLengthCodec, LengthFieldCodec, LineCodec, Matching, Prefix,
    RawCodec, StandardCodec, Varint32Codec,
};
use corewire_proto::matching::{CallTable, Matched};

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

fn framing<C: Codec>(mut codec: C) -> u64 {
    let payload = [b'x'; 28];
    let head = codec.request_head(1);
    let mut stream = Vec::with_capacity(4096);
    allocations(|| {
        for _ in 0..64 {
            let mut prefix = Prefix::new();
            assert_eq!(codec.encode(head, &payload, &mut prefix), Ok(()));
            for part in [prefix.as_slice(), &payload, codec.suffix()] {
                stream.extend_from_slice(part);
            }
        }
        let mut at = 0;
        while at < stream.len() {
            // Half a frame first, as it may arrive.
            let partial = codec.decode(&stream[at..stream.len().min(at + 3)]);
            let consumed = match partial {
                Ok(Decoded::Incomplete { .. }) => match codec.decode(&stream[at..]) {
                    Ok(Decoded::Frame { consumed, .. }) => consumed,
                    _ => unreachable!("a whole frame is there"),
                },
                Ok(Decoded::Frame { consumed, .. }) => consumed,
                _ => unreachable!("nothing is wrong with the frame"),
            };
            at += consumed;
        }
    })
}

#[test]
fn framing_allocates_nothing() {
    assert_eq!(framing(RawCodec), 0);
    assert_eq!(framing(StandardCodec::new()), 0);
    assert_eq!(framing(LengthFieldCodec::default()), 0);
    assert_eq!(framing(Varint32Codec::new()), 0);
    assert_eq!(framing(LineCodec::new()), 0);
    assert_eq!(framing(DelimiterCodec::new(b"\r\n").unwrap()), 0);
    assert_eq!(framing(DelimiterCodec::any_of(&[b"\n", b"\r\n"]).unwrap()), 0);
    assert_eq!(framing(FixedLengthCodec::new(28).unwrap()), 0);
}

#[test]
fn calls_allocate_nothing_once_as_many_were_in_flight() {
    for matching in [Matching::Sequence { modulus: 256 }, Matching::Fifo] {
        let mut calls = CallTable::new(matching, 200);
        assert_eq!(allocations(|| assert!(calls.can_begin())), 0, "an idle connection's table is free");
        turn(&mut calls);
        assert_eq!(allocations(|| turn(&mut calls)), 0);
    }
}

/// 200 calls begin, every fourth is abandoned, all replies come, and a few calls end with the connection.
fn turn(calls: &mut CallTable<u64>) {
    let mut numbers = [0; 200];
    for (call, number) in numbers.iter_mut().enumerate() {
        let Ok(key) = calls.begin(call as u64) else { unreachable!("200 fit") };
        *number = calls.sequence_of(key);
        if call % 4 == 0 {
            assert_eq!(calls.abandon(key), Some(call as u64));
        }
    }
    for (call, number) in numbers.into_iter().enumerate().take(190) {
        let head = StandardCodec::new().request_head(number).reply();
        let expected = if call % 4 == 0 { Matched::Late } else { Matched::Call(call as u64) };
        assert_eq!(calls.complete(&head), expected);
    }
    assert_eq!(calls.drain().count(), 8);
}
